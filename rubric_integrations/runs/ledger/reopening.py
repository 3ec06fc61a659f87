"""Ledgers that come out of a pickle: one for each address in a process, however many pickles name it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary


class Closable(Protocol):
    """What can be opened again by its address."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, so that another one has to be opened."""
        ...


LedgerType = TypeVar("LedgerType", bound=Closable)

_reopened: WeakValueDictionary[tuple[object, str], Any] = WeakValueDictionary()
_lock = threading.Lock()


def reopen(open_address: Callable[[str], LedgerType], address: str) -> LedgerType:
    """Return the ledger that this process has opened for pickles with this address, or open it.

    Args:
        open_address: Opens a ledger, such as the class `Ledger`.
        address: What it opens.
    """
    with _lock:
        ledger = _reopened.get((open_address, address))
        if ledger is None or ledger.is_closed:
            ledger = _reopened[open_address, address] = open_address(address)
        return ledger
