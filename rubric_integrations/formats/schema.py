"""The JSON Schema of the native format, from which editors complete rubric files."""

from __future__ import annotations

from typing import Any

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a native rubric file: an object with `criteria`, or a bare list of them.

    Example:
        >>> json_schema()["title"]
        'Rubric'
    """
    rubric = Rubric.model_json_schema(mode="validation")
    definitions: dict[str, Any] = rubric.pop("$defs")
    definitions |= Criterion.model_json_schema().get("$defs", {})
    # What the reader makes of a file, and a file does not say.
    rubric["properties"].pop("tree")
    definitions.pop("Node", None)
    criterion = definitions["Criterion"]
    entry = {"anyOf": [{"$ref": "#/$defs/Criterion"}, {"$ref": "#/$defs/Group"}]}
    entries = {"type": "array", "minItems": 1, "items": entry}
    definitions["Group"] = {
        "title": "Group",
        "description": "Criteria that share a weight.",
        "type": "object",
        "required": ["requirement", "criteria"],
        "additionalProperties": False,
        "properties": {
            **{name: criterion["properties"][name] for name in ("name", "weight", "requirement")},
            "criteria": entries,
        },
    }
    rubric["properties"]["criteria"] = entries
    number: dict[str, Any] = definitions["Check"]["properties"]["number"]
    number["anyOf"] = [*number["anyOf"], {"type": "number"}, {"type": "string"}]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rubric",
        "description": "A rubric of weighted criteria for rubric-integrations.",
        "anyOf": [rubric, entries],
        "$defs": definitions,
    }
