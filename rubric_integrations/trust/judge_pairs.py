"""`compare_judges`: whether a cheap judge is good enough in place of a strong one, by the same human labels.

Both judges graded the same responses. Each figure is a difference of the cheap judge and the strong judge over the
labelled judgments that both answered. An abstention is an answer that is not right. A judgment on which one of the
judges failed is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import counted, decimal
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.runs.files import GradedRow, RunFile, matched_rows
from rubric_integrations.scoring.judgment import Spend, to_judgment, total_spend
from rubric_integrations.scoring.labels import Estimate, LabelledJudgment
from rubric_integrations.scoring.report import desirability
from rubric_integrations.trust.comparable_runs import comparability
from rubric_integrations.trust.comparison import holm
from rubric_integrations.trust.matching import (
    Cluster,
    Match,
    RunLike,
    answer_levels,
    as_run,
    criterion_keys,
    dependence_warnings,
    group_rows,
    group_warnings,
    match_labels,
    same_submission,
)
from rubric_integrations.trust.means import (
    FEWEST_GROUPS,
    Groups,
    estimate_shift,
    kappa_of_cells,
    p_value_of,
    select_groups,
    widening,
)
from rubric_integrations.trust.measure import estimate_kappa_over_all, kappa_cells, kappa_of_tables
from rubric_integrations.trust.statistics import (
    Matrix,
    check_alpha,
    cohen_kappa,
    level_distances,
    mcnemar_p_value,
    normal_quantile,
    special,
)

JudgeDecision = Literal["good enough", "not good enough", "not yet known"]

# If one of the judges gave no answer to more of the labelled judgments, these may be the difficult ones.
_MOST_MISSING = 0.1
# The normal quantile of a power of 80 %.
_POWER_QUANTILE = 0.8416
# More labels than anybody makes: the measured loss is then about the margin.
_MOST_LABELS = 100_000


class JudgePair(NamedTuple):
    """A labelled judgment that both judges answered.

    Attributes:
        row: The index of its row in the run of the strong judge.
        strong: The judgment of the strong judge, with its labels.
        cheap: The judgment of the cheap judge, with the same labels.
    """

    row: int
    strong: Match
    cheap: Match


class JudgeChange(NamedTuple):
    """One figure of both judges, over the same labelled judgments.

    Attributes:
        strong: The figure of the strong judge, or None if it is undefined.
        cheap: The figure of the cheap judge, or None if it is undefined.
        difference: The figure of the cheap judge minus the figure of the strong judge.
        p_value: The two-sided p-value of the difference. None if the judges do not differ, or without an interval.
        adjusted: The p-value after Holm's correction for all criteria. For a figure over all criteria, `p_value`.
    """

    strong: float | None
    cheap: float | None
    difference: Estimate
    p_value: float | None
    adjusted: float | None


class JudgeChanges(NamedTuple):
    """The figures of both judges on one criterion, or on all criteria.

    Attributes:
        accuracy: The share of judgments with the answer of the human labels. Over all criteria, the mean of the shares
            of the labelled responses. An abstention is not right.
        kappa: Cohen's kappa, of the judgments that both judges decided. On one criterion, with quadratic weights for
            ordered answers.
        bias: The judge's mean value minus the annotators' mean value, of the judgments that both judges decided. Over
            all criteria, a penalty counts reversed: above 0, a judge is too lenient.
        recalls: By answer, such as MET: the share of the judgments with this human answer to which the judge gives the
            same answer. The human answer is the most frequent one. Over all criteria, only of binary criteria.
    """

    accuracy: JudgeChange
    kappa: JudgeChange
    bias: JudgeChange
    recalls: Mapping[str, JudgeChange]


class JudgeComparison(Record):
    """Two judges, compared on the same human labels of the same responses.

    Attributes:
        decision: `good enough` if the interval of the loss of accuracy is below `margin`, and the cheap judge is shown
            to be better than chance (its kappa is above 0). `not good enough` if the interval is above `margin`.
            Otherwise `not yet known`.
        reason: Why `good enough` is withheld although the interval of the loss is below `margin`. Otherwise "".
        names: The names of the strong and the cheap judge.
        overall: The figures over all criteria. `overall.accuracy.difference` decides.
        criteria: The figures of each criterion. The key is the criterion's name, or its requirement if several criteria
            have this name.
        worse: The criteria on which the cheap judge is significantly less accurate, after Holm's correction.
        rows: The number of responses that both judges graded.
        responses: The number of labelled responses.
        judgments: The number of labelled judgments that both judges answered.
        missing: The number of labelled judgments that only one of the judges answered, or on which a judge failed.
        abstained: The number of abstentions of the strong and of the cheap judge.
        spend: What the strong and the cheap judge spent on the rows of both runs. A judgment that came from a ledger
            counts with the cost of its request.
        labels_needed: A rough number of labelled responses that would decide in 80 % of cases, if the true difference
            of the judges is the measured one. None if it is decided, or if no number is known.
        margin: The accepted loss of accuracy.
        alpha: The probability of a wrong decision. All intervals have the level 1 - `alpha`.
        warnings: Limitations of the figures, one sentence each.
    """

    decision: JudgeDecision
    reason: str
    names: tuple[str, str]
    overall: JudgeChanges
    criteria: dict[str, JudgeChanges]
    worse: tuple[str, ...]
    rows: int
    responses: int
    judgments: int
    missing: int
    abstained: tuple[int, int]
    spend: tuple[Spend, Spend]
    labels_needed: int | None
    margin: float
    alpha: float
    warnings: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        accuracy, name = self.overall.accuracy, self.names[1]
        figures = f"accuracy {_figure(accuracy.cheap)} and {_figure(accuracy.strong)}, difference "
        figures += f"{accuracy.difference.with_limits(signed=True)}"
        if self.decision == "good enough":
            text = f"{name} is good enough: it loses less than {self.margin:g} of accuracy ({figures})"
            return f"{text}, but it is significantly worse on {', '.join(self.worse)}." if self.worse else f"{text}."
        if self.decision == "not good enough":
            text = f"{name} is not good enough: it loses more than {self.margin:g} of accuracy ({figures})"
        else:
            needed = self.labels_needed
            why = self.reason or (
                f"roughly {counted(needed, 'labelled response')} would decide, if the true difference is the measured "
                f"{decimal(accuracy.difference.value or 0.0, 3, signed=True)}"
                if needed
                else "the measured loss is about the margin, and more labelled responses are needed"
            )
            if not self.reason and (needed or self.responses + 1) > self.rows:
                why += (
                    f"; the runs have only {counted(self.rows, 'response')}: grade more by both judges, and label them"
                )
            text = f"It is not yet known whether {name} is good enough ({figures}): {why}"
        return f"{text}. In a cascade, it may answer where it is sure: see `certify`."

    def summary(self) -> str:
        """Return the figures as text."""
        lines = [self.headline]
        lines += [
            f"{name}: accuracy {row.accuracy.difference}, kappa {row.kappa.difference}, bias {row.bias.difference}"
            for name, row in self.criteria.items()
        ]
        lines += [f"{name}: {spend.summary()}" for name, spend in zip(self.names, self.spend, strict=True)]
        return "\n".join([*lines, *self.warnings])

    def _repr_html_(self) -> str:
        rows = [
            (name, str(row.accuracy.difference), str(row.kappa.difference), str(row.bias.difference))
            for name, row in self.criteria.items()
        ]
        return html_table(self.summary(), ["criterion", "accuracy", "kappa", "bias"], rows)


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def compare_judges(
    strong: RunLike,
    cheap: RunLike,
    labels: Iterable[LabelledJudgment],
    *,
    margin: float = 0.03,
    alpha: float = 0.05,
    cluster: Cluster | None = None,
) -> JudgeComparison:
    """Compare two judges on human labels: whether the cheap judge loses less than `margin` of accuracy.

    Both runs must have the same responses and criteria. Of a panel or a cascade, the final answers are compared.

    Args:
        strong: The run of the strong judge: the path of a file that `grade --out` wrote, results of `grade_many`, or
            reports.
        cheap: The run of the cheap judge on the same responses.
        labels: Human labels of a random part of the responses.
        margin: The accepted loss of accuracy, above 0 and below 1.
        alpha: The probability of a wrong decision. All intervals have the level 1 - `alpha`.
        cluster: How to group rows that depend on each other: `"id"`, `"query"`, a key of the `metadata` of the strong
            judge's run, or a function that gets a row's id.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`: annotators selected the judgments themselves.
        ValueError: The runs have other responses or other criteria, no label belongs to a judgment of both, labels were
            drawn by a judge's verdict, or an argument is out of range.
    """
    if not 0 < margin < 1:
        raise ValueError(f"`margin` must be above 0 and below 1, got {margin!r}: 0.03 accepts a loss of 3 points")
    check_alpha(alpha)
    labels, level = list(labels), 1 - alpha
    runs = [as_run(run, name, in_memory=True) for run, name in ((strong, "strong"), (cheap, "cheap"))]
    warnings = _check_same(runs)
    pairs, missing, label_warnings = pair_judges(runs, labels)
    if not pairs:
        raise ValueError(
            "no label belongs to a judgment that both judges answered: labels are matched by the id and the text of "
            "their response, and by the words of their criterion"
        )
    rows = runs[0].rows
    groups = group_rows(rows, cluster)
    comparison = _Comparison(level, len(rows), groups)
    overall, criteria = comparison.overall(pairs), comparison.criteria(pairs)
    decision, reason = _decide(overall, [pair.cheap for pair in pairs], missing, margin, comparison)
    names = _names(runs)
    matched = [(one, other) for _, (one, other) in matched_rows(runs)]
    both = [(one, other) for one, other in matched if one is not None and other is not None]
    lost = len(matched) - len(both)
    return JudgeComparison(
        decision=decision,
        reason=reason,
        names=names,
        overall=overall,
        criteria=criteria,
        worse=tuple(
            name
            for name, row in criteria.items()
            if row.accuracy.adjusted is not None and row.accuracy.adjusted < alpha
            if (row.accuracy.difference.value or 0) < 0
        ),
        rows=len(both),
        responses=len({pair.row for pair in pairs}),
        judgments=len(pairs),
        missing=missing,
        abstained=(_abstentions(pair.strong for pair in pairs), _abstentions(pair.cheap for pair in pairs)),
        spend=(_spend(one for one, _ in both), _spend(other for _, other in both)),
        labels_needed=None if decision != "not yet known" or reason else _labels_needed(overall, pairs, margin, level),
        margin=margin,
        alpha=alpha,
        warnings=(
            *warnings,
            *([f"{counted(lost, 'row is', 'rows are')} in only one of the runs"] if lost else []),
            *([f"{_judgments(missing, 'is', 'are')} left out: not both judges answered"] if missing else []),
            *_rater_warnings(pairs),
            *dependence_warnings(rows, cluster),
            *group_warnings(select_groups(groups, [pair.row for pair in pairs])),
            *label_warnings,
        ),
    )


def _judgments(count: int, one: str, several: str) -> str:
    return counted(count, f"labelled judgment {one}", f"labelled judgments {several}")


def _rater_warnings(pairs: Sequence[JudgePair]) -> list[str]:
    count = sum(len(pair.strong.shares) > 1 for pair in pairs)
    figures = "accuracy, kappa and bias count their shares, recalls the most frequent answer"
    return [f"on {counted(count, 'judgment')}, raters differ: {figures}"] if count else []


def _abstentions(matches: Iterable[Match]) -> int:
    return sum(match.judged.abstained for match in matches)


def _spend(rows: Iterable[GradedRow]) -> Spend:
    return total_spend(row.report.spend for row in rows if row.report)


def _names(runs: Sequence[RunFile]) -> tuple[str, str]:
    names = [run.judge or run.name for run in runs]
    if names[0] == names[1]:
        names = [f"{run.judge} ({run.name})" if run.judge else run.name for run in runs]
    return names[0], names[1]


def _check_same(runs: Sequence[RunFile]) -> list[str]:
    """Check that both runs have the same responses and criteria, and return the warnings about other differences."""
    untold = 0
    for (row_id, _), (one, other) in matched_rows(runs):
        if one is None or other is None:
            continue
        is_same = same_submission(one, other)
        untold += is_same is None
        if is_same is False:
            raise ValueError(
                f"the row {row_id!r} is another response in {runs[1].name} than in {runs[0].name}: both judges must "
                "grade the same responses; `compare_runs` (the command `compare`) compares two programs"
            )
    comparable = comparability(*runs)
    if comparable.refused:
        raise ValueError(
            f"the judges cannot be compared: {'; '.join(comparable.refused)}: let both grade the same responses with "
            "the same rubric and settings"
        )
    warnings = [text for text in comparable.warnings if text != comparable.other_judge]
    if untold:
        warnings.append(
            f"{counted(untold, 'row has', 'rows have')} no text: whether both judges saw the same response cannot be "
            "checked"
        )
    return warnings


def pair_judges(
    runs: Sequence[RunFile], labels: Sequence[LabelledJudgment]
) -> tuple[list[JudgePair], int, Sequence[str]]:
    """Return the labelled judgments that both judges answered, the number of others, and warnings about the labels.

    Judgments that no rater could assess are left out and not counted, as are criteria that do not apply.

    Raises:
        ChosenLabelsError: Every label has `sampled="chosen"`.
        ValueError: Labels were drawn by a judge's verdict.
    """
    matched = [match_labels(run.rows, labels) for run in runs]
    of_runs: list[dict[tuple[object, ...], Match]] = []
    for run, of_run in zip(runs, matched, strict=True):
        if not all(match.is_random for match in of_run.matches):
            raise ValueError(
                "labels were drawn by the judge's verdict: they are no random part of both runs; label a random part "
                "of the responses, which `choose_for_labels` draws"
            )
        keys = run.row_keys()
        of_runs.append(
            {
                (*keys[match.row], match.judged.name, match.judged.requirement): match
                for match in of_run.matches
                if match.people_value is not None and not match.judged.not_applicable
            }
        )
    one, other = of_runs
    answered = [key for key in one if key in other and one[key].judged.was_judged and other[key].judged.was_judged]
    # The rows of both judges are numbered as in the run of the strong judge.
    pairs = [JudgePair(one[key].row, one[key], replace(other[key], row=one[key].row)) for key in answered]
    warnings = dict.fromkeys([*matched[0].warnings, *matched[1].warnings])
    return pairs, len(one.keys() | other.keys()) - len(pairs), list(warnings)


_Value = Callable[[Match], float | None]
"""Returns the value of one judge's judgment for a figure, or None if the judgment is not part of the figure."""


def _right(match: Match) -> float:
    return match.right or 0.0


def _distance(match: Match) -> float | None:
    value, people = match.judged.value, match.people_value
    return None if value is None or people is None else value - people


def _leniency(match: Match) -> float | None:
    value, people = desirability(match.judged), match.people_value
    if value is None or people is None:
        return None
    return value - (1 - people if match.criterion.is_penalty else people)


class _Comparison(NamedTuple):
    """The settings of the intervals of a comparison.

    Attributes:
        level: The confidence level, between 0 and 1.
        rows: The number of rows of the run of the strong judge.
        groups: The group of each row, or None if the rows are independent.
    """

    level: float
    rows: int
    groups: Groups | None

    def overall(self, pairs: Sequence[JudgePair]) -> JudgeChanges:
        """Compare the judges over all criteria."""
        binary = [pair for pair in pairs if pair.strong.criterion.kind == "binary"]
        return JudgeChanges(
            self._change(pairs, _right),
            self._kappa(list(by_criterion(pairs).values())),
            self._change(pairs, _leniency),
            self._recalls(binary, ["UNMET", "MET"] if binary else []),
        )

    def criteria(self, pairs: Sequence[JudgePair]) -> dict[str, JudgeChanges]:
        """Compare the judges on each criterion, with Holm's correction of each figure for the number of criteria."""
        rows = {
            name: JudgeChanges(
                self._change(of, _right),
                self._kappa([of]),
                self._change(of, _distance),
                self._recalls(of, answer_levels(of[0].strong.criterion)),
            )
            for name, of in by_criterion(pairs).items()
        }
        for field in ("accuracy", "kappa", "bias"):
            tested = {name: p for name, row in rows.items() if (p := getattr(row, field).p_value) is not None}
            for name, adjusted in holm(tested).items():
                change: JudgeChange = getattr(rows[name], field)
                rows[name] = rows[name]._replace(**{field: change._replace(adjusted=adjusted)})
        recalls = holm(
            {
                (name, answer): change.p_value
                for name, row in rows.items()
                for answer, change in row.recalls.items()
                if change.p_value is not None
            }
        )
        return {
            name: row._replace(
                recalls={
                    answer: change._replace(adjusted=recalls.get((name, answer)))
                    for answer, change in row.recalls.items()
                }
            )
            for name, row in rows.items()
        }

    def _recalls(self, pairs: Sequence[JudgePair], answers: Sequence[str]) -> dict[str, JudgeChange]:
        return {
            answer: self._change(
                [pair for pair in pairs if pair.strong.consensus == answer],
                lambda match, answer=answer: float(match.judge_answer == answer),
            )
            for answer in answers
        }

    def _change(self, pairs: Sequence[JudgePair], value: _Value) -> JudgeChange:
        """Compare the mean values of both judges. The values of a row's judgments are averaged first."""
        of_rows: dict[int, list[tuple[float, float]]] = {}
        for pair in pairs:
            strong, cheap = value(pair.strong), value(pair.cheap)
            if strong is not None and cheap is not None:
                of_rows.setdefault(pair.row, []).append((strong, cheap))
        if not of_rows:
            return JudgeChange(None, None, Estimate(None, None, None, 0), None, None)
        means = [[sum(of) / len(values) for of in zip(*values, strict=True)] for values in of_rows.values()]
        rose = [sum(max(0.0, b - a) for a, b in values) / len(values) for values in of_rows.values()]
        fell = [sum(max(0.0, a - b) for a, b in values) / len(values) for values in of_rows.values()]
        groups = select_groups(self.groups, list(of_rows))
        is_clustered = any(len(values) > 1 for values in of_rows.values())
        p_value = None
        if any(rose) or any(fell):
            is_whole = not is_clustered and groups is None and all(share in (0, 1) for share in (*rose, *fell))
            p_value = (
                mcnemar_p_value(round(sum(rose)), round(sum(fell)))
                if is_whole
                else p_value_of(lambda level: estimate_shift(rose, fell, level, groups, clustered=is_clustered))
            )
        strong, cheap = (math.fsum(of) / len(means) for of in zip(*means, strict=True))
        difference = estimate_shift(rose, fell, self.level, groups, clustered=is_clustered)
        return JudgeChange(strong, cheap, difference, p_value, p_value)

    def _kappa(self, criteria: Sequence[Sequence[JudgePair]]) -> JudgeChange:
        """Compare kappa over one or more criteria.

        As in `cohen_kappa`, the interval is computed from smoothed tables. Here, the table of a criterion has three
        sides: the human answer, the strong judge's answer and the cheap judge's answer.
        """
        tables = [table for pairs in criteria if (table := _table_of(pairs)) is not None]
        count = sum(len(table.pairs) for table in tables)
        one, other = (_kappa_of([table.side(cheap) for table in tables], tables) for cheap in (False, True))
        if one is None or other is None:
            return JudgeChange(one, other, Estimate(None, None, None, count), None, None)
        cells = _cells_of(tables)
        influences = np.array(
            [
                sum(share * of[table.places[answer], strong, cheap] for answer, share in match.shares.items())
                for table, of in zip(tables, cells, strict=True)
                for (match, strong, cheap) in table.answers
            ]
        )
        rows = [pair.row for table in tables for pair in table.pairs]
        groups = select_groups(np.arange(self.rows) if self.groups is None else self.groups, rows)
        difference = Estimate(other - one, None, None, count)
        if groups is not None and groups.max(initial=-1) + 1 < FEWEST_GROUPS:
            return JudgeChange(one, other, difference, None, None)
        times = 1.0 if groups is None else widening(influences, groups, self.level)
        smoothed = [
            table._replace(joint=table.joint / times + 1 / len(table.places) ** 2 / len(tables)) for table in tables
        ]
        low, high = (_kappa_of([table.side(cheap) for table in smoothed], smoothed) or 0.0 for cheap in (False, True))
        center, total = high - low, sum(float(table.joint.sum()) for table in smoothed)
        squares = sum(
            float((table.joint * of**2).sum()) for table, of in zip(smoothed, _cells_of(smoothed), strict=True)
        )
        error = math.sqrt(squares) / total
        half = normal_quantile(self.level) * error
        p_value = None
        if any(strong != cheap for table in tables for _, strong, cheap in table.answers):
            p_value = 2 * float(special().ndtr(-abs(center) / error))
        limits = max(-2.0, center - half), min(2.0, center + half)
        return JudgeChange(one, other, Estimate(other - one, *limits, count), p_value, p_value)


class _Table(NamedTuple):
    """The answers of both judges and of people to one criterion.

    Attributes:
        pairs: The judgments that both judges decided.
        answers: Each judgment with the indices of the strong and of the cheap judge's answer.
        places: The index of each answer.
        distances: The distance of each pair of answers.
        joint: The counts by the human answer, the strong judge's answer and the cheap judge's answer.
    """

    pairs: Sequence[JudgePair]
    answers: Sequence[tuple[Match, int, int]]
    places: Mapping[str, int]
    distances: Matrix
    joint: Matrix

    def side(self, cheap: bool) -> Matrix:
        """Return the confusion table of one judge, with the human answers as rows."""
        return self.joint.sum(axis=1 if cheap else 2)


def _table_of(pairs: Sequence[JudgePair]) -> _Table | None:
    """Return the table of a criterion, or None if no judgment is decided or if the criterion has too many answers."""
    criterion: Criterion = pairs[0].strong.criterion
    levels = answer_levels(criterion)
    decided = [pair for pair in pairs if pair.strong.right is not None and pair.cheap.right is not None]
    if not levels or not decided:
        return None
    places = {answer: place for place, answer in enumerate(levels)}
    joint = np.zeros((len(levels),) * 3)
    answers: list[tuple[Match, int, int]] = []
    for pair in decided:
        strong, cheap = places[pair.strong.judge_answer or ""], places[pair.cheap.judge_answer or ""]
        answers.append((pair.strong, strong, cheap))
        for answer, share in pair.strong.shares.items():
            joint[places[answer], strong, cheap] += share
    values = [to_judgment(criterion, answer).value or 0.0 for answer in levels]
    distances = level_distances(values, "nominal" if criterion.kind == "nominal" else "quadratic")
    return _Table(decided, answers, places, distances, joint)


def _kappa_of(sides: Sequence[Matrix], tables: Sequence[_Table]) -> float | None:
    """Return a judge's kappa over its confusion tables. Undefined if only one answer occurs, on each criterion."""
    if not any(np.count_nonzero(side.sum(axis=0) + side.sum(axis=1)) > 1 for side in sides):
        return None
    return cohen_kappa(sides[0], tables[0].distances).value if len(tables) == 1 else kappa_of_tables(sides)


def _cells_of(tables: Sequence[_Table]) -> list[Matrix]:
    """Return, for each cell of each table, the influence of a judgment on the difference of both kappas."""
    of_judges: list[list[Matrix]] = []
    for cheap in (False, True):
        sides = [table.side(cheap) for table in tables]
        single = len(tables) == 1
        of_judges.append([kappa_of_cells(sides[0], tables[0].distances)] if single else kappa_cells(sides))
    return [other[:, None, :] - one[:, :, None] for one, other in zip(*of_judges, strict=True)]


def by_criterion(pairs: Iterable[JudgePair]) -> dict[str, list[JudgePair]]:
    """Group judgments by their criterion. The keys are the names of `criterion_keys`."""
    groups: dict[tuple[str, str], list[JudgePair]] = {}
    for pair in pairs:
        groups.setdefault((pair.strong.judged.name, pair.strong.judged.requirement), []).append(pair)
    keys = criterion_keys(groups)
    return {keys[words]: of for words, of in groups.items()}


def _decide(
    overall: JudgeChanges, cheap: Sequence[Match], missing: int, margin: float, comparison: _Comparison
) -> tuple[JudgeDecision, str]:
    """Return the decision, and why `good enough` is withheld although the interval of the loss is below the margin."""
    difference = overall.accuracy.difference
    if difference.low is None or difference.high is None:
        return "not yet known", ""
    if difference.high < -margin:
        return "not good enough", ""
    if difference.low <= -margin:
        return "not yet known", ""
    if missing > _MOST_MISSING * (missing + len(cheap)):
        return "not yet known", (
            f"{_judgments(missing, 'has', 'have')} no answer of one judge, and may be difficult; grade the "
            "rows that failed again"
        )
    kappa = estimate_kappa_over_all(cheap, overall.kappa.cheap, comparison.rows, comparison.level, comparison.groups)
    if kappa.low is None or kappa.low <= 0:
        return "not yet known", (
            "its answers are not shown to be better than chance (kappa "
            f"{kappa.with_limits()}): a judge that always gives the most frequent answer could be as accurate"
        )
    return "good enough", ""


def _labels_needed(overall: JudgeChanges, pairs: Sequence[JudgePair], margin: float, level: float) -> int | None:
    """Return about the number of labelled responses that would decide in 80 % of cases, at the measured difference."""
    value, low, high, _ = overall.accuracy.difference
    if value is None or low is None or high is None:
        return None
    quantile, responses = normal_quantile(level), len({pair.row for pair in pairs})
    error = (high - low) / 2 / quantile
    count = responses * ((quantile + _POWER_QUANTILE) * error / max(abs(value + margin), 1e-6)) ** 2
    return max(responses + 1, math.ceil(count)) if count <= _MOST_LABELS else None
