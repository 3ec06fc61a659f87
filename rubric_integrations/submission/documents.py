"""The documents of a submission as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rubric_integrations.submission.values import value_text


def document_texts(documents: object) -> tuple[str, ...]:
    """Return the texts of one document, or of a list of documents, without the empty ones.

    A LangChain document is its `page_content`; any other value that is not a text becomes JSON.

    Example:
        >>> document_texts(["The margin was 8.4%.", {"page": 3}, " "]), document_texts(None)
        (('The margin was 8.4%.', '{"page": 3}'), ())
    """
    is_list = isinstance(documents, Sequence) and not isinstance(documents, str | bytes)
    several = cast("Sequence[object]", documents) if is_list else [documents]
    texts = (_text_of(document) for document in several)
    return tuple(text for text in texts if text.strip())


def _text_of(document: object) -> str:
    content: Any = getattr(document, "page_content", None)
    return content if isinstance(content, str) else value_text(document)
