"""Measures the longest CPU time that one hostile text takes, in every function that reads untrusted text.

    python benchmarks/worst_case.py
    python benchmarks/worst_case.py --only parse_reply --limit 30

Every function gets every text, of one million characters, in a process that is ended after the limit. A function may
refuse a text: that is a result like any other. The table has the longest time of each function, and the text that took
it. It is CPU time, which other load on the machine hardly changes. The exit code is 1 if one takes longer than 1 s.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp())
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from rubric_integrations import Check, Criterion, LengthPenalty, Rubric, RubricError, Submission
from rubric_integrations._util.records import encodable
from rubric_integrations._util.text import read_date, read_quantities
from rubric_integrations.checks import metrics, run_check
from rubric_integrations.checks.metrics import MAX_METRIC_CHARS
from rubric_integrations.checks.structure import fenced_blocks
from rubric_integrations.formats.parsing import Positions
from rubric_integrations.formats.registry import read_text
from rubric_integrations.judges.fast_path import encode_json_text
from rubric_integrations.judges.models.responses import server_message
from rubric_integrations.judges.prompts.parse import UnreadableReply, parse_reply
from rubric_integrations.judges.prompts.render import render_inputs
from rubric_integrations.judges.prompts.sanitize import (
    compact_forms,
    fence,
    fence_code,
    fold,
    looks_quotable,
    may_be_completed,
    neutralize,
)
from rubric_integrations.judges.prompts.signatures import JudgeBatch, JudgeCriterion, JudgeOverall
from rubric_integrations.reporting.page.render import report_page
from rubric_integrations.rubric import Metric
from rubric_integrations.runs.files import RunFileError, read_run
from rubric_integrations.scoring import compute_length_penalty
from rubric_integrations.scoring.judgment import JudgeFailure, normalize_word
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.files import ResponsesError, read_responses
from rubric_integrations.submission.inputs import as_submission, parse_thinking_output
from rubric_integrations.submission.messages import value_text
from rubric_integrations.submission.steps import Step, ToolCall
from rubric_integrations.submission.thinking import split_thinking
from rubric_integrations.submission.trajectory import Trajectory
from rubric_integrations.trust import LabelsError, read_labels

SIZE = 1_000_000


def filled(part: str, end: str = "") -> str:
    """Repeat a part up to the size."""
    return part * ((SIZE - len(end)) // len(part)) + end


def numbered(template: str, begin: str, end: str) -> str:
    """Repeat a part that contains its number, between a beginning and an end."""
    count = SIZE // (len(template) + 4)
    return begin + ",".join(template.format(i) for i in range(count)) + end


TEXTS: dict[str, str] = {
    "words": filled("word "),
    "different words": " ".join(str(i) for i in range(SIZE // 7)),
    "prose": filled("The margin was 17.2 %, which is above the target. "),
    "one letter": filled("a"),
    "letters, then another": filled("a", "!"),
    "spaces": filled(" ", "x"),
    "newlines": filled("\n", "x"),
    "line separators": filled("\u2028", "x"),
    "backslashes": filled("\\"),
    "backslashes and u": filled("\\" * 99 + "u"),
    "escapes": filled("\\u0076"),
    "escapes of escapes": filled("\\u005c"),
    "quotes": filled('"'),
    "open brackets": filled("["),
    "open braces": filled("{"),
    "open objects": filled('{"a":'),
    "field headers": filled("[[ ## verdict ## ]]"),
    "brackets and spaces": filled("[ "),
    "bracket and spaces": "[[" + filled(" "),
    "control tokens": filled("<|im_start|>"),
    "cut control tokens": filled("<|im_start"),
    "angle brackets": filled("<"),
    "spaced control tokens": filled("<| "),
    "think, opened": filled("<think>"),
    "thinking, opened": filled("<thinking>"),
    "thinking, closed": filled("</thinking>"),
    "thinking, cut": filled("<thinking"),
    "thinking blocks": filled("<think></think>", "x"),
    "one thinking block": "<think>" + filled(" </think"),
    "thinking and an answer": filled("<think>a</think>", '{"explanation": "x", "verdict": "MET"}'),
    "output, opened": filled("<output>"),
    "code fences": filled("```\n"),
    "code fences of growing length": "".join("`" * (3 + i % 1400) + "\n" for i in range(SIZE // 700)),
    "code of Python": "```python\n" + filled("x = 1\n", "```"),
    "code fences in a block": "```json\n" + filled("\n```\n"),
    "fence and newlines": "```" + filled("\n", "x"),
    "fence and spaces": "```json\n{}" + filled(" \n"),
    "backticks": filled("`"),
    "verdicts": filled('{"explanation": "x", "verdict": "MET"}'),
    "verdict after text": filled("a", ' {"explanation": "x", "verdict": "MET"}'),
    "repeated verdict": '{"explanation": "x"' + filled(', "verdict": "MET"') + "}",
    "long explanation": json.dumps({"explanation": filled("\\\"'`*_ "), "verdict": "MET"}),
    "long verdict": json.dumps({"explanation": "", "verdict": filled("*")}),
    "many judgments": numbered('{{"id": {}, "explanation": "", "answer": "MET"}}', '{"judgments": [', "]}"),
    "many fields": numbered('"field{}": 1', '{"explanation": "", "verdict": "MET", ', "}"),
    "full-width letters": filled("\uff21"),
    "invisible characters": filled("\u200b"),
    "tag characters": filled("\U000e0041"),
    "long ligatures": filled("\ufdfa"),
    "combining marks": "a" + filled("\u0301"),
    "combining marks of two classes": "a" + filled("\u0301\u0327"),
    "emoji": filled("\U0001f600"),
    "half an emoji": filled("\ud83d"),
    "capital letters that grow": filled("\u0130\u1e9e"),
    "digits": filled("1"),
    "digits and commas": filled("1,"),
    "thousands": "1" + filled(",234"),
    "digits and points": filled("1."),
    "dollars": filled("$"),
    "minuses": filled("-"),
    "minus digits": filled("-1"),
    "numbers of one digit": filled("1 "),
    "JSON, a long number": filled("1"),
    "JSON, a negative exponent": "1e-" + filled("9"),
    "JSON, equal numbers": "[" + filled("1,") + "1]",
    "JSON, different numbers": "[" + ",".join(map(str, range(SIZE // 8))) + "]",
    "JSON, equal objects": "[" + filled('{"a":1},') + "{}]",
    "JSON, different objects": numbered('{{"a":{}}}', "[", "]"),
    "JSON, different lists": numbered("[{}]", "[", "]"),
    "JSON, many keys": numbered('"aaaaaaaaaaaaaaaaaaaaaaaaaa{}!":1', "{", "}"),
    "JSON, a repeated key": "{" + filled('"a":1,') + '"a":1}',
    "JSON, one long string": json.dumps(filled("a", "!")),
    "JSON, one long key": json.dumps({filled("a", "!"): 1}),
    "JSON, nested lists": "[" * 900 + "[1]," * (SIZE // 5) + "1" + "]" * 900,
    "JSON, a 401-digit integer": "[" + "1" * 401 + "]",
    "JSON, 401-digit integers": "[" + ",".join(["1" * 401] * (SIZE // 402)) + "]",
    "YAML, a list": "- a\n" * (SIZE // 4),
    "YAML, many keys": "".join(f"key{i}: 1\n" for i in range(SIZE // 12)),
    "YAML, a repeated key": filled("a: 1\n"),
    "YAML, aliases": "a: &a [1]\nb: [" + filled("*a,") + "]",
    "YAML, nested lists": filled("[") + "\n",
    "YAML, indentation": "".join(" " * i + "a:\n" for i in range(1400)),
    "YAML, one long scalar": "a: " + filled("x "),
    "YAML, one long quoted scalar": 'a: "' + filled("\\\n  ") + '"',
    "YAML, hexadecimal digits": "weight: 0x" + filled("f"),
    "YAML, base 60": "weight: 1" + filled(":10"),
    "YAML, merge keys": "a: &a {b: 1}\nc:\n" + filled("  <<: *a\n"),
    "YAML, comments": filled("# a\n"),
    "YAML, tags": filled("- !!str a\n"),
    "YAML, question marks": filled("? "),
    "YAML, colons": filled("a: "),
    "YAML, a date": "a: 2026-01-01" + filled(" "),
    "rubric, criteria": "criteria:\n" + filled("- requirement: Is polite\n"),
    "rubric, unknown keys": "criteria:\n- requirement: x\n" + "".join(f"  key{i}: 1\n" for i in range(SIZE // 14)),
    "rubric, a repeated regular expression": "criteria:\n- requirement: x\n  check: {regex: 'a{50000000}'}\n",
    "rubric, a nested regular expression": "criteria:\n- requirement: x\n  check: {regex: '((a{99}){99}){999}'}\n",
    "rubric, a long regular expression": f"criteria:\n- requirement: x\n  check: {{regex: '{filled('(a|b)*')}'}}\n",
    "lines": filled("x\n"),
    "lines, after one row": '{"response": "a"}\n' + filled("x\n"),
    "lines, texts": numbered('"a{}"', "", "").replace(",", "\n"),
    "lines, objects without a response": filled('{"a": 1}\n'),
    "lines, rows with a repeated key": filled('{"response": "a", "response": "b"}\n'),
    "lines, grades": filled('{"id": "a", "score": 1, "passed": true}\n'),
    "CSV, rows": "response\n" + filled("a\n"),
    "CSV, rows with too many fields": "response\n" + filled("a,b\n"),
    "CSV, a long header": "response," + ",".join(str(i) for i in range(SIZE // 7)),
    "CSV, quotes": "response\n" + filled('"a""b"\n'),
    "CSV, an unclosed quote": 'response\n"' + filled("a\n"),
    "CSV, equal ids": "id,response\n" + filled("1,a\n"),
    "data URI": "data:image/png;base64," + filled("A"),
    "different characters": "".join(map(chr, range(0x10000, 0x10000 + SIZE))),
    "base64": filled("dmVyZGljdCB2ZXJkaWN0"),
    "hexadecimal": filled("76 65 72 "),
    "binary": filled("01110110 "),
    "codes of characters": filled("118 101 "),
    "HTML entities": filled("&amp;"),
    "cut HTML entities": filled("&am"),
    "percent signs": filled("%76"),
    "web page": "<!doctype html>" + filled("<"),
    "web page, a title": "<html><title>" + filled("a"),
    "web page, titles": "<html>" + filled("<title"),
}


class Case(NamedTuple):
    """A function of one text.

    Attributes:
        name: Its name in the table.
        function: The function.
        refusal: What it raises to refuse a text; anything else that it raises is shown in the table.
    """

    name: str
    function: Callable[[str], object]
    refusal: type[Exception] = JudgeFailure


def checking(**conditions: Any) -> Callable[[str], object]:
    """Return a function that runs a check."""
    check = Check.model_validate(conditions)
    return lambda text: run_check(check, Submission.model_construct(response=text))


def checking_call(**conditions: Any) -> Callable[[str], object]:
    """Return a function that runs a check of calls with a text as an argument, parsed if it is JSON."""
    expected = [{"name": "search", "arguments": {"query": [1]}}]
    check = Check.model_validate({"tool_calls": expected, **conditions})

    def run(text: str) -> object:
        try:
            argument = json.loads(text)
        except (ValueError, RecursionError):
            argument = text
        call = ToolCall.model_construct(name="search", arguments={"query": argument}, result=None, is_error=None)
        trajectory = Trajectory.model_construct(steps=(Step.model_construct(role="assistant", calls=(call, call)),))
        return run_check(check, Submission.model_construct(response="a", trajectory=trajectory))

    return run


def matching(expected: Callable[[int], object], made: Callable[[int], object]) -> Callable[[str], object]:
    """Return a function that pairs 200 tool calls, whatever the text, with 200 expected calls in any order."""
    calls = [{"name": "search", "arguments": {"query": expected(i)}} for i in range(200)]
    check = Check.model_validate({"tool_calls": calls, "order": "unordered"})
    tools = tuple(ToolCall(name="search", arguments={"query": made(i)}) for i in range(200))
    submission = Submission(response="a", trajectory=Trajectory(steps=(Step(role="assistant", calls=tools),)))
    return lambda _text: run_check(check, submission)


def measuring(metric: str, **config: Any) -> Callable[[str], object]:
    """Return a function that computes a metric of the longest texts that it accepts, which are the same in reverse."""
    check = Check(metric=Metric.model_validate({"type": metric, "config": config}))
    run_check(check, Submission(response="a", reference="a"))  # the first call imports the library

    def compute(text: str) -> object:
        text = text[:MAX_METRIC_CHARS]
        return run_check(check, Submission.model_construct(response=text, reference=text[::-1], logprobs=None))

    return compute


def from_reference(length: int = SIZE, **conditions: Any) -> Callable[[str], object]:
    """Return a function that runs a check on a text whose reverse is the reference."""
    check = Check.model_validate(conditions)
    with suppress(JudgeFailure):
        run_check(check, Submission(response="a", reference="a"))  # the first call imports the library

    def compare(text: str) -> object:
        text = text[:length]
        return run_check(check, Submission.model_construct(response=text, reference=text[::-1]))

    return compare


def parsing(signature: object, *, quotable: bool) -> Callable[[str], object]:
    """Return a function that parses a reply."""
    return lambda text: parse_reply(signature, text, quotable=quotable)


def reading_file(suffix: str) -> Callable[[str], object]:
    """Return a function that reads a file of responses."""

    def read(text: str) -> object:
        with tempfile.NamedTemporaryFile(suffix=suffix) as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            return list(read_responses(file.name))

    return read


def reading_lines(read: Callable[[Path], object]) -> Callable[[str], object]:
    """Return a function that reads a file of JSON lines that this library writes."""

    def read_file(text: str) -> object:
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a last line that is cut off
                return read(Path(file.name))

    return read_file


def label(text: str) -> str:
    """Return a file of one label whose texts are hostile."""
    return json.dumps({"criterion": "k", "verdict": "MET", "reason": text, "submission": {"response": text}})


def grade(text: str) -> str:
    """Return a file of one grade whose texts are hostile."""
    report = EvaluationReport(
        score=1.0, raw_score=1.0, passed=True, complete=True, coverage=1.0, report=None, reason=text
    )
    part = text[: SIZE // 4]
    call = {"name": "look", "arguments": part, "result": part}
    steps = [{"role": "assistant", "text": part, "calls": [call]}]
    fields = {
        "id": "a",
        "submission": {"response": text, "trajectory": {"steps": steps}},
        **report.model_dump(mode="json"),
    }
    return json.dumps(fields)


def submitted(text: str) -> Submission:
    """Return a submission with a quarter of a hostile text in each place."""
    text = text[: SIZE // 4]
    return Submission.model_construct(response=text, query=text, reference=text, thinking=text, logprobs=None)


LABELLED = Rubric([Criterion(name="k", requirement="x")])
PENALTY = LengthPenalty()
READ_LABELS = reading_lines(lambda path: read_labels(path, LABELLED))
READ_PAGE = reading_lines(lambda path: report_page([read_run(path)]))
RECURSIVE: dict[str, Any] = {"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}
ONE_OF: dict[str, Any] = {"items": {"oneOf": [{"type": "integer"}, {"type": "object"}, {"type": "array"}]}}

CASES: tuple[Case, ...] = (
    Case("check contains", checking(contains=("word!", "aaaaab"))),
    Case("check contains, any case", checking(contains=("word!", "aaaaab"), ignore_case=True)),
    Case("check not_contains", checking(not_contains="aaaaaab")),
    Case("check equals", checking(equals="42", ignore_case=True)),
    Case("check reference, contains", from_reference(reference="contains", ignore_case=True)),
    Case("check regex", checking(regex=r"\bmargin of 17\.2\b")),
    Case("check regex, ambiguous", checking(regex=r"^(a|aa)+$")),
    Case("check regex, lazy", checking(regex=r"(.*?,){12}x")),
    Case("check number", checking(number=17.25)),
    Case("check min_words", checking(min_words=10_000_000)),
    Case("check max_words", checking(max_words=3)),
    Case("check json_schema, type", checking(json_schema={"type": "object"})),
    Case("check json_schema, uniqueItems", checking(json_schema={"uniqueItems": True})),
    Case("check json_schema, patternProperties", checking(json_schema={"patternProperties": {"^(a+)+$": {}}})),
    Case("check json_schema, pattern", checking(json_schema={"items": {"pattern": "^(a+)+$"}, "pattern": "^(a+)+$"})),
    Case("check json_schema, propertyNames", checking(json_schema={"propertyNames": {"pattern": "^(a+)+$"}})),
    Case("check json_schema, multipleOf", checking(json_schema={"items": {"multipleOf": 0.1}, "multipleOf": 0.1})),
    Case("check json_schema, $ref", checking(json_schema={"$ref": "#"})),
    Case("check json_schema, recursive", checking(json_schema=RECURSIVE)),
    Case("check json_schema, oneOf", checking(json_schema=ONE_OF)),
    Case("check json_schema, false", checking(json_schema={"items": False, "additionalProperties": False})),
    Case("check json_schema, enum", checking(json_schema={"items": {"enum": list(range(-999, 0))}})),
    Case(
        "check fields",
        checking(fields=[{"path": "a", "equals": 1}, {"path": "9.a", "equals": "2024-12-31", "date": True}]),
    ),
    Case("check fields, from a reference", from_reference(fields={"expected": [{"path": "0"}], "require": "all"})),
    Case("check similarity", from_reference(similarity={"min_ratio": 0.5})),
    Case("check similarity of the longest texts", from_reference(length=metrics.MAX_SIMILARITY_CHARS, similarity={})),
    Case("fenced blocks", lambda text: list(fenced_blocks(text))),
    Case("read_date", read_date, ValueError),
    Case("check tool_calls, all match all", matching(lambda _: 1, lambda _: 1.0)),
    Case("check tool_calls, none matches", matching(lambda i: i, lambda i: -1 - i)),
    Case("check tool_calls of a text", checking_call(order="unordered")),
    Case("check no_repeated_calls of a text", checking_call(no_repeated_calls=True, tool_calls=None)),
    Case("metric bleu", measuring("bleu")),
    Case("metric rouge1", measuring("rouge", variant="rouge1")),
    Case("metric rouge2", measuring("rouge", variant="rouge2")),
    Case("metric rougeL", measuring("rouge", variant="rougeL")),
    Case("metric accuracy", measuring("accuracy")),
    Case("parse_reply, strict", parsing(JudgeCriterion, quotable=True), UnreadableReply),
    Case("parse_reply, lenient", parsing(JudgeCriterion, quotable=False), UnreadableReply),
    Case("parse_reply of a batch, strict", parsing(JudgeBatch, quotable=True), UnreadableReply),
    Case("parse_reply of a batch, lenient", parsing(JudgeBatch, quotable=False), UnreadableReply),
    Case("parse_reply of a score", parsing(JudgeOverall, quotable=False), UnreadableReply),
    Case(
        "parse_reply, unknown end",
        lambda text: parse_reply(JudgeCriterion, text, quotable=False, completing_texts=[text]),
        UnreadableReply,
    ),
    Case("may_be_completed", lambda text: may_be_completed(text, [text])),
    Case("compact_forms", compact_forms),
    Case("render_inputs", lambda text: render_inputs(submitted(text), "", {"criterion": "x"})),
    Case("encode_json_text", encode_json_text),
    Case("compute_length_penalty", lambda text: compute_length_penalty(submitted(text), PENALTY)),
    Case("compute_length_penalty of a text", lambda text: compute_length_penalty(text, PENALTY), ValueError),
    Case("value_text", lambda text: value_text({"a": text, "b": [text]})),
    Case("encodable", encodable),
    Case("normalize_word", normalize_word),
    Case("neutralize", neutralize),
    Case("fence", lambda text: fence(text, fence_code(text))),
    Case("fold", fold),
    Case("looks_quotable", looks_quotable),
    Case("split_thinking", split_thinking),
    Case("parse_thinking_output", parse_thinking_output),
    Case("as_submission", lambda text: as_submission({"output": text}), ValueError),
    Case("as_submission of messages", lambda text: as_submission([{"role": "assistant", "content": text}]), ValueError),
    Case("read_quantities", lambda text: list(read_quantities(text))),
    Case("server_message", lambda text: server_message(text.encode("utf-8", "replace"))),
    Case("rubric as YAML", lambda text: read_text(text, "yaml", "text"), RubricError),
    Case("rubric as JSON", lambda text: read_text(text, "json", "text"), RubricError),
    Case("rubric of any syntax", lambda text: read_text(text, None, "text"), RubricError),
    Case("Rubric.from_yaml", Rubric.from_yaml, RubricError),
    Case("Positions", lambda text: Positions(text).line("criteria[3]", "weight")),
    *(
        Case(f"read_responses {suffix}", reading_file(suffix), ResponsesError)
        for suffix in (".jsonl", ".json", ".csv", ".tsv", ".txt")
    ),
    Case("read_labels", READ_LABELS, LabelsError),
    Case("read_labels of a text", lambda text: READ_LABELS(label(text)), LabelsError),
    Case("read_run", reading_lines(read_run), RunFileError),
    Case("read_run of a text, and report_page", lambda text: READ_PAGE(grade(text)), RunFileError),
)


class Result(NamedTuple):
    """What one function did with one text."""

    seconds: float
    ending: str


def run_texts(case: Case, names: list[str], results: Connection) -> None:
    """Give each text to a function, and send the results."""
    memory = 4 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for name in names:
        start, ending = time.process_time(), ""
        try:
            case.function(TEXTS[name])
        except case.refusal:
            pass
        except BaseException as error:  # noqa: BLE001 -- the table shows whatever a function raises
            ending = type(error).__name__
        results.send(Result(time.process_time() - start, ending))


def measure(case: Case, names: list[str], limit: float) -> Iterator[tuple[str, Result]]:
    """Yield what a function did with each text, in as many processes as it needs."""
    fork = multiprocessing.get_context("fork")
    waiting = list(names)
    while waiting:
        receiver, sender = fork.Pipe(duplex=False)
        process = fork.Process(target=run_texts, args=(case, waiting, sender))
        process.start()
        sender.close()
        while waiting:
            result = Result(limit, f"ended after {limit:g} s")
            with suppress(EOFError):
                if receiver.poll(limit):
                    result = Result(limit, "crashed")
                    result = receiver.recv()
            yield waiting.pop(0), result
            if result.seconds >= limit:
                break
        process.kill()
        process.join()
        receiver.close()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the names of functions")
    parser.add_argument("--text", default="", help="a part of the names of texts")
    parser.add_argument(
        "--limit", type=float, default=30.0, help="seconds of wall time after which a function is ended"
    )
    parser.add_argument("--slow", type=float, default=1.0, help="show all texts that take longer than these seconds")
    options = parser.parse_args()
    names = [name for name in TEXTS if options.text in name]
    slow = 0
    print(f"{'function':40} {'ms':>8}  text")
    for case in CASES:
        if options.only not in case.name:
            continue
        results = dict(measure(case, names, options.limit))
        ranked = sorted(results, key=lambda name: -results[name].seconds)
        for place, name in enumerate(ranked):
            result = results[name]
            is_slow = result.seconds > options.slow
            slow += is_slow
            if place == 0 or is_slow or result.ending:
                ending = f" ({result.ending})" if result.ending else ""
                print(f"{case.name:40} {result.seconds * 1000:8.0f}  {name}{ending}", flush=True)
    print(f"{slow} of {len(CASES) * len(names)} took longer than {options.slow:g} s")
    return int(slow > 0)


if __name__ == "__main__":
    raise SystemExit(main())
