"""A judge's request as data, for whoever sends it in place of the judge, such as the batch API of a provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RequestProtocol = Literal["openai", "anthropic"]
"""The protocol of a request's body: OpenAI's chat completions, or Anthropic's messages."""


@dataclass(frozen=True)
class JudgeRequest:
    """A request about one question, as `LMJudge.prepare_request` makes it.

    Attributes:
        protocol: The protocol of the body.
        url: Where the judge itself would send it.
        headers: Its HTTP headers, with the key: they are in no `repr`, and are not to be written anywhere.
        body: Its JSON in UTF-8, the same bytes that the judge itself would send.
    """

    protocol: RequestProtocol
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes
