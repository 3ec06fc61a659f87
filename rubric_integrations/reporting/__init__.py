"""Reports for people: tables in a terminal, an HTML page of one run or two, and the state of rubric files.

To add a report, write a module in this package with a function that takes reports or runs and returns text or a rich
table, and add its public names here. A report never changes a grade. It prints nothing: a command in
`cli/` does.

Example:
    >>> from rubric_integrations import Criterion, PerCriterionGrader, Rubric, grade_many
    >>> rubric = Rubric([Criterion(requirement="States 42", check={"number": 42})])
    >>> run = RunFile.of("tonight", grade_many(["It is 42."], rubric, PerCriterionGrader("offline")))
    >>> run.rows[0].report.score
    1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.reporting.page.loading import GradedRow, RunFile, RunFileError, read_run
    from rubric_integrations.reporting.page.render import report_page
    from rubric_integrations.reporting.terminal import groups_table, ranking_table, report_table, tags_table

_MODULES = {
    "GradedRow": "page.loading",
    "RunFile": "page.loading",
    "RunFileError": "page.loading",
    "groups_table": "terminal",
    "ranking_table": "terminal",
    "read_run": "page.loading",
    "report_page": "page.render",
    "report_table": "terminal",
    "tags_table": "terminal",
}

__all__ = [
    "GradedRow", "RunFile", "RunFileError", "groups_table", "ranking_table", "read_run", "report_page", "report_table",
    "tags_table",
]  # fmt: skip

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
