"""The JSON Schema of the native format, which editors use to complete and check rubric files."""

from __future__ import annotations

from typing import Any

from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a native rubric file: an object with `criteria`, or a list of criteria.

    Example:
        >>> json_schema()["title"]
        'Rubric'
    """
    rubric = Rubric.model_json_schema(mode="validation")
    definitions: dict[str, Any] = rubric.pop("$defs")
    definitions |= Criterion.model_json_schema().get("$defs", {})
    # The reader makes the tree from the nesting of the criteria; a file must not contain it.
    rubric["properties"].pop("tree")
    definitions.pop("Node", None)
    criterion = definitions["Criterion"]
    entry = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("Criterion", "Group", "Reference")]}
    entries = {"type": "array", "minItems": 1, "items": entry}
    definitions["Group"] = {
        "title": "Group",
        "description": "A group of criteria, which divides its weight among them.",
        "type": "object",
        "required": ["requirement", "criteria"],
        "additionalProperties": False,
        "properties": {
            **{name: criterion["properties"][name] for name in ("name", "weight", "requirement")},
            "penalty_cap": {
                "description": "The most that the penalties among the criteria take, in the unit of their weights.",
                "type": ["number", "null"],
                "exclusiveMinimum": 0,
            },
            "criteria": entries,
        },
    }
    definitions["Reference"] = {
        "title": "Reference",
        "description": "A criterion above, which is judged once and scored here too.",
        "type": "object",
        "required": ["ref"],
        "additionalProperties": False,
        "properties": {"ref": {"type": "string"}, "weight": criterion["properties"]["weight"]},
    }
    rubric["properties"]["criteria"] = entries
    number: dict[str, Any] = definitions["Check"]["properties"]["number"]
    number["anyOf"] = [*number["anyOf"], {"type": "number"}, {"type": "string"}]
    fields: dict[str, Any] = definitions["Check"]["properties"]["fields"]
    entries_of_fields = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/FieldCheck"}}
    fields["anyOf"] = [*fields["anyOf"], entries_of_fields]
    # Both may be written as the name of the tool alone.
    for name in ("ExpectedCall", "ToolUse"):
        definitions[name] = {"anyOf": [definitions[name], {"type": "string", "minLength": 1}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rubric",
        "description": "A rubric of weighted criteria for rubric-integrations.",
        "anyOf": [rubric, entries],
        "$defs": definitions,
    }
