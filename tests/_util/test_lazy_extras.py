"""The command that installs an optional package: it works where this package is on no index."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import rubric_integrations
from rubric_integrations._util.lazy import EXTRAS, install_command


@pytest.mark.parametrize("extra", EXTRAS)
def test_install_command_names_the_packages_of_the_extra(extra: str) -> None:
    assert shlex.split(install_command(extra))[2:] == list(EXTRAS[extra])


def test_no_message_names_this_package_on_an_index() -> None:
    root = Path(rubric_integrations.__file__).parent
    modules = [path for path in root.rglob("*.py") if path.name not in ("extras.py", "lazy.py")]
    hints = [str(path) for path in modules if "rubric-integrations[" in path.read_text(encoding="utf-8")]
    assert hints == []
