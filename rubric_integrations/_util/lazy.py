"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Make the `__getattr__` of a package whose public names are imported on first use.

    Args:
        package: The package's `__name__`.
        modules: For each public name, the module below the package that defines it, such as `"rubric.criterion"`.

    Returns:
        A function that imports the module of a name and returns the name's value; `AttributeError` for other names.

    Example:
        >>> lazy_names("rubric_integrations", {"Rubric": "rubric.rubric"})("Rubric").__name__
        'Rubric'
    """

    def get_name(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get_name
