"""The report page: runs as one HTML file that needs no server, no network and no further files."""

from rubric_integrations.reporting.page.loading import RunFile, RunFileError, read_run
from rubric_integrations.reporting.page.render import report_page

__all__ = ["RunFile", "RunFileError", "read_run", "report_page"]
