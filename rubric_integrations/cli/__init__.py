"""The command line, `rubric-integrations`: one module a group of commands."""

from rubric_integrations.cli import grade, probe, report, rescore, rubrics
from rubric_integrations.cli.console import app

__all__ = ["app", "grade", "main", "probe", "report", "rescore", "rubrics"]


def main() -> None:
    """Run the command line."""
    app()
