"""Matches people's labels with the judgments of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from rubric_integrations.agreement.same_submission import RowsByText, may_be
from rubric_integrations.results.criterion_report import NOT_APPLICABLE, CriterionReport
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.labels import LabelledJudgment
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.runs.run_files import GradedRow


class ChosenLabelsError(ValueError):
    """Raised if all labels were chosen by people, so that they say nothing about how often the judge is right."""


class Match(NamedTuple):
    """One judgment of a run that people labelled.

    Attributes:
        row: The index of its row in the run.
        criterion: The criterion.
        judged: The judge's answer.
        labels: The label of each rater; if one labelled it twice, the later label.
    """

    row: int
    criterion: Criterion
    judged: CriterionReport
    labels: tuple[LabelledJudgment, ...]

    @property
    def answers(self) -> list[str]:
        """The raters' answers in canonical form, abstentions included."""
        return answers_of(self.criterion, self.labels)

    @property
    def judge_answer(self) -> str | None:
        """The judge's answer in canonical form; None if the judge failed, or was not asked."""
        verdict = self.judged.verdict
        return None if verdict is None or self.judged.error is not None else canonical_answer(self.criterion, verdict)

    @property
    def people_value(self) -> float | None:
        """The value of the consensus, in [0, 1]; None for an abstention, and without a consensus."""
        return None if self.consensus is None else to_judgment(self.criterion, self.consensus).value

    @property
    def is_random(self) -> bool:
        """Whether the judgment was drawn at random, and not by the judge's verdict."""
        return all(label.sampled == "random" for label in self.labels)

    @property
    def consensus(self) -> str | None:
        """The answer that most raters gave; None if several answers are equally frequent."""
        return consensus_of(self.answers)


class Matches(NamedTuple):
    """The labels of a run.

    Attributes:
        matches: The judgments with labels, in the order of the run.
        unmatched: The labels of which the run has no judgment.
        chosen: Those that are about a judgment and are left out, because people chose it.
        trained_on: Those that are left out, because the judge was aligned with them.
    """

    matches: list[Match]
    unmatched: list[LabelledJudgment]
    chosen: list[LabelledJudgment]
    trained_on: list[LabelledJudgment]

    @property
    def labels(self) -> list[LabelledJudgment]:
        """The labels that count."""
        return [label for match in self.matches for label in match.labels]

    @property
    def warnings(self) -> list[str]:
        """What limits figures of these labels: how many are left out, and how many may not be blind."""
        warnings = [chosen_warning(len(self.chosen))] if self.chosen else []
        if self.trained_on:
            warnings.append(
                f"the judge was aligned with {len(self.trained_on):,} of the labels: they say nothing about it, and "
                "are left out"
            )
        labels = self.labels
        if seen := sum(not label.blind for label in labels):
            warnings.append(
                f"{seen:,} of {len(labels):,} labels are not marked as blind: people who see the judge's answer tend "
                "to agree with it"
            )
        return warnings


def answers_of(criterion: Criterion, labels: Iterable[LabelledJudgment]) -> list[str]:
    """Return raters' answers to a criterion in canonical form, abstentions included."""
    return [canonical_answer(criterion, to_judgment(criterion, label.verdict).verdict) for label in labels]


def consensus_of(answers: Sequence[str]) -> str | None:
    """Return the answer that most raters gave; None if several answers are equally frequent."""
    counts = Counter(answers).most_common(2)
    return counts[0][0] if len(counts) == 1 or counts[0][1] > counts[1][1] else None


def labels_by_rater(labels: Iterable[LabelledJudgment]) -> tuple[LabelledJudgment, ...]:
    """Return the labels of one judgment that count: of each rater the last one; labels without a rater all count."""
    of_raters: dict[str | int, LabelledJudgment] = {}
    for number, label in enumerate(labels):
        rater = number if label.rater is None else label.rater
        of_raters[rater] = label.replacing(of_raters.pop(rater, None))
    return tuple(of_raters.values())


def match_labels(rows: Sequence[GradedRow], labels: Iterable[LabelledJudgment]) -> Matches:
    """Match each label with the judgment of the same submission by the same words of the criterion.

    A label with the `id` of a row belongs to that row, if the submission is the same; any other label to the first row
    with the same submission. So labels of several samples with equal texts need ids, or all of them count for the first
    sample. What a label's submission lacks, such as the context, is not compared, unless rows differ in it. In a run
    without submissions, the id decides.

    Of several labels of one judgment by one rater, the last counts. Labels without a rater are of different people.

    Labels that are `chosen` are left out. The others are still a random part of the run, so that a file may have both,
    such as a drawn sample and the answers that a reader overruled elsewhere. Those with which the judge was aligned are
    left out, too: the others are a random part of the judgments that it was not aligned with.

    Raises:
        ChosenLabelsError: All labels are `chosen`.
        ValueError: The judge was aligned with all labels that belong to the run.
    """
    labels = list(labels)
    require_drawn(labels)
    by_id: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_id.setdefault(row.id, []).append(index)
    by_text = RowsByText(rows)
    by_judgment: dict[tuple[int, int], list[LabelledJudgment]] = {}
    unmatched: list[LabelledJudgment] = []
    for label in labels:
        of_id = by_id.get(label.id, []) if label.id is not None else []
        if of_id:
            place = next((index for index in of_id if may_be(rows[index].submission, label.submission)), None)
        else:
            place = by_text.find(label.submission)
        entry = None if place is None else _entry_of(rows[place].report, label.criterion)
        if place is None or entry is None:
            unmatched.append(label)
            continue
        by_judgment.setdefault((place, entry), []).append(label)
    matches: list[Match] = []
    chosen: list[LabelledJudgment] = []
    trained_on: list[LabelledJudgment] = []
    for (place, entry), all_labels in sorted(by_judgment.items(), key=lambda item: item[0]):
        report, of_judgment = rows[place].report, labels_by_rater(all_labels)
        if report is not None and report.criteria[entry].trained_on:
            trained_on.extend(of_judgment)
            continue
        drawn = tuple(label for label in of_judgment if label.sampled != "chosen")
        chosen.extend(label for label in of_judgment if label.sampled == "chosen")
        if report is not None and drawn:
            matches.append(Match(place, drawn[0].criterion, report.criteria[entry], drawn))
    if trained_on and not matches:
        raise ValueError(
            f"the judge was aligned with all {len(trained_on):,} labels that belong to this run: they say nothing "
            "about it; label other judgments, which `choose_for_labels` draws"
        )
    return Matches(matches, unmatched, chosen, trained_on)


def criterion_keys(criteria: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return how results name each criterion of a run: by its name, or by its words if another one has that name.

    Args:
        criteria: The name and the words of each criterion.
    """
    names, requirements = (Counter(parts) for parts in ([pair[place] for pair in criteria] for place in (0, 1)))
    return {
        (name, words): name if names[name] == 1 else words if requirements[words] == 1 else f"{name}: {words}"
        for name, words in criteria
    }


def group_matches(matches: Iterable[Match]) -> dict[str, list[Match]]:
    """Group labelled judgments by their criterion; the keys are those of `criterion_keys`."""
    groups: dict[tuple[str, str], list[Match]] = {}
    for match in matches:
        groups.setdefault((match.judged.name, match.judged.requirement), []).append(match)
    keys = criterion_keys(groups)
    return {keys[pair]: of_criterion for pair, of_criterion in groups.items()}


def count_verdicts(rows: Sequence[GradedRow], match: Match) -> dict[str, int]:
    """Count the judge's verdicts in a run on the criterion of a match.

    CANNOT_ASSESS is a verdict; a failure is none, and neither is a criterion that does not apply. Judgments that the
    judge was aligned with are left out, as their labels are.
    """
    words = (match.judged.name, match.judged.requirement)
    entries = (entry for row in rows if row.report for entry in row.report.criteria)
    judged = (entry for entry in entries if (entry.name, entry.requirement) == words and not entry.trained_on)
    verdicts = (entry.verdict for entry in judged if entry.verdict is not None and entry.was_judged)
    return dict(Counter(canonical_answer(match.criterion, verdict) for verdict in verdicts))


def require_drawn(labels: Collection[LabelledJudgment]) -> None:
    """Check that some of the labels were drawn, and not chosen by people.

    Raises:
        ChosenLabelsError: All were chosen.
    """
    if labels and all(label.sampled == "chosen" for label in labels):
        raise ChosenLabelsError(
            f"every label is `chosen` ({len(labels):,} in all): people looked for judgments to correct, so that the "
            "judge would seem worse or better than it is. Draw what to read with `choose_for_labels`, or set `sampled` "
            "to 'random' or 'by_verdict' if they were drawn like that"
        )


def chosen_warning(count: int) -> str:
    """Return the warning that labels are left out, because people chose what they are about."""
    return (
        f"`chosen` labels are left out ({count:,}): people looked for these judgments, so that they say nothing about "
        "how often the judge is right"
    )


def _entry_of(report: EvaluationReport | None, criterion: Criterion) -> int | None:
    entries = report.criteria if report else ()
    same = [index for index, entry in enumerate(entries) if entry.requirement == criterion.full_requirement]
    # The same words with other options are another question.
    same = [index for index in same if _is_answer(criterion, entries[index].verdict)]
    # Words may occur twice in a rubric; then the name decides.
    named = [index for index in same if criterion.name is not None and entries[index].name == criterion.name]
    return next(iter(named or same), None)


def _is_answer(criterion: Criterion, verdict: str | None) -> bool:
    try:
        return verdict in (None, NOT_APPLICABLE) or bool(to_judgment(criterion, verdict))
    except ValueError:
        return False


def canonical_answer(criterion: Criterion, verdict: str) -> str:
    """Return an answer to a criterion, or the `cap` for more occurrences than count."""
    is_number = criterion.cap is not None and verdict.replace(".", "", 1).isdigit()
    return f"{min(float(verdict), criterion.cap or 0):g}" if is_number else verdict
