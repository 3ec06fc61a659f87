"""Public data sets with human labels for each criterion and with recorded judges, in one common form.

The data are not part of the library. `load_set` reads them from a folder with one subfolder for each set.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from rubric_integrations.judges import read_recorded_reply
from rubric_integrations.rubric.answers import Option, Scale
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.judgment import to_judgment
from rubric_integrations.submission.inputs import Row, read_row
from rubric_integrations.trust.benchmarks.clones import (
    is_clone_of_llmbar,
    is_clone_of_summhay,
    pairs_of_clone,
    summaries_of_clone,
)
from rubric_integrations.trust.matching import consensus_of

REASONS_FIRST = "reasons first"
"""The part of a judge's prompt that says that the prompt requests reasons before the answer."""

CONSTANT_JUDGE = "always the most frequent answer"
"""The name of the judge that gives the same answer to all questions of a kind. Its kappa is 0."""

CRITERION_KINDS = (
    "fact in a text",
    "requirement of a task",
    "relevance",
    "instruction followed",
    "quality",
    "creativity",
)
"""The kinds of criteria, in the order of the tables. Each criterion of a set has one of them as its tag."""

Question = tuple[str, str]
"""The id of an item, and the name of the criterion that was judged."""


class RecordedJudge(NamedTuple):
    """One judge's answers to the questions of a data set. A question is one criterion of one item.

    Attributes:
        name: The judge's name.
        prompt: The kind of the judge's prompt.
        date: The month or year in which the replies were published.
        answers: The judge's answer to each question with a reply. None is a reply that could not be parsed, or another
            failure.
        verdict_first: The questions whose reply begins with the answer, although the prompt requests reasons first.
        published: The answers by the rule of the data's authors, if they published figures by another rule than ours.
    """

    name: str
    prompt: str
    date: str
    answers: Mapping[Question, str | None]
    verdict_first: frozenset[Question] = frozenset()
    published: Mapping[Question, str | None] | None = None

    @property
    def label(self) -> str:
        """The name with the kind of prompt, if it has one, which is unique in a set."""
        return f"{self.name}, {self.prompt}" if self.prompt else self.name

    def restricted_to(self, questions: Container[Question]) -> RecordedJudge:
        """Return the judge with its answers to some questions."""
        return self._replace(answers={each: answer for each, answer in self.answers.items() if each in questions})


class BenchmarkItem(NamedTuple):
    """An item of a data set, such as a response, that annotators and judges have judged.

    Attributes:
        id: The id of the item.
        cluster: The name of the item's cluster, such as the id of its task. The items of a cluster depend on each
            other.
        criteria: The criteria, by name.
        labels: The answers of the raters, by the name of the criterion and the name of the rater.
    """

    id: str
    cluster: str
    criteria: Mapping[str, Criterion]
    labels: Mapping[str, Mapping[str, str]]


class Source(NamedTuple):
    """The repository, licence and annotators of a data set.

    Attributes:
        title: The name of the data set in tables and messages.
        repository: The repository on GitHub, as `owner/name`.
        commit: The commit of the data.
        licence: The licence of the data.
        cluster: The property that the items of a cluster share, such as "task".
        raters: How each human label was made, such as "the consensus of three people".
    """

    title: str
    repository: str
    commit: str
    licence: str
    cluster: str
    raters: str


SOURCES = {
    "summhay": Source(
        "SummHay", "salesforce/summary-of-a-haystack", "43531729bc39fdc301bcc9ff7b26c5e6ce3fbf57", "Apache-2.0",
        "subtopic", "one label each",
    ),
    "devai": Source(
        "DevAI", "metauto-ai/agent-as-a-judge", "43c2fa7b84ef0c1522e8250576e6798bace29dd0", "MIT", "task",
        "the consensus of three people",
    ),
    "llmbar": Source(
        "LLMBar", "princeton-nlp/LLMBar", "900616bff90b6c6c8e1681f7d079250637c55992", "MIT", "pair",
        "a gold preference",
    ),
    "llm_rubric": Source(
        "LLM-Rubric", "microsoft/LLM-Rubric", "70d56fc4e9a26e60642bc14b62b96d2d0a500edd", "MIT", "dialogue",
        "one person",
    ),
    "conala": Source(
        "CoNaLa", "terryyz/ice-score", "4e45c6dcd0a31cf62488619ce23cecc032263d8b", "MIT", "task",
        "the rounded mean of 2 to 8 people",
    ),
    "ttcw": Source(
        "TTCW", "salesforce/creativity_eval", "fced0ab2d3068244152d1302a8bd8e9f538440f5", "BSD-3-Clause", "story",
        "the majority of three experts",
    ),
}  # fmt: skip
"""The sets, by the names that `load_set` and `--sets` accept."""


@dataclass(frozen=True)
class BenchmarkSet:
    """A data set with human labels, in the form that all data sets of the benchmark share.

    Attributes:
        name: The name of the set in `SOURCES`.
        items: The items with human labels.
        judges: The judges whose answers to the items were published.
        rows: The rows that a new judge can grade, because their texts and sources are public. Empty if there are none.
        answers_of: A function that gets the graded `rows` of a new judge, and returns its answer to each question of
            `items`. None is a question without an answer.
    """

    name: str
    items: Sequence[BenchmarkItem]
    judges: Sequence[RecordedJudge]
    rows: Sequence[Row] = ()
    answers_of: Callable[[Iterable[GradedRow]], dict[Question, str | None]] = field(
        default=lambda rows: {(row.id, name): verdict for row in rows for name, verdict in _verdicts(row)}
    )

    @property
    def source(self) -> Source:
        """The repository, licence and annotators of the data set."""
        return SOURCES[self.name]

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the set's criteria, in the order of `CRITERION_KINDS`."""
        present = {criterion.tags[0] for item in self.items for criterion in item.criteria.values()}
        return tuple(kind for kind in CRITERION_KINDS if kind in present)

    @cached_property
    def references(self) -> dict[Question, str]:
        """The reference answer to each question: one answer that represents all raters.

        For ordered answers of several raters, it is the rounded mean. The levels are numbered in their order, and the
        mean of the raters' numbers is rounded (0.5 is rounded up). For other answers, it is the most frequent answer. A
        question is left out if its answers have no single most frequent one.
        """
        answers = (
            ((item.id, name), _reference(item.criteria[name], [*labels.values()]))
            for item in self.items
            for name, labels in item.labels.items()
        )
        return {question: answer for question, answer in answers if answer is not None}

    @cached_property
    def constant_judge(self) -> RecordedJudge:
        """A judge that gives the same answer to all questions of a kind: the most frequent reference answer.

        Abstentions are not counted.
        """
        criteria = {(item.id, name): each for item in self.items for name, each in item.criteria.items()}
        counts: dict[str, Counter[str]] = {}
        for question, answer in self.references.items():
            if to_judgment(criterion := criteria[question], answer).value is not None:
                counts.setdefault(criterion.tags[0], Counter())[answer] += 1
        most = {kind: of_kind.most_common(1)[0][0] for kind, of_kind in counts.items()}
        answers = {question: most.get(criteria[question].tags[0]) for question in self.references}
        return RecordedJudge(CONSTANT_JUDGE, "", "", answers)

    def restricted_to(self, questions: Container[Question]) -> BenchmarkSet:
        """Return the set with some of its questions."""
        items = (
            item._replace(labels={name: each for name, each in item.labels.items() if (item.id, name) in questions})
            for item in self.items
        )
        return replace(
            self,
            items=[item for item in items if item.labels],
            judges=[judge.restricted_to(questions) for judge in self.judges],
        )

    def with_one_rater(self) -> BenchmarkSet:
        """Return a set in which a rater is a judge, and the other raters of each question are its reference.

        Each rater of an item makes an item. Questions with one rater are left out. The first judge is "one person".
        """
        items: list[BenchmarkItem] = []
        person: dict[Question, str | None] = {}
        answers: list[dict[Question, str | None]] = [{} for _ in self.judges]
        for item in self.items:
            for rater in dict.fromkeys(rater for labels in item.labels.values() for rater in labels):
                others = {
                    name: {other: label for other, label in labels.items() if other != rater}
                    for name, labels in item.labels.items()
                    if rater in labels and len(labels) > 1
                }
                items.append(item._replace(id=f"{item.id}/{rater}", labels=others))
                for name in others:
                    person[items[-1].id, name] = item.labels[name][rater]
                    for judge, own in zip(self.judges, answers, strict=True):
                        if (item.id, name) in judge.answers:
                            own[items[-1].id, name] = judge.answers[item.id, name]
        judges = [judge._replace(answers=own) for judge, own in zip(self.judges, answers, strict=True)]
        return replace(self, items=items, judges=[RecordedJudge("one person", "", "", person), *judges])


def _reference(criterion: Criterion, labels: Sequence[str]) -> str | None:
    if len(labels) == 1 or criterion.kind != "ordinal":
        return consensus_of(labels)
    levels = [option.label for option in criterion.choices if not option.na]
    places = [levels.index(label) for label in labels if label in levels]
    return levels[math.floor(sum(places) / len(places) + 0.5)] if places else None


def _verdicts(row: GradedRow) -> Iterator[tuple[str, str | None]]:
    for entry in row.report.criteria if row.report else ():
        yield entry.name, None if entry.error is not None else entry.verdict


class BenchmarkDataError(ValueError):
    """Raised if the data of a set are missing or have another format."""


def load_set(name: str, data: Path) -> BenchmarkSet:
    """Read a data set.

    Args:
        name: The name of the set in `SOURCES`.
        data: The folder that contains the set's subfolder or a clone of its repository, or the clone itself.

    Raises:
        BenchmarkDataError: The name is unknown, or the data cannot be read.
    """
    folder, source = folder_of(name, data), SOURCES[name]
    try:
        return _LOADERS[name](folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise BenchmarkDataError(
            f"{folder}: does not have the form of the set {source.title}: {type(error).__name__}: {reason}"
        ) from error


def folder_of(name: str, data: Path) -> Path:
    """Return the folder of a set: a subfolder with its name, or a clone of the repository of SummHay or LLMBar.

    Args:
        name: The name of the set in `SOURCES`.
        data: The folder that contains the subfolder or the clone, or the clone itself.

    Raises:
        BenchmarkDataError: The name is unknown, or there is no such folder.
    """
    if name not in SOURCES:
        raise BenchmarkDataError(f"{name!r} is not a set: name some of {', '.join(SOURCES)}")
    address = f"https://github.com/{SOURCES[name].repository}"
    if (data / name).is_dir():
        return data / name
    for folder in (data, data / address.rpartition("/")[2]):
        if (name == "summhay" and is_clone_of_summhay(folder)) or (name == "llmbar" and is_clone_of_llmbar(folder)):
            return folder
    clone = " or a clone of the repository" if name in ("summhay", "llmbar") else ""
    raise BenchmarkDataError(
        f"{data / name}: there is no such folder: name the folder that has the subfolder {name!r}{clone} with --data. "
        f"The data are not part of the library; they come from {address}"
    )


def commit_of(data: Path) -> str | None:
    """Return the commit of a git clone, or None for a folder that is not in a clone."""
    try:
        process = subprocess.run(  # noqa: S603
            ["git", "-C", str(data), "rev-parse", "HEAD"],  # noqa: S607
            capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip() or None


def rows_to_grade(sets: Sequence[BenchmarkSet]) -> list[Row]:
    """Return the rows of several sets, with the set and the cluster in their `metadata`.

    The rows are sorted by a hash of their cluster. Therefore, if a limit ends the run early, the graded rows are a
    random part of each set.
    """
    rows = [
        row._replace(id=f"{data.name}/{row.id}", metadata={"set": data.name, **(row.metadata or {})})
        for data in sets
        for row in data.rows
    ]
    return sorted(rows, key=lambda row: sha256(repr(row.metadata).encode()).digest())


def judge_of_run(data: BenchmarkSet, rows: Iterable[GradedRow], name: str) -> RecordedJudge:
    """Convert a run of your own judge to a `RecordedJudge`, with the answers to the questions of one set.

    Args:
        data: The data set.
        rows: The rows of a run that graded `rows_to_grade`. Rows of other sets are ignored.
        name: The judge's name.
    """
    prefix = f"{data.name}/"
    own = [row._replace(id=row.id.removeprefix(prefix)) for row in rows if row.id.startswith(prefix)]
    return RecordedJudge(name, "this run", "", data.answers_of(own))


def _read_lines(path: Path) -> list[Any]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _read_reply(criterion: Criterion, reply: str) -> str | None:
    try:
        return read_recorded_reply(criterion, reply).verdict
    except ValueError:
        return None


def _binary(value: bool) -> str:
    return "MET" if value else "UNMET"


def _row(item: Mapping[str, Any], criteria: Iterable[Criterion], cluster: str) -> Row:
    fields = {name: item[name] for name in ("id", "query", "reference", "response") if item.get(name) is not None}
    return read_row(fields, item["id"])._replace(rubric=Rubric(list(criteria)), metadata={"cluster": cluster})


def _by_judge(
    replies: Iterable[tuple[str, Question, Criterion, str]], about: Callable[[str], tuple[str, str, str]]
) -> list[RecordedJudge]:
    """Read replies, and group their answers by judge.

    Args:
        replies: The judge's key, the question, its criterion and the text of each reply.
        about: A function that gets a judge's key and returns its name, its kind of prompt and its date.
    """
    of_judges: dict[str, dict[Question, tuple[Criterion, str]]] = {}
    for key, question, criterion, reply in replies:
        of_judges.setdefault(key, {})[question] = criterion, reply
    return [
        RecordedJudge(
            *about(key),
            {question: _read_reply(*reply) for question, reply in own.items()},
            frozenset(question for question, reply in own.items() if _begins_with_answer(*reply))
            if REASONS_FIRST in about(key)[1]
            else frozenset(),
        )
        for key, own in of_judges.items()
    ]


def _begins_with_answer(criterion: Criterion, reply: str) -> bool:
    """Whether a reply states the answer in its first sentence, before any reasons."""
    first = _FIRST_SENTENCE.match(reply.strip())
    return first is not None and _read_reply(criterion, first[0]) is not None


# A heading, such as `# Explanation:`, and the number of a list are no sentences.
_FIRST_SENTENCE = re.compile(r"""(?:\#[^\n]*\n\s*)*(?:\d+[.)]\s+)?[^\n]*?(?:[.!?]["')]*(?=\s)|(?=\n)|\Z)""")


_COVERAGE = "Covers this insight: "
_COVERAGE_LEVELS = (
    Option(label="NO_COVERAGE", value=0, description="The insight is not covered."),
    Option(label="PARTIAL_COVERAGE", value=0.5, description="The insight is partially covered."),
    Option(label="FULL_COVERAGE", value=1, description="The insight is fully covered."),
)


def _load_summhay(folder: Path) -> BenchmarkSet:
    """Load SummHay: the coverage of insights in summaries, with human labels and published judges."""
    lines = summaries_of_clone(folder) if is_clone_of_summhay(folder) else _read_lines(folder / "items.jsonl")
    items: list[BenchmarkItem] = []
    rows: list[Row] = []
    for line in lines:
        criteria = {
            each["id"]: Criterion(
                name=each["id"],
                requirement=_COVERAGE + each["requirement"],
                tags=("fact in a text",),
                options=_COVERAGE_LEVELS,
            )
            for each in line["criteria"]
        }
        labels = {name: {"people": label} for name, label in line["human_labels"].items()}
        items.append(BenchmarkItem(line["id"], line["subtopic_id"], criteria, labels))
        rows.append(_row(line, criteria.values(), line["subtopic_id"]))
    replies = (
        (judge, (line["id"], name), Criterion(requirement=name, options=_COVERAGE_LEVELS), level)
        for line in lines
        for judge, levels in line["judge_labels"].items()
        for name, level in levels.items()
    )

    def about(judge: str) -> tuple[str, str, str]:
        few_shot = judge.endswith("-9fs")
        return judge.removesuffix("-9fs"), f"one insight a call{', nine examples' if few_shot else ''}", "2024-07"

    return BenchmarkSet("summhay", items, _by_judge(replies, about), rows)


def _load_devai(folder: Path) -> BenchmarkSet:
    """Load DevAI: the requirements of development tasks, with human labels and a published judge."""
    lines = _read_lines(folder / "items.jsonl")
    criteria = {
        task: {
            each["id"]: Criterion(name=each["id"], requirement=each["requirement"], tags=("requirement of a task",))
            for each in rubric["criteria"]
        }
        for task, rubric in _read_json(folder / "rubrics.json").items()
    }
    items = [
        BenchmarkItem(
            line["id"],
            line["task"],
            criteria[line["rubric_id"]],
            {name: {"people": _binary(label)} for name, label in line["human_labels"].items()},
        )
        for line in lines
    ]
    replies = (
        (judge, (line["id"], name), criteria[line["rubric_id"]][name], _binary(verdict))
        for line in lines
        for judge, verdicts in line["judge_labels"].items()
        for name, verdict in verdicts.items()
    )
    return BenchmarkSet(
        "devai", items, _by_judge(replies, lambda _: ("Agent-as-a-Judge", "agent that reads the workspace", "2024-10"))
    )


_BETTER = Criterion(
    name="better",
    requirement="Which of the two outputs executes the instruction better?",
    tags=("instruction followed",),
    options=[Option(label="1", value=0), Option(label="2", value=1)],
    scale_type="nominal",
)
# A reply names the outputs by their places in the prompt. In the second order, output 2 is the first.
_SHOWN = _BETTER.model_copy(
    update={"options": tuple(Option(label=f"Output ({place})", value=value) for place, value in (("a", 0), ("b", 1)))}
)
_ORDERS = {"ab": {"Output (a)": "1", "Output (b)": "2"}, "ba": {"Output (a)": "2", "Output (b)": "1"}}
_RATING = Criterion(
    name="overall",
    requirement="Executes the instruction honestly, precisely and closely: no more and no less than it asks for",
    tags=("instruction followed",),
    scale=Scale(min=0, max=9, integer=True),
)


def _load_llmbar(folder: Path) -> BenchmarkSet:
    """Read LLMBar. Each pair is a question in both orders. With two equal ratings, each output wins in one order."""
    if is_clone_of_llmbar(folder):
        outputs, pairs, patterns = pairs_of_clone(folder)
    else:
        outputs, pairs = _read_lines(folder / "items.jsonl"), _read_lines(folder / "pairs.jsonl")
        patterns = _read_json(folder / "parsing.json")
    # ChatGPT rated three outputs with 10. This is above the scale, but the ratings can still be compared.
    recorded = _RATING.model_copy(update={"scale": Scale(min=0, max=10, integer=True)})
    items = [
        BenchmarkItem(
            f"{pair['id']}:{order}",
            pair["id"],
            {"better": _BETTER},
            {"better": {"gold": str(pair["human_labels"]["better"])}},
        )
        for pair in pairs
        for order in _ORDERS
    ]
    ratings: dict[str, dict[str, float | None]] = {}
    for output in outputs:
        for judge, replies in output["judge_outputs"].items():
            reply = _read_reply(recorded, replies["overall"])
            ratings.setdefault(judge, {})[output["id"]] = None if reply is None else float(reply)
    answers = {judge: _compare_ratings(of_judge) for judge, of_judge in ratings.items()}
    judges = [RecordedJudge(*_llmbar_prompt(judge), own) for judge, own in answers.items()]
    replies = {
        judge: {
            (f"{pair['id']}:{order}", "better"): pair["judge_outputs"][judge][order]
            for pair in pairs
            for order in _ORDERS
        }
        for judge in patterns
    }
    choices = ((judge, each, _SHOWN, reply) for judge, own in replies.items() for each, reply in own.items())
    for judge, (key, own) in zip(_by_judge(choices, _llmbar_prompt), replies.items(), strict=True):
        published = {each: _published_choice(reply, patterns[key]) for each, reply in own.items()}
        judges.append(judge._replace(answers=_outputs(judge.answers), published=_outputs(published)))
    rows = [_row(output, [_RATING], output["pair_id"]) for output in outputs]

    def answers_of(rows: Iterable[GradedRow]) -> dict[Question, str | None]:
        values = {row.id: verdict for row in rows for _, verdict in _verdicts(row)}
        numbers = {
            name: None if verdict is None else to_judgment(_RATING, verdict).value for name, verdict in values.items()
        }
        return _compare_ratings(numbers)

    return BenchmarkSet("llmbar", items, judges, rows, answers_of)


def _compare_ratings(ratings: Mapping[str, float | None]) -> dict[Question, str | None]:
    """Convert the ratings of outputs to the better output of each pair with two ratings."""
    answers: dict[Question, str | None] = {}
    for output in ratings:
        pair, _, number = output.rpartition("/output_")
        second = f"{pair}/output_2"
        if number != "1" or second not in ratings:
            continue
        one, other = ratings[output], ratings[second]
        for order in _ORDERS:
            if one is None or other is None:
                answers[f"{pair}:{order}", "better"] = None
            else:
                is_first = one > other or (one == other and order == "ba")
                answers[f"{pair}:{order}", "better"] = "1" if is_first else "2"
    return answers


def _published_choice(reply: str, patterns: Mapping[str, str]) -> str | None:
    """Parse the preferred output as the authors of LLMBar do: the first output whose pattern is anywhere in the reply.

    The authors read `Output (b) is better. Output (a) does not ...` as a preference for `Output (a)`.
    """
    labels = zip(("1", "2"), _SHOWN.choices, strict=True)
    return next((option.label for number, option in labels if re.search(patterns[number], reply)), None)


def _outputs(choices: Mapping[Question, str | None]) -> dict[Question, str | None]:
    """Return the numbers of the chosen outputs in the data."""
    return {
        question: choice and _ORDERS[question[0].rpartition(":")[2]][choice] for question, choice in choices.items()
    }


_LLMBAR_PROMPTS = {
    "Vanilla": "which of two is better",
    "CoT": f"which of two is better, {REASONS_FIRST}",
    "Metrics_Reference": "which of two is better, with metrics and a reference",
    "Rating": "rating of each output",
    "Rating_NoRules": "rating of each output, without rules",
    "Rating_Metrics": "rating of each output, with metrics",
    "Rating_Reference": "rating of each output, with a reference",
    "Rating_Metrics_Reference": "rating of each output, with metrics and a reference",
}


def _llmbar_prompt(judge: str) -> tuple[str, str, str]:
    model, _, prompt = judge.partition("/")
    return model, _LLMBAR_PROMPTS[prompt], "2023-10"


_DIALOGUE_KINDS = {"Q1": "relevance", "Q3": "fact in a text", "Q4": "relevance", "Q5": "relevance"}
_NEEDS_SOURCES = ("Q1", "Q4", "Q5")


def _load_llm_rubric(folder: Path) -> BenchmarkSet:
    """Read LLM-Rubric. A new judge grades six of its nine questions. The data lack the sources for the others."""
    lines = _read_lines(folder / "items.jsonl")
    criteria = {
        each["id"]: Criterion(
            name=each["id"],
            requirement=each["requirement"],
            tags=(_DIALOGUE_KINDS.get(each["id"], "quality"),),
            options=[
                Option(label=option["label"], na=True)
                if option["value"] is None
                else Option(label=option["label"], value=(option["value"] - 1) / 3)
                for option in each["options"]
            ],
        )
        for each in _read_json(folder / "rubrics.json")["llm-rubric-9q"]["criteria"]
    }
    items = [
        BenchmarkItem(
            line["id"],
            line["id"],
            criteria,
            {name: {line["annotator"]: str(label)} for name, label in line["human_labels"].items()},
        )
        for line in lines
    ]
    replies = (
        (judge, (line["id"], name), criteria[name], reply["raw"])
        for line in lines
        for judge, by_name in line["judge_outputs"].items()
        for name, reply in by_name.items()
    )
    gradable = [criterion for name, criterion in criteria.items() if name not in _NEEDS_SOURCES]
    rows = [_row(line, gradable, line["id"]) for line in lines]
    return BenchmarkSet(
        "llm_rubric", items, _by_judge(replies, lambda judge: (judge, "one token, no reason", "2024")), rows
    )


def _load_conala(folder: Path) -> BenchmarkSet:
    """Read CoNaLa. A new judge grades all answers except two empty ones."""
    lines = _read_lines(folder / "items.jsonl")
    scale = _read_json(folder / "rubrics.json")["conala-usefulness"]["criteria"][0]
    usefulness = Criterion(
        name=scale["id"],
        requirement=scale["requirement"],
        tags=("quality",),
        options=[
            Option(label=option["label"], value=option["value"] / 4, description=option["text"])
            for option in scale["options"]
        ],
    )
    items = [
        BenchmarkItem(
            line["id"],
            str(line["task"]),
            {scale["id"]: usefulness},
            {
                name: {rater: str(grade) for rater, grade in grades.items()}
                for name, grades in line["human_labels"].items()
            },
        )
        for line in lines
    ]

    def about(judge: str) -> tuple[str, str, str]:
        model, _, prompt = judge.partition("/")
        reasons = REASONS_FIRST if prompt.startswith("steps") else "a bare digit"
        return model, reasons + (", with the reference" if prompt.endswith("-with-reference") else ""), "2024"

    judges = _by_judge(_read_replies(folder, {item.id: item.criteria for item in items}), about)
    rows = [_row(line, [usefulness], str(line["task"])) for line in lines if line["response"].strip()]
    return BenchmarkSet("conala", items, judges, rows)


_STORY_JUDGES = {
    "gpt4": "GPT-4 Turbo",
    "cgpt": "GPT-3.5 Turbo",
    "claudev13": "Claude 1.3",
    "claudev2": "Claude 2.0",
    "claudev21": "Claude 2.1",
    "claude3-opus": "Claude 3 Opus",
    "gemini-pro": "Gemini Pro",
}


def _load_ttcw(folder: Path) -> BenchmarkSet:
    """Read TTCW. A new judge grades the 36 stories with public texts."""
    lines = _read_lines(folder / "items.jsonl")
    criteria = {
        each["id"]: Criterion(
            name=each["id"], requirement=each["requirement"], context=each["description"], tags=("creativity",)
        )
        for each in _read_json(folder / "rubrics.json")["ttcw"]["criteria"]
    }
    items = [
        BenchmarkItem(
            line["id"],
            line["id"],
            criteria,
            {
                name: {expert: _binary(label) for expert, label in labels.items()}
                for name, labels in line["human_labels"].items()
            },
        )
        for line in lines
    ]
    judges = _by_judge(
        _read_replies(folder, {item.id: item.criteria for item in items}),
        lambda judge: (_STORY_JUDGES.get(judge, judge), "yes or no, reasons optional", "2024-03"),
    )
    rows = [_row(line, criteria.values(), line["id"]) for line in lines if line["response"]]
    return BenchmarkSet("ttcw", items, judges, rows)


def _read_replies(
    folder: Path, criteria: Mapping[str, Mapping[str, Criterion]]
) -> Iterator[tuple[str, Question, Criterion, str]]:
    for reply in _read_lines(folder / "replies.jsonl.gz"):
        criterion = criteria[reply["id"]][reply["criterion"]]
        yield reply["judge"], (reply["id"], reply["criterion"]), criterion, reply["raw"]


_LOADERS: dict[str, Callable[[Path], BenchmarkSet]] = {
    "summhay": _load_summhay,
    "devai": _load_devai,
    "llmbar": _load_llmbar,
    "llm_rubric": _load_llm_rubric,
    "conala": _load_conala,
    "ttcw": _load_ttcw,
}
