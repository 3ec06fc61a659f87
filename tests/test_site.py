"""The documentation as a site: it builds without warnings, and works from disk, without a server or a network."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
from filelock import FileLock

from docs.commands import llms_text
from rubric_integrations.cli import COMMANDS, app

pytestmark = pytest.mark.site

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Path:
    """The documentation as HTML, built once for all processes of a test run."""
    missing = [name for name in ("mkdocs", "material", "mkdocstrings_handlers") if find_spec(name) is None]
    if missing:
        pytest.skip(
            f"no {' and no '.join(missing)}: install mkdocs-material and mkdocstrings[python] to build the site"
        )
    folder = tmp_path_factory.getbasetemp().parent / f"site-{testrun_uid}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
            build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
            if build.returncode:
                shutil.rmtree(folder, ignore_errors=True)
            assert build.returncode == 0, build.stdout + build.stderr
    return folder


def plain(text: str) -> str:
    """Return a text without line breaks, and without the marks of code."""
    return " ".join(text.replace("`", "").split())


def test_site_requests_nothing_from_other_servers(site: Path) -> None:
    external = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\"'>]+")
    for path in site.glob("*.html"):
        assert not external.findall(path.read_text(encoding="utf-8")), path.name


def test_list_of_pages_for_language_models_has_every_page_with_its_text_in_markdown(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    heading, blank, summary, *_ = text.splitlines()
    assert (heading, blank, summary[:2]) == ("# rubric-integrations", "", "> ")
    links = re.findall(r"^- \[(.+)\]\((.+)\): (.+)$", text, re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(path for _, path, _ in links) == sorted(pages)
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections == ["Start", "Jobs", "Rubrics", "Frameworks", "Trust", "Reference", "Development"]
    assert len(text.splitlines()) == 3 + 3 * len(sections) + len(links)
    for _, path, note in links:
        page = (site / path).read_text(encoding="utf-8")
        assert page.startswith("# ")
        assert "\n<!-- setup\n" not in page
        assert (site / path).with_suffix(".html").exists()
        for target in re.findall(r"\]\((?![a-z]+:)([^)#\s]+\.md)", page):
            assert ((site / path).parent / target).exists(), f"{path}: {target}"
        assert not re.search(r"\]\(|```|<!--", note), note


def test_note_on_a_page_has_its_first_sentence_and_its_headings() -> None:
    pages = {
        "a.md": "# A\n\nUse [it\nwell](b.md#c). Then:\n\n```sh\n## no heading\n```\n\n## `x` first\n\n## Second\n",
        "b.md": "# B\n\n## Only `this`\n\nText.\n",
        "c.md": "# C\n\nSuch as:\n\n- a\n",
    }
    nav = [{"Start": [{"One": "a.md"}, {"Two": "b.md"}]}, {"More": [{"Three": "c.md"}]}]
    assert llms_text("name", "What it is.", nav, pages) == (
        "# name\n\n> What it is.\n\n## Start\n\n- [One](a.md): Use it well. Sections: x first; Second.\n"
        "- [Two](b.md): Sections: Only this.\n\n## More\n\n- [Three](c.md): Such as.\n"
    )


def test_page_of_the_command_line_has_every_command_argument_option_and_exit_code(site: Path) -> None:
    page = (site / "cli.html").read_text(encoding="utf-8")
    text = plain(html.unescape(re.sub(r"<[^>]+>", "", page)))
    group: Any = typer.main.get_command(app)
    sections = dict(re.findall(r"rubric-integrations ([\w-]+)¶(.*?)(?=rubric-integrations [\w-]+¶|$)", text))
    assert list(sections) == list(COMMANDS)
    for name, section in sections.items():
        assert "Exit codes: 0" in section
        for parameter in group.commands[name].params:
            names = [option for option in parameter.opts if option.startswith("-")] or [parameter.name]
            for part in [*names, plain(parameter.help)]:
                assert part in section, f"{name}: {part}"


# The page with the answer to each query of a user.
ANSWERS = {
    "cap the cost": {"cost", "runs", "help"},
    "bedrock": {"providers"},
    "azure": {"providers"},
    "only some criteria": {"runs"},
    "own check": {"checks"},
    "texts out of the report": {"runs"},
    "images": {"files"},
    "is the judge any good": {"jobs/labels"},
    "cache": {"runs", "settings"},
    "pytest": {"ci"},
    "write a good rubric": {"writing"},
    "cheaper": {"jobs/cheaper", "cost"},
}


def test_search_lists_the_page_with_the_answer_among_its_first_three(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.set_default_timeout(10_000)
    base = site.as_uri()
    missed: dict[str, list[str]] = {}
    for query, answers in ANSWERS.items():
        page.goto(f"{base}/index.html")
        page.locator("input.md-search__input").press_sequentially(query)
        page.wait_for_selector(".md-search-result__link")
        # The results of a page, with its best sections below it, are one item.
        links = page.eval_on_selector_all(
            ".md-search-result__item",
            "items => items.map(item => item.querySelector('a').href.split(/[?#]/)[0])",
        )
        first = [link.removeprefix(f"{base}/").removesuffix(".html") for link in links[:3]]
        if not answers.intersection(first):
            missed[query] = first
    page.close()
    assert missed == {}


def test_search_of_a_site_that_is_opened_from_disk_finds_a_page(site: Path, browser: Any) -> None:
    problems: list[str] = []

    def record_request(request: Any) -> None:
        if not request.url.startswith("file:"):
            problems.append(request.url)

    def record_error(error: Any) -> None:
        problems.append(str(error))

    page = browser.new_page()
    page.on("pageerror", record_error)
    page.on("request", record_request)
    page.set_default_timeout(10_000)
    page.goto((site / "index.html").as_uri())
    # Typed key by key: the search reads its field when a key is released.
    page.locator("input.md-search__input").press_sequentially("length penalty")
    page.wait_for_selector(".md-search-result__link")
    links = page.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)")
    page.close()
    assert any("scoring.html" in link for link in links)
    assert problems == []
