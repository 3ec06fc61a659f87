"""Runs the command line as `python -m rubric_integrations`."""

from rubric_integrations.cli import main

if __name__ == "__main__":
    main()
