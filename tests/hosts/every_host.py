"""The hosts that can be called in the usual environment, each as a function of a grader and an output."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
from langsmith import evaluate
from langsmith.schemas import Example

from rubric_integrations import JudgeError, Rubric, grade_many
from rubric_integrations._util.event_loop import run_sync
from rubric_integrations.dspy import RubricMetric
from rubric_integrations.graders import Grader
from rubric_integrations.langchain import RubricEvaluator, RubricRunnable, RubricStringEvaluator, offline_client
from rubric_integrations.submission import read_responses
from tests.hosts.six_responses import QUERY
from tests.server.serving import serving

FAILED, EMPTY = "the judge failed", "nothing to grade"
Outcome = float | str | None
"""The score, `FAILED`, or `EMPTY`."""
Host = Callable[[Rubric, Grader, Any], Outcome]


def _outcome(grade: Callable[[], Any]) -> Outcome:
    try:
        return grade()
    except JudgeError:
        return FAILED
    except (ValueError, TypeError):
        return EMPTY


def grade_one(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    return _outcome(lambda: rubric.grade_sync(output, grader, query=QUERY).score)


def grade_a_run(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    [graded] = grade_many([output], rubric, grader)
    return EMPTY if graded.report is None else FAILED if graded.judge_error else graded.score


def grade_a_column(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    return grade_a_run(rubric, grader, {"id": "a", "query": QUERY, "response": output})


def grade_a_file(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_text(json.dumps({"id": "a", "query": QUERY, "response": output}))
        [row] = read_responses(path)
    return grade_a_run(rubric, grader, row)


def grade_in_dspy(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    metric = RubricMetric(rubric, grader=grader)
    example = dspy.Example(question=QUERY).with_inputs("question")
    # A metric's score is a number in any case: an empty response is 0, as for a program that failed.
    score = _outcome(lambda: float(metric(example, output if isinstance(output, dict) else {"response": output})))
    return EMPTY if metric.summary()["nothing_to_grade"] else score


def grade_in_langsmith(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    evaluator = RubricEvaluator(rubric, grader=grader)
    return _outcome(lambda: evaluator(inputs={"question": QUERY}, outputs=output)["score"])


def grade_in_an_experiment(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    examples = [Example(id=uuid.uuid4(), inputs={"question": QUERY})]
    evaluators: Any = [RubricEvaluator(rubric, grader=grader)]
    settings: Any = {"upload_results": False, "client": offline_client()}

    def target(inputs: Any) -> Any:
        return output

    [row] = evaluate(target, data=examples, evaluators=evaluators, **settings)
    total: Any = row["evaluation_results"].get("results", [])[0]
    return (
        FAILED if (total.comment or "").startswith("not graded: `") else EMPTY if total.score is None else total.score
    )


def grade_in_langchain_classic(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    evaluator: Any = RubricStringEvaluator(rubric, grader=grader)
    return _outcome(lambda: evaluator.evaluate_strings(prediction=output, input=QUERY)["score"])


def grade_in_langchain(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    runnable = RubricRunnable(rubric, grader=grader)
    return _outcome(lambda: runnable.invoke({"input": QUERY, "output": output}).score)


def grade_after_a_chain(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    runnable = RubricRunnable(rubric, grader=grader)
    return _outcome(lambda: runnable.invoke(output).score)


def grade_in_pydantic_evals(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    from pydantic_evals import Case, Dataset

    from rubric_integrations.pydantic_evals import RubricEvaluator as Evaluator

    case: Any = Case(name="a", inputs={"question": QUERY})
    dataset: Any = Dataset(name="d", cases=[case], evaluators=[Evaluator(rubric, grader=grader)])

    def program(inputs: Any) -> Any:
        return output

    [result] = dataset.evaluate_sync(program, progress=False).cases
    if result.evaluator_failures:
        return FAILED if result.evaluator_failures[0].error_type == "JudgeError" else EMPTY
    return result.scores["rubric"].value


def grade_on_a_server(rubric: Rubric, grader: Grader, output: Any) -> Outcome:
    async def post() -> Any:
        async with serving(rubric, grader) as server:
            return await server.post("/grade", {"query": QUERY, "response": output})

    answer = run_sync(post())
    if answer.status == 200:
        return answer.data["score"]
    return {422: EMPTY, 503: FAILED}[answer.status]


HOSTS: dict[str, Host] = {
    "Rubric.grade": grade_one,
    "grade_many": grade_a_run,
    "column of grade_many": grade_a_column,
    "file": grade_a_file,
    "DSPy": grade_in_dspy,
    "LangSmith": grade_in_langsmith,
    "LangSmith experiment": grade_in_an_experiment,
    "langchain_classic": grade_in_langchain_classic,
    "LangChain": grade_in_langchain,
    "LangChain, after a chain": grade_after_a_chain,
    "pydantic-evals": grade_in_pydantic_evals,
    "server": grade_on_a_server,
}
