"""Readable reports: tables in a terminal, an HTML page of one run or more, JUnit XML, and faults of rubric files.

To add a report, write a module in this package with a function that takes reports or runs and returns text or a rich
table, and add its public names here. A report never changes a grade, and it prints nothing: the commands in `cli/`
print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.reporting.grades import groups_table, ranking_table, report_table, tags_table
    from rubric_integrations.reporting.page.render import report_page

_MODULES = {
    "groups_table": "grades",
    "ranking_table": "grades",
    "report_page": "page.render",
    "report_table": "grades",
    "tags_table": "grades",
}

__all__ = ["groups_table", "ranking_table", "report_page", "report_table", "tags_table"]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
