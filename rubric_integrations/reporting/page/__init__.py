"""The report page of one run, two compared runs or many runs: a single HTML file without server or network."""

from rubric_integrations.reporting.page.render import report_page

__all__ = ["report_page"]
