"""One small document of each rubric format, in each of its shapes."""

from __future__ import annotations

from typing import Any

from tests.formats.test_adk import config, eval_set, of_case
from tests.formats.test_assertions import AGENTV, PROMPTFOO
from tests.formats.test_checklist import BANDED
from tests.formats.test_datasets import GDPVAL, GRADED, ITEMS, PROFESSIONAL
from tests.formats.test_rar import RAR, RESEARCH
from tests.formats.test_rewardkit import as_data
from tests.formats.test_verifiers import CRITERIA

SCORES: dict[str, Any] = {
    "criteria": "Does it show empathy?",
    **{f"score{score}_description": f"It is of level {score}." for score in range(1, 6)},
}
ROW: dict[str, Any] = {
    "id": "planning_0", "capability": "planning", "system_prompt": "You plan.", "input": "Plan a trip.",
    "reference_answer": "Day 1", "score_rubric": SCORES, "response": "Go.",
}  # fmt: skip
TREE: dict[str, Any] = {
    "id": "root", "requirements": "The paper has been reproduced.", "weight": 1, "task_category": None,
    "sub_tasks": [
        {"id": "a", "requirements": "The code is there.", "weight": 3, "task_category": None, "sub_tasks": [
            {"id": "b", "requirements": "It loads RoBERTa.", "weight": 1, "sub_tasks": [],
             "task_category": "Code Development", "finegrained_task_category": "Method Implementation"},
            {"id": "c", "requirements": "It loads T5.", "weight": 2, "sub_tasks": [],
             "task_category": "Code Execution"},
        ]},
        {"id": "d", "requirements": "The figures match.", "weight": 1, "sub_tasks": [],
         "task_category": "Result Match"},
    ],
}  # fmt: skip
TASK: dict[str, Any] = {
    "id": "3", "description": {"purpose": "p"}, "initial_state": None,
    "user_scenario": {"persona": None, "instructions": {"reason_for_call": "You want to fly."}},
    "evaluation_criteria": {
        "actions": [{"action_id": "3_0", "name": "get_user_details", "arguments": {"user_id": "u"}}],
        "communicate_info": ["4"], "nl_assertions": ["Agent refuses.", "Agent is kind."], "reward_basis": ["DB"],
    },
}  # fmt: skip
INFOBENCH: dict[str, Any] = {
    "id": "domain_oriented_task_0", "instruction": "Write a poem.", "input": "About rain.", "output": "",
    "decomposed_questions": ["Is it a poem?", "Is it about rain?"], "eval": [True, False],
}  # fmt: skip
MODELGRADED: dict[str, Any] = {
    "sql": {
        "prompt": "[Question]: {input}\n[Expert]: {ideal}\n[Submission]: {completion}\nIs {{it}} right?\n",
        "choice_strings": ["Correct", "Incorrect"], "choice_scores": {"Correct": 1.0, "Incorrect": 0.0},
        "input_outputs": {"input": "completion"},
    },
}  # fmt: skip

SCENARIOS: dict[str, Any] = {
    "assertionTemplates": {"kind": {"type": "llm-rubric", "value": "Is kind"}},
    "defaultTest": {"assert": [{"$ref": "#/assertionTemplates/kind"}]},
    "scenarios": [{
        "config": [{"vars": {"language": "French"}}],
        "tests": [{"description": "hello", "assert": [{"type": "llm-rubric", "value": "Is in {{language}}"}]}],
    }],
}  # fmt: skip
FLASK: list[dict[str, Any]] = [
    {"Skill": "Factuality", "Criteria": "Is it true?", "Scoring": {str(s): f"Level {s}." for s in range(1, 6)}},
    {"Skill": "Readability", "Criteria": "Is it clear?", "Scoring": {str(s): f"Degree {s}." for s in range(1, 6)}},
]
WILDBENCH: dict[str, Any] = {
    "session_id": "s1", "conversation_input": [{"role": "user", "content": "Write a poem."}], "intent": "poetry",
    "checklist": ["Is it a poem?", "Does it rhyme?"], "references": {"gpt-4": "Rain ..."},
}  # fmt: skip

TONE: dict[str, Any] = {
    "type": "label_model", "name": "tone", "model": "gpt-5-mini", "labels": ["kind", "cool", "rude"],
    "passing_labels": ["kind", "cool"],
    "input": [
        {"role": "developer", "content": "Label the tone."},
        {"role": "user", "content": "{{ sample.output_text }}"},
    ],
}  # fmt: skip
HELP: dict[str, Any] = {
    "type": "score_model", "name": "help", "model": "o4-mini", "range": [1, 5], "pass_threshold": 4,
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "Rate {{sample.output_text}}"}]}],
}  # fmt: skip
ROUTE: dict[str, Any] = {
    "type": "string_check", "name": "route", "input": "{{ sample.output_text }}", "reference": "{{ item.queue }}",
    "operation": "eq",
}  # fmt: skip
OPENAI_EVAL: dict[str, Any] = {
    "object": "eval", "name": "Tickets", "testing_criteria": [
        ROUTE, TONE, HELP, {"type": "python", "name": "length", "source": "def grade(sample, item): return 1.0"},
    ],
}  # fmt: skip
OPENAI_MULTI: dict[str, Any] = {
    "type": "multi", "name": "ticket", "calculate_output": "0.75 * help + 0.25 * route",
    "graders": {"route": ROUTE, "help": {**HELP, "range": [0, 1], "pass_threshold": None}},
}  # fmt: skip
SKILL: dict[str, Any] = {
    "skill_name": "report", "evals": [
        {"id": 1, "prompt": "Sum up the sales.", "expected_output": "The North leads.", "files": ["sales.csv"],
         "expectations": ["Names the North", "Names a figure"]},
    ],
}  # fmt: skip
SKILLS: dict[str, Any] = {
    "skill_name": "report", "evals": [*SKILL["evals"], {"id": "b", "prompt": "Plot.", "assertions": ["Has a plot"]}],
}  # fmt: skip
MARKDOWN: dict[str, Any] = {
    "markdown": "# Report\n\n## Figures\n- States the margin\n- Names a source\n  - a page\n\n## Form\n* Is short\n",
}

OUTCOME: dict[str, Any] = {
    "type": "user.define_outcome", "description": "Write the report.", "max_iterations": 3,
    "rubric": {"type": "text", "content": MARKDOWN["markdown"]},
}  # fmt: skip

READ_ONLY = ("adk", "flask", "modelgraded", "openai_evals", "verifiers")
"""The formats that are only read."""

SAMPLES: list[tuple[str, Any]] = [
    ("openai_evals", OPENAI_EVAL), ("openai_evals", OPENAI_MULTI), ("openai_evals", TONE),
    ("openai_evals", {"object": "list", "data": [OPENAI_EVAL]}), ("agent_skills", SKILL), ("agent_skills", SKILLS),
    ("markdown", MARKDOWN), ("markdown", OUTCOME),
    ("agentv", AGENTV), ("promptfoo", PROMPTFOO), ("healthbench", GRADED), ("rar", RAR), ("rar", RESEARCH),
    ("checklist", [BANDED]), ("checklist", {"checklist": ["Greets"]}), ("checklist", {"nl_assertions": ["Greets"]}),
    ("prometheus", SCORES), ("prometheus", ROW), ("prometheus", [ROW, ROW]), ("prometheus", {"planning_0": ROW}),
    ("checklist", TASK), ("checklist", [TASK, TASK]), ("checklist", INFOBENCH), ("checklist", [INFOBENCH]),
    ("modelgraded", MODELGRADED), ("modelgraded", {**MODELGRADED, "other": MODELGRADED["sql"]}),
    ("native", {**MODELGRADED, "criteria": [{"requirement": "Greets"}]}),
    ("promptfoo", SCENARIOS), ("flask", FLASK), ("checklist", WILDBENCH), ("checklist", [WILDBENCH, WILDBENCH]),
    ("healthbench_professional", PROFESSIONAL), ("healthbench_professional", [PROFESSIONAL]), ("gdpval", ITEMS),
    ("gdpval", GDPVAL), ("gdpval", [GDPVAL, GDPVAL]), ("rewardkit", as_data()), ("rewardkit", {"reward": [{}]}),
    ("verifiers", {"criteria": CRITERIA}), ("verifiers", CRITERIA), ("adk", config()),
    ("adk", eval_set([of_case("a")], [of_case("b", "TOOL_USE_QUALITY")], turns=2)),
    ("paperbench", TREE), ("native", [{"requirement": "Greets"}]),
    ("native", {"criteria": [{"requirement": "Greets"}]}),
    ("native", {"criteria": "Greets", "requirements": "x"}), ("native", {"score_rubric": {"criteria": "Greets"}}),
]  # fmt: skip
