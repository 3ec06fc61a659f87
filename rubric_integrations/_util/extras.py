"""The optional packages of each extra, and the command that installs them."""

from __future__ import annotations

import shlex

EXTRAS: dict[str, tuple[str, ...]] = {
    "agreement": ("scipy",),
    "inspect": ("inspect-ai",),
    "langchain": ("langchain",),
    "langchain-classic": ("langchain-classic",),
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
}
"""The packages of each extra that a user may need; a test compares them with `pyproject.toml`."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    It names the packages, not the extra: `pip install 'rubric-integrations[report]'` fails where this package was
    installed from a folder or a wheel, because pip looks for it on an index.

    Example:
        >>> install_command("report")
        'pip install jinja2 scipy'
    """
    return shlex.join(["pip", "install", *EXTRAS[extra]])
