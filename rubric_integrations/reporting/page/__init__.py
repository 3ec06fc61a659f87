"""The report page: one run, or two to compare, as one HTML file without a server, a network or further files."""

from rubric_integrations.reporting.page.render import report_page

__all__ = ["report_page"]
