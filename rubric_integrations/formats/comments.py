r"""Writes criteria with comments into a YAML rubric, and appends criteria without changing the text of a file.

A comment is one line: line breaks and control characters are escaped, so that no text of a model or a user ends the
comment and becomes a part of the rubric. After each append, the result is read again and compared with the expected
rubric.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rubric_integrations._util.text import one_line
from rubric_integrations.formats.native import parse as parse_native
from rubric_integrations.formats.parsing import dump, load_text
from rubric_integrations.formats.registry import detect
from rubric_integrations.rubric.rubric import Rubric, RubricError

_LONGEST_COMMENT = 300
_ONLY_COMMENTS = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?(?:\r?\n|\Z))*\Z")
_WRAPPERS = ("criteria", "rubric", "sections")


class CommentedEntry(NamedTuple):
    """An entry of a list in a rubric file, such as a criterion, with the comments above it.

    Attributes:
        data: The entry, in the native format.
        comments: The comments, one line each.
    """

    data: Mapping[str, Any]
    comments: Sequence[str] = ()


class AppendError(ValueError):
    """Raised if criteria cannot be appended to a file without changing its text."""


def comment_line(text: str) -> str:
    r"""Return a text as one line of a YAML comment, shortened to 300 characters.

    Example:
        >>> comment_line("a\n- requirement: b")
        '# a\\n- requirement: b'
    """
    line = one_line(text)
    return f"# {line if len(line) <= _LONGEST_COMMENT else line[:_LONGEST_COMMENT] + '...'}"


def write_entries(entries: Sequence[CommentedEntry], indent: int = 0) -> str:
    """Return the entries of a list as YAML text in block style, each below its comments."""
    lines = [
        line
        for entry in entries
        for line in (*map(comment_line, entry.comments), *dump([dict(entry.data)], "yaml").rstrip("\n").split("\n"))
    ]
    return "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in lines)


def write_commented(document: Mapping[str, Any], header: Sequence[str], comments: Sequence[Sequence[str]] = ()) -> str:
    """Return a native rubric as YAML text with comments above the text and above its last criteria.

    Args:
        document: The rubric, as `Rubric.to_dict` returns it.
        header: The comments above the text, one line each.
        comments: The comments of the last criteria, in their order.

    Example:
        >>> document = {"name": "mine", "criteria": [{"requirement": "Is kind"}, {"requirement": "Is brief"}]}
        >>> print(write_commented(document, ["a draft"], [["from pair 7"]]))
        # a draft
        name: mine
        criteria:
        - requirement: Is kind
        # from pair 7
        - requirement: Is brief
        <BLANKLINE>
    """
    text = "".join(f"{comment_line(line)}\n" for line in header)
    for key, value in document.items():
        if key == "criteria":
            own = len(value) - len(comments)
            notes = [*([()] * own), *comments]
            text += f"{key}:\n" + write_entries(list(map(CommentedEntry, value, notes)))
        else:
            text += dump({key: value}, "yaml")
    return text


def append_criteria(text: str, entries: Sequence[CommentedEntry], source: str = "rubric") -> str:
    r"""Append criteria to the text of a native YAML rubric. All of its characters are kept, in their order.

    Args:
        text: The text of the file.
        entries: The criteria to append, with their comments.
        source: The name of the file in errors.

    Raises:
        AppendError: The criteria of the file are not a list in block style, or the file is not in the native format.
        RubricError: The file is not a valid rubric.

    Example:
        >>> entry = CommentedEntry({"requirement": "Is brief"})
        >>> print(append_criteria("# mine\n- requirement: Is kind # yes", [entry]))
        # mine
        - requirement: Is kind # yes
        - requirement: Is brief
        <BLANKLINE>
    """
    document = load_text(text, "yaml", source)
    if (rubric_format := detect(document)) != "native":
        raise AppendError(
            f"{source}: is in the format {rubric_format!r}, in which a criterion would be read differently: write it "
            f"in the native format first, by `rubric-integrations convert {source} --to native --output FILE`"
        )
    criteria = _criteria_of(yaml.compose(text, Loader=yaml.SafeLoader))
    if criteria is None or criteria.flow_style or not criteria.value:
        raise AppendError(
            f"{source}: its criteria are not a list of YAML in block style (one `- ` for each), so that none can be "
            "appended without changing the text: write it as such a list, as `rubric-integrations convert` does"
        )
    place = _end_of(criteria, text)
    if _ONLY_COMMENTS.match(text, place):
        place = len(text)
    before, after = text[:place], text[place:]
    newline = "\r\n" if "\r\n" in text else "\n"
    addition = write_entries(entries, _column_of(criteria, text)).replace("\n", newline)
    joint = "" if before.endswith(("\n", "\r")) else newline
    result = f"{before}{joint}{addition}{after}"
    expected = extended(document, [entry.data for entry in entries])
    try:
        is_extended = load_text(result, "yaml", source) == expected
    except RubricError:
        is_extended = False
    if not is_extended:
        raise AppendError(f"{source}: criteria cannot be appended to its text: write its criteria as a plain list")
    return result


def extended(document: Any, entries: Sequence[Mapping[str, Any]]) -> Any:
    """Return parsed data of a native rubric with further criteria at the end of its list.

    Example:
        >>> extended({"criteria": [{"requirement": "Is kind"}]}, [{"requirement": "Is brief"}])
        {'criteria': [{'requirement': 'Is kind'}, {'requirement': 'Is brief'}]}
    """
    if isinstance(document, list):
        return [*document, *map(dict, entries)]
    key = next(key for key in _WRAPPERS if key in document)
    return {**document, key: extended(document[key], entries)}


def rubric_with(rubric: Rubric, entries: Sequence[Mapping[str, Any]]) -> Rubric:
    """Return a rubric with further criteria after its own ones, at the top level.

    Raises:
        RubricError: A new criterion is invalid, such as a repeated name.
    """
    return parse_native(extended(rubric.to_dict(), entries), "rubric").rubric


def _column_of(criteria: SequenceNode, text: str) -> int:
    """Return the column of the hyphens of a list in block style. The list itself may begin with an anchor."""
    mark = criteria.start_mark
    if text[mark.index : mark.index + 1] == "-":
        return mark.column
    before = text[: criteria.value[0].start_mark.index].rstrip()
    return len(before) - 1 - max(before.rfind("\n"), before.rfind("\r")) - 1


def _criteria_of(node: Node | None) -> SequenceNode | None:
    """Return the list of criteria of a document, or None if there is none."""
    if isinstance(node, SequenceNode):
        return node
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value in _WRAPPERS:
                return _criteria_of(value)
    return None


def _end_of(criteria: SequenceNode, text: str) -> int:
    """Return the position after the last line of a list in block style."""
    end = 0
    nodes: list[Node] = [criteria]
    seen: set[int] = set()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode) and not node.flow_style:
            nodes += node.value
        elif isinstance(node, MappingNode) and not node.flow_style:
            nodes += [part for pair in node.value for part in pair]
        else:
            end = max(end, node.end_mark.index)
    if text[:end].endswith("\n"):
        return end  # the end of a literal text
    following = text.find("\n", end)
    return len(text) if following < 0 else following + 1
