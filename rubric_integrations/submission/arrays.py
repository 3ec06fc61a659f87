"""Converts values of NumPy and pandas to plain Python ones, as rows of data frames and of Ray hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

# A check by name, because pandas need not be installed, and takes long to import.
_MISSING = frozenset({"NAType", "NaTType"})
_PLAIN = (str, int, float, bool, type(None))


def without_arrays(value: Any) -> Any:
    """Replace arrays by lists, their scalars by Python's, and the missing values of pandas by None, at every depth.

    Any other value is returned unchanged.

    Example:
        >>> import numpy as np
        >>> without_arrays({"context": np.array(["one", "two"]), "id": np.int64(0)})
        {'context': ['one', 'two'], 'id': 0}
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {name: without_arrays(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if kind is list or kind is tuple:
        return kind(without_arrays(item) for item in value)
    if kind.__module__ == "numpy":
        # An array of objects holds Python's own, which may hold arrays again.
        return without_arrays(value.tolist()) if hasattr(value, "tolist") else value
    if kind.__name__ in _MISSING and kind.__module__.startswith("pandas."):
        return None
    return value
