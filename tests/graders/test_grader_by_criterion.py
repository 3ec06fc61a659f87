"""Graders that obtain an answer to each criterion: options in order, checks, and panels one judge after another."""

from __future__ import annotations

import re
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from rubric_integrations import Criterion, EvaluationReport, Option, PerCriterionGrader, Rubric, Submission
from rubric_integrations.graders import OptionDisplay, Voting
from rubric_integrations.judges import LMJudge
from rubric_integrations.rubric.criterion import VOTE_STRATEGIES
from rubric_integrations.scoring import JudgeFailure
from tests.fakes import FakeJudge
from tests.graders.rubrics import rubric_of
from tests.openai_server import Call, OpenAIServer, Reply


def test_order_of_options_depends_on_the_submission_and_the_seed_alone() -> None:
    criterion = Criterion(requirement="r", options=[Option(label=c, value=i / 9) for i, c in enumerate("abcdefghij")])
    rubric = Rubric([criterion, Criterion(requirement="other")])

    def labels(text: str, **more: Any) -> tuple[str, ...]:
        grader = PerCriterionGrader("offline", **more)
        question = grader.question(rubric, Submission(response=text), 0, grader.panel[0])
        return tuple(option.label for option in question.options)

    assert labels("one") == labels("one") != labels("two")
    assert labels("one", options=OptionDisplay(seed=1)) != labels("one")
    assert labels("one", options=OptionDisplay(shuffle=False)) == tuple("abcdefghij")


# -- checks


async def test_check_costs_no_call_and_is_scored_with_the_judged_criteria() -> None:
    judge = FakeJudge()
    rubric = Rubric([Criterion(requirement="a"), {"requirement": "short", "check": {"max_words": 2}}])
    report = await rubric.grade("one two three", grader=PerCriterionGrader(judge))
    assert [row.verdict for row in report.criteria] == ["MET", "UNMET"]
    assert (judge.requirements, report.spend.calls) == (["a"], 1)


async def test_check_that_cannot_be_computed_is_a_failure() -> None:
    rubric = Rubric([{"requirement": "x", "check": {"json_schema": {"$ref": "#/nowhere"}}}, {"requirement": "b"}])
    report = await rubric.grade("{}", grader=PerCriterionGrader(FakeJudge(), on_failure="abstain"))
    assert report.criteria[0].error is not None
    assert report.criteria[0].error.startswith("check: ")
    assert (report.score, report.complete) == (1.0, False)


def test_thinking_reaches_the_judge_apart_and_no_check(server: OpenAIServer) -> None:
    rubric = Rubric(
        [Criterion(requirement="r"), Criterion.model_validate({"requirement": "s", "check": {"equals": "42"}})]
    )
    grader = PerCriterionGrader(LMJudge("openai/mock", api_base=server.url))
    for to_grade in ({"thinking": "Hm.", "output": "42"}, "<thinking>Hm.</thinking><output>42</output>"):
        report = rubric.grade_sync(to_grade, grader=grader)
        assert report.criteria[1].verdict == "MET"
        assert re.search(r"<data \w+ thinking>\nHm\.\n</data \w+ thinking>", server.calls[-1].prompt)
    tag_in_the_text = rubric.grade_sync("42 <thinking>is it?</thinking>", grader=grader)
    assert tag_in_the_text.criteria[1].verdict == "UNMET"


# -- one judge after another


@settings(max_examples=75, deadline=None)
@given(
    st.lists(st.sampled_from(["MET", "UNMET", "CANNOT_ASSESS", "FAIL"]), min_size=1, max_size=6),
    st.sampled_from(VOTE_STRATEGIES["binary"]),
    st.data(),
)
def test_sequential_voting_gives_the_same_verdicts_with_fewer_calls(
    answers: list[str], strategy: str, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=len(answers), max_size=len(answers)))
    sign = data.draw(st.sampled_from([1.0, -1.0]))
    rubric = Rubric([Criterion(requirement="r", weight=sign), Criterion(requirement="s", weight=2.0)])

    def grade(sequential: bool) -> tuple[EvaluationReport, int]:
        judges = [FakeJudge(JudgeFailure("config", "down") if answer == "FAIL" else answer) for answer in answers]
        voting = Voting(weights=tuple(weights), binary=cast("Any", strategy), sequential=sequential)
        grader = PerCriterionGrader(judges=judges, voting=voting, on_failure="abstain")
        return rubric.grade_sync("text", grader=grader), sum(len(judge.questions) for judge in judges)

    (complete, calls), (shortened, fewer) = grade(sequential=False), grade(sequential=True)
    assert [row.verdict for row in shortened.criteria] == [row.verdict for row in complete.criteria]
    assert (shortened.score, shortened.passed) == (complete.score, complete.passed)
    assert fewer <= calls
    assert calls - fewer == sum(len(row.not_asked) for row in shortened.criteria)


def test_sequential_voting_saves_calls_on_a_server(server: OpenAIServer, record_property: Any) -> None:
    def script(call: Call) -> Reply:
        # Three judges that mostly agree: the third differs on every fourth criterion.
        number = int(call.criterion.removeprefix("r"))
        differs = call.body["model"] == "three" and number % 4 == 0
        return Reply("UNMET" if (number % 3 == 0) != differs else "MET")

    server.script = script
    verdicts: dict[bool, list[str | None]] = {}
    calls: dict[bool, int] = {}
    for sequential in (False, True):
        server.calls.clear()
        judges = [LMJudge(f"openai/{name}", api_base=server.url) for name in ("one", "two", "three")]
        grader = PerCriterionGrader(judges=judges, voting=Voting(sequential=sequential))
        report = rubric_of(24).grade_sync("text", grader=grader)
        verdicts[sequential] = [row.verdict for row in report.criteria]
        calls[sequential] = len(server.calls)
        assert report.spend.calls == len(server.calls)
    assert verdicts[True] == verdicts[False]
    assert calls == {False: 72, True: 48}
    record_property("shown", f"panel of three, majority, 24 criteria: {calls[False]} calls; sequential {calls[True]}")
