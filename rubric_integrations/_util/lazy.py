"""Imports public names at first use and lists the packages of each extra with the command that installs them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from importlib import import_module

EXTRAS: dict[str, tuple[str, ...]] = {
    "agreement": ("scipy",),
    "inspect": ("inspect-ai",),
    "langchain": ("langchain", "langgraph"),
    "langchain-classic": ("langchain-classic",),
    "litellm": ("litellm",),
    "metrics": ("rapidfuzz", "rouge-score", "sacrebleu"),
    "mlflow": ("mlflow",),
    "otel": ("opentelemetry-api",),
    "pandas": ("pandas",),
    "parquet": ("pyarrow",),
    "postgres": ("psycopg[binary]",),
    "pydantic-evals": ("pydantic-evals",),
    "ray": ("ray[data]",),
    "report": ("jinja2", "scipy"),
    "trl": ("trl",),
    "verifiers": ("verifiers",),
    "xlsx": ("openpyxl",),
}
"""The packages of each extra that a user may need. A test compares them with `pyproject.toml`."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    The command has the names of the packages instead of the extra. `pip install 'rubric-integrations[report]'` would
    fail if this package was installed from a directory or a wheel, because pip looks for it on an index.

    Example:
        >>> install_command("report")
        'pip install jinja2 scipy'
    """
    return shlex.join(["pip", "install", *EXTRAS[extra]])


def lazy_names(
    package: str, modules: Mapping[str, str], extras: Mapping[str, str] | None = None
) -> Callable[[str], object]:
    """Make the `__getattr__` of a package whose public names are imported on first use.

    A public name must differ from the names of the package's modules: importing a module sets an attribute of the same
    name on the package, and Python then returns the module without calling `__getattr__`.

    Args:
        package: The package's `__name__`.
        modules: The module that defines each public name, relative to the package, such as `"rubric.criterion"`.
        extras: The extra that installs each optional third-party package, by the import name of the package. If an
            import fails because this package is missing, the error states how to install it.

    Returns:
        A function that imports the module of a name and returns the name's value. It raises `AttributeError` for other
        names and `ModuleNotFoundError` if a package that the module imports is not installed.

    Example:
        >>> lazy_names("rubric_integrations", {"Rubric": "rubric.rubric"})("Rubric").__name__
        'Rubric'
    """

    def get_name(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"{package}.{modules[name]}")
        except ModuleNotFoundError as error:
            missing = (error.name or "").split(".")[0]
            extra = (extras or {}).get(missing)
            if extra is None:
                raise
            raise ModuleNotFoundError(
                f"`{name}` needs the package `{missing}`, which is not installed: {install_command(extra)}",
                name=error.name,
            ) from None
        return getattr(module, name)

    return get_name
