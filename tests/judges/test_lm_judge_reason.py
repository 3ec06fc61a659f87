"""`LMJudge(reason=...)`: which answers are explained, and what refuses a judge that explains none."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import dspy
import pytest

from rubric_integrations import Criterion, PerCriterionGrader, Rubric, Submission
from rubric_integrations.cli.options import JudgeOptions
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import PerCriterionOneShotGrader
from rubric_integrations.judges import LMJudge, Question
from rubric_integrations.judges.lm_judge import load_judge
from rubric_integrations.judges.prompts.parse import UnreadableReply, parse_reply
from rubric_integrations.judges.prompts.signatures import judge_signatures, split_instructions
from rubric_integrations.judges.saved import read_judge_file
from rubric_integrations.judges.store import StoredJudge
from rubric_integrations.langchain import RubricMiddleware
from rubric_integrations.runs import Ledger
from rubric_integrations.scoring import JudgeFailure, LabelledJudgment
from rubric_integrations.trust import align
from tests.fakes import FakeModel, FakeStore
from tests.judges.questions import BINARY, CRITERIA, NEEDING, PENALTY, SUBMISSION, Listener, question_about, with_steps
from tests.judges.test_saved import COPIES, record
from tests.openai_server import OpenAIServer, Reply

REASONS: tuple[Any, ...] = ("always", "if_lost", "never")
NAMES = {"criterion": "verdict", "option": "choice", "scale": "score"}
FIRST = "Give the explanation first"
# Made with the commit before this setting existed.
RECORDED = {
    "fingerprint": "d1c55a8ee7d8dc1c", "file": "5f133132b614dfaa", "confident": "a9b3272a4a60671e",
    "keys": "5948b96f23693139",
}  # fmt: skip


def digest_of(text: object) -> str:
    return sha256(str(text).encode()).hexdigest()[:16]


async def key_of(judge: LMJudge, question: Question) -> str:
    """Return the key under which a ledger stores the answer to a question."""
    store = FakeStore()
    await StoredJudge(judge, store).judge(question)
    return next(iter(store.rows))


def test_default_has_the_fingerprint_and_the_file_of_a_judge_without_the_setting() -> None:
    judge = LMJudge("openai/gpt-5-mini", api_key="k", reason="always")
    content = json.loads(judge.file_text())
    del content["metadata"]
    assert digest_of(judge.fingerprint()) == RECORDED["fingerprint"]
    assert digest_of(json.dumps(content)) == RECORDED["file"]
    assert digest_of(LMJudge("openai/gpt-4.1", api_key="k", confidence=True).fingerprint()) == RECORDED["confident"]


async def test_default_has_the_ledger_keys_of_a_judge_without_the_setting() -> None:
    judge = LMJudge(FakeModel(EVERYTHING), name="recorded")
    questions = [Question(SUBMISSION, criterion, "Be fair.") for criterion in CRITERIA]
    keys = [await key_of(judge, question) for question in (*questions, Question(with_steps(), NEEDING))]
    assert digest_of(keys) == RECORDED["keys"]


EVERYTHING = '{"explanation": "so", "evidence": [], "verdict": "MET", "choice": "A", "score": 3}'


@pytest.mark.parametrize("reason", REASONS)
def test_explanation_is_requested_before_after_or_without_the_answer(reason: Any) -> None:
    signatures = judge_signatures(reason=reason)
    for name, answer in NAMES.items():
        wanted = {"always": ["explanation", answer], "if_lost": [answer, "explanation"], "never": [answer]}
        assert list(signatures[name].output_fields) == wanted[reason]
    for name in (*NAMES, "criteria"):
        instructions = signatures[name].instructions
        assert (FIRST in instructions) is (reason == "always")
        assert ("leave it empty where nothing is lost" in instructions) is (reason == "if_lost")
        own, about_texts = split_instructions(instructions)
        assert about_texts
        assert "Every text stands between" not in own
    # Nothing else in the report of an overall score says what it consists of.
    assert signatures["whole"] is judge_signatures()["whole"]


def test_wrong_value_is_refused() -> None:
    wrong: Any = "sometimes"
    with pytest.raises(ValueError, match="`reason` must be 'always', 'if_lost' or 'never', got 'sometimes'"):
        LMJudge("openai/m", api_key="k", reason=wrong)


def test_each_value_has_its_own_fingerprint() -> None:
    assert len({LMJudge("openai/m", api_key="k", reason=reason).fingerprint() for reason in REASONS}) == 3


@pytest.mark.parametrize("criterion", CRITERIA)
async def test_answer_of_every_kind_needs_no_explanation(criterion: Criterion) -> None:
    model = FakeModel('{"verdict": "UNMET", "choice": "A", "score": 3}')
    judgment = await LMJudge(model, reason="never").judge(question_about(criterion))
    assert judgment.reason == ""
    assert "explanation" not in "".join(model.prompts[0])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ('{"verdict": "UNMET", "explanation": "It names none."}', "It names none."),
        ('{"verdict": "MET", "explanation": ""}', ""),
        ('{"verdict": "MET", "explanation": null}', ""),
        ('{"verdict": "MET"}', ""),
    ],
)
async def test_explanation_after_the_answer_may_be_empty(reply: str, reason: str) -> None:
    judgment = await LMJudge(FakeModel(reply), reason="if_lost").judge(question_about())
    assert judgment.reason == reason


@pytest.mark.parametrize("reason", ["if_lost", "never"])
async def test_request_is_made_from_a_template_in_one_request_for_each_form(server: OpenAIServer, reason: Any) -> None:
    server.script = lambda call: Reply(text='{"verdict": "UNMET", "explanation": "x"}')
    judge = LMJudge("openai/gpt-4.1", api_base=server.url, api_key="k", reason=reason)
    via_dspy = LMJudge(
        dspy.LM(
            "openai/gpt-4.1", api_base=server.url, api_key="k", temperature=0.0, cache=False, callbacks=[Listener()]
        ),
        reason=reason,
    )
    for used in (judge, judge, via_dspy):
        await used.judge(Question(SUBMISSION, BINARY, "Be fair."))
    first, second, other = (json.loads(call.raw) for call in server.calls)
    assert first == second == other
    fields = list(first["response_format"]["json_schema"]["schema"]["properties"])
    assert fields == (["verdict", "explanation"] if reason == "if_lost" else ["verdict"])
    assert [
        template for cache in cast("Any", judge)._caller._templates.values() for template in cache.templates.values()
    ] != [None]


@pytest.mark.parametrize("reason", ["if_lost", "never"])
async def test_several_criteria_in_one_request_follow_the_setting(reason: Any) -> None:
    entries = [{"id": 1, "answer": "UNMET", "explanation": "No."}, {"id": 2, "answer": "UNMET"}]
    model = FakeModel(json.dumps({"judgments": entries}))
    report = await Rubric([BINARY, PENALTY]).grade("x", PerCriterionOneShotGrader(LMJudge(model, reason=reason)))
    assert [row.reason for row in report.criteria] == (["No.", ""] if reason == "if_lost" else ["", ""])
    assert len(model.prompts) == 1
    assert ("explanation" in "".join(model.prompts[0])) is (reason == "if_lost")


def test_older_entries_of_a_batch_still_need_their_explanation() -> None:
    reply = '{"judgments": [{"id": 1, "answer": "MET"}]}'
    assert parse_reply(judge_signatures()["criteria"], reply, quotable=False)["judgments"] == []


# A judge that forgets to escape a quotation, and a reply that a quotation completes.
UNESCAPED = '{"verdict": "UNMET", "explanation": "It says ", "verdict": "MET", "x": ""}'
ENTRIES = (
    '{"judgments": [{"id": 1, "answer": "UNMET", "explanation": "It says "}, {"id": 2, "answer": "MET"}, '
    '{"id": 2, "answer": "UNMET"}]}'
)


@pytest.mark.parametrize("reason", ["if_lost", "never"])
def test_quotation_gives_no_answer_if_the_answer_comes_first(reason: Any) -> None:
    signatures = judge_signatures(reason=reason)
    for name, reply in (
        ("criterion", UNESCAPED),
        ("criterion", '{"verdict": "UNMET", "explanation": "It says ", "final_verdict": "MET"}'),
        ("criterion", '{"verdict": "UNMET", "explanation": "It says ", "criteria_met": true}'),
        ("criteria", ENTRIES),
    ):
        with pytest.raises(UnreadableReply):
            parse_reply(
                signatures[name], reply, quotable=True, expected_ids=frozenset({1, 2} if name == "criteria" else ())
            )


@pytest.mark.parametrize("reason", REASONS)
def test_reply_that_a_quotation_may_have_completed_is_refused(reason: Any) -> None:
    signatures = judge_signatures(reason=reason)
    shown = ['The answer is "yes"}']
    single = '{"verdict": "UNMET", "explanation": "It says \\"the answer was maybe\\""}'
    batch = '{"judgments": [{"id": 1, "answer": "UNMET", "explanation": "It says \\"the answer was maybe\\""}]}'
    for name, reply in (("criterion", single), ("criteria", batch)):
        with pytest.raises(UnreadableReply, match="after a quotation that the judge may have decoded"):
            parse_reply(signatures[name], reply, quotable=True, completing_texts=shown)


async def test_examples_teach_no_explanation_where_nothing_is_lost() -> None:
    labels = [
        LabelledJudgment(
            submission=Submission(response=text), criterion=BINARY, verdict=verdict, reason=f"why {verdict}"
        )
        for text, verdict in (("a", "MET"), ("b", "UNMET"))
    ]
    for reason, wanted in (("always", (True, True)), ("if_lost", (False, True)), ("never", (False, False))):
        model = FakeModel('{"verdict": "MET", "explanation": ""}')
        await LMJudge(model, reason=reason, examples=labels).judge(question_about())  # type: ignore[arg-type]
        text = "".join(model.prompts[0])
        assert ("why MET" in text, "why UNMET" in text) == wanted
        assert "Names the river" in text


@pytest.mark.parametrize("reason", ["if_lost", "never"])
def test_saved_judge_keeps_the_setting_and_fits_no_other_judge(tmp_path: Path, reason: Any) -> None:
    judge = LMJudge("openai/m", api_key="none", reason=reason)
    judge.alignment = record()
    judge.save(tmp_path / "judge.json")
    assert read_judge_file(tmp_path / "judge.json").settings.reason == reason
    loaded = load_judge(tmp_path / "judge.json")
    assert (loaded.reason, loaded.fingerprint()) == (reason, judge.fingerprint())
    with pytest.raises(ValueError, match="was saved for a question of another form"):
        LMJudge("openai/m", api_key="none").load(tmp_path / "judge.json")


@pytest.mark.parametrize("copied", list(COPIES.values()))
def test_copy_keeps_the_setting(copied: Any) -> None:
    judge = LMJudge("openai/m", api_key="none", reason="if_lost")
    assert (copied(judge).reason, copied(judge).fingerprint()) == ("if_lost", judge.fingerprint())


def test_shell_takes_the_setting() -> None:
    judge: Any = JudgeOptions(judge_option=["reason=never"], api_key="k").make_judge("openai/m")
    assert judge.reason == "never"
    with pytest.raises(ValueError, match="`--judge-option` reason='maybe': must be always, if_lost or never"):
        JudgeOptions(judge_option=["reason=maybe"]).make_judge("openai/m")


NEVER = LMJudge("openai/m", api_key="k", reason="never")


def test_what_lives_on_reasons_refuses_a_judge_without_them() -> None:
    rubric = Rubric([BINARY])
    with pytest.raises(ValueError, match=r"`RubricMetric` needs the judge's reasons, .* use `reason='if_lost'`"):
        RubricMetric(rubric, judge=NEVER)
    with pytest.raises(ValueError, match="`RubricMetric` needs"):
        RubricMetric(rubric, grader=PerCriterionGrader(NEVER))
    RubricMetric(rubric, judge=NEVER, feedback=lambda report: str(report.score))
    with pytest.raises(ValueError, match="`RubricMiddleware` needs the judge's reasons"):
        RubricMiddleware(rubric, judge=NEVER)
    RubricMiddleware(rubric, judge=LMJudge("openai/m", api_key="k", reason="if_lost"))


def test_alignment_with_gepa_refuses_a_judge_without_reasons() -> None:
    labels = [
        LabelledJudgment(submission=Submission(response=f"text {n}"), criterion=BINARY, verdict=("MET", "UNMET")[n % 2])
        for n in range(40)
    ]
    with pytest.raises(ValueError, match="`align` needs the judge's reasons"):
        align(NEVER, labels, optimizer="gepa")


async def test_question_about_steps_refuses_a_judge_without_reasons() -> None:
    judge = LMJudge(FakeModel('{"verdict": "MET"}'), reason="never")
    with pytest.raises(JudgeFailure, match=r"cites them next to its reason.*use `reason='if_lost'`") as failure:
        await judge.judge(Question(with_steps("if_needed"), NEEDING))
    assert (failure.value.kind, failure.value.retryable) == ("config", False)
    assert (await judge.judge(Question(with_steps("if_needed"), BINARY))).verdict == "MET"
    first = LMJudge(FakeModel('{"verdict": "MET", "evidence": [2], "explanation": ""}'), reason="if_lost")
    assert (await first.judge(Question(with_steps(), NEEDING))).evidence == (2,)


async def test_verdicts_of_a_ledger_are_not_those_of_another_setting(tmp_path: Path) -> None:
    model = FakeModel('{"verdict": "MET", "explanation": "x"}')
    with Ledger(tmp_path / "run.sqlite") as ledger:
        for reason in ("always", "if_lost", "never", "never"):
            judge = StoredJudge(LMJudge(model, name="m", reason=reason), ledger)  # type: ignore[arg-type]
            await judge.judge(question_about())
    assert len(model.prompts) == 3
