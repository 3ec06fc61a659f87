"""Rubrics in Markdown: the outcomes of Anthropic's managed agents and the rubrics of LangChain's deepagents.

Both tools show the text to a model and do not parse it. This reader accepts the form that their documentation shows:

- Each bullet at the left margin is a criterion of weight 1. Indented lines below it, such as nested bullets and code,
  belong to it.
- The headings above a list are the tags of its criteria. A single heading of the first level is the name.

Everything else is refused, because its meaning for the score cannot be known: a number that is written like a weight,
paragraphs, tables and numbered lists next to the bullets, and several lists below one heading. HTML comments and
horizontal rules have no effect.

The parsed document is `{"markdown": text}`, or the event `user.define_outcome` of Anthropic with such a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rubric_integrations.formats.items import (
    Reading,
    criterion_losses,
    error_of,
    make_rubric,
    read_criterion,
    refuse_penalties,
    rubric_losses,
)
from rubric_integrations.formats.linting import weight_in_text
from rubric_integrations.formats.parsing import AS_YAML, MARKDOWN_KEY, short
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Fault, Rubric, RubricError

_BULLET = re.compile(r"([-*+])(?: {1,4}(?=\S)| |$)")
_TASK_MARK = re.compile(r"\[([ xX])\](?:\s+(?=\S)|$)")
_RULE = re.compile(r"(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}")
_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
_EMPTY_ITEM = re.compile(r"[-*+]|\d{1,9}[.)]")
_NUMBERED = re.compile(r"\d{1,9}[.)](?:\s|$)")
_COMMENT_TOKENS = re.compile(r"(`+|<!--|-->)")
# Points in the middle of a line, as in `**Accuracy (5 points)**: ...`, and penalties, which would be read as rewards.
_NUMBER = r"[+\-\u2212]?\d{1,6}(?:\.\d{1,6})?"
_UNIT = r"(?:points?|pts?|marks?)\b"
_POINTS = re.compile(
    rf"[(\[]\s?(?:up to |worth |max )?{_NUMBER}\s?{_UNIT}[^)\]]{{0,40}}[)\]]|[(\[]worth {_NUMBER}\s?[)\]]|"
    rf"\s[-\u2013\u2014|]\s?{_NUMBER}\s?{_UNIT}|[(\[]\s?[+\-\u2212]\d{{1,6}} (?:if|for|each|per|when)\b|"
    rf"^\W*[+\-\u2212]\d{{1,6}}\s?(?::|{_UNIT})|[*_][+\-\u2212]\d{{1,6}}[*_]|"
    r"^\W*(?:penalty|deduction)\W*:|^\W*deduct\b|^\W*(?:penalties|deductions|negative (?:criteria|points))\W*$",
    re.IGNORECASE,
)
_SPACES = re.compile(r"\s+")
# The most characters at each end of a line in which a weight is looked for.
_END = 200
_MAX_BULLETS = 10_000
_MAX_LEVELS = 6
_KINDS = {
    "a paragraph": "make it a bullet if it is a requirement, or remove it",
    "a table": "write each of its rows as a bullet",
    "a numbered list": "begin each criterion with `-`",
    "a block of code": "indent it below its bullet, or remove it",
    "indented text": "indent it below its bullet, or remove it",
    "a quotation": "make it a bullet if it is a requirement, or remove it",
    "front matter": "remove it, or write the rubric as YAML",
    "an empty heading": "write its text, or remove it",
    "a comment that is not closed": "close it on its line, or put it on lines of its own",
    "a block of code that is not closed": "close it, or the criteria below it would be part of it",
    "a second list below one heading": "put a heading above it, or use one mark, such as `-`, for all bullets",
}
"""The reasons to refuse a file, each with how to fix it."""


class _Bullet(NamedTuple):
    """A bullet, with the line where it begins, its text and the headings above it."""

    line: int
    text: str
    headings: tuple[str, ...]


def matches(document: Any) -> bool:
    """Return whether parsed data is the text of a Markdown file, or an event with such a text."""
    return isinstance(document, Mapping) and (set(document) == {MARKDOWN_KEY} or _outcome(document) is not None)


def _outcome(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the `rubric` of an event that defines an outcome. None for other data."""
    rubric: Any = document.get("rubric")
    has_key = isinstance(rubric, Mapping) and "type" in rubric and ("content" in rubric or "file_id" in rubric)
    return rubric if has_key and "criteria" not in rubric else None


def parse(document: Any, source: str) -> Reading:
    """Make a rubric from the text of a Markdown file.

    Raises:
        RubricError: The text has another form than headings and bullets. The error lists every kind of fault once.
    """
    data: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    outcome = _outcome(data)
    key, text = (MARKDOWN_KEY, data.get(MARKDOWN_KEY)) if outcome is None else ("rubric", outcome.get("content"))
    if not isinstance(text, str):
        problem = f"must be a text, got {short(text if outcome is None else outcome)}: no file is opened"
        raise error_of(source, "markdown", [Fault("", key, problem)])
    blocks = _Blocks(text)
    faults = blocks.faults
    weights = [
        (line, weight)
        for line, words in [*blocks.titles, *((bullet.line, bullet.text) for bullet in blocks.bullets)]
        if (weight := _weight_in(words))
    ]
    if weights:
        line, weight = weights[0]
        more = f" (and {len(weights) - 1} more)" if len(weights) > 1 else ""
        message = f"has {weight!r}, in which the weight of a criterion cannot be found{more}: {AS_YAML}"
        faults.append(Fault(f"line {line}", "", message))
    if not blocks.bullets and not faults:
        faults.append(Fault("", "", "has no bullet: begin each criterion with `-`"))
    if len(blocks.bullets) > _MAX_BULLETS:
        faults.append(Fault("", "", f"has more than {_MAX_BULLETS:,} bullets: it is no rubric"))
    criteria: list[Criterion] = []
    for bullet in blocks.bullets if not faults else ():
        tags = tuple(dict.fromkeys(bullet.headings))
        fields = {"requirement": bullet.text, "weight": 1.0, **({"tags": tags} if tags else {})}
        criteria += read_criterion(fields, f"line {bullet.line}", faults)
    fields = {"name": blocks.name} if blocks.name else {}
    losses = ["checked boxes, `[x]`, are read like unchecked ones"] if blocks.has_checked else []
    if outcome is not None:
        losses += [f"`{key}` beside the rubric is left out" for key in sorted(map(str, data)) if key != "rubric"]
    return Reading(make_rubric(criteria, fields, source, "markdown", faults), losses)


def write(rubric: Rubric) -> tuple[dict[str, Any], list[str]]:
    """Return a rubric as the text of a Markdown file, with one message for each part that it cannot express.

    Criteria without tags come first, because a heading is the tag of all bullets below it.

    Raises:
        RubricError: The rubric has penalties, or a text would be read as something else, such as a heading or a weight.
    """
    refuse_penalties(rubric, "markdown")
    messages = rubric_losses(rubric, kept=("name",))
    pairs = list(zip(rubric.keys, rubric.criteria, strict=True))
    ordered = sorted(pairs, key=lambda pair: bool(pair[1].tags))
    if ordered != pairs:
        messages.append("criteria without tags come first, because a heading is the tag of all bullets below it")
    lines = [f"# {_one_line(rubric.name)}", ""] if rubric.name and rubric.name.strip() else []
    above: tuple[str, ...] = ()
    for key, criterion in ordered:
        messages += criterion_losses(key, criterion, kept=("weight", "tags"))
        if criterion.weight != 1:
            messages.append(f"`{key}`: `weight` {criterion.weight:g} becomes 1")
        tags = criterion.tags[: _MAX_LEVELS - 1]
        messages += [f"`{key}`: the tag {tag!r} has no heading" for tag in criterion.tags[_MAX_LEVELS - 1 :]]
        if tags != above:
            same = next((n for n, pair in enumerate(zip(tags, above, strict=False)) if pair[0] != pair[1]), len(above))
            for level, tag in list(enumerate(tags))[min(same, len(tags) - 1) :]:
                lines += ["", f"{'#' * (level + 2)} {_one_line(tag)}", ""] if lines else [f"## {_one_line(tag)}", ""]
        above = tags
        first, *rest = criterion.full_requirement.strip().splitlines()
        lines += [f"- {first}", *(f"  {line}".rstrip() for line in rest)]
    document = {MARKDOWN_KEY: re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"}
    return document, messages + _changes(document, rubric, ordered)


def _changes(document: dict[str, Any], rubric: Rubric, ordered: list[tuple[str, Criterion]]) -> list[str]:
    """Read the text of a rubric again, and return one message for each text whose white space changed.

    Raises:
        RubricError: Another text would be read.
    """
    try:
        again = parse(document, "markdown").rubric
    except RubricError as error:
        message = f"cannot be written as Markdown, because it would be refused there: {error.faults[0].message}"
        raise RubricError("markdown", [Fault("", "", message)]) from None
    messages: list[str] = []
    texts = [("name", rubric.name or "", again.name or "")]
    if len(again) != len(rubric):
        raise RubricError("markdown", [Fault("", "", "has a text with bullets, which would be criteria there")])
    for (key, criterion), other in zip(ordered, again.criteria, strict=True):
        texts.append((f"`{key}`", criterion.full_requirement, other.requirement))
        kept = criterion.tags[: _MAX_LEVELS - 1]
        texts += [(f"a tag of `{key}`", *pair) for pair in zip(kept, other.tags, strict=False)]
        if len(kept) != len(other.tags):
            texts.append((f"a tag of `{key}`", "\n".join(kept), ""))
    for what, text, read in texts:
        if _SPACES.sub(" ", text).strip() != _SPACES.sub(" ", read).strip():
            message = f"is {short(text)}, which would be read there as {short(read)}: reword it"
            raise RubricError("markdown", [Fault(what, "", message)])
        if text != read:
            messages.append(f"{what}: white space of the text changes")
    return messages


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _weight_in(words: str) -> str:
    """Return a number at an end of one of the lines of a text that is written like a weight. Empty if there is none."""
    ends = ((line[:_END], line[-_END:]) for line in map(str.strip, words.splitlines()))
    weight = next((weight for pair in ends for end in pair if (weight := weight_in_text(end))), "")
    begins = (line.strip()[:_END] for line in words.splitlines())
    return weight or next((match[0].strip() for begin in begins if (match := _POINTS.search(begin))), "")


class _Blocks:
    """The headings and bullets of a Markdown text.

    Attributes:
        bullets: The bullets at the left margin.
        titles: The headings, each with its line.
        name: The only heading of the first level, if it stands above everything else. Otherwise empty.
        has_checked: Whether a bullet begins with a checked box.
        faults: A fault for each kind of block that is refused, with its first line.
    """

    def __init__(self, text: str):
        self.bullets: list[_Bullet] = []
        self.titles: list[tuple[int, str]] = []
        self.name = ""
        self.has_checked = False
        self._refused: dict[str, tuple[int, int]] = {}
        # The headings above the current line, by their level, and the levels of all headings.
        self._above: dict[int, str] = {}
        self._levels: list[int] = []
        # The line and the lines of the current bullet, and the column where its text begins. 0 if there is none.
        self._start = 0
        self._lines: list[str] = []
        self._column = 0
        # The mark of the list below the current heading. Empty before its first bullet, and "end" after its end.
        self._mark = ""
        # Whether an unindented line would continue the bullet's paragraph.
        self._is_paragraph = False
        self._fence = ""
        # A line at the left margin that is a heading if the next line underlines it.
        self._pending: tuple[int, str] | None = None
        self._read(text)
        self._take_name()

    @property
    def faults(self) -> list[Fault]:
        """A fault for each kind of block that is refused, with its first line."""
        return [
            Fault(f"line {line}", "", f"is {kind}{f' (and {count - 1} more)' if count > 1 else ''}: {_KINDS[kind]}")
            for kind, (line, count) in self._refused.items()
        ]

    def _read(self, text: str) -> None:
        """Read all lines, without their comments."""
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if lines[0].rstrip() == "---" and any(line.rstrip() in ("---", "...") for line in lines[1:]):
            self._refuse("front matter", 1)
            return
        comment = fence = 0
        for number, written in enumerate(lines, start=1):
            line = written.expandtabs(4).rstrip()
            fence = fence if self._fence else number
            if comment or (line.lstrip().startswith("<!--") and not self._fence):
                rest, is_closed = _without_comments("<!--" + line if comment else line)
                self._skip_comment(number, line, rest, is_first=not comment)
                comment = 0 if is_closed else comment or number
                continue
            if "<!--" in line and not self._fence:
                line, is_closed = _without_comments(line)
                if not is_closed:
                    self._refuse("a comment that is not closed", number)
            self._read_line(number, line)
        self._end_bullet()
        self._end_pending()
        if comment:
            self._refuse("a comment that is not closed", comment)
        if self._fence:
            self._refuse("a block of code that is not closed", fence)

    def _skip_comment(self, number: int, line: str, rest: str, *, is_first: bool) -> None:
        """Skip a line of a comment that is on lines of its own. `rest` is the text after the comment."""
        is_outside = bool(line) and len(line) - len(line.lstrip()) < self._column
        if rest.strip():
            self._refuse("a paragraph", number)
        elif is_outside and not is_first:
            # Markdown ends the comment with the bullet in which it begins.
            self._refuse("a comment that is not closed", number)
        if is_outside:
            self._end_bullet()
        self._end_pending()
        self._is_paragraph = False

    def _take_name(self) -> None:
        """Make the first heading the name, if it is the only one of the first level and above all bullets."""
        is_only = self._levels[:1] == [1] and self._levels.count(1) == 1
        if is_only and all(bullet.line > self.titles[0][0] for bullet in self.bullets):
            self.name = self.titles[0][1]
            self.bullets = [bullet._replace(headings=bullet.headings[1:]) for bullet in self.bullets]

    def _refuse(self, kind: str, line: int) -> None:
        first, count = self._refused.get(kind, (line, 0))
        self._refused[kind] = (first, count + 1)

    def _read_line(self, number: int, line: str) -> None:
        """Read a line without comments, tabs and white space at its end."""
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        if self._fence:
            self._read_code(number, line, indent)
        elif not stripped:
            self._end_pending()
            self._is_paragraph = False
            if self._lines == [""]:
                self._end_bullet()
            elif self._column:
                self._lines.append("")
        elif self._column and indent >= self._column:
            self._continue_bullet(line[self._column :])
        elif indent < 4 and self._read_block(number, stripped, indent):
            pass
        elif self._column and self._is_paragraph:
            self._lines.append(stripped)
        else:
            self._end_bullet()
            self._end_pending()
            if indent >= 4:
                self._refuse("indented text", number)
            else:
                self._pending = (number, stripped)

    def _read_code(self, number: int, line: str, indent: int) -> None:
        """Read a line of a block of code, which ends with a fence that is at least as long as the first one."""
        stripped = line.strip()
        if self._column and stripped and indent < self._column:
            self._refuse("a block of code that is not closed", number)
            self._column = 0
        if self._column:
            self._lines.append(line[self._column :])
        if len(stripped) >= len(self._fence) and not stripped.strip(self._fence[0]):
            self._fence = ""

    def _continue_bullet(self, text: str) -> None:
        """Add an indented line to the current bullet."""
        self._lines.append(text)
        plain = text.lstrip(" ")
        fence = _FENCE.match(plain)
        self._fence = fence[0] if fence else ""
        is_other = fence or plain.startswith("#") or _RULE.fullmatch(plain) or _EMPTY_ITEM.fullmatch(plain)
        self._is_paragraph = bool(plain) and not is_other

    def _read_block(self, number: int, text: str, indent: int) -> bool:
        """Read a line that begins a block at the left margin. Return whether it does."""
        if self._pending and not (text.strip("=") and text.strip("-")):
            line, title = self._pending
            self._pending = None
            self._add_heading(line, 1 if text[0] == "=" else 2, title)
            return True
        level = len(text) - len(text.lstrip("#"))
        if 0 < level <= _MAX_LEVELS and text[level : level + 1] in ("", " "):
            self._add_heading(number, level, _heading_text(text[level:]))
        elif _RULE.fullmatch(text):
            self._end_bullet()
            self._end_pending()
            self._mark = "end" if self._mark else ""
        elif bullet := _BULLET.match(text):
            self._begin_bullet(number, bullet[1], text[bullet.end() :], indent + max(2, bullet.end()))
        elif kind := _kind_of(text):
            self._end_bullet()
            self._end_pending()
            self._refuse(kind, number)
            fence = _FENCE.match(text)
            self._fence = fence[0] if fence else ""
        else:
            return False
        return True

    def _add_heading(self, number: int, level: int, title: str) -> None:
        self._end_bullet()
        self._end_pending()
        if not title:
            self._refuse("an empty heading", number)
        self.titles.append((number, title))
        self._levels.append(level)
        self._above = {above: text for above, text in self._above.items() if above < level} | {level: title}
        self._mark = ""

    def _begin_bullet(self, number: int, mark: str, text: str, column: int) -> None:
        self._end_bullet()
        self._end_pending()
        if self._mark not in ("", mark):
            self._refuse("a second list below one heading", number)
        self._mark = mark
        self._start = number
        self._column = column
        if box := _TASK_MARK.match(text):
            self.has_checked |= box[1] in "xX"
            text = text[box.end() :]
        self._continue_bullet(text.lstrip(" "))
        # After five spaces, the text is code, which no unindented line continues.
        self._is_paragraph &= not text.startswith(" ")

    def _end_bullet(self) -> None:
        if self._column:
            headings = tuple(self._above[level] for level in sorted(self._above))
            self.bullets.append(_Bullet(self._start, "\n".join(self._lines).strip(), headings))
        self._column = 0
        self._lines = []
        self._is_paragraph = False

    def _end_pending(self) -> None:
        if self._pending:
            self._refuse("a paragraph", self._pending[0])
        self._pending = None


def _heading_text(text: str) -> str:
    """Return the text of a heading without the `#` that may close it."""
    text = text.strip()
    opened = text.rstrip("#")
    return opened.rstrip() if opened == "" or opened.endswith(" ") else text


def _kind_of(text: str) -> str:
    """Return the kind of a block that is refused, by its first line. Empty for a line of text."""
    if _FENCE.match(text):
        return "a block of code"
    if _NUMBERED.match(text):
        return "a numbered list"
    return {"|": "a table", ">": "a quotation"}.get(text[0], "")


def _without_comments(line: str) -> tuple[str, bool]:
    """Return a line without the HTML comments in it, and whether the last one is closed.

    A comment in code, between backticks, is text.
    """
    tokens = _COMMENT_TOKENS.split(line)
    following: dict[str, int] = {}
    ends: list[int | None] = []
    for index in range(len(tokens) - 1, -1, -1):
        token = "-->" if tokens[index] == "<!--" else tokens[index]
        ends.append(following.get(token))
        following[tokens[index]] = index
    ends.reverse()
    kept: list[str] = []
    index = 0
    while index < len(tokens):
        end = ends[index]
        if tokens[index] == "<!--":
            if end is None:
                return "".join(kept), False
            index = end + 1
        elif index % 2 and tokens[index] != "-->" and end is not None:
            kept += tokens[index : end + 1]
            index = end + 1
        else:
            kept.append(tokens[index])
            index += 1
    return "".join(kept).rstrip(), True
