"""Certificates of `certify`: the confidence threshold above which the error rate of a cheap judge has an upper limit.

Thresholds are tested in a fixed sequence, from the highest confidence to the lowest. Testing stops at the first
threshold whose limit of the error rate is too high. Human labels or an expensive judge decide which answers are errors.
`trust/criterion_certificates.py` has `certify`, and tests the thresholds of each criterion.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import percent
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
"""The source of a cheap judge's confidence: its stated confidence, the agreement of a panel, or none."""

Place = tuple[int, int]
"""The position of a judgment: the index of its row in the run, and the index of its criterion in the report."""


class CheapAnswers(NamedTuple):
    """The answers of a cheap judge in a run.

    Attributes:
        confidences: The confidence of each answer, above 0 and up to 1. None is an answer that no threshold keeps: a
            failure, an abstention, or an answer on which the judges of a panel disagree.
        signal: The source of the confidences: `confidence` (the judge states them), `agreement` (they are the agreement
            of a panel) or `none` (the run has no confidences).
        unsure: If `signal` is `confidence`, the number of answers for which the judge states none, such as answers to
            criteria with options, a scale or a check. They are not in `confidences`.
        trained_on: The number of answers whose labels were used to align the judge. They are not in `confidences`.
    """

    confidences: dict[Place, float | None]
    signal: Signal
    unsure: int
    trained_on: int


class Truths(NamedTuple):
    """A cheap judge's answers compared with the true answers.

    Attributes:
        wrong: Whether the cheap judge's answer is wrong, for each judgment with a known true answer.
        unknown: The number of judgments without a true answer: several answers of the raters are equally frequent, or
            the expensive judge failed.
        unmatched: The number of labels, or of the expensive judge's answers, that belong to no answer of the cheap
            judge.
    """

    wrong: dict[Place, bool]
    unknown: int
    unmatched: int


def read_answers(rows: Sequence[GradedRow]) -> CheapAnswers:
    """Read the answers of a run with their confidences.

    Raises:
        ValueError: A cascade gave some of the answers. Its run has the cheap judge's answer only if that judge was
            sure.
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
    """Compare the answers of a run with human labels.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: Labels were drawn by the judge's verdict. A limit of the error rate needs a random sample.
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
        for place, entry in enumerate(entries_of(rows[match.row]))
        if entry is match.judged
    }
    wrong = {place: _differs(match) for place, match in places.items() if match.consensus is not None}
    return Truths(wrong, len(matches) - len(wrong), len(matched.unmatched))


def truths_of_run(rows: Sequence[GradedRow], strong: Sequence[GradedRow]) -> Truths:
    """Compare the answers of a cheap judge's run with the answers of an expensive judge, on the rows that both graded.

    Raises:
        ValueError: Rows with equal ids have different responses, or a cascade gave some of the answers.
    """
    if any(is_of_cascade(entry) for row in strong for entry in entries_of(row)):
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
            unmatched += len(entries_of(strong_row))
            continue
        if _response(cheap_row) != _response(strong_row) and None not in (_response(cheap_row), _response(strong_row)):
            raise ValueError(
                f"row {row_id!r} is another response in the run of the expensive judge: rows are paired by their ids, "
                "so grade the same rows by both judges"
            )
        index = by_identity[id(cheap_row)]
        places = _places_by_words(cheap_row)
        for entry in entries_of(strong_row):
            place = places.get((entry.name, entry.requirement))
            if place is None:
                unmatched += 1
            elif not entry.was_judged:
                unknown += 1
            else:
                wrong[index, place] = entry.verdict != entries_of(cheap_row)[place].verdict
    return Truths(wrong, unknown, unmatched)


def _confidence(entry: CriterionReport, signal: Signal) -> float | None:
    """Return the confidence of an answer, or None if no threshold keeps it."""
    if entry.value is None or entry.error:
        return None
    if signal == "confidence":
        # A threshold of 0 would keep answers without a confidence, too.
        return entry.confidence or None
    differs = any(vote.error or vote.verdict != entry.verdict for vote in entry.votes)
    return None if differs else 1.0


def _differs(match: Match) -> bool:
    return match.judge_answer != match.consensus


def entries_of(row: GradedRow) -> Sequence[CriterionReport]:
    """Return the entries of a row's report. Empty for a row without a report."""
    return row.report.criteria if row.report else ()


def _response(row: GradedRow) -> str | None:
    return row.submission.response if row.submission else None


def _places_by_words(row: GradedRow) -> Mapping[tuple[str, str], int]:
    words = [(entry.name, entry.requirement) for entry in entries_of(row)]
    counts = Counter(words)
    return {pair: place for place, pair in enumerate(words) if counts[pair] == 1}


SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The shares of a run's answers that `certify` tests in this order. Each share is the answers with the highest
confidence."""

# The normal quantile of a power of 80 %: the probability that the number of labels is sufficient.
_POWER_QUANTILE = 0.8416
_MAX_LABELS = 10_000_000


class SureAnswer(NamedTuple):
    """A labelled answer of a cheap judge.

    Attributes:
        confidence: The judge's confidence, above 0 and up to 1, or None if no threshold keeps the answer.
        is_wrong: Whether the answer differs from the true answer.
    """

    confidence: float | None
    is_wrong: bool


class CertificateStep(NamedTuple):
    """The test of one confidence threshold of `certify`.

    Here, alpha is the highest accepted error rate, and delta is the probability that the guarantee fails.

    Attributes:
        share: The share of the run's judgments that the threshold keeps, in [0, 1].
        threshold: The threshold. An answer is kept if its confidence is at least this value.
        kept: The number of labelled judgments that the threshold keeps.
        errors: The number of wrong answers among the kept labelled judgments.
        bound: The upper limit of the error rate of the kept answers, at the confidence level 1 - delta.
        holds: Whether `bound` is at most alpha.
    """

    share: float
    threshold: float
    kept: int
    errors: int
    bound: float
    holds: bool


def upper_bound(errors: int, count: int, delta: float) -> float:
    """Compute the exact one-sided upper limit of an error rate, at the confidence level 1 - delta.

    The true error rate is above the limit with a probability of at most delta (Clopper and Pearson 1934).

    Args:
        errors: The number of wrong answers.
        count: The number of all answers.
        delta: The probability, above 0 and below 1, that the true error rate is above the limit.

    Example:
        >>> [round(upper_bound(errors, 50, 0.1), 3) for errors in (0, 1, 2)]
        [0.045, 0.076, 0.103]
    """
    return 1.0 if errors >= count else float(special().betaincinv(errors + 1, count - errors, 1 - delta))


def lower_bound(errors: int, count: int, delta: float) -> float:
    """Compute the exact one-sided lower limit of an error rate, from `errors` wrong answers among `count` answers.

    The true error rate is below the limit with a probability of at most delta.
    """
    return 0.0 if errors == 0 else float(special().betaincinv(errors, count - errors + 1, delta))


def thresholds_of(confidences: Sequence[float]) -> list[float]:
    """Return the confidence thresholds to test: one for each share of answers to keep, the highest threshold first.

    The shares are 50 %, 60 %, and so on up to 100 %.

    A threshold keeps at least its share of the confidences. It keeps more if several confidences are equal to the
    threshold. Equal thresholds are returned once.

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
    """Test thresholds in their order, and stop after the first one that is rejected.

    A threshold is rejected if the upper limit of the error rate of the answers that it keeps is above alpha.

    The probability that any accepted threshold has a true error rate above alpha is at most delta. A threshold is
    tested only if all thresholds before it were accepted. Therefore, no correction for multiple tests is needed.

    Args:
        answers: Labelled answers that are independent of each other.
        steps: Each threshold with the share of the run that it keeps, the highest threshold first.
        alpha: The highest accepted error rate.
        delta: The probability of accepting a threshold whose error rate is above alpha.

    Returns:
        The tested thresholds. Only the last one can have `holds` false.
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
    """Return the number of labelled answers with which a judge is certified in about 80 % of cases.

    Only answers that the threshold keeps are counted. The result is None if the error rate is not below alpha, or if
    more than 10 million answers would be needed.

    Args:
        error: The true error rate of the kept answers.
        alpha: The highest accepted error rate.
        delta: The probability that the guarantee fails.

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
    """The lowest confidence threshold above which a cheap judge is certified to be wrong in at most `alpha` of cases.

    The guarantee: with a probability of at least 1 - `delta`, at most `alpha` of the answers that the threshold keeps
    are wrong. It applies to further judgments of the same kind: the same criteria, on submissions like the labelled
    ones.

    Attributes:
        threshold: The value to pass as `escalate_below` of a `Cascade`, or None if nothing can be certified. It is 0 if
            the run has no confidences. The cascade then keeps every answer of a single judge, and every answer of a
            panel on which all judges agree.
        alpha: The highest accepted rate of wrong answers among the kept answers.
        delta: The probability that the guarantee fails.
        n: The number of labelled judgments in the test: one for each submission or group of rows.
        kept: The share of the run's judgments that the threshold keeps, as the mean over its submissions.
        errors: The number of wrong answers among the labelled answers that the threshold keeps. None without a
            threshold.
        bound: The upper limit of the rate of wrong answers at the level 1 - `delta`. None without a threshold.
        steps: The thresholds that were tested, the highest first. The last one can be a rejected threshold.
        truth: The source of the true answers: human labels, or the strong (expensive) judge.
        signal: The source of the cheap judge's confidence: its stated `confidence`, the `agreement` of a panel, or
            `none`.
        reason: The reason why nothing is certified, or None if a threshold is certified.
        labels_needed: The approximate number of labelled submissions with which the first tested threshold would be
            certified in 80 % of cases. None if no number is sufficient, or if a threshold is certified.
        warnings: Limitations of the certificate, one sentence each. The guarantee is about all criteria together.
            Therefore, a warning names each criterion whose kept answers are wrong significantly more often than
            `alpha`.
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
        """The number of labelled judgments that the threshold keeps, or 0 without a threshold."""
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
            f"probability {percent(1 - self.delta)}, at most {self.alpha:.1%} of them are wrong by {self.truth} "
            f"({self.errors:,} of {self.kept_labels:,} labelled ones are)."
        )


class ComparedAnswers(NamedTuple):
    """A cheap judge's run, compared with the true answers.

    Attributes:
        rows: The rows of the run.
        groups: The number of each row's group.
        answers: The answers of the cheap judge.
        wrong: Whether the answer is wrong, for each judgment in `answers` that has a known true answer.
        truths: All true answers.
        kind: The source of the true answers.
    """

    rows: Sequence[GradedRow]
    groups: Groups
    answers: CheapAnswers
    wrong: dict[Place, bool]
    truths: Truths
    kind: Truth


def compare_answers(
    cheap: RunLike, truth: Iterable[LabelledJudgment] | RunLike, cluster: Cluster | None
) -> ComparedAnswers:
    """Read a cheap judge's run and the true answers, and compare them."""
    rows = read_rows(cheap)
    kind, truths = _read_truth(rows, cheap, truth)
    answers = read_answers(rows)
    known = {place: is_wrong for place, is_wrong in truths.wrong.items() if place in answers.confidences}
    if not known:
        raise ValueError(
            f"none of the {len(truths.wrong) + truths.unmatched:,} true answers belongs to a judgment of `cheap`: they "
            "are matched by the submission and by the words of the criterion; name the run that was labelled"
        )
    groups = group_rows(rows, cluster)
    if groups is None:
        groups = number_groups([row.id for row in rows])
    return ComparedAnswers(rows, groups, answers, known, truths, kind)


def certify_pooled(compared: ComparedAnswers, alpha: float, delta: float, cluster: Cluster | None) -> Certificate:
    """Certify one threshold for all criteria together."""
    rows, groups, cheap_answers, known, truths, kind = compared
    drawn = draw_judgments(rows, known, groups)
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
            # Rows with equal ids are a group in any case.
            *dependence_warnings(list({row.id: row for row in rows}.values()), cluster),
        ),
    )


def _read_truth(rows: Sequence[GradedRow], cheap: RunLike, truth: Any) -> tuple[Truth, Truths]:
    if truth is cheap:
        raise ValueError("`truth` is the run of the cheap judge itself: pass labels, or a run of the expensive judge")
    if isinstance(truth, str | Path) and not is_run(truth):
        truth = read_labels(truth, rows)
    items: Any = truth if isinstance(truth, str | Path) or hasattr(truth, "rows") else list(truth)
    if isinstance(items, list) and all(isinstance(item, LabelledJudgment) for item in items):
        return "labels", truths_of_labels(rows, items)
    return "the strong judge", truths_of_run(rows, read_rows(items))


def draw_judgments(rows: Sequence[GradedRow], places: Iterable[Place], groups: Groups) -> list[Place]:
    """Select one judgment of each group: the judgment with the lowest hash."""

    def rank(place: Place) -> tuple[str, Place]:
        row, entry = rows[place[0]], entries_of(rows[place[0]])[place[1]]
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
    """Return a warning for each criterion whose kept answers are wrong significantly more often than `alpha`.

    The test of each criterion has the level 1 - delta.
    """
    by_criterion: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(wrong):
        entry = entries_of(rows[place[0]])[place[1]]
        by_criterion.setdefault((entry.name, entry.requirement), []).append(place)
    keys, warnings = criterion_keys(by_criterion), list[str]()
    for criterion, places in by_criterion.items():
        drawn = draw_judgments(rows, places, groups)
        errors = sum(wrong[place] for place in drawn)
        if lower_bound(errors, len(drawn), delta) > alpha:
            warnings.append(
                f"of the answers that are kept, {errors:,} of {len(drawn):,} to `{keys[criterion]}` are wrong, "
                f"significantly more than {alpha:.1%}: the certificate is about all criteria together"
            )
    return warnings


def _share(sure: Sequence[float], threshold: float, answers: CheapAnswers) -> float:
    return sum(confidence >= threshold for confidence in sure) / len(answers.confidences)


def _estimate_kept(places: Iterable[Place], kept: Collection[Place], groups: Groups) -> Estimate:
    """Estimate the share of kept judgments as the mean of the shares of the rows."""
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
    """Return the reason why the first threshold is rejected, and the number of labels that would certify it."""
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
    """Return warnings about the answers that are left out, and about what the certificate cannot show."""
    counts: Mapping[str, int] = {
        "judgments state no confidence (criteria with options, a scale or a check), and are left out: a cascade "
        "escalates them": answers.unsure,
        "judgments are left out, because the judge was aligned with their labels": answers.trained_on,
        "judgments are left out, because the raters are divided or the strong judge failed": truths.unknown,
        "true answers belong to no judgment of the run": truths.unmatched,
    }
    warnings = [f"{count:,} {text}" for text, count in counts.items() if count]
    if truth == "the strong judge":
        warnings.append(
            "an answer is wrong where the strong judge's differs: how often human labels differ is not known"
        )
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
