"""The report page: one run, or two to compare, as one HTML file without a server, a network or further files."""

from rubric_integrations.reporting.page.loading import GradedRow, RunFile, RunFileError, read_run
from rubric_integrations.reporting.page.render import report_page

__all__ = ["GradedRow", "RunFile", "RunFileError", "read_run", "report_page"]
