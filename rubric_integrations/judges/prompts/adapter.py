"""The DSPy adapter of a judge: DSPy's JSON prompt, and our parser."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import dspy

from rubric_integrations.judges.prompts.attachments import texts_of_inputs
from rubric_integrations.judges.prompts.parse import parse_reply
from rubric_integrations.judges.prompts.quotation import looks_quotable

# How `describe_batch` begins each criterion; a criterion's own text cannot begin a line.
_NUMBERED = re.compile(r"^(\d+)\. \((?:requirement|penalty|choice|score)\) ", re.MULTILINE)


ReplyFormat = Literal["schema", "json", "text"]
"""The strictest format in which a reply is requested: a JSON Schema, JSON mode, or none but the prompt's words."""


class JudgeAdapter(dspy.JSONAdapter):
    """A DSPy JSON adapter whose parser cannot be misled by a verdict that the judge quotes.

    Attributes:
        quotable: Whether the graded texts contain something that looks like a verdict (see `parse_reply`).
        expected_ids: The numbers of the criteria in a request about several.
        reply_format: The strictest format in which the reply is requested; some servers refuse stricter ones.
        raw_text: The reply as the model wrote it, where the caller knows it. DSPy parses a reply to a JSON schema and
            serializes it again, so that a repeated field arrives here once.
        has_format: Whether a JSON format was requested; a server that refuses it sends no reply.
        end_is_known: Whether the caller knows why the reply ended, and that it is whole.
    """

    def __init__(self, quotable: bool, expected_ids: frozenset[int] = frozenset(), texts: Sequence[str] = ()):
        super().__init__()
        self.quotable, self.expected_ids, self._texts = quotable, expected_ids, texts
        self.raw_text: str | None = None
        self.has_format = self.end_is_known = False
        self.reply_format: ReplyFormat = "schema"

    def _prepare_response_format(self, lm: Any, lm_kwargs: dict[str, Any], signature: Any) -> None:
        """Choose the format as DSPy does, but none that is stricter than `reply_format`."""
        super()._prepare_response_format(lm, lm_kwargs, signature)
        if self.reply_format == "json" and lm_kwargs.get("response_format") is not None:
            lm_kwargs["response_format"] = {"type": "json_object"}
        elif self.reply_format == "text":
            lm_kwargs.pop("response_format", None)
        self.has_format = lm_kwargs.get("response_format") is not None

    @classmethod
    def for_inputs(cls, inputs: Mapping[str, Any], quotable: bool | None = None) -> Self:
        """Make the adapter for the reply to a question with these inputs.

        Args:
            inputs: The inputs of the signature.
            quotable: Whether a judge could quote a verdict from them; by default they are searched.
        """
        texts = texts_of_inputs(inputs)
        if quotable is None:
            quotable = looks_quotable(*texts)
        return cls(quotable, frozenset(map(int, _NUMBERED.findall(str(inputs.get("criteria", ""))))), texts)

    @property
    def completing_texts(self) -> Sequence[str]:
        """The texts that could have completed a reply that was cut off; empty if the caller knows that it was not."""
        return () if self.end_is_known else self._texts

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Parse the output fields of a reply.

        Raises:
            dspy.utils.exceptions.AdapterParseError: The reply does not answer the signature unambiguously.
        """
        text = completion if self.raw_text is None else self.raw_text
        return parse_reply(
            signature,
            text,
            quotable=self.quotable,
            expected_ids=self.expected_ids,
            json_only=self.has_format,
            completing_texts=self.completing_texts,
        )
