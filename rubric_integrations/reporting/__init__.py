"""Reports for people: tables in a terminal, an HTML page of one run or two, and the state of rubric files.

To add a report, write a module in this package with a function that takes reports or runs and returns text or a rich
table, and add its public names here. A report never changes a grade. It prints nothing: a command in
`cli/` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rubric_integrations._util.lazy import lazy_names

if TYPE_CHECKING:
    from rubric_integrations.reporting.page.render import report_page
    from rubric_integrations.reporting.terminal import groups_table, ranking_table, report_table, tags_table

_MODULES = {
    "groups_table": "terminal",
    "ranking_table": "terminal",
    "report_page": "page.render",
    "report_table": "terminal",
    "tags_table": "terminal",
}

__all__ = ["groups_table", "ranking_table", "report_page", "report_table", "tags_table"]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
