"""Random rubrics, answers, policies and grades, by which the numbers of the page are compared with Python's."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission
from rubric_integrations.rubric.criterion import condition_indices
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring import EvaluationReport, JudgeFailure, to_judgment
from rubric_integrations.scoring.aggregate import aggregate_answers
from rubric_integrations.scoring.judgment import JudgeAnswers, Outcome
from rubric_integrations.submission.inputs import Row

POLICIES = ["skip", "zero", "partial", "fail", 0.3]
FAILURES = ["raise", "abstain", "worst_case", {"positive": "MET", "negative": "UNMET"}]
OPTIONS = [
    {"label": "all", "value": 0.9}, {"label": "some", "value": 0.35}, {"label": "none", "value": 0.05},
    {"label": "not here", "na": True},
]  # fmt: skip
KINDS: list[Mapping[str, Any]] = [
    {}, {}, {"options": OPTIONS}, {"options": OPTIONS[:3], "scale_type": "nominal"}, {"scale": {"min": 1, "max": 5}},
    {"scale": {"min": -2, "max": 10, "integer": True}}, {"per": "occurrence", "cap": 3},
]  # fmt: skip


def random_rubric(random: Random) -> Rubric:
    """Return a rubric with criteria of all kinds, of which some are required or have a minimum or a condition."""
    only_penalties = random.random() < 0.15
    criteria: list[Criterion] = []
    for number in range(random.randint(1, 6)):
        fields: dict[str, Any] = dict(random.choice(KINDS))
        weight = random.choice([0.1, 0.7, 1, 2, 3, 7, 10.5])
        fields["weight"] = -weight if only_penalties or random.random() < 0.25 else weight
        if random.random() < 0.25:
            fields |= random.choice([{"required": True}, {"min_score": 0.6}, {"min_score": 0.25, "required": True}])
        if random.random() < 0.1:
            fields["applies_when"] = f"condition {number}"
        criteria.append(Criterion(name=f"c {number}", requirement=f"requirement {number}", **fields))
    return Rubric(
        criteria,
        left_out=["a judge of its own"] if random.random() < 0.05 else (),
        pass_mark=random.choice([0.0, 0.3, 0.5, 0.8]),
        min_coverage=random.choice([0.0, 0.5, 0.8]),
    )


def random_verdict(random: Random, criterion: Criterion) -> str:
    """Return a verdict as reports write it."""
    if random.random() < 0.2:
        return to_judgment(criterion, "CANNOT_ASSESS").verdict
    if criterion.options:
        answer: object = random.choice(criterion.options).label
    elif criterion.scale:
        low, high = criterion.scale.min, criterion.scale.max
        answer = random.randint(int(low), int(high)) if criterion.scale.integer else random.randint(2, 10) / 2
    else:
        answer = random.choice(["MET", "UNMET"])
    return to_judgment(criterion, answer).verdict


class Case(NamedTuple):
    """A rubric with the answers of a judge, and the settings of a grader.

    Attributes:
        outcomes: The answers to the criteria and to their conditions, by index; open ones are left out.
        cannot_assess, on_failure: The policies.
        may_leave_open: Whether grading ended early.
    """

    rubric: Rubric
    outcomes: dict[int, Outcome]
    cannot_assess: Any
    on_failure: Any
    may_leave_open: bool

    def report(self) -> EvaluationReport:
        grader = PerCriterionGrader("offline", cannot_assess=self.cannot_assess, on_failure=self.on_failure)
        return aggregate_answers(
            self.rubric, [JudgeAnswers(self.outcomes)], JudgeAnswers({}), grader.policies,
            may_leave_open=self.may_leave_open,
        )  # fmt: skip

    def graded(self, row_id: str) -> Graded:
        """Return the case as a row of a run."""
        report = self.report()
        failed = report.error if report.failed_count and self.on_failure == "raise" else None
        record = PerCriterionGrader("offline", cannot_assess=self.cannot_assess).scoring_record()
        return Graded(Row(row_id, Submission(response="text")), report, failed, self.rubric, record)

    def overruled(self, verdicts: Mapping[str, str]) -> Case:
        """Return the case with a person's verdicts. A criterion that a person answers does apply."""
        outcomes = dict(self.outcomes)
        conditions = condition_indices(self.rubric.criteria)
        for index, criterion in enumerate(self.rubric.criteria):
            if (verdict := verdicts.get(criterion.name or "")) is not None:
                outcomes[index] = to_judgment(criterion, verdict)
                if (condition := conditions[index]) is not None:
                    outcomes[condition] = to_judgment(Criterion(requirement="applies"), "MET")
        return self._replace(outcomes=outcomes)


def random_case(random: Random, rubric: Rubric | None = None, policy: Any = None, *, ends_early: bool = False) -> Case:
    rubric = rubric or random_rubric(random)
    outcomes: dict[int, Outcome] = {}
    for index, condition in enumerate(condition_indices(rubric.criteria)):
        failed = JudgeFailure("transport", "no reply")
        if condition is not None:
            applies = random.choice(["MET", "MET", "UNMET", "CANNOT_ASSESS"])
            outcomes[condition] = to_judgment(Criterion(requirement="applies"), applies)
            if applies != "MET":
                continue
        elif ends_early and random.random() < 0.3:
            continue
        answer = to_judgment(rubric.criteria[index], random_verdict(random, rubric.criteria[index]))
        outcomes[index] = failed if random.random() < 0.08 else answer
    policy = random.choice(POLICIES) if policy is None else policy
    return Case(rubric, outcomes, policy, random.choice(FAILURES), ends_early)
