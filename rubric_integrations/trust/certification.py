"""`certify`: the confidence from which a cheap judge may be trusted, with a bound on its error rate above it.

Fixed-sequence testing of thresholds starts with the surest answers, and stops when a bound on their errors is exceeded.
Errors are counted by human labels or by an expensive judge.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from rubric_integrations._util.records import Record, html_table
from rubric_integrations.runs.files import GradedRow, RunFile, matched_rows
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import CriterionReport, is_of_cascade
from rubric_integrations.trust.labels import read_labels
from rubric_integrations.trust.matching import (
    Cluster,
    Match,
    RunLike,
    criterion_keys,
    dependence_warnings,
    group_rows,
    is_run,
    match_labels,
    read_rows,
)
from rubric_integrations.trust.means import Groups, estimate_mean, number_groups
from rubric_integrations.trust.statistics import special

Signal = Literal["confidence", "agreement", "none"]
"""What says how sure a cheap judge is: its confidence; the agreement of a panel of cheap judges; or nothing."""

Place = tuple[int, int]
"""The index of a row in the run, and of an entry in its report."""


class CheapAnswers(NamedTuple):
    """The answers of a cheap judge in a run.

    Attributes:
        confidences: For each answer, how sure it is, above 0 and up to 1; None if no threshold keeps it: a failure, an
            abstention, or an answer on which a panel differs.
        signal: Where this comes from.
        unsure: The number of answers without a confidence, in a run with some: those to criteria with options, a scale
            or a check. They are not among `confidences`.
        trained_on: The number of answers with whose labels the judge was aligned. They are not among `confidences`.
    """

    confidences: dict[Place, float | None]
    signal: Signal
    unsure: int
    trained_on: int


class Truths(NamedTuple):
    """What is known about answers of a cheap judge.

    Attributes:
        wrong: Whether the answer is wrong, for each place of which the truth is known.
        unknown: The number of places without a truth: people are divided, or the expensive judge failed.
        unmatched: The number of labels, or of the expensive judge's answers, to which no answer belongs.
    """

    wrong: dict[Place, bool]
    unknown: int
    unmatched: int


def read_answers(rows: Sequence[GradedRow]) -> CheapAnswers:
    """Read the answers of a run, and how sure they are.

    Raises:
        ValueError: A cascade gave some of the answers.
    """
    entries = {
        (row, place): entry
        for row, graded in enumerate(rows)
        if graded.report
        for place, entry in enumerate(graded.report.criteria)
        if entry.was_asked and not entry.not_applicable
    }
    if any(is_of_cascade(entry) for entry in entries.values()):
        raise ValueError(
            "`cheap` was graded by a cascade, which has the cheap judge's answer only where it is sure: grade the rows "
            "by the cheap judge alone; with the same ledger, it finds its answers there"
        )
    usable = {place: entry for place, entry in entries.items() if not entry.trained_on}
    signal: Signal = "none"
    if any(entry.confidence is not None for entry in usable.values()):
        signal = "confidence"
    elif any(entry.votes for entry in usable.values()):
        signal = "agreement"
    confidences = {
        place: _confidence(entry, signal)
        for place, entry in usable.items()
        if signal != "confidence" or entry.confidence is not None or entry.error
    }
    return CheapAnswers(confidences, signal, len(usable) - len(confidences), len(entries) - len(usable))


def truths_of_labels(rows: Sequence[GradedRow], labels: Iterable[LabelledJudgment]) -> Truths:
    """Compare the answers of a run with people's labels.

    Raises:
        ChosenLabelsError: All labels were chosen by people.
        ValueError: Labels were drawn by the judge's verdict.
    """
    matched = match_labels(rows, labels)
    matches = matched.matches
    if not all(match.is_random for match in matches):
        raise ValueError(
            "labels were drawn by the judge's verdict: they are not as the run is, so that a bound on its errors would "
            "not hold; draw judgments with `choose_for_labels(run, count)`"
        )
    places = {
        (match.row, place): match
        for match in matches
        for place, entry in enumerate(_entries(rows[match.row]))
        if entry is match.judged
    }
    wrong = {place: _differs(match) for place, match in places.items() if match.consensus is not None}
    return Truths(wrong, len(matches) - len(wrong), len(matched.unmatched))


def truths_of_run(rows: Sequence[GradedRow], strong: Sequence[GradedRow]) -> Truths:
    """Compare the answers of a run with those of an expensive judge, on the rows that it has graded.

    Raises:
        ValueError: Rows with equal ids have different responses, or a cascade gave some of the answers.
    """
    if any(is_of_cascade(entry) for row in strong for entry in _entries(row)):
        raise ValueError(
            "`truth` was graded by a cascade, whose answers are the cheap judge's where it is sure: these would all "
            "seem right; grade a random sample of the rows by the expensive judge alone"
        )
    wrong: dict[Place, bool] = {}
    unknown = unmatched = 0
    by_identity = {id(row): index for index, row in enumerate(rows)}
    runs = [RunFile("cheap", None, None, rows), RunFile("strong", None, None, strong)]
    for (row_id, _), (cheap_row, strong_row) in matched_rows(runs):
        if strong_row is None:
            continue
        if cheap_row is None:
            unmatched += len(_entries(strong_row))
            continue
        if _response(cheap_row) != _response(strong_row) and None not in (_response(cheap_row), _response(strong_row)):
            raise ValueError(
                f"row {row_id!r} is another response in the run of the expensive judge: rows are paired by their ids, "
                "so grade the same rows by both judges"
            )
        index = by_identity[id(cheap_row)]
        places = _places_by_words(cheap_row)
        for entry in _entries(strong_row):
            place = places.get((entry.name, entry.requirement))
            if place is None:
                unmatched += 1
            elif not entry.was_judged:
                unknown += 1
            else:
                wrong[index, place] = entry.verdict != _entries(cheap_row)[place].verdict
    return Truths(wrong, unknown, unmatched)


def _confidence(entry: CriterionReport, signal: Signal) -> float | None:
    """Return how sure an answer is; None if a cascade never keeps it."""
    if entry.value is None or entry.error:
        return None
    if signal == "confidence":
        # A threshold of 0 would keep answers without a confidence, too.
        return entry.confidence or None
    differs = any(vote.error or vote.verdict != entry.verdict for vote in entry.votes)
    return None if differs else 1.0


def _differs(match: Match) -> bool:
    return match.judge_answer != match.consensus


def _entries(row: GradedRow) -> Sequence[CriterionReport]:
    return row.report.criteria if row.report else ()


def _response(row: GradedRow) -> str | None:
    return row.submission.response if row.submission else None


def _places_by_words(row: GradedRow) -> Mapping[tuple[str, str], int]:
    words = [(entry.name, entry.requirement) for entry in _entries(row)]
    counts = Counter(words)
    return {pair: place for place, pair in enumerate(words) if counts[pair] == 1}


SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The shares of the answers, the surest first, that are tested one after another."""

# The probability that so many labels are enough.
_POWER_QUANTILE = 0.8416
_MAX_LABELS = 10_000_000


class SureAnswer(NamedTuple):
    """A labelled answer of a cheap judge.

    Attributes:
        confidence: How sure the judge is, above 0 and up to 1; None if no threshold keeps the answer.
        is_wrong: Whether the answer differs from the true one.
    """

    confidence: float | None
    is_wrong: bool


class CertificateStep(NamedTuple):
    """The test of one threshold.

    Attributes:
        share: The share of the run's judgments that the threshold keeps, in [0, 1].
        threshold: The threshold: an answer is kept if its confidence is not below it.
        kept: The number of labelled judgments that it keeps.
        errors: The number of those that are wrong.
        bound: The upper limit of the error rate among what the threshold keeps, at the level 1 - delta.
        holds: Whether the limit is at most alpha.
    """

    share: float
    threshold: float
    kept: int
    errors: int
    bound: float
    holds: bool


def upper_bound(errors: int, count: int, delta: float) -> float:
    """Compute the exact upper limit of an error rate at the level 1 - delta (Clopper and Pearson 1934, one-sided).

    Example:
        >>> [round(upper_bound(errors, 50, 0.1), 3) for errors in (0, 1, 2)]
        [0.045, 0.076, 0.103]
    """
    return 1.0 if errors >= count else float(special().betaincinv(errors + 1, count - errors, 1 - delta))


def lower_bound(errors: int, count: int, delta: float) -> float:
    """Compute the exact lower limit of an error rate at the level 1 - delta."""
    return 0.0 if errors == 0 else float(special().betaincinv(errors, count - errors + 1, delta))


def thresholds_of(confidences: Sequence[float]) -> list[float]:
    """Return the threshold that keeps each of `SHARES` of these confidences, or more where several are equal.

    Example:
        >>> thresholds_of([0.95, 0.95, 0.95, 0.9, 0.6])
        [0.95, 0.9, 0.6]
    """
    surest = sorted(confidences, reverse=True)
    if not surest:
        return []
    return list(dict.fromkeys(surest[math.ceil(share * len(surest) - 1e-9) - 1] for share in SHARES))


def fixed_sequence_steps(
    answers: Sequence[SureAnswer], steps: Sequence[tuple[float, float]], alpha: float, delta: float
) -> list[CertificateStep]:
    """Test thresholds in their order, up to the first one at which the bound is above alpha.

    The probability that any threshold holds here, and keeps more than alpha of wrong answers in truth, is at most
    delta: each is tested only if all before it hold, so that no correction for their number is needed.

    Args:
        answers: Labelled answers, independent of each other.
        steps: Each threshold, the highest first, with the share of the run that it keeps.
        alpha: The highest error rate.
        delta: The probability of a wrong decision.
    """
    tested: list[CertificateStep] = []
    for threshold, share in steps:
        kept = [answer for answer in answers if answer.confidence is not None and answer.confidence >= threshold]
        errors = sum(answer.is_wrong for answer in kept)
        bound = upper_bound(errors, len(kept), delta)
        tested.append(CertificateStep(share, threshold, len(kept), errors, bound, bound <= alpha))
        if bound > alpha:
            break
    return tested


def kept_needed(error: float, alpha: float, delta: float) -> int | None:
    """Return how many kept answers certify an error rate in about 80 % of cases; None if no number would.

    Example:
        >>> kept_needed(0.02, 0.1, 0.1), kept_needed(0.1, 0.1, 0.1)
        (65, None)
    """
    if error >= alpha:
        return None

    def is_enough(count: int) -> bool:
        expected = error * count + _POWER_QUANTILE * math.sqrt(count * error * (1 - error))
        return upper_bound(math.ceil(expected - 1e-9), count, delta) <= alpha

    high = 1
    while not is_enough(high):
        high *= 2
        if high > _MAX_LABELS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


Truth = Literal["labels", "the strong judge"]

_COLUMNS = ("kept", "threshold", "labelled", "wrong", "at most", "holds")


class Certificate(Record):
    """From which confidence on a cheap judge may be trusted.

    The promise is: the probability that more than `alpha` of the answers that the threshold keeps are wrong is at most
    `delta`. It is about further judgments of the same kind: the same criteria on submissions like the labelled ones.

    Attributes:
        threshold: The `escalate_below` of a `Cascade`; None if nothing can be certified. It is 0 where no confidence
            decides: every answer is kept, or every answer on which all cheap judges agree (see `signal`).
        alpha: The highest rate of wrong answers among those that are kept.
        delta: The probability that the promise does not hold.
        n: The number of labelled judgments that decide, one of each submission or group.
        kept: The share of the run's judgments that the threshold keeps, as the mean over its submissions.
        errors: The number of wrong answers among the labelled ones that the threshold keeps; None without a threshold.
        bound: The upper limit of their rate at the level 1 - delta; None without a threshold.
        steps: The thresholds that were tested, the highest first; the last one may not hold.
        truth: By what answers are wrong: people's labels, or the answers of the strong judge.
        signal: What says how sure the cheap judge is: its `confidence`, the `agreement` of a panel, or nothing.
        reason: Why nothing is certified; None if something is.
        labels_needed: About how many labelled submissions would certify the first threshold, in 80 % of cases; None if
            no number would, or if it is certified.
        warnings: What limits the certificate, and each criterion that is significantly more often wrong than
            `alpha` among the answers that are kept: the promise is about all criteria together.
    """

    threshold: float | None
    alpha: float
    delta: float
    n: int
    kept: Estimate
    errors: int | None
    bound: float | None
    steps: tuple[CertificateStep, ...]
    truth: Truth
    signal: Signal
    reason: str | None = None
    labels_needed: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def kept_labels(self) -> int:
        """The number of labelled judgments that the threshold keeps."""
        return max((step.kept for step in self.steps if step.holds), default=0)

    def summary(self) -> str:
        """Return the certificate as text."""
        return "\n".join([self.headline, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [
            (f"{step.share:.0%}", repr(step.threshold), step.kept, step.errors, f"{step.bound:.3f}", step.holds)
            for step in self.steps
        ]
        return html_table(self.summary(), _COLUMNS, rows)

    @property
    def headline(self) -> str:
        """The result in one or two sentences."""
        if self.threshold is None:
            needed = f" About {self.labels_needed:,} labelled submissions would do." if self.labels_needed else ""
            return f"Nothing is certified, so escalate everything: {self.reason}.{needed}"
        what = {"confidence": f"confidence {self.threshold!r}", "agreement": "agreement", "none": "any verdict"}
        return (
            f"Certified: use `escalate_below={self.threshold!r}`. Answers with {what[self.signal]} "
            f"{'and above ' if self.signal == 'confidence' else ''}are kept, {self.kept.value or 0:.0%} of all; with "
            f"probability {1 - self.delta:.0%}, at most {self.alpha:.1%} of them are wrong by {self.truth} "
            f"({self.errors:,} of {self.kept_labels:,} labelled ones are)."
        )


def certify(
    cheap: RunLike,
    truth: Iterable[LabelledJudgment] | RunLike,
    *,
    alpha: float = 0.1,
    delta: float = 0.1,
    cluster: Cluster | None = None,
) -> Certificate:
    """Certify from which confidence on a cheap judge is wrong in at most `alpha` of its answers.

    The surest half of the run's answers is tested first, then 60 %, and so on up to all, until the exact upper limit
    of the rate of wrong answers is above `alpha`. An abstention or a failure is never kept; an answer is wrong if it is
    not the true one, also if the truth is an abstention. The judgments of one submission depend on each other, so that
    one of the labelled ones is drawn, and the others do not count. A hash of the row and of the criterion decides which
    one: with a seed, one could try many until one of them certifies, which would break the promise.

    A threshold that is chosen because it has at most `alpha` of wrong answers in a sample breaks its promise in about
    half of all cases, however large the sample is.

    Args:
        cheap: The rows, graded by the cheap judge alone: the path of a file that `grade --out` wrote, results of
            `grade_many`, or reports. For an `LMJudge`, `confidence=True`; or a panel of cheap judges, which must agree.
        truth: People's labels of a random part of it; or a run of the expensive judge on the same rows, or on a random
            sample of them. Or the path of either. Escalated answers of a cascade are no such sample.
        alpha: The highest rate of wrong answers among those that are kept, above 0 and below 1.
        delta: The probability that the promise does not hold, above 0 and below 1.
        cluster: Which rows depend on each other, such as those about one document: `"query"`, a column of the graded
            table, or a function of the id. One judgment of each such group is drawn, so that a group counts once,
            however large it is. By default, rows with one id are a group.

    Raises:
        ChosenLabelsError: Labels were chosen by people.
        ValueError: No label belongs to the run, or labels were drawn by the judge's verdict, a cascade graded a run,
            `alpha` or `delta` is out of range, or a row does not have the column of `cluster`.

    Example:
        >>> from rubric_integrations.scoring import CriterionReport, EvaluationReport
        >>> def report(verdict: str, confidence: float | None) -> EvaluationReport:
        ...     answer = {"verdict": verdict, "value": float(verdict == "MET"), "confidence": confidence}
        ...     entry = CriterionReport(name="c1", requirement="Is polite", weight=1, **answer)
        ...     grade = {"score": None, "raw_score": None, "passed": False, "complete": True, "coverage": 1}
        ...     return EvaluationReport(**grade, report=[entry])
        >>> cheap = [report("MET", 0.99)] * 80 + [report("MET", 0.6)] * 20
        >>> strong = [report("MET", None)] * 80 + [report("UNMET", None)] * 20
        >>> certificate = certify(cheap, strong)
        >>> certificate.threshold, certificate.kept.value, certificate.errors
        (0.99, 0.8, 0)
    """
    for name, value in (("alpha", alpha), ("delta", delta)):
        if not 0 < value < 1:
            raise ValueError(f"`{name}` must be above 0 and below 1, got {value!r}: 0.1 is usual")
    rows = read_rows(cheap)
    kind, truths = _read_truth(rows, cheap, truth)
    cheap_answers = read_answers(rows)
    known = {place: is_wrong for place, is_wrong in truths.wrong.items() if place in cheap_answers.confidences}
    if not known:
        raise ValueError(
            f"none of the {len(truths.wrong) + truths.unmatched:,} true answers belongs to a judgment of `cheap`: they "
            "are matched by the submission and by the words of the criterion; name the run that was labelled"
        )
    groups = group_rows(rows, cluster)
    if groups is None:
        groups = number_groups([row.id for row in rows])
    drawn = _draw(rows, known, groups)
    answers = [SureAnswer(cheap_answers.confidences[place], known[place]) for place in drawn]
    all_sure = [confidence for confidence in cheap_answers.confidences.values() if confidence is not None]
    thresholds = [(step, _share(all_sure, step, cheap_answers)) for step in thresholds_of(all_sure)]
    steps = fixed_sequence_steps(answers, thresholds, alpha, delta)
    held = [step for step in steps if step.holds]
    best = held[-1] if held else None
    reason, needed = (None, None) if best else _problem(steps, len(answers), alpha, delta, kind)
    sure = {place: confidence or 0.0 for place, confidence in cheap_answers.confidences.items()}
    kept = {place for place, confidence in sure.items() if best and confidence >= best.threshold}
    if cheap_answers.signal != "confidence":
        steps, best = [step._replace(threshold=0.0) for step in steps], best and best._replace(threshold=0.0)
    return Certificate(
        threshold=best.threshold if best else None,
        alpha=alpha,
        delta=delta,
        n=len(answers),
        kept=_estimate_kept(sure, kept, groups),
        errors=best.errors if best else None,
        bound=best.bound if best else None,
        steps=tuple(steps),
        truth=kind,
        signal=cheap_answers.signal,
        reason=reason,
        labels_needed=needed,
        warnings=(
            *_wrong_criteria(rows, {place: known[place] for place in known.keys() & kept}, groups, alpha, delta),
            *_warnings(cheap_answers, truths, kind),
            # Rows with one id are a group anyway.
            *dependence_warnings(list({row.id: row for row in rows}.values()), cluster),
        ),
    )


def _read_truth(rows: Sequence[GradedRow], cheap: RunLike, truth: Any) -> tuple[Truth, Truths]:
    if truth is cheap:
        raise ValueError("`truth` is the run of the cheap judge itself: pass labels, or a run of the expensive judge")
    if isinstance(truth, str | Path) and not is_run(truth):
        truth = read_labels(truth, rows)
    items: Any = (
        truth if isinstance(truth, str | Path) or hasattr(truth, "rows") else list(cast("Iterable[Any]", truth))
    )
    if isinstance(items, list) and all(isinstance(item, LabelledJudgment) for item in cast("list[Any]", items)):
        return "labels", truths_of_labels(rows, cast("list[LabelledJudgment]", items))
    return "the strong judge", truths_of_run(rows, read_rows(items))


def _draw(rows: Sequence[GradedRow], places: Iterable[Place], groups: Groups) -> list[Place]:
    """Draw one judgment of each group: the one whose hash is the lowest."""

    def rank(place: Place) -> tuple[str, Place]:
        row, entry = rows[place[0]], _entries(rows[place[0]])[place[1]]
        text = "\n".join((row.id, _response(row) or "", entry.name, entry.requirement))
        return sha256(text.encode(errors="replace")).hexdigest(), place

    lowest: dict[int, tuple[str, Place]] = {}
    for ranked in map(rank, places):
        group = int(groups[ranked[1][0]])
        lowest[group] = min(lowest.get(group, ranked), ranked)
    return [place for _, place in lowest.values()]


def _wrong_criteria(
    rows: Sequence[GradedRow], wrong: Mapping[Place, bool], groups: Groups, alpha: float, delta: float
) -> list[str]:
    """Name the criteria on which more than `alpha` of the kept answers are wrong, at the level 1 - delta for each."""
    by_criterion: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(wrong):
        entry = _entries(rows[place[0]])[place[1]]
        by_criterion.setdefault((entry.name, entry.requirement), []).append(place)
    keys, warnings = criterion_keys(by_criterion), list[str]()
    for criterion, places in by_criterion.items():
        drawn = _draw(rows, places, groups)
        errors = sum(wrong[place] for place in drawn)
        if lower_bound(errors, len(drawn), delta) > alpha:
            warnings.append(
                f"of the answers that are kept, {errors:,} of {len(drawn):,} to `{keys[criterion]}` are wrong, "
                f"significantly more than {alpha:.1%}: the promise is about all criteria together"
            )
    return warnings


def _share(sure: Sequence[float], threshold: float, answers: CheapAnswers) -> float:
    return sum(confidence >= threshold for confidence in sure) / len(answers.confidences)


def _estimate_kept(places: Iterable[Place], kept: Collection[Place], groups: Groups) -> Estimate:
    """Estimate the share of judgments that are kept, as the mean over rows."""
    by_row: dict[int, list[bool]] = {}
    for place in places:
        by_row.setdefault(place[0], []).append(place in kept)
    if not kept:
        return Estimate(0.0, None, None, len(by_row))
    shares = [sum(of_row) / len(of_row) for of_row in by_row.values()]
    return estimate_mean(shares, groups=number_groups([int(groups[row]) for row in by_row]))


def _problem(
    steps: Sequence[CertificateStep], labels: int, alpha: float, delta: float, truth: Truth
) -> tuple[str, int | None]:
    """Say why the first threshold does not hold, and how many labels would change that."""
    if not steps:
        return "the judge has no answer that states a confidence", None
    first = steps[0]
    wrong = f"{first.errors:,} of {first.kept:,} labelled answers are wrong by {truth}"
    if lower_bound(first.errors, first.kept, delta) > alpha:
        return f"even where the judge is surest, {wrong}, more than {alpha:.1%}: labels cannot change that", None
    if first.kept and first.errors / first.kept >= alpha:
        return f"where the judge is surest, {wrong}, and no more than {alpha:.1%} may be", None
    needed = kept_needed(first.errors / first.kept if first.kept else 0.0, alpha, delta)
    per_label = first.kept / labels if first.kept else first.share
    reason = f"where the judge is surest, {wrong}, so that up to {first.bound:.1%} may be, above {alpha:.1%}"
    return reason, None if needed is None else math.ceil(needed / per_label)


def _warnings(answers: CheapAnswers, truths: Truths, truth: Truth) -> tuple[str, ...]:
    counts: Mapping[str, int] = {
        "judgments state no confidence (criteria with options, a scale or a check), and are left out: a cascade "
        "escalates them": answers.unsure,
        "judgments are left out, because the judge was aligned with their labels": answers.trained_on,
        "judgments are left out, because people are divided or the strong judge failed": truths.unknown,
        "true answers belong to no judgment of the run": truths.unmatched,
    }
    warnings = [f"{count:,} {text}" for text, count in counts.items() if count]
    if truth == "the strong judge":
        warnings.append("an answer is wrong where the strong judge's differs: how often people differ is not known")
    sure = Counter(confidence for confidence in answers.confidences.values() if confidence is not None)
    for confidence, count in sure.most_common(1) if answers.signal == "confidence" else ():
        if count > sure.total() / 2:
            warnings.append(
                f"the judge states the confidence {confidence!r} for {count / sure.total():.0%} of its answers, which "
                "no threshold separates"
            )
    if answers.signal == "none":
        warnings.append("the run has no confidence: only all verdicts together could be certified")
    return tuple(warnings)
