"""The report page of one run, two compared runs or many runs: an HTML file that needs no server and no network."""

from rubric_integrations.reporting.page.render import report_page

__all__ = ["report_page"]
