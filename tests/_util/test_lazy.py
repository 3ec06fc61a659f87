"""`lazy_names`: names imported on first use, missing optional packages, and names that modules would hide."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import rubric_integrations
from rubric_integrations._util.lazy import lazy_names


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the package `lazy_example`; its module `broken` imports a package that is not installed."""
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "working.py").write_text("value = 42\n")
    (folder / "broken.py").write_text("import not_installed.submodule\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Delete the modules after the test, so that the next test imports them again.
    for name in ("lazy_example", "lazy_example.working", "lazy_example.broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "lazy_example"


def test_lazy_name_is_imported_on_first_use(package: str) -> None:
    get_name = lazy_names(package, {"value": "working"})
    assert "lazy_example.working" not in sys.modules
    assert get_name("value") == 42


def test_lazy_name_that_is_unknown_raises_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="module 'lazy_example' has no attribute 'other'"):
        lazy_names(package, {"value": "working"})("other")


def test_lazy_name_with_missing_optional_package_names_the_extra(package: str) -> None:
    get_name = lazy_names(package, {"value": "broken"}, extras={"not_installed": "report"})
    with pytest.raises(ModuleNotFoundError) as raised:
        get_name("value")
    assert str(raised.value) == (
        "`value` needs the package `not_installed`, which is not installed: pip install jinja2 scipy"
    )
    assert (raised.value.name or "").startswith("not_installed")


@pytest.mark.parametrize("extras", [None, {"another": "some-extra"}])
def test_lazy_name_with_other_missing_package_raises_the_original_error(
    package: str, extras: dict[str, str] | None
) -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'not_installed'"):
        lazy_names(package, {"value": "broken"}, extras=extras)("value")


def test_public_names_of_lazy_packages_differ_from_module_names() -> None:
    """A module of the same name would hide the public name as soon as the module is imported."""
    modules = pkgutil.walk_packages(rubric_integrations.__path__, "rubric_integrations.")
    packages = map(importlib.import_module, [module.name for module in modules if module.ispkg])
    lazy_packages = [package for package in (rubric_integrations, *packages) if hasattr(package, "__getattr__")]
    assert importlib.import_module("rubric_integrations.langchain") in lazy_packages
    for package in lazy_packages:
        module_names = {module.name for module in pkgutil.iter_modules(package.__path__)}
        assert not module_names & set(package.__all__), f"modules of {package.__name__} hide public names"
