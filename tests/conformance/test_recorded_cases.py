"""Replays the recorded cases of rubric and autorubric and compares the results with this package's.

The driver of a case names the grader. The cases of rubric run with a `generate_fn` that replies like the recorded
judge, those of autorubric with a panel of scripted judges.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from rubric_integrations import EvaluationReport, JudgeError, LengthPenalty, PerCriterionGrader, Rubric, RubricError
from rubric_integrations.graders import (
    CallLimits,
    Grader,
    OptionDisplay,
    PerCriterionOneShotGrader,
    RubricAsJudgeGrader,
    Voting,
)
from rubric_integrations.graders.grader import shuffle_options
from rubric_integrations.scoring import JudgeFailure, compute_length_penalty
from rubric_integrations.submission import parse_thinking_output
from tests.conformance.recorded import is_close, recorded_cases
from tests.fakes import FakeJudge

# Cases with the stance `match` that this package refuses, and why; the tests check that it refuses them.
IN_A_LATER_ROUND = "rubric-1.3.2/retry/003"
INEXPRESSIBLE = {
    "autorubric-1.6.1/ca_edges/009": "a rubric whose weights are all zero is refused when it is loaded",
    "rubric-1.3.2/length_penalty_curve/001": "an empty submission is refused: there is nothing to grade",
    "rubric-1.3.2/length_penalty_odd/001": "a `max_cap` that is not above `free_budget` is refused",
    "rubric-1.3.2/parse/017": "a text after the JSON object may contradict it: the reply is asked for again",
    "rubric-1.3.2/one_shot_shapes/005": "two answers to one criterion are a failure, not the first of them",
    "rubric-1.3.2/holistic_replies/003": "a failed judge has no score; the package returns 0.0 with its error",
    "rubric-1.3.2/holistic_replies/015": "a failed judge has no score; the package returns 0.0 with its error",
    **{
        f"rubric-1.3.2/holistic/{number:03}": "a rubric whose weights are all zero is refused when it is loaded"
        for number in (29, 31, 33, 35, 37)
    },
}


SOURCES = ("rubric-", "autorubric-")


def recorded_answer(answer: str) -> str | JudgeFailure:
    """Return the answer of a recorded judge, or its failure."""
    if answer.startswith("raise:") or answer == "parse":
        return JudgeFailure("parse" if answer == "parse" else "transport", answer)
    return "CANNOT_ASSESS" if answer == "<auto-na>" else answer


class ScriptedFunction:
    """The judge of a `rubric` case: it returns the recorded replies in turn, or the criterion's recorded verdict."""

    def __init__(self, case: dict[str, Any]):
        self.case, self.calls = case, 0

    async def __call__(self, system_prompt: str, user_prompt: str) -> str:
        self.calls += 1
        case = self.case
        if "judge_raises" in case:
            raise {"ConnectionError": ConnectionError}[case["judge_raises"]]("x")
        if "judge_replies" in case:
            return case["judge_replies"][min(self.calls, len(case["judge_replies"])) - 1]
        if "judge_reply_text" in case:
            return case["judge_reply_text"]
        if isinstance(case.get("judge_reply"), list):
            pairs = case["judge_reply"]
            return json.dumps({"judgments": [{"id": i, "explanation": "", "answer": answer} for i, answer in pairs]})
        if "judge_reply" in case:
            reply = dict(case["judge_reply"])
            for entry in reply.get("criteria_evaluations", []):
                entry.setdefault("explanation", "")
            number = reply.get("overall_score")
            if number in ("NaN", "Infinity"):
                return f'{{"overall_score": {number}}}'
            return json.dumps(reply)
        verdicts = {c["requirement"]: v for c, v in zip(case["criteria"], case["verdicts"], strict=True)}
        if case["driver"] == "PerCriterionOneShotGrader":
            return json.dumps(
                {"judgments": [{"id": i, "explanation": "", "answer": v} for i, v in enumerate(verdicts.values(), 1)]}
            )
        requirement = user_prompt.rsplit("\n</data", 1)[0].rsplit("\n", 1)[1]
        return json.dumps({"criterion_status": verdicts[requirement], "explanation": "x"})


def length_penalty_of(options: dict[str, Any]) -> LengthPenalty | None:
    return LengthPenalty(**options["length_penalty"]) if options.get("length_penalty") is not None else None


def abstention_policy(options: dict[str, Any]) -> Any:
    """Return our `cannot_assess` for the recorded policy and its `partial_credit`."""
    policy = options.get("cannot_assess", "skip")
    return options.get("partial_credit", policy) if policy == "partial" else policy


def make_grader(case: dict[str, Any], **more: Any) -> tuple[Grader, ScriptedFunction]:
    options = case["options"]
    kinds = {
        "PerCriterionGrader": PerCriterionGrader,
        "PerCriterionOneShotGrader": PerCriterionOneShotGrader,
        "RubricAsJudgeGrader": RubricAsJudgeGrader,
    }
    fn = ScriptedFunction(case)
    settings: dict[str, Any] = {
        "normalize": options.get("normalize", True),
        "max_retries": options.get("max_retries", 2),
        "limits": CallLimits(max_outage=0),
        "default_fallback_verdicts": options.get("default_fallback_verdicts"),
        "length_penalty": length_penalty_of(options),
        **more,
    }
    return kinds[case["driver"]](fn, **settings), fn


def make_panel(case: dict[str, Any], **more: Any) -> Grader:
    options = case["options"]
    answers: Sequence[Sequence[str]] = case["verdicts"]
    requirements = [criterion["requirement"] for criterion in case["criteria"]]
    judges = [
        FakeJudge({r: recorded_answer(votes[j]) for r, votes in zip(requirements, answers, strict=True)})
        for j in range(len(answers[0]))
    ]
    voting = {
        "weights": "judge_weights", "binary": "aggregation",
        "ordinal": "ordinal_aggregation", "nominal": "nominal_aggregation",
    }  # fmt: skip
    display = {"may_abstain": "auto_na_option", "seed": "seed", "shuffle": "shuffle_options"}
    settings = {"normalize": options["normalize"]} if "normalize" in options else {}
    settings |= {"cannot_assess": abstention_policy(options), "length_penalty": length_penalty_of(options), **more}
    return PerCriterionGrader(
        judges=judges,
        voting=Voting(**{name: options[recorded] for name, recorded in voting.items() if options.get(recorded)}),
        options=OptionDisplay(**{name: options[recorded] for name, recorded in display.items() if recorded in options}),
        **settings,
    )


def replay(case: dict[str, Any], **more: Any) -> EvaluationReport:
    rubric = Rubric.from_dict(case["criteria"])
    if case["driver"] == "CriterionGrader":
        words = case.get("to_grade_words", 3)
        return rubric.grade_sync(" ".join(["w"] * words), grader=make_panel(case, **more))
    return rubric.grade_sync(case.get("to_grade", "text"), grader=make_grader(case, **more)[0])


def assert_equals_recorded(
    report: EvaluationReport, expected: dict[str, Any], *, has_length_penalty: bool = False
) -> None:
    assert is_close(report.score, expected["score"]), "score"
    assert is_close(report.raw_score, expected["raw_score"]), "raw_score"
    if "llm_raw_score" in expected and not has_length_penalty:
        assert is_close(report.llm_raw_score, expected["llm_raw_score"]), "llm_raw_score"
    if expected.get("verdicts") is not None:
        assert [row.verdict for row in report.criteria] == expected["verdicts"]
    if "judge_scores" in expected and len(expected["judge_scores"]) > 1:
        scores = zip(report.judge_scores.values(), expected["judge_scores"].values(), strict=True)
        assert all(is_close(score, recorded) for score, recorded in scores), "judge_scores"
    if "criteria" in expected:
        for row, recorded in zip(report.criteria, expected["criteria"], strict=True):
            assert (row.value is None) == (recorded.get("na") or recorded["final_verdict"] == "CANNOT_ASSESS")
            if recorded["final_verdict"] is not None:
                assert row.verdict == recorded["final_verdict"]
            elif not recorded["na"]:
                assert (row.verdict, row.value) == (recorded["selected_label"], recorded["value"])
            assert is_close(row.agreement, recorded["agreement"]), "agreement"


def compute(case: dict[str, Any], rubric: Rubric, normalize: bool) -> float | None:
    options = case["options"]
    return rubric.compute_score(case["verdicts"], normalize, abstention_policy(options))


def test_reply_that_the_package_no_longer_requests_is_read_in_a_later_round() -> None:
    # The package gives up after two unreadable replies. Here, every host requests a lost judgment again.
    [case] = [case.values[0] for case in recorded_cases("match", *SOURCES) if case.id == IN_A_LATER_ROUND]
    grader, fn = make_grader(case)
    report = Rubric.from_dict(case["criteria"]).grade_sync("text", grader=grader)
    assert (fn.calls, report.score, report.complete) == (case["expected"]["calls"] + 1, 1.0, True)


@pytest.mark.parametrize("case", [case for case in recorded_cases("match", *SOURCES) if case.id != IN_A_LATER_ROUND])
def test_recorded_case_with_stance_match_gives_the_same_result(case: dict[str, Any], record_property: Any) -> None:
    expected = case["expected"]
    if case["id"] in INEXPRESSIBLE:
        record_property("inexpressible", f"{case['id']}: {INEXPRESSIBLE[case['id']]}")
        with pytest.raises((ValueError, JudgeError)):
            replay(case) if case["driver"] != "Rubric.compute_score" else Rubric.from_dict(case["criteria"])
        return
    record_property("conformance", case["id"])
    match case["driver"]:
        case "compute_length_penalty":
            words = " ".join(["w"] * case["word_count"])
            assert is_close(compute_length_penalty(words, LengthPenalty()), expected["penalty"])
        case "parse_thinking_output":
            assert parse_thinking_output(case["text"]) == expected
        case "_derive_shuffle_rng":
            options = case["options"]
            count = range(options["n_options"])
            shown = shuffle_options(
                count, options["seed"], case["to_grade"], options["criterion_idx"], options["judge_id"]
            )
            assert list(shown) == expected["shown_position_to_original_index"]
        case "Rubric.compute_score" if "raises" in expected:
            with pytest.raises(ValueError, match=r"criteria\[0\]|entries for|no option|no verdict"):
                Rubric.from_dict(case["criteria"]).compute_score(case["verdicts"])
        case "Rubric.compute_score":
            rubric = Rubric.from_dict(case["criteria"])
            assert is_close(compute(case, rubric, case["options"]["normalize"]), expected["score"])
            assert is_close(compute(case, rubric, False), expected["raw_score"])
        case _ if case["category"] == "shuffle_invariance":
            row = replay(case).criteria[0]
            assert (row.value, row.verdict) == (expected["score"], expected["selected_label"])
        case _ if case["category"] == "errors_all_criteria":
            report = replay(case, on_failure="abstain")
            assert (report.score, report.raw_score, report.error is not None) == (None, None, True)
        case _ if "raises" in expected:
            with pytest.raises(JudgeError):
                replay(case)
        case _:
            assert_equals_recorded(replay(case), expected, has_length_penalty="length_penalty" in case["options"])
    if "calls" in expected:
        grader, fn = make_grader(case)
        try:
            Rubric.from_dict(case["criteria"]).grade_sync("text", grader=grader)
        except JudgeError:
            assert "raises" in expected
        assert fn.calls == expected["calls"]


@pytest.mark.parametrize("case", recorded_cases("discuss", *SOURCES))
def test_recorded_case_with_stance_discuss_follows_the_documented_rules(case: dict[str, Any]) -> None:
    expected = case["expected"]
    if not any(criterion["weight"] for criterion in case["criteria"]):
        with pytest.raises(RubricError, match="zero weights"):
            Rubric.from_dict(case["criteria"])
    elif case["category"].startswith("ca_"):
        # autorubric uses the formula for rubrics with only penalties if every positive criterion abstained. Here that
        # score is undefined.
        assert compute(case, Rubric.from_dict(case["criteria"]), True) is None
    elif case["category"] == "holistic":
        with pytest.raises(JudgeError, match="not between 0 and 100"):
            replay(case)
    elif case["category"] == "length_penalty_odd":
        with pytest.raises(ValidationError, match="must be above"):
            length_penalty_of(case["options"])
    elif case["category"].startswith("errors_"):
        # autorubric scores two kinds of errors as abstentions and the third as the worst case, with `error` None. Here
        # `on_failure` decides. The scores are the same, and the report is not complete.
        unknown = any("raise:unknown" in votes for votes in case["verdicts"])
        report = replay(case, on_failure="worst_case" if unknown else "abstain")
        assert is_close(report.score, expected["score"])
        assert (report.complete, report.error is not None) == (False, True)
    else:
        # `unanimous`, `min` and `max` depend on the values only; `worst_case` and `best_case` on the weight's sign too.
        assert_equals_recorded(replay(case), expected)


@pytest.mark.parametrize("case", recorded_cases("diverge", *SOURCES))
def test_recorded_case_with_stance_diverge_is_refused_or_follows_the_documented_rules(case: dict[str, Any]) -> None:
    category, options = case["category"], case["options"]
    match category:
        case "length_penalty_odd":
            with pytest.raises(ValidationError):
                length_penalty_of(options)
        case "ca_partial_credit":
            with pytest.raises(ValueError, match="cannot_assess"):
                compute(case, Rubric.from_dict(case["criteria"]), True)
        case "ens_binary_unknown_strategy":
            with pytest.raises(ValueError, match="'nonsense'"):
                replay(case)
        case "ens_per_criterion_override" | "mc_errors":
            with pytest.raises(RubricError, match=r"aggregation|value"):
                replay(case)
        case "one_shot_shapes" | "holistic":
            with pytest.raises(JudgeError):
                replay(case)
        case "holistic_replies":
            report = replay(case)
            assert (report.score, report.complete, report.error is not None) == (0.0, False, True)
        case "verdict_strings" if case["verdicts"] == ["CANNOT_ASSESS"]:
            assert (replay(case).score, replay(case).cannot_assess_count) == (None, 1)
        case "retry":
            grader, fn = make_grader(case)
            report = Rubric.from_dict(case["criteria"]).grade_sync("text", grader=grader)
            # The attempts of the first round, and one in each of two later rounds.
            assert (fn.calls, report.score, report.complete) == (options["max_retries"] + 3, 0.0, False)
        case "parse" if '"MET", "explanation"' in case["judge_reply_text"]:
            # The verdict is valid although the explanation is a number, or reads like an error.
            assert (replay(case).score, replay(case).complete) == (1.0, True)
        case "parse" if options["default_fallback_verdicts"]:
            report = replay(case)
            assert (report.score, report.criteria[0].verdict, report.complete) == (1.0, "MET", False)
        case _:
            with pytest.raises(JudgeError):
                replay(case)
