"""`DecisionJudge.program`: the questions of a rubric as a `dspy.Predict`, which `dspy.experimental.ReAnchor` can tune.

DSPy's own client of decision models accepts answers that are not correct, and caches them. A program has another
client, which sends the judge's requests. It returns and caches only complete replies. This module imports DSPy.
`decision_judge.py` imports it when one of its methods needs it.
"""

from __future__ import annotations

import copy
import keyword
import math
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import dspy
from dspy import experimental

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders.per_criterion import PerCriterionGrader
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.decision_mapping import CANNOT_ASSESS, question_pair
from rubric_integrations.judges.decisions import PROTOCOLS, DecisionProtocol, TypedQuestion
from rubric_integrations.judges.protocol import Question
from rubric_integrations.judges.thresholds import MODEL_NAME, CriterionThresholds, Thresholds
from rubric_integrations.rubric.criterion import Criterion, all_criteria
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.scoring.judgment import JudgeFailure, Judgment, Outcome
from rubric_integrations.submission.submission import Submission, missing_evidence

if TYPE_CHECKING:
    from rubric_integrations.judges.decision_judge import DecisionJudge

# The fields of a `Submission` that judges see. DSPy warns if a value does not have the type of its field.
_INPUTS: dict[str, Any] = {
    "response": str, "query": str | None, "reference": str | None, "context": Any, "thinking": str | None,
    "hide_thinking": bool | None, "trajectory": Any, "show_trajectory": str | None, "attachments": Any,
}  # fmt: skip
_NO_GUIDELINES = "Judge the response."
_END_OF_SUFFICIENT = "_sufficient"
_OTHER_QUESTION = (
    "of the program is not the question of the rubric: change the rubric instead, and make the program again with "
    "`judge.program(rubric)`"
)


class DecisionField(NamedTuple):
    """An output field of a program.

    Attributes:
        position: The index of the criterion in the rubric. The conditions of the rubric follow its criteria.
        criterion: The criterion.
        question: The typed question. The labels of its options are the labels of the rubric.
        is_sufficient: Whether the question is whether the material is sufficient to judge the criterion.
    """

    position: int
    criterion: Criterion
    question: TypedQuestion
    is_sufficient: bool = False

    @property
    def annotation(self) -> Any:
        """The type of the field."""
        if self.question.kind == "yes or no":
            return bool
        answers, types = self.question.answers, cast("Any", experimental)
        if self.question.kind == "score":
            return types.Score[tuple(text for text, _ in answers)]
        return Annotated[cast("Any", Literal)[tuple(label for label, _ in answers)], types.Choice[answers]]

    def request(self) -> dict[str, Any]:
        """Return the question as DSPy passes it to the client."""
        kind, text, answers, _ = self.question
        if kind == "yes or no":
            return {"type": "noul", "instructions": text}
        if kind == "score":
            return {"type": "score", "instructions": text, "criteria": [text for text, _ in answers]}
        return {"type": "choice", "instructions": text, "criteria": dict(answers)}

    def answer(self, judgment: Judgment) -> dict[str, Any]:
        """Return a judgment as the answer that DSPy expects from the client."""
        shares = judgment.probabilities or {}
        if self.is_sufficient:
            return {"noul": round(1 - shares[CANNOT_ASSESS], 12)}
        if self.question.kind == "yes or no":
            return {"noul": shares["MET"]}
        if self.question.kind == "choice":
            best = max(shares, key=lambda label: shares[label])
            return {"choice": best, "confidence": shares[best], "probabilities": dict(shares)}
        levels = [share for name, share in shares.items() if name != CANNOT_ASSESS]
        mean = math.fsum(index * share for index, share in enumerate(levels))
        probabilities = {str(index): share for index, share in enumerate(levels)}
        return {"score": mean, "confidence": max(levels), "probabilities": probabilities}


class ProgramClient:
    """The client of a program: sends a judge's requests about a submission, and caches complete replies.

    Args:
        judge: The judge.
        rubric: The rubric.
        cache: Whether replies are stored in DSPy's cache.

    Attributes:
        supports_decision_requests: True. `dspy.Predict` then passes typed questions.
        fields: The output fields of the program by name.
        model: The name of the model.

    Raises:
        ValueError: The judge cannot answer a criterion, or the rubric has no criterion that needs a judge.
    """

    supports_decision_requests = True

    def __init__(self, judge: DecisionJudge, rubric: Rubric, cache: bool):
        self.judge, self.rubric, self.cache, self.model = judge, rubric, cache, judge.model
        self._grader = PerCriterionGrader(judge)
        self._grader.check_rubric(rubric)
        self.fields = _fields_of(judge, rubric)
        if not self.fields:
            raise ValueError("the rubric has no criterion that needs a judge: its program would have no question")
        self.guidelines = rubric.instructions or _NO_GUIDELINES
        self._questions = {name: field.request() for name, field in self.fields.items()}
        self._identity = [judge.fingerprint(), rubric.without_cases().to_json()]

    def __reduce__(self) -> Any:
        return partial(type(self), self.judge, self.rubric, self.cache), ()

    def __deepcopy__(self, memo: object) -> ProgramClient:
        # It never changes, and copies of a program share its limits.
        return self

    def dump_state(self) -> dict[str, Any]:
        """Return no state: a program that loads a state keeps its own client."""
        return {}

    def __call__(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the questions of the program, without `await`."""
        return run_sync(self.acall(state, questions))

    async def acall(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the questions of the program about the submission in a state of DSPy.

        Raises:
            JudgeFailure: A question has no answer.
            ValueError: The inputs are not a submission, or the program asks other questions than the judge.
        """
        self._require_own_questions(state, questions)
        submission = Submission.model_validate({k: v for k, v in state["inputs"].items() if v is not None})
        request = {"questions": self._identity, "submission": submission.model_dump(mode="json")}
        answers = dspy.cache.get(request) if self.cache else None
        if answers is None:
            answers = await self._ask(submission)
            if self.cache:
                dspy.cache.put(request, answers)
        return copy.deepcopy(cast("dict[str, Any]", answers))

    async def _ask(self, submission: Submission) -> dict[str, Any]:
        [answered] = await self._grader.judge(self.rubric, submission)
        outcomes = {name: _outcome(field, answered.outcomes, submission) for name, field in self.fields.items()}
        failures = [(name, failure) for name, failure in outcomes.items() if isinstance(failure, JudgeFailure)]
        # The first failure cancels the other questions, and is the reason.
        failures.sort(key=lambda entry: entry[1].kind == "cancelled")
        if failures:
            name, failure = failures[0]
            raise JudgeFailure(failure.kind, f"`{name}`: {failure.message}", about_text=failure.about_text)
        usage = answered.spend.usage
        if (tracker := dspy.settings.usage_tracker) and usage is not None:
            counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
            tracker.add_usage(self.model, counts)
        return {name: self.fields[name].answer(cast("Judgment", outcome)) for name, outcome in outcomes.items()}

    def _require_own_questions(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> None:
        """Check that the program asks the judge's questions. Its thresholds are valid for these questions only.

        Raises:
            ValueError: It asks others, or has demos.
        """
        changed = [
            name for name in {**self._questions, **questions} if questions.get(name) != self._questions.get(name)
        ]
        if state["instructions"] != self.guidelines:
            changed.append("instructions")
        if changed:
            raise ValueError(f"`{changed[0]}` {_OTHER_QUESTION}")
        if state.get("demos"):
            raise ValueError("a decision judge is shown no examples: remove the `demos` of the program")


class DecisionProgram(dspy.Predict):
    """A `dspy.Predict` that asks a `DecisionJudge` the questions of a rubric (see `DecisionJudge.program`).

    Attributes:
        client: The client, which is used even if `dspy.configure` names another.
    """

    def __init__(self, client: ProgramClient):
        self.client, self.lm = client, cast("Any", client)
        inputs: dict[str, Any] = {
            name: (kind, dspy.InputField() if name == "response" else dspy.InputField(default=None))
            for name, kind in _INPUTS.items()
        }
        outputs: dict[str, Any] = {
            name: (field.annotation, dspy.OutputField(desc=field.question.text))
            for name, field in client.fields.items()
        }
        super().__init__(cast("Any", dspy.make_signature)({**inputs, **outputs}, client.guidelines, "Decisions"))
        # DSPy may store the text in another form, such as without its indentation.
        client.guidelines = cast("Any", self.signature).instructions

    def reset(self) -> None:
        """Remove demos and traces, and keep the client."""
        super().reset()
        self.lm = self.client

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> DecisionProgram:
        """Load a state, and keep the client."""
        super().load_state({**state, "lm": None}, allow_unsafe_lm_state=allow_unsafe_lm_state)
        self.lm = self.client
        return self


def tuned_cascade(judge: DecisionJudge, program: dspy.Module) -> Cascade:
    """Make a judge that has the thresholds of a program (see `DecisionJudge.with_program`).

    Raises:
        TypeError: `program` does not contain exactly one program of a decision judge.
        ValueError: The program belongs to another judge, or has a setting for which a judge has no threshold.
    """
    programs = [part for _, part in program.named_predictors() if isinstance(part, DecisionProgram)]
    if len(programs) != 1:
        raise TypeError(
            f"`program` has {len(programs)} programs of a decision judge, and must have one: make it with "
            "`judge.program(rubric)`"
        )
    tuned, client = programs[0], programs[0].client
    if tuned.lm is not client:
        raise ValueError("`program` has another `lm` than the judge, whose probabilities differ: leave `lm` unchanged")
    if client.judge.fingerprint() != judge.fingerprint():
        raise ValueError(
            f"`program` belongs to {client.judge!r}, and the probabilities of {judge!r} differ: tune a program of this "
            "judge"
        )
    criteria: list[CriterionThresholds] = []
    for name, settings in tuned.fields.items():
        field = client.fields[name]
        output = cast("Any", tuned.signature).output_fields[name]
        if output.json_schema_extra["desc"] != field.question.text or settings.keys() & {"instructions", "criteria"}:
            raise ValueError(f"`{name}` {_OTHER_QUESTION}")
        threshold = _threshold_of(name, field, settings)
        if threshold is not None:
            criteria.append(
                CriterionThresholds(
                    requirement=field.criterion.full_requirement,
                    name=field.criterion.name or name,
                    met=threshold,
                    # All lower probabilities of MET. Stored probabilities of UNMET are rounded to 12 digits.
                    unmet=math.nextafter(round(1 - threshold, 12), 1),
                )
            )
    model = f"{PROTOCOLS[cast('DecisionProtocol', judge.protocol)].prefix}{judge.model}"
    is_name = judge.url and MODEL_NAME.fullmatch(model)
    return Cascade(
        judge,
        thresholds=Thresholds(judge=model if is_name else None, source="tuned", criteria=tuple(criteria)),
    )


def _threshold_of(name: str, field: DecisionField, settings: Mapping[str, Any]) -> float | None:
    """Return the threshold of a field. None if it does not differ from the judge's own."""
    if field.question.kind != "yes or no":
        weights = set(settings.get("weights", {}).values())
        cuts = settings.get("cuts", [])
        if len(weights) > 1 or cuts != [index + 0.5 for index in range(len(cuts))]:
            parameter = "weights" if weights else "cuts"
            raise ValueError(
                f"`{name}` has tuned `{parameter}`, and a judge has thresholds for binary criteria only: remove "
                f"`program.fields[{name!r}]`"
            )
        return None
    threshold = float(settings["threshold"])
    if threshold == 0.5:
        return None
    if field.is_sufficient:
        raise ValueError(
            f"`{name}` has the threshold {threshold:g}, and a judge abstains below 0.5: remove "
            f"`program.fields[{name!r}]`"
        )
    if threshold == 0:
        raise ValueError(f"`{name}` has the threshold 0, at which every answer is MET: remove the criterion instead")
    return threshold


def _outcome(field: DecisionField, outcomes: Mapping[int, Outcome], submission: Submission) -> Outcome:
    outcome = outcomes.get(field.position)
    if outcome is None:
        message = missing_evidence(field.criterion, submission) or "was not asked"
        return JudgeFailure("config", message, about_text=True)
    return outcome


def _fields_of(judge: DecisionJudge, rubric: Rubric) -> dict[str, DecisionField]:
    """Return the output fields of the program by name: one or two for each criterion without a check."""
    fields: dict[str, DecisionField] = {}
    submission = Submission(response="-")
    for index, criterion in enumerate(all_criteria(rubric.criteria)):
        if criterion.check is not None:
            continue
        pair = question_pair(Question(submission, criterion, rubric.instructions), abstains=judge.abstains)
        question = pair.answer
        if criterion.options is not None:
            # The probabilities of a judgment have the labels of the rubric, which sanitizing may change in a question.
            labels = [option.label for option in criterion.options]
            descriptions = [description for _, description in question.answers]
            labels += [label for label, _ in question.answers[len(labels) :]]
            question = question._replace(answers=tuple(zip(labels, descriptions, strict=True)))
        key = rubric.keys[index] if index < len(rubric.criteria) else ""
        name = _field_name(key, index, len(rubric.criteria), fields)
        fields[name] = DecisionField(index, criterion, question)
        if pair.sufficient is not None:
            fields[f"{name}{_END_OF_SUFFICIENT}"] = DecisionField(index, criterion, pair.sufficient, is_sufficient=True)
    return fields


def _field_name(key: str, index: int, count: int, taken: Mapping[str, object]) -> str:
    """Return the name of a criterion as a Python identifier that is neither taken nor a name of DSPy."""
    name = re.sub(r"\W+", "_", key).strip("_")
    is_free = not {name, f"{name}{_END_OF_SUFFICIENT}"} & (_INPUTS.keys() | taken.keys())
    if name.isidentifier() and not keyword.iskeyword(name) and is_free and not hasattr(dspy.Signature, name):
        return name
    return f"criterion_{index + 1}" if index < count else f"condition_{index - count + 1}"


def program_of(judge: DecisionJudge, rubric: RubricLike, *, cache: bool) -> DecisionProgram:
    """Make the program of a judge and a rubric (see `DecisionJudge.program`)."""
    return DecisionProgram(ProgramClient(judge, as_rubric(rubric), cache))
