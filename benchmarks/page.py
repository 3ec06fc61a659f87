"""Measures the report page of a run: to write it, and to open, scroll and search it in Chromium.

python benchmarks/page.py [ROWS] [own|shared] [SCREENSHOT]

Each row has its own rubric of 11 criteria and about 10 kB (`own`), or all share 7 criteria and have about 1 kB
(`shared`).
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


def short_lines(count: int) -> Iterator[str]:
    """Yield the lines of a run file whose rows share 7 criteria, with one penalty, and have about 1 kB."""
    generator = random.Random(37)  # noqa: S311
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 9))) for _ in range(5000)]
    weights = (10, 4, 6, 5, -12, 2, 3)
    for number in range(count):
        met = [generator.random() < 0.6 for _ in weights]
        criteria = [
            {
                "name": f"c{place}", "requirement": f"Says {place}", "weight": weight, "passed": True,
                "verdict": "MET" if is_met else "UNMET", "value": float(is_met),
                "reason": " ".join(generator.choices(words, k=3)),
            }
            for place, (weight, is_met) in enumerate(zip(weights, met, strict=True))
        ]  # fmt: skip
        raw = sum(weight for weight, is_met in zip(weights, met, strict=True) if is_met)
        score = min(1.0, max(0.0, raw / 30))
        texts = {name: " ".join(generator.choices(words, k=k)) for name, k in (("query", 40), ("response", 80))}
        yield json.dumps({
            "id": f"row-{number}", "submission": texts, "score": score, "raw_score": raw, "passed": score > 0.7,
            "complete": True, "coverage": 1.0, "metadata": {"model": "abc"[number % 3]}, "report": criteria,
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

        def measured() -> dict[str, float]:
            return {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}

        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        report("an empty page", time.perf_counter())
        start = time.perf_counter()
        page.goto(page_file.as_uri())
        page.wait_for_selector("body[data-ready]", state="attached")
        report("open", start)
        session.send("HeapProfiler.collectGarbage")
        print(f"heap: {measured()['JSHeapUsedSize'] / 1e6:.1f} MB")
        start = time.perf_counter()
        page.keyboard.press("t")
        page.wait_for_selector("#rows li")
        report("show the table", start)
        if screenshot:
            page.screenshot(path=screenshot)
        before = measured()
        frames = page.evaluate(_SCROLL)
        script = (measured()["ScriptDuration"] - before["ScriptDuration"]) * 1000 / len(frames)
        frames.sort()
        print(
            f"scroll 400 px a frame: {script:.1f} ms of script a frame; "
            f"frames: median {frames[len(frames) // 2]:.0f} ms, 99 %: {frames[int(len(frames) * 0.99)]:.0f} ms"
        )
        times: list[float] = []
        page.keyboard.press("Escape")
        page.keyboard.press("t")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_selector("#one h2")
        for _ in range(20):
            name = page.inner_text("#one h2")
            times.append(page.evaluate(_NEXT, name))
        print(f"j with an open submission: median {sorted(times)[10]:.0f} ms, most {max(times):.0f} ms")
        page.keyboard.press("Escape")
        start = time.perf_counter()
        page.fill("#f-text", "no such text")
        page.wait_for_selector(f"#count:text-is('0 of {count:,} submissions')", timeout=120_000)
        report("search all texts", start)
        context.close()


# Scrolls for 5 seconds, and returns the milliseconds of each frame.
_SCROLL = """() => new Promise((resolve) => {
  const box = document.getElementById("window"), frames = [], start = performance.now();
  let last = start;
  const step = (now) => {
    frames.push(now - last);
    last = now;
    box.scrollTop = box.scrollTop + 400 >= box.scrollHeight - box.clientHeight ? 0 : box.scrollTop + 400;
    if (now - start < 5000) requestAnimationFrame(step); else resolve(frames.slice(1));
  };
  requestAnimationFrame(step);
})"""
# Presses j, and returns the milliseconds until the panel shows another submission.
_NEXT = """(name) => new Promise((resolve) => {
  const start = performance.now();
  new MutationObserver((_, observer) => {
    if (document.querySelector("#one h2").textContent === name) return;
    observer.disconnect();
    resolve(performance.now() - start);
  }).observe(document.getElementById("one"), { childList: true });
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
})"""


def main() -> None:
    """Make a run, write its page in a process of its own, and open the page."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory() as folder:
        run, page = Path(folder) / "run.jsonl", Path(folder) / "page.html"
        with run.open("w") as file:
            file.writelines((short_lines if "shared" in sys.argv else lines)(count))
        print(f"{count:,} rows, run file {run.stat().st_size / 1e6:.0f} MB")
        start = time.perf_counter()
        command = [sys.executable, "-m", "rubric_integrations", "report", str(run), "--output", str(page)]
        # From the repository, whose package is measured, whichever is installed.
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[1])  # noqa: S603
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"write: {time.perf_counter() - start:.2f} s, {peak:.0f} MB; page {page.stat().st_size / 1e6:.1f} MB")
        open_page(page, count, next((argument for argument in sys.argv[2:] if argument not in ("own", "shared")), None))


if __name__ == "__main__":
    main()
