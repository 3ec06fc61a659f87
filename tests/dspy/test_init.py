"""The public names of `rubric_integrations.dspy`."""

from __future__ import annotations

import importlib
import pkgutil

import rubric_integrations.dspy as package

SUBMODULES = [module.name for module in pkgutil.iter_modules(package.__path__)]


def test_public_names_differ_from_every_submodule() -> None:
    # Python sets a submodule as an attribute of its package when it is imported, which would replace the public name.
    assert not set(package.__all__) & set(SUBMODULES)


def test_feedback_after_import_of_every_submodule_is_the_function() -> None:
    for name in SUBMODULES:
        importlib.import_module(f"{package.__name__}.{name}")
    from rubric_integrations.dspy import feedback

    assert callable(feedback)


def test_public_names_all_exist_under_their_own_name() -> None:
    assert all(getattr(package, name).__name__ == name for name in package.__all__)
