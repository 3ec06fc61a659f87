"""Rubrics in Markdown: bullets and headings as CommonMark reads them, and each refusal."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from rubric_integrations import PerCriterionGrader, Rubric, RubricError
from rubric_integrations.cli import app
from rubric_integrations.formats import load_eval_cases, read_document, reading_losses, write_document
from rubric_integrations.formats.row_rubrics import RowRubrics
from rubric_integrations.testing import ScriptedJudge
from tests.conftest import SHARED
from tests.formats.samples import MARKDOWN, OUTCOME
from tests.rubric.strategies import rubrics

SAMPLES = SHARED / "data/rubric_formats"
needs_samples = pytest.mark.skipif(not SAMPLES.exists(), reason="../shared/data/rubric_formats does not exist")


def read(text: str) -> Rubric:
    return read_document({"markdown": text}, "rubric.md")


def attempt(text: str) -> tuple[Rubric | None, RubricError | None]:
    """Return the rubric of a text, or the error with which it is refused."""
    try:
        return read(text), None
    except RubricError as error:
        return None, error


def texts_of(text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(criterion.requirement, criterion.tags) for criterion in read(text).criteria]


def test_bullets_become_criteria_headings_tags_and_the_title_the_name() -> None:
    rubric = read(MARKDOWN["markdown"])
    assert (rubric.name, [criterion.weight for criterion in rubric.criteria]) == ("Report", [1.0, 1.0, 1.0])
    assert texts_of(MARKDOWN["markdown"]) == [
        ("States the margin", ("Figures",)), ("Names a source\n- a page", ("Figures",)), ("Is short", ("Form",)),
    ]  # fmt: skip
    judge = ScriptedJudge({"Is short": "MET"}, default="UNMET")
    assert rubric.grade_sync("x", PerCriterionGrader(judge)).score == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "criteria"),
    [
        ("\ufeff- a\r\n- b\r\n", [("a", ()), ("b", ())]),
        ("- a\r- b\r", [("a", ()), ("b", ())]),
        ("-\ta\n-\tb\n\t- c", [("a", ()), ("b\n- c", ())]),
        ("* a\n\n* b", [("a", ()), ("b", ())]),
        (" - a\n  - b", [("a", ()), ("b", ())]),  # less indented than the text above: a sibling
        ("- a\ncontinued\n  further\n\n  a paragraph", [("a\ncontinued\nfurther\n\na paragraph", ())]),
        ("- Uses\n  ```\n  - x\n\n  # y\n  ```\n- b", [("Uses\n```\n- x\n\n# y\n```", ()), ("b", ())]),
        ("- ~~~\n  ```\n  - x\n  ~~~\n- b", [("~~~\n```\n- x\n~~~", ()), ("b", ())]),
        ("- ```a``` is named", [("```a``` is named", ())]),
        ("- Steps\n  1. one\n  2. two", [("Steps\n1. one\n2. two", ())]),
        ("- a\n  | x | y |", [("a\n| x | y |", ())]),
        ("<!-- draft\n- hidden\n-->\n- a\n<!-- x -->\n- b <!-- note -->", [("a", ()), ("b", ())]),
        ("- Contains `<!-- x -->` and ``<!-- ` -->``", [("Contains `<!-- x -->` and ``<!-- ` -->``", ())]),
        ("- [ ] a\n- [x] b\n- [y] c\n- [x](u) d", [("a", ()), ("b", ()), ("[y] c", ()), ("[x](u) d", ())]),
        ("# T\n---\n## A\n- a\n---\n## B #\n- b", [("a", ("A",)), ("b", ("B",))]),
        ("T\n===\n\nA\n---\n- a", [("a", ("A",))]),
        ("## A\n### B\n- a\n## C\n- b", [("a", ("A", "B")), ("b", ("C",))]),
        ("# A\n- a\n# B\n- b", [("a", ("A",)), ("b", ("B",))]),
        ("## A\n### A\n- a", [("a", ("A",))]),
        ("- a\n# A\n- b", [("a", ()), ("b", ("A",))]),
        ("- # a\n- > b\n- - c", [("# a", ()), ("> b", ()), ("- c", ())]),
        ("- The margin is 17.2%\n- Has 3 parts (a, b, c)\n- In [12] steps, not 13",
         [("The margin is 17.2%", ()), ("Has 3 parts (a, b, c)", ()), ("In [12] steps, not 13", ())]),
        ("- Gives -40 to 85 (in C)\n- Names 3 - 5 causes\n- Penalty clauses: names both\n- Lists 5 points (or more)",
         [("Gives -40 to 85 (in C)", ()), ("Names 3 - 5 causes", ()), ("Penalty clauses: names both", ()),
          ("Lists 5 points (or more)", ())]),
    ],
)  # fmt: skip
def test_text_is_read_with_its_nested_lines_and_headings(text: str, criteria: list[Any]) -> None:
    assert texts_of(text) == criteria


REFUSED = {
    "- a (weight 3)": "line 1: has '(weight 3)', in which the weight of a criterion cannot be found",
    "- a (-5)\n- b (2)": "line 1: has '(-5)', in which the weight of a criterion cannot be found (and 1 more)",
    "- a [10 points]": "has '[10 points]'",
    "- (10) a": "has '(10)'",
    "- a\n  - nested (3)": "has '(3)'",
    "- a (5)\n  a note below": "has '(5)'",
    "## Figures (40 points)\n- a": "line 1: has '(40 points)'",
    "# Report - 30%\n- a": "line 1: has '30%'",
    "- **Accuracy (5 points)**: is right": "line 1: has '(5 points)'",
    "- Accuracy - 5 pts - is right": "line 1: has '- 5 pts'",
    "- Is right (worth 5)": "line 1: has '(worth 5)'",
    "- Is right (-2 if it is missing)": "line 1: has '(-2 if'",
    "- Is right **+3**": "line 1: has '*+3*'",
    "- -5: is rude": "line 1: has '-5:'",
    "- **Penalty:** is rude": "line 1: has '**Penalty:'",
    "- Deduct if it is rude": "line 1: has 'Deduct'",
    "- a\n\n## Penalties\n- Is rude": "line 3: has 'Penalties'",
    "text\n- a": "line 1: is a paragraph: make it a bullet",
    "- a\n\ntext": "line 3: is a paragraph",
    "- a\n\ntext\n\nmore": "line 3: is a paragraph (and 1 more)",
    "<div>\n- a\n</div>": "line 1: is a paragraph",
    "#a\n- b": "line 1: is a paragraph",
    "- a\n\n| x | y |\n|---|---|": "line 3: is a table (and 1 more)",
    "1. a\n2. b": "line 1: is a numbered list (and 1 more): begin each criterion with `-`",
    "- a\n1) b": "line 2: is a numbered list",
    "```\n- a\n```\n- b": "line 1: is a block of code",
    "```\n- a": "line 1: is a block of code",
    "- a\n  ```\n  - b": "line 2: is a block of code that is not closed",
    "- a\n  ```\n- b\n  ```": "line 3: is a block of code that is not closed",
    "- a\n> b": "line 2: is a quotation",
    "    - a": "line 1: is indented text",
    "---\nname: x\n---\n- a": "line 1: is front matter: remove it",
    "#\n- a": "line 1: is an empty heading",
    "<!-- a\n- b": "line 1: is a comment that is not closed",
    "- a <!-- x\n- b -->": "line 1: is a comment that is not closed",
    "<!-- a --> text\n- b": "line 1: is a paragraph",
    "- a\n* b": "line 2: is a second list below one heading",
    "- a\n\n---\n\n- b": "line 5: is a second list below one heading",
    "## A\n- a\n* b\n## B\n- c\n+ d": "line 3: is a second list below one heading (and 1 more)",
    "": "has no bullet: begin each criterion with `-`",
    "# Title\n\n<!-- later -->": "has no bullet",
    "- \n- a": "line 1 `requirement`: is empty",
    "- [ ]\n- a": "line 1 `requirement`: is empty",
    f"## {'x' * 300}\n- a": "line 2 `tags.0`",
}


@pytest.mark.parametrize("text", REFUSED)
def test_text_whose_score_cannot_be_known_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(RubricError) as refusal:
        read(text)
    assert REFUSED[text] in str(refusal.value)


LINES = [
    "- a", "- b", "* c", "  - n", "    - d", "   x", "text", "# H", "## S", "", "---", "===", "```", "  ```", "1. n",
    "  1. m", "> q", "| t |", "<!-- c -->", "<!--", "-->", "-", "-   w", "  y\tz", "\t- t", "+ p", "- `<!--`",
    "- x <!-- y --> z", "~~~", "#no", "- [ ] box", "  <!-- in", "  -->", "x -->", "    code", "- - k", "***", "- # h",
    "-\tq", " - i", "   - j", "- ```", "-     five", "  -", "  1.",
]  # fmt: skip


def test_random_text_has_the_bullets_of_commonmark_or_is_refused() -> None:
    """Every text that is read has no other blocks than headings, rules, comments and the lists of its criteria."""
    parser, chance, count = MarkdownIt("commonmark"), random.Random(51), 0
    for _ in range(4000):
        text = "\n".join(chance.choice(LINES) for _ in range(chance.randrange(1, 9)))
        rubric, _ = attempt(text)
        if rubric is None:
            continue
        tokens = parser.parse(text)
        blocks = {token.type for token in tokens if token.level == 0 and token.nesting >= 0}
        assert blocks <= {"bullet_list_open", "heading_open", "hr", "html_block"}, text
        assert sum(token.type == "list_item_open" and token.level == 1 for token in tokens) == len(rubric), text
        count += 1
    assert count > 400


@given(st.text(alphabet="-*+# \t\n`~<>!|1.)[x]=_(5)a\r\ufeff", max_size=60))
def test_any_text_is_read_or_refused_with_one_line_for_each_fault(text: str) -> None:
    rubric, error = attempt(text)
    assert error is None or len(str(error).splitlines()) == len(error.faults)
    assert rubric is None or all(criterion.requirement.strip() for criterion in rubric.criteria)


@pytest.mark.malformed
def test_huge_texts_are_read_or_refused_in_a_short_message() -> None:
    size = 300_000  # if a step were quadratic, this would take hours
    runs = " ".join("`" * n for n in range(1, 1000))
    for text in (
        "- a\n" * (size // 4), f"- {'a' * size}", "- a\n" + "  b\n" * (size // 4), "x\n" * (size // 2), "# " * size,
        "<!--" * (size // 4), f"- {'`' * size}", "- " + "<!-- `" * (size // 6), "- " * (size // 2),
        "-" + " " * size + "a",
        "- a\n" + "```\n" * (size // 4), "#" * size, "|" * size, "- (1) " * (size // 6), f"- a{' *' * size}b",
        f"- {runs} <!-- a -->", "= \n" * (size // 3), "<!--\n" * (size // 5),
    ):  # fmt: skip
        _, error = attempt(text)
        assert error is None or len(str(error)) < 3000


def test_written_text_is_equal_after_reading() -> None:
    for document in (MARKDOWN, {"markdown": "- a\n\n  b\n## A\n### B\n- c\n## A\n- d\n  ```\n  - e\n  ```\n"}):
        rubric = read_document(document, "rubric.md")
        written, losses = write_document(rubric, "markdown")
        assert losses == []
        assert read_document(written, "again") == rubric
        assert read_document(json.loads(json.dumps(write_document(rubric)[0])), "native") == rubric


def test_losses_of_a_written_rubric_are_listed() -> None:
    rubric = Rubric.from_dict(
        {
            "guidelines": "Be strict.",
            "criteria": [
                {"requirement": "a", "weight": 3, "tags": ["x"], "required": True},
                {"requirement": "b\n", "weight": 2, "name": "tone"},
                {"requirement": "c", "weight": 1, "scale": {"min": 1, "max": 5}, "tags": list("abcdef")},
            ],
        }
    )
    document, losses = write_document(rubric, "markdown")
    assert document == {"markdown": "- b\n\n## x\n\n- a\n\n## a\n\n### b\n\n#### c\n\n##### d\n\n###### e\n\n- c\n"}
    assert losses == [
        "`guidelines` has no place in the format",
        "criteria without tags come first, because a heading is the tag of all bullets below it",
        "`tone`: `name` has no place in the format",
        "`tone`: `weight` 2 becomes 1",
        "`c1`: `required` has no place in the format",
        "`c1`: `weight` 3 becomes 1",
        "`c3`: `scale` has no place in the format",
        "`c3`: the tag 'f' has no heading",
        "`tone`: white space of the text changes",
    ]


@pytest.mark.parametrize(
    ("requirement", "tags", "words"),
    [
        ("Names it (3)", [], "would be refused there: has '(3)'"),
        ("[ ] a", [], "would be read there as 'a'"),
        ("a <!-- b -->", [], "would be read there as 'a'"),
        ("```\nx", [], "would be refused there"),
        ("a", ["b #"], "a tag of `c1`: is 'b #', which would be read there as 'b'"),
        ("a", ["10 points"], "would be refused there"),
    ],
)
def test_text_that_is_markdown_is_refused_when_it_is_written(requirement: str, tags: list[str], words: str) -> None:
    with pytest.raises(RubricError) as refusal:
        write_document(Rubric([{"requirement": requirement, "tags": tags}]), "markdown")
    assert words in str(refusal.value)


@given(rubrics)
def test_any_rubric_is_written_with_its_texts_or_refused(rubric: Rubric) -> None:
    try:
        document, _ = write_document(rubric, "markdown")
    except RubricError:
        return
    again = read_document(document, "again")
    words = [" ".join(criterion.full_requirement.split()) for criterion in rubric.criteria]
    assert sorted(" ".join(criterion.requirement.split()) for criterion in again.criteria) == sorted(words)


def test_penalty_is_not_written_as_a_requirement() -> None:
    for name in ("markdown", "agent_skills"):
        with pytest.raises(RubricError, match="`c1`: is a penalty, and there a response would have to make this error"):
            write_document(Rubric([{"requirement": "Insults", "weight": -2}]), name)


def test_checked_boxes_are_listed_as_losses() -> None:
    assert reading_losses({"markdown": "- [ ] a\n- [X] b"}) == ["checked boxes, `[x]`, are read like unchecked ones"]
    assert reading_losses({"markdown": "- [ ] a"}) == []


def test_event_that_defines_an_outcome_is_read_by_its_text() -> None:
    assert Rubric.from_dict(OUTCOME) == read(MARKDOWN["markdown"])
    assert reading_losses(OUTCOME) == [
        f"`{key}` beside the rubric is left out" for key in ("description", "max_iterations", "type")
    ]
    for rubric in ({"type": "file", "file_id": "file_1"}, {"type": "text", "content": ["- a"]}):
        with pytest.raises(RubricError, match=r"`rubric`: must be a text, got {'type': .*: no file is opened"):
            Rubric.from_dict({**OUTCOME, "rubric": rubric})


def test_markdown_as_a_library_of_rubrics_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rubric.md"
    path.write_text("- a")
    with pytest.raises(RubricError, match="is a Markdown file, not rubrics by name"):
        RowRubrics(None, path)


@pytest.mark.parametrize("value", [None, 3, ["- a"], {"a": "b"}])
def test_document_without_a_text_is_refused(value: Any) -> None:
    with pytest.raises(RubricError, match="`markdown`: must be a text"):
        read_document({"markdown": value}, "x")


def test_shell_validates_grades_and_converts_markdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rubric.md").write_text('# R\n## Form\n- Says "North"\n')
    Path("rows.jsonl").write_text('{"response": "The North"}\n')
    shell = CliRunner()
    assert "1 criterion" in shell.invoke(app, ["validate", "rubric.md"]).output
    graded = shell.invoke(app, ["grade", "rubric.md", "rows.jsonl", "--judge", "offline"])
    assert (graded.exit_code, "graded by R (markdown format): mean 1.000" in graded.output) == (0, True), graded.output
    for name in ("native.yaml", "native.json"):
        assert shell.invoke(app, ["convert", "rubric.md", "--to", "native", "--output", name]).exit_code == 0
        assert shell.invoke(app, ["convert", name, "--to", "markdown"]).stdout == '# R\n\n## Form\n\n- Says "North"\n'
        assert Rubric.from_file(name) == Rubric.from_file("rubric.md")
    for name in ("again.md", "again.json", "again.yaml"):
        assert shell.invoke(app, ["convert", "native.yaml", "--to", "markdown", "--output", name]).exit_code == 0
        assert Rubric.from_file(name) == Rubric.from_file("rubric.md")
    refused = shell.invoke(app, ["convert", "rubric.md", "--to", "native", "--output", "native.md"])
    assert (refused.exit_code, "is Markdown, in which native cannot be read" in refused.output) == (2, True)
    assert not Path("native.md").exists()
    Path("broken.md").write_text("# R\n\nSome text\n\n- a (3)\n")
    faults = shell.invoke(app, ["validate", "broken.md", "--format", "json"])
    [file] = json.loads(faults.stdout)
    assert [fault["line"] for fault in file["faults"][:2]] == [3, 5]


def test_yaml_of_headings_and_a_list_of_texts_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("# Report\n\n## Figures\n- States the margin\n")
    with pytest.warns(UserWarning, match="If it is Markdown, name it .md"):
        assert Rubric.from_file(path).criteria[0].tags == ()
    for text in ("# Report\n- {requirement: States the margin}", "- States the margin", "#!x\n- States the margin"):
        path.write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Rubric.from_file(path)


@needs_samples
@pytest.mark.parametrize(
    ("name", "count", "tags"),
    [("anthropic_outcome.md", 5, ("Figures", "Method", "Output")), ("deepagents_rubric.md", 3, ())],
)
def test_samples_are_read_and_graded(name: str, count: int, tags: tuple[str, ...]) -> None:
    rubric = Rubric.from_file(SAMPLES / name)
    assert (len(rubric), tuple(dict.fromkeys(tag for c in rubric.criteria for tag in c.tags))) == (count, tags)
    judge = ScriptedJudge({rubric.criteria[0].requirement: "UNMET"}, default="MET")
    assert rubric.grade_sync("x", PerCriterionGrader(judge)).score == pytest.approx((count - 1) / count)
    with pytest.raises(RubricError):
        list(load_eval_cases(SAMPLES / name))
