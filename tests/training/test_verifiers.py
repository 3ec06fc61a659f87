"""The judge plugin of verifiers without verifiers; `tests/hosts/verifiers` has the tests with it."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest


def test_plugin_without_verifiers_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    monkeypatch.delitem(sys.modules, "rubric_integrations_judge", raising=False)
    with pytest.raises(ImportError, match="pip install verifiers"):
        import_module("rubric_integrations_judge")
