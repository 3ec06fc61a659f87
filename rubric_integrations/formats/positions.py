"""The lines of a rubric file where its fields are, for tools that show faults in an editor or a review."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rubric_integrations.formats.parsing import MAX_BYTES, bound_yaml

_STEP = re.compile(r"[^.\[\]]+")
# PyYAML's message of a syntax error ends with the place of the error.
_PLACE = re.compile(r"at line (\d+), column \d+$")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Positions:
    r"""The lines of the fields of a JSON or YAML document, counted from 1.

    A document that cannot be parsed has no positions: every line is 1.

    Args:
        text: The document.

    Example:
        >>> Positions("criteria:\n- requirement: Is polite\n  weight: x").line("criteria[0]", "weight")
        3
    """

    def __init__(self, text: str):
        self._root: Node | None = None
        if len(text) > MAX_BYTES:
            return
        try:
            # Almost all JSON is YAML, but YAML allows no tabs as indentation: a space in their place keeps the lines.
            plain = text.removeprefix("\ufeff").replace("\t", " ")
            # PyYAML's parser in C overflows its stack on thousands of nested lists, which ends the process.
            bound_yaml(plain)
            self._root = yaml.compose(plain, Loader=_Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            return

    def line(self, where: str, field: str) -> int:
        """Return the line of a field, or of the closest thing around it that is in the document.

        Args:
            where: The place of the object, such as `criteria[2].criteria[0]`; empty for the document itself.
            field: The name of the field, or a path such as `check.number`; empty for the object itself.
        """
        if self._root is None:
            return 1
        if isinstance(self._root, MappingNode) and _child(self._root, "requirement"):
            # One criterion alone is called `criteria[0]`.
            where = where.removeprefix("criteria[0]")
        node, line = self._root, 1
        for step in [*_STEP.findall(where), *_STEP.findall(field)]:
            child = _child(node, step)
            if child is None and isinstance(node, MappingNode):
                # The places of a rubric under the key `rubric` begin below that key.
                wrapped = _child(node, "rubric")
                child = _child(wrapped[0], step) if wrapped else None
            if child is None and node is self._root and isinstance(node, SequenceNode) and step == "criteria":
                # A list of criteria alone is called `criteria`.
                continue
            if child is None:
                break
            node, line = child
        return line

    def line_of_text(self, text: str) -> int:
        """Return the line where the first value with this text begins; 1 if there is none."""
        seen: set[int] = set()
        nodes = [self._root] if self._root else []
        while nodes:
            node = nodes.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, ScalarNode) and node.value == text:
                return node.start_mark.line + 1
            if isinstance(node, SequenceNode):
                nodes += reversed(node.value)
            elif isinstance(node, MappingNode):
                nodes += [value for _, value in reversed(node.value)]
        return 1


def syntax_error_line(message: str) -> int | None:
    """Return the line that the message of a syntax error names; None if it names none."""
    place = _PLACE.search(message)
    return int(place[1]) if place else None


def _child(node: Node, step: str) -> tuple[Node, int] | None:
    """Return the value under a key or an index, and the line where the key, or the entry, begins."""
    if isinstance(node, SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        value = node.value[int(step)]
        return value, value.start_mark.line + 1
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == step:
                return value, key.start_mark.line + 1
    return None
