"""The options of `grade` that are settings of a grader."""

from __future__ import annotations

import pytest

from rubric_integrations.cli.options import GraderOptions, Strategy
from rubric_integrations.cli.results import FirstResults, print_results
from rubric_integrations.graders import CallLimits, TextLimits
from rubric_integrations.runs import RunSummary
from tests.fakes import FakeBatchJudge


@pytest.mark.parametrize("strategy", ["per-criterion", "one-shot"])
def test_limits_of_the_shell_are_those_of_the_grader(strategy: Strategy) -> None:
    chunk_size = 7_000 if strategy == "per-criterion" else None
    options = GraderOptions(
        strategy, max_concurrency=3, max_retries=1, timeout=4.0, max_outage=5.0, step_limit=6, chunk_size=chunk_size
    )
    grader = options.make_grader([FakeBatchJudge()])
    assert grader.call_limiter.limits == CallLimits(max_concurrency=3, max_retries=1, timeout=4.0, max_outage=5.0)
    assert grader.text_limits == TextLimits(step_limit=6, chunk_size=chunk_size)


def test_summary_line_says_how_many_characters_judges_were_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for summary in (RunSummary(), RunSummary(omitted_characters=9_900)):
        print_results(FirstResults(), summary, "r", None, quiet=True)
    assert [", 9,900 characters of tool results omitted." in line for line in capsys.readouterr().out.splitlines()] == [
        False,
        True,
    ]


def test_run_whose_replies_name_two_models_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_results(FirstResults(), RunSummary(models={"": ("m-1", "m-2")}), "r", None, quiet=True)
    assert "The replies name 2 models: m-1, m-2: not one model judged the run." in capsys.readouterr().err
