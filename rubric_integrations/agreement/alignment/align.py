"""Aligns a judge with people's labels, and keeps the aligned judge only if labels that it has not seen prove a gain."""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dspy

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.agreement.alignment.attempts import Attempt, Attempts
from rubric_integrations.agreement.alignment.calls import AlignmentCalls, AlignmentStopped, is_identified
from rubric_integrations.agreement.alignment.counted_model import CountedModel
from rubric_integrations.agreement.alignment.keeping import UNDEFINED, estimate_gain, is_kept, smallest_gain
from rubric_integrations.agreement.alignment.label_sets import LabelSets, split_labels
from rubric_integrations.agreement.alignment.optimizers import (
    OptimizerName,
    OptimizerSettings,
    decodes_again,
    make_optimizer,
    run_optimizer,
)
from rubric_integrations.agreement.alignment.paired_accuracy import PairedAccuracy, compare_judges
from rubric_integrations.agreement.alignment.result import Alignment, shown_share
from rubric_integrations.agreement.alignment.student import JudgeStudent
from rubric_integrations.agreement.intervals import estimate_mean
from rubric_integrations.judges.alignment_record import AlignmentRecord
from rubric_integrations.judges.lm_judge import LMJudge
from rubric_integrations.judges.models import to_lm
from rubric_integrations.judges.saving import prompt_state
from rubric_integrations.judges.stored import JudgmentStore
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.runs.ledger import Ledger

if TYPE_CHECKING:
    from dspy.teleprompt import Teleprompter

    from rubric_integrations.judges.models import ModelLike

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
    ledger: str | Path | JudgmentStore | None = None,
    attempts: str | Path | None = None,
    max_concurrency: int = 64,
    progress: Callable[[str], None] | None = None,
) -> Alignment:
    """Align a judge with people's labels, and keep the result only if a gain is proven.

    The labels are split by submission: an optimizer sees 40 % of them (train), its candidate is compared with the judge
    by 20 % (dev), and 40 % prove the gain (test), once. Of a judge that is no better, a search finds a candidate that
    seems better on dev in 92 to 99 % of cases; the test set keeps it in `alpha` of cases at most, over all attempts on
    it.

    The gain is that of submissions: for each, the share of questions that the candidate answers as people do, less that
    of the judge before. The judge is kept if `mean - t s / sqrt(n)` is above 0, with Student's quantile t at the level
    `alpha / (k (k + 1))` for the k-th attempt. Of several raters, the answer of most counts; questions that people
    could not answer are left out. Where people could answer, an abstention of the judge is wrong, since otherwise a
    judge that abstains wherever it is unsure would seem perfect. Where a judge fails, the question is left out for both
    judges, with a warning.

    A submission has dev and test labels only if they were drawn at random: labels that are `chosen`, or were drawn
    `by_verdict`, have another mixture of verdicts than what the judge sees, so that a gain on them may be a loss on
    that. They serve training alone.

    Args:
        judge: The judge to align, which is not changed.
        labels: People's labels, such as `read_labels` returns.
        optimizer: How instructions or few-shot examples are found: `"gepa"` rewrites the instructions by the raters'
            reasons, `"miprov2"` searches for instructions and examples together, `"bootstrap"` collects examples.
            `"reanchor"` (an experiment of DSPy) weighs the probabilities of a judge with `confidence=True`. Or an
            optimizer of DSPy with its settings, such as `dspy.GEPA(metric=judge_metric, max_metric_calls=300, ...)`.
        reflection_model: The model that proposes instructions; by default the judge's own. A stronger one is better.
            An optimizer of your own keeps its own.
        alpha: The probability of keeping a judge that is not better, over all attempts; above 0 and below 0.5.
        seed: Which split of the labels, and which search.
        max_cost: The most US dollars for everything. The alignment ends before a call would exceed it.
        max_calls: The most calls to models for everything.
        ledger: A `Ledger` or its path. Every answer is stored there, also those of the model that proposes
            instructions, so that a repeated alignment requests only what is new.
        attempts: The file that counts attempts on a test set, by convention `labels.lock` beside the labels. Without
            it, only the attempts that the judge itself records are counted.
        max_concurrency: The most calls at the same time, at least 1.
        progress: Receives a line about each step, such as `print`. The first one says which gain these labels can
            show, before anything is spent.

    Returns:
        The result. Only `Alignment.kept` says whether its judge is another one than before.

    Raises:
        TypeError: `judge` is no `LMJudge`, or `optimizer` no optimizer.
        ValueError: A setting is out of range, or the labels are too few or have all the same answer.
        AttemptsError: (a ValueError) The file of attempts cannot be read or written.
        AlignmentError: A limit is reached, the judge or the model that proposes instructions cannot be used, or the
            judge failed on more than 20 % of a measurement. Nothing is kept, and what was spent is in `spend`.
        ImportError: MIPROv2 needs optuna: `pip install "dspy[optuna]"`.
    """
    if not isinstance(cast("object", judge), LMJudge):
        raise TypeError(
            f"`judge` must be an LMJudge, whose prompts can be changed, got {type(judge).__name__}: make one of a "
            'model with `LMJudge("openai/gpt-5-mini")`'
        )
    if not 0 < alpha < 0.5:
        raise ValueError(f"`alpha` must be above 0 and below 0.5, got {alpha!r}")
    earlier = cast("AlignmentRecord | None", getattr(judge, "alignment", None))
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
                # Before the test set is looked at, so that an attempt counts that is interrupted from here on.
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
    # A judge that stays as it was stays aligned as it was.
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
    )
    say(alignment.reason)
    return alignment


def _search(
    judge: LMJudge, sets: LabelSets, optimizer: Teleprompter, settings: OptimizerSettings, calls: AlignmentCalls
) -> LMJudge:
    """Let an optimizer look for a better judge; it sees train and dev, and never test.

    Raises:
        TypeError: The optimizer returns another program.
    """
    model = CountedModel(judge.lm, calls) if decodes_again(optimizer) else None
    student = JudgeStudent(judge, [*sets.train, *sets.dev], calls, code=sets.digest[:12], model=model)
    # A file of DSPy has attachments of examples as texts.
    trainset = [student.example(item) for item in sets.train if not item.question.submission.attachments]
    valset = [student.example(item) for item in sets.dev]
    with dspy.context(lm=settings.proposer):
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
    """Return what tells a judge from others; its prompts alone, if its model cannot be identified."""
    return judge.fingerprint() or json.dumps(prompt_state(judge), default=str)


def _open_store(judge: LMJudge, ledger: str | Path | JudgmentStore | None, stack: ExitStack) -> JudgmentStore | None:
    if ledger is not None:
        return stack.enter_context(Ledger(ledger)) if isinstance(ledger, str | Path) else ledger
    if not is_identified(judge):
        return None
    # What an optimizer and a measurement both ask is requested once.
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
