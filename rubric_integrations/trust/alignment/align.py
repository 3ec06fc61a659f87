"""`align`: aligns a judge with human labels, and keeps the result only if other labels prove a gain in accuracy.

Each additional attempt on the same labels increases the probability that a judge seems better by chance. A small file
next to the labels counts the attempts. An attempt is recorded before its test set is read, and therefore also counts
after a crash. This module is imported at first use, because it imports DSPy.
"""

from __future__ import annotations

import copy
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import dspy
from dspy.teleprompt import Teleprompter
from pydantic import ValidationError

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.json import refuse_endless
from rubric_integrations._util.records import Record, html_table
from rubric_integrations.judges.composite import require_reasons
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.models.names import to_lm
from rubric_integrations.judges.protocol import AlignmentRecord, ModelLike
from rubric_integrations.judges.saved import prompt_state
from rubric_integrations.judges.store import JudgmentStore, LedgerLike
from rubric_integrations.runs.ledger import Ledger, use_ledger
from rubric_integrations.scoring.judgment import Spend
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.trust.alignment.calls import (
    AlignmentCalls,
    AlignmentStopped,
    CountedModel,
    PairedAccuracy,
    compare_judges,
    is_identified,
)
from rubric_integrations.trust.alignment.keeping import (
    UNDEFINED,
    LabelSets,
    corrected_gain,
    estimate_gain,
    is_kept,
    smallest_gain,
    split_labels,
)
from rubric_integrations.trust.alignment.optimizers import (
    JudgeStudent,
    OptimizerName,
    OptimizerSettings,
    decodes_again,
    make_optimizer,
    run_optimizer,
)
from rubric_integrations.trust.means import estimate_mean

# The number of seconds to wait for another process that writes the file, which takes milliseconds.
_LONGEST_WAIT = 10.0
_PAUSE = 0.02
# A file with a thousand attempts on a thousand submissions is smaller.
_MAX_BYTES = 50_000_000


class AttemptsError(ValueError):
    """Raised if the file that counts the attempts on a test set cannot be read or written."""


class Attempt(Record):
    """One candidate judge that was tried on a test set.

    Attributes:
        date: The date and time in UTC (ISO 8601).
        optimizer: The name of the optimizer.
        candidate: A digest of the candidate and of the judge before the alignment.
        test_set: A digest of the labels of the test set.
        submissions: The digests of the submissions in the test set.
        number: The number of this attempt on these submissions, from 1.
        gain: The measured gain, or None if the attempt was not finished.
    """

    date: str
    optimizer: str
    candidate: str
    test_set: str
    submissions: tuple[str, ...]
    number: int
    gain: float | None = None


class _AttemptsFile(Record):
    attempts: tuple[Attempt, ...] = ()


class Attempts:
    """Numbers the attempts to prove a gain on test sets, and records them in a file.

    Test sets that share a submission count as the same test set. Otherwise another seed, or one more label, would start
    the count again.

    Args:
        path: The file, by convention `labels.lock` next to the labels. It need not exist. None records nothing.
    """

    def __init__(self, path: str | Path | None):
        self.path = None if path is None else Path(path)

    def next_number(self, submissions: frozenset[str]) -> int:
        """Return the number of the next attempt on a test set: 1 if no recorded attempt shares a submission with it.

        Otherwise, it is one more than the highest number of the attempts that share a submission.

        Raises:
            AttemptsError: The file cannot be read.
        """
        attempts = [] if self.path is None else _read(self.path)
        return 1 + max((attempt.number for attempt in attempts if submissions & {*attempt.submissions}), default=0)

    def begin(self, attempt: Attempt) -> Attempt:
        """Record an attempt before its test set is read.

        Args:
            attempt: The attempt. Its `number` is increased if necessary, to be higher than the numbers of all earlier
                attempts on the same test set.

        Returns:
            The recorded attempt. If the file already has an attempt of the same candidate on the same labels, nothing
            is added, and that earlier attempt is returned.

        Raises:
            AttemptsError: The file cannot be read or written.
        """
        if self.path is None:
            return attempt
        with _exclusive(self.path) as attempts:
            same = (attempt.candidate, attempt.test_set)
            earlier = next((other for other in attempts if (other.candidate, other.test_set) == same), None)
            if earlier is not None:
                return earlier
            shared = (other.number for other in attempts if {*attempt.submissions} & {*other.submissions})
            numbered = attempt.model_copy(update={"number": max([attempt.number, *(number + 1 for number in shared)])})
            attempts.append(numbered)
            return numbered

    def finish(self, attempt: Attempt) -> None:
        """Record the gain of an attempt that `begin` has recorded.

        Args:
            attempt: The attempt that `begin` returned, with its gain.

        Raises:
            AttemptsError: The file cannot be read or written.
        """
        if self.path is None:
            return
        with _exclusive(self.path) as attempts:
            same = (attempt.candidate, attempt.test_set)
            attempts[:] = [attempt if (other.candidate, other.test_set) == same else other for other in attempts]


def _read(path: Path) -> list[Attempt]:
    """Read the attempts that a file records. An absent file has none."""
    if not path.exists():
        return []
    try:
        refuse_endless(path)
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is too large for such a file")
        return list(_AttemptsFile.model_validate_json(path.read_bytes()).attempts)
    except (ValueError, OSError) as error:
        detail = "it is not what `align` writes" if isinstance(error, ValidationError) else str(error)
        raise AttemptsError(
            f"`attempts`: {str(path)!r} cannot be read: {detail}. It counts the judges that were tried on these "
            "labels: restore it, or name another file. If it is lost, draw new labels, because a judge that is no "
            "better would be kept too often"
        ) from None


@contextmanager
def _exclusive(path: Path) -> Generator[list[Attempt]]:
    """Read the attempts, and write them back if they have changed, with a lock against other processes.

    The new file is the lock: only one process can create it, and it replaces the old file atomically.
    """
    new, is_replaced = path.with_name(f"{path.name}.new"), False
    handle = _create(path, new)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            attempts = _read(path)
            before = list(attempts)
            yield attempts
            if attempts == before:
                return
            file.write(_AttemptsFile(attempts=tuple(attempts)).model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        is_replaced = True
    except OSError as error:
        raise _unwritable(path, str(error)) from None
    finally:
        if not is_replaced:  # after the replacement, such a file is the lock of another process
            new.unlink(missing_ok=True)


def _create(path: Path, new: Path) -> int:
    """Create the new file, and wait as long as another process is writing it."""
    until = time.monotonic() + _LONGEST_WAIT
    while True:
        try:
            return os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            if time.monotonic() > until:
                raise _unwritable(
                    path,
                    f"another process has been writing it for {_LONGEST_WAIT:g} s: if there is none, delete "
                    f"{str(new)!r}",
                ) from None
            time.sleep(_PAUSE)
        except (OSError, ValueError) as error:
            raise _unwritable(path, str(error)) from None


def _unwritable(path: Path, reason: str) -> AttemptsError:
    return AttemptsError(f"`attempts`: {str(path)!r} cannot be written: {reason}")


@dataclass(frozen=True)
class Alignment:
    """The result of `align`: the aligned or original judge, and the measured gain in accuracy.

    Attributes:
        judge: The aligned judge if it is kept, otherwise the original judge. Its `alignment` records how it was
            aligned. `judge.save("judge.json")` writes both.
        kept: Whether the test set proves a gain: the lower limit of `gain` is above 0.
        gain: The accuracy of the aligned judge on the test set, minus the accuracy of the original judge. Its `low` is
            a one-sided lower limit. For the k-th attempt, the limit is above the true gain with a probability of
            `alpha / (k (k + 1))`. There is no upper limit. Undefined if the aligned judge was not better on the dev
            set. The test set is then not used.
        corrected_gain: The gain of a kept judge, corrected for selection bias. Only judges with a large measured gain
            are kept. Therefore, `gain` is too large on average. None if the judge is not kept.
        before: The accuracy of the original judge on the test set: the mean, over the submissions, of the share of
            questions on which it agrees with the human labels. An abstention is a wrong answer.
        after: The accuracy of the aligned judge on the test set.
        dev_before: The accuracy of the original judge on the dev set, without an interval.
        dev_after: The accuracy of the aligned judge on the dev set. It is too high, because the judge was selected by
            this set.
        attempts: The number of judges that were tried on this test set, including the aligned judge if it was tried.
        spend: The calls, tokens and cost of all candidates, of the model that proposes instructions, and of the
            measurements.
        shown: The smallest true gain that a test set of this size proves with a probability of 80 %. It is computed for
            a candidate that changes a fifth of the answers.
        warnings: Limitations of the figures, one sentence each.
    """

    judge: LMJudge
    kept: bool
    gain: Estimate
    before: Estimate
    after: Estimate
    dev_before: float | None
    dev_after: float | None
    attempts: int
    spend: Spend
    shown: float
    warnings: tuple[str, ...] = ()
    corrected_gain: float | None = None

    @property
    def reason(self) -> str:
        """The reason why the aligned judge is kept or not kept."""
        if self.gain.value is None:
            return "not kept: not better on the dev set, so that the test set was not looked at"
        limit = "no lower limit" if self.gain.low is None else f"at least {self.gain.low:+z.3f}"
        verdict = "kept" if self.kept else "not kept: the test set does not prove a gain"
        corrected = "" if self.corrected_gain is None else f"; corrected for its selection: {self.corrected_gain:+z.3f}"
        attempt = f"on {self.gain.n:,} submissions (attempt {self.attempts})"
        return f"{verdict}: {self.gain.value:+z.3f}, {limit}, {attempt}{corrected}"

    def summary(self) -> str:
        """Return the result as text, with one figure per line."""
        return "\n".join([*(f"{name}: {value}" for name, value in self._rows()), *self.warnings])

    def _repr_html_(self) -> str:
        rows = [*self._rows(), *(("warning", warning) for warning in self.warnings)]
        return html_table("Alignment", ("figure", "value"), rows)

    def _rows(self) -> list[tuple[str, str]]:
        at_least = "at least " if self.spend.is_lower_bound else ""
        cost = "" if self.spend.cost is None else f", {at_least}${self.spend.cost:.4f}"
        return [
            ("result", self.reason),
            ("accuracy on the test set", f"{self.before} before, {self.after} after"),
            ("accuracy on the dev set", f"{shown_share(self.dev_before)} before, {shown_share(self.dev_after)} after"),
            ("smallest gain that is shown", f"{self.shown:.3f}"),
            ("spent", f"{self.spend.calls:,} calls{cost}"),
        ]


def shown_share(share: float | None) -> str:
    """Return a share as text with three decimals, or "undefined" for None."""
    return "undefined" if share is None else f"{share:.3f}"


_NOT_LOOKED_AT = PairedAccuracy([], [], 0)


def align(
    judge: LMJudge,
    labels: Iterable[LabelledJudgment],
    optimizer: Teleprompter | OptimizerName = "gepa",
    *,
    reflection_model: ModelLike | None = None,
    alpha: float = 0.05,
    seed: int = 0,
    max_cost: float | None = None,
    max_calls: int | None = None,
    ledger: LedgerLike | None = None,
    attempts: str | Path | None = None,
    max_concurrency: int = 64,
    progress: Callable[[str], None] | None = None,
) -> Alignment:
    """Optimize a judge's prompts with human labels, and keep the result only if a gain in accuracy is proven.

    The labels are split by submission. The optimizer uses the train set (40 %) and the dev set (20 %) to find a
    candidate judge. If the candidate is better on dev, it is measured once on the test set (40 %). A separate test set
    is necessary, because a search usually finds a candidate that seems better on dev, even if no candidate is really
    better (in 92 to 99 % of cases). The probability that the test accepts a candidate that is not really better is at
    most `alpha`, over all attempts on the same test set.

    The gain of a submission is the share of its questions on which the candidate agrees with the human labels, minus
    the share of the original judge. The candidate is kept if `mean - t s / sqrt(n)` is above 0. Here, n is the number
    of submissions, and s is the standard deviation of their gains. For the k-th attempt, t is Student's quantile for a
    one-sided test at the level `alpha / (k (k + 1))`.

    If a question has several raters, their most frequent answer counts. A question is left out if two answers are
    equally frequent, or if the most frequent answer is an abstention. An abstention of a judge is a wrong answer.
    Otherwise a judge that abstains from difficult questions would seem perfect. If a judge fails on a question, the
    question is left out for both judges, with a warning.

    Dev and test contain only labels that were drawn at random. Labels with `sampled` "chosen" or "by_verdict" have
    other frequencies of verdicts than the judge's real input. A gain on them can be a loss on real input. Therefore,
    they are used only for training.

    Args:
        judge: The judge to align. It is not changed.
        labels: Human labels, such as the result of `read_labels`.
        optimizer: The optimizer of the prompts. `"gepa"` rewrites the instructions from the raters' reasons.
            `"miprov2"` searches for instructions and few-shot examples together. `"bootstrap"` collects few-shot
            examples. `"reanchor"` (an experiment of DSPy) reweights the stated probabilities of a judge with
            `confidence=True`. You can also pass a DSPy optimizer, such as
            `dspy.GEPA(metric=judge_metric, max_metric_calls=300, ...)`.
        reflection_model: The model that proposes instructions, by default the judge's model. A stronger model is
            better. It has no effect on a DSPy optimizer that you pass, which keeps its models.
        alpha: The highest probability of keeping a judge that is not better, over all attempts, above 0 and below 0.5.
        seed: The random seed of the split of the labels and of the search.
        max_cost: The highest cost of the alignment in US dollars. The alignment ends before a call would exceed it.
        max_calls: The largest number of calls to models in the alignment.
        ledger: A ledger or another store, the path of a ledger, or the URL of its database. It stores all answers, also
            the answers of the model that proposes instructions. A repeated alignment requests only new answers.
        attempts: The file that counts attempts on a test set, by convention `labels.lock` next to the labels. Without
            it, only the attempts in the judge's `alignment` are counted.
        max_concurrency: The largest number of concurrent calls, at least 1.
        progress: A function that gets a line of text about each step, such as `print`. Before the first call, it gets
            the smallest true gain that the test set proves with a probability of 80 %.

    Returns:
        The result. Its judge is a new judge only if `Alignment.kept` is true.

    Raises:
        TypeError: `judge` is not an `LMJudge`, or `optimizer` is neither a name nor a DSPy optimizer.
        ValueError: A setting is out of range, there are too few labels, all labels have the same answer, or GEPA would
            improve a judge with `reason="never"`.
        AttemptsError: (a ValueError) The file of attempts cannot be read or written.
        AlignmentError: A limit is reached, the judge or the model that proposes instructions cannot be used, or the
            judge failed on more than 20 % of the questions of a measurement. No result is kept. `spend` contains the
            cost.
        ImportError: MIPROv2 needs optuna: `pip install "dspy[optuna]"`.
    """
    if not isinstance(cast("object", judge), LMJudge):
        raise TypeError(
            f"`judge` must be an LMJudge, whose prompts can be changed, got {type(judge).__name__}: make one of a "
            'model with `LMJudge("openai/gpt-5-mini")`'
        )
    if optimizer == "gepa" or isinstance(optimizer, cast("Any", dspy.GEPA)):
        require_reasons("align", [judge])
    if not 0 < alpha < 0.5:
        raise ValueError(f"`alpha` must be above 0 and below 0.5, got {alpha!r}")
    earlier: AlignmentRecord | None = getattr(judge, "alignment", None)
    sets = split_labels(labels, trained_on=earlier.trained_on if earlier else (), seed=seed)
    counted = Attempts(attempts)
    number = counted.next_number(sets.test_submissions)
    if earlier is not None and earlier.test_set == sets.test_digest:
        number = max(number, earlier.attempts + 1)
    shown = smallest_gain(len(sets.test_submissions), alpha, number)
    say = progress or _ignore
    say(
        f"{len(sets.train):,} labels to train on, {len(sets.dev):,} to choose by, {len(sets.test):,} to prove a gain, "
        f"on {len(sets.test_submissions):,} submissions. Attempt {number} on these can show a gain of {shown:.2f} or "
        "more, if a fifth of the answers change"
    )
    with ExitStack() as stack:
        calls = AlignmentCalls(
            judge,
            _open_store(judge, ledger, stack),
            max_calls=max_calls,
            max_cost=max_cost,
            max_concurrency=max_concurrency,
        )
        proposer = CountedModel(judge.lm if reflection_model is None else to_lm(reflection_model), calls)
        settings = OptimizerSettings(proposer, max_concurrency, seed)
        search, name = make_optimizer(optimizer, settings, calls)
        if decodes_again(search) and not judge.confidence:
            raise ValueError(
                f"`optimizer` {name} weighs the probabilities of verdicts, and this judge does not request them: make "
                "it with `LMJudge(..., confidence=True)`"
            )
        try:
            say(f"{name} searches for better prompts")
            candidate = _search(judge, sets, search, settings, calls)
            dev = compare_judges(judge, candidate, sets.dev, calls)
            say(f"on the dev set: {shown_share(_mean(dev.before))} before, {shown_share(_mean(dev.after))} after")
            test, tried = _NOT_LOOKED_AT, None
            if math.fsum(dev.differences) > 0:
                attempt = _attempt(judge, candidate, sets, name, number)
                # Recorded before the test set is read, because an attempt that is interrupted later also counts.
                tried = counted.begin(attempt)
                test = compare_judges(judge, candidate, sets.test, calls)
        except AlignmentStopped as stopped:
            raise run_sync(calls.error(stopped)) from None
        gain = UNDEFINED if tried is None else estimate_gain(test.differences, alpha, tried.number)
        if tried is not None:
            counted.finish(tried.model_copy(update={"gain": gain.value}))
    before, after, attempts_made = estimate_mean(test.before), estimate_mean(test.after), number - 1
    if tried is not None:
        attempts_made = tried.number
    kept = is_kept(gain)
    record = AlignmentRecord(
        model=judge.lm.model,
        optimizer=name,
        labels=sets.digest,
        trained_on=_trained_on(sets, earlier) if kept else (),
        test_set=sets.test_digest,
        attempts=attempts_made,
        alpha=alpha,
        before=before,
        after=after,
        gain=gain,
        kept=kept,
    )
    result: Any = copy.copy(candidate if kept else judge)
    # If the judge is unchanged, it keeps its earlier alignment record.
    result.alignment = record if kept or earlier is None else earlier
    alignment = Alignment(
        judge=result,
        kept=kept,
        gain=gain,
        before=before,
        after=after,
        dev_before=_mean(dev.before),
        dev_after=_mean(dev.after),
        attempts=attempts_made,
        spend=calls.spend,
        shown=shown,
        warnings=(*sets.warnings, *_failures("dev", dev), *_failures("test", test)),
        corrected_gain=corrected_gain(gain, alpha, attempts_made) if kept else None,
    )
    say(alignment.reason)
    return alignment


def _search(
    judge: LMJudge, sets: LabelSets, optimizer: Teleprompter, settings: OptimizerSettings, calls: AlignmentCalls
) -> LMJudge:
    """Run an optimizer on the train and dev sets, and return its candidate judge.

    Raises:
        TypeError: The optimizer returned a program that is not the judge's program.
    """
    model = CountedModel(judge.lm, calls) if decodes_again(optimizer) else None
    student = JudgeStudent(judge, [*sets.train, *sets.dev], calls, code=sets.digest[:12], model=model)
    # DSPy saves the attachments of few-shot examples as texts, so examples with attachments are left out.
    trainset = [student.example(item) for item in sets.train if not item.question.submission.attachments]
    valset = [student.example(item) for item in sets.dev]
    with dspy.context(lm=settings.proposer, callbacks=[]):
        program = run_optimizer(optimizer, student, trainset, valset)
    if not isinstance(program, JudgeStudent):
        raise TypeError(
            f"`optimizer` returned a {type(program).__name__}, which is not the judge's program: use an optimizer "
            "that changes instructions or few-shot examples"
        )
    return program.judge()


def _attempt(judge: LMJudge, candidate: LMJudge, sets: LabelSets, optimizer: str, number: int) -> Attempt:
    both = json.dumps([_identity(judge), _identity(candidate)])
    return Attempt(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        optimizer=optimizer,
        candidate=sha256(both.encode()).hexdigest()[:32],
        test_set=sets.test_digest,
        submissions=tuple(sorted(sets.test_submissions)),
        number=number,
    )


def _identity(judge: LMJudge) -> str:
    """Return a text that identifies a judge: its fingerprint, or only its prompts if its model has no fingerprint."""
    return judge.fingerprint() or json.dumps(prompt_state(judge), default=str)


def _open_store(judge: LMJudge, ledger: LedgerLike | None, stack: ExitStack) -> JudgmentStore | None:
    if ledger is not None:
        return stack.enter_context(use_ledger(ledger))
    if not is_identified(judge):
        return None
    # Answers that both the optimizer and the measurements need are requested only once.
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return stack.enter_context(Ledger(Path(folder) / "alignment.sqlite"))


def _trained_on(sets: LabelSets, earlier: AlignmentRecord | None) -> tuple[str, ...]:
    judgments = {item.judgment for item in (*sets.train, *sets.dev)}
    return tuple(sorted(judgments | set(earlier.trained_on if earlier else ())))


def _failures(part: str, compared: PairedAccuracy) -> list[str]:
    count = compared.failures
    return [f"questions of the {part} set left out because a judge failed on them: {count:,}"] if count else []


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _ignore(_message: str) -> None:
    """Report nothing."""
