"""The public names of the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rubric_integrations import scoring


def test_public_names_exist() -> None:
    assert dir(scoring) == sorted(scoring.__all__)
    assert all(getattr(scoring, name) is not None for name in scoring.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        scoring.nonsense  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_import_does_not_load_numpy_before_score_many_is_used() -> None:
    code = (
        "import sys, rubric_integrations.scoring as scoring; assert 'numpy' not in sys.modules;"
        "scoring.score_many; assert 'numpy' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
