"""The report page: one run, two to compare or many to follow, as one HTML file that needs no server and no network."""

from rubric_integrations.reporting.page.render import report_page

__all__ = ["report_page"]
