"""Measures the report page of a run in which every row has its own rubric: to write it, and to open it in Chromium.

python benchmarks/page.py [ROWS] [SCREENSHOT]
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CRITERIA = 11
AXES = ("accuracy", "completeness", "communication_quality", "context_awareness", "instruction_following")


def lines(count: int) -> Iterator[str]:
    """Yield the lines of a run file whose rows have the shape of HealthBench: 11 criteria each, and five tags."""
    generator = random.Random(18)  # noqa: S311
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 9))) for _ in range(5000)]

    def text(least: int, most: int) -> str:
        return " ".join(generator.choices(words, k=generator.randint(least, most) // 6))

    for number in range(count):
        criteria: list[dict[str, Any]] = []
        for position in range(1, CRITERIA + 1):
            met = generator.random() < 0.6
            criteria.append({
                "name": f"c{position}", "requirement": text(100, 600),
                "verdict": "MET" if met else "UNMET", "value": float(met),
                "weight": generator.choice([-8, -5, 3, 5, 7, 10]), "reason": text(100, 600), "passed": met,
                "tags": [f"axis:{generator.choice(AXES)}"],
            })  # fmt: skip
        score = round(generator.betavariate(4, 3), 4)
        axes = {tag: round(generator.random(), 3) for criterion in criteria for tag in criterion["tags"]}
        yield json.dumps({
            "id": f"row-{number}", "submission": {"query": text(300, 2000), "response": text(300, 2000)},
            "score": score, "raw_score": score, "passed": score > 0.7, "complete": True, "coverage": 1.0,
            "tags": axes, "report": criteria,
        }) + "\n"  # fmt: skip


def rendering_memory(profile: str) -> tuple[float, float]:
    """Return the memory of the largest renderer process of the browser with a profile, in MB: now, and its peak."""
    largest = (0.0, 0.0)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
            if "--type=renderer" in command and profile in (process / "environ").read_text() + command:
                status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
                sizes = [int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")]
                largest = max(largest, (sizes[0], sizes[1]))
        except (OSError, ValueError, KeyError):
            continue
    return largest


def open_page(page_file: Path, count: int, screenshot: str | None) -> None:
    """Open a page in Chromium, open a submission and search all texts; print the seconds and the memory of each."""
    from playwright.sync_api import sync_playwright

    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as running:
        # A variable that the browser hands on to its processes tells them from those of other browsers.
        context = running.chromium.launch_persistent_context(
            profile, executable_path=binary, args=["--no-sandbox"], env={**os.environ, "PAGE_BENCHMARK": profile}
        )
        page = context.new_page()
        page.set_viewport_size({"width": 1280, "height": 1300})

        def report(what: str, start: float) -> None:
            seconds = time.perf_counter() - start
            now, peak = rendering_memory(profile)
            print(f"{what}: {seconds:.2f} s; renderer process {now:.0f} MB, at its peak {peak:.0f} MB", flush=True)

        report("an empty page", time.perf_counter())
        start = time.perf_counter()
        page.goto(page_file.as_uri())
        page.wait_for_selector("#heat tbody th")
        report("open", start)
        if screenshot:
            page.screenshot(path=screenshot)
        start = time.perf_counter()
        page.evaluate("location.hash = document.querySelector('#heat tbody a').hash")
        page.wait_for_selector("#one h2")
        report("open a submission", start)
        page.evaluate("location.hash = '#list'")
        start = time.perf_counter()
        page.fill("#f-text", "no such text")
        page.wait_for_selector(f"#count:text-is('0 of {count} submissions')", timeout=120_000)
        report("search all texts", start)
        context.close()


def main() -> None:
    """Make a run, write its page in a process of its own, and open the page."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory() as folder:
        run, page = Path(folder) / "run.jsonl", Path(folder) / "page.html"
        with run.open("w") as file:
            file.writelines(lines(count))
        print(f"{count:,} rows, run file {run.stat().st_size / 1e6:.0f} MB")
        start = time.perf_counter()
        command = [sys.executable, "-m", "rubric_integrations", "report", str(run), "--output", str(page)]
        # From the repository, whose package is measured, whichever is installed.
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[1])  # noqa: S603
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"write: {time.perf_counter() - start:.2f} s, {peak:.0f} MB; page {page.stat().st_size / 1e6:.1f} MB")
        open_page(page, count, sys.argv[2] if len(sys.argv) > 2 else None)


if __name__ == "__main__":
    main()
