"""Opens a report page in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rubric_integrations.reporting import report_page
from rubric_integrations.runs import RunFile
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.trust import JudgmentToLabel


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page from a file; fail if it logs a message, raises an error or requests anything from elsewhere."""
    contexts: list[Any] = []
    messages: list[str] = []

    def record(message: Any) -> None:
        messages.append(str(message))

    def record_request(request: Any) -> None:
        if not request.url.startswith(("file:", "blob:")):
            messages.append(request.url)

    def open_page(
        *runs: RunFile,
        to_label: Sequence[JudgmentToLabel] = (),
        labels: Sequence[LabelledJudgment] | None = None,
        redact: bool = False,
        **options: Any,
    ) -> Any:
        path = tmp_path / "report.html"
        path.write_text(report_page(runs, to_label=to_label, labels=labels, redact=redact), encoding="utf-8")
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", record)
        page.on("pageerror", record)
        page.on("request", record_request)
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []
