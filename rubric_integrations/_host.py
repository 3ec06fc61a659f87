"""Opens the grader and the ledger of a host. A host is an integration with another framework."""

from __future__ import annotations

import threading
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from rubric_integrations.judges.composite import require_reasons
from rubric_integrations.judges.protocol import JudgeLike
from rubric_integrations.judges.store import JudgmentStore, LedgerLike

if TYPE_CHECKING:
    from rubric_integrations.graders import CallLimits, Grader
    from rubric_integrations.runs.ledger import RunLedger
    from rubric_integrations.scoring.policies import CannotAssess
    from rubric_integrations.submission.messages import Fields

_lock = threading.Lock()
_shared_graders: dict[str, Grader] = {}


class HostGrader:
    """Opens the grader and the ledger of a host once, and returns the same grader in all calls.

    Without a ledger, the grader is made at the first call. Therefore, a host can be constructed without importing DSPy,
    which takes more than half a second. With a ledger, both are opened at construction by default. Therefore, an
    unusable address or judge is refused before the first row.

    A pickle contains the name of the judge and the address of the ledger. If the judge has no name, the pickle contains
    the grader without keys from environment variables. A relative path is made absolute, because other processes may
    have other working directories.

    Args:
        host: The public name of the host, for error messages.
        judge: The judge, or None.
        grader: A configured grader, or None.
        ledger: The store of judgments: the path of a file, the URL of a PostgreSQL database, an open ledger or another
            `JudgmentStore`. None to store no judgments.
        cannot_assess: The score of an abstention. This setting, `normalize` and `limits` are only allowed with `judge`.
        normalize: Whether scores are in [0, 1].
        limits: The limits on the judge's calls. By default, `CallLimits()`.
        is_shared: Whether all hosts of this process with the same judge name share one grader and its concurrency
            limit. Set it for a framework that constructs an evaluator for each task or dataset.
        opens_late: Whether the ledger is also opened at the first call. Set it for a host that trainers send to other
            processes.
        remembers_refusals: Whether a text that the judge has refused is not asked about again. Set it to false for a
            host in production, whose judge may be repaired or replaced while the host lives.
        needs_reasons: Whether a judge that never gives a reason is refused.

    Raises:
        LedgerError: The ledger cannot be used.
        TypeError: `grader` is not a grader, or there is a ledger and the judge has no `fingerprint`.
        ValueError: Neither `judge` nor `grader` is passed, or both are, a setting is passed that is only allowed with
            `judge`, or a judge never gives the reasons that the host needs.

    Example:
        >>> grader = HostGrader("RubricEvaluator", "offline", None)
        >>> grader() is grader()
        True
    """

    def __init__(
        self,
        host: str,
        judge: JudgeLike | None,
        grader: Grader | None,
        ledger: LedgerLike | None = None,
        *,
        cannot_assess: CannotAssess = "skip",
        normalize: bool = True,
        limits: CallLimits | None = None,
        is_shared: bool = False,
        opens_late: bool = False,
        remembers_refusals: bool = True,
        needs_reasons: bool = False,
    ):
        if (judge is None) == (grader is None):
            passed = "neither" if judge is None else "both"
            raise ValueError(
                f"`{host}` needs either `judge`, such as 'openai/gpt-5-mini', or `grader`, but got {passed}: a file or "
                "a log holds no `grader`, so write the name of the judge there"
            )
        if grader is not None:
            settings = {
                "cannot_assess": cannot_assess != "skip", "normalize": not normalize, "limits": limits is not None
            }  # fmt: skip
            _check_grader(host, grader, [name for name, is_set in settings.items() if is_set])
        if needs_reasons:
            require_reasons(host, [judge] if grader is None else grader.judges)
        self._host, self._judge, self._grader = host, judge, grader
        self._ledger = None if ledger is None else portable_ledger(ledger)
        self._cannot_assess: CannotAssess = cannot_assess
        self._normalize, self._limits, self._is_shared = normalize, limits, is_shared
        self._remembers_refusals = remembers_refusals
        self._start()
        if ledger is not None and not opens_late:
            self()

    def __call__(self) -> Grader:
        """Return the grader, which looks up every judgment in the ledger if there is one."""
        # Threads must share one grader, because the grader owns the concurrency limit.
        with self._lock:
            if self._opened is None:
                grader, store = self._base_grader(), self._open_store()
                self._opened = grader if store is None else grader.with_store(store)
            return self._opened

    @property
    def without_ledger(self) -> Grader:
        """The grader without the ledger, for a run that takes the grader and the ledger as separate arguments."""
        with self._lock:
            return self._base_grader()

    @property
    def store(self) -> JudgmentStore | None:
        """The open ledger, or None."""
        with self._lock:
            return self._open_store()

    def close(self) -> None:
        """Close the ledger if this object opened it."""
        with self._lock:
            if self._store is not None and self._store is not self._ledger:
                cast("RunLedger", self._store).close()
            self._opened = self._store = None

    def __copy__(self) -> HostGrader:
        # A copy of a host shares the concurrency limit.
        return self

    def __deepcopy__(self, memo: object) -> HostGrader:
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in ("_lock", "_opened", "_store")}
        if isinstance(self._judge, str):
            return state | {"_grader": None}
        # A chat model with a client is pickled only as part of a grader.
        return state | {"_judge": None, "_grader": self.without_ledger}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._opened: Grader | None = None
        self._store: JudgmentStore | None = None

    def _base_grader(self) -> Grader:
        if self._grader is None:
            self._grader = self._shared_grader() if self._is_shared else self._make_grader()
        if self._remembers_refusals and self._grader.call_limiter.refusals is None:
            # A copy: the user's own grader asks again.
            self._grader = self._grader.remembering_refusals()
        return self._grader

    def _make_grader(self) -> Grader:
        from rubric_integrations.graders import CallLimits, PerCriterionGrader

        grader = PerCriterionGrader(
            self._judge, cannot_assess=self._cannot_assess, normalize=self._normalize,
            limits=self._limits or CallLimits(),
        )  # fmt: skip
        return grader.remembering_refusals() if self._remembers_refusals else grader

    def _shared_grader(self) -> Grader:
        if not isinstance(self._judge, str):
            return self._make_grader()
        with _lock:
            if self._judge not in _shared_graders:
                _shared_graders[self._judge] = self._make_grader()
            return _shared_graders[self._judge]

    def _open_store(self) -> JudgmentStore | None:
        if self._store is None and self._ledger is not None:
            from rubric_integrations.runs.ledger.addresses import as_store

            self._store = as_store(self._ledger)
        return self._store


def portable_ledger(ledger: LedgerLike) -> LedgerLike:
    """Return a ledger in a form that other processes can open: the path of a file is made absolute.

    A URL or an open ledger is returned unchanged.

    Raises:
        LedgerError: The text looks like a URL, but is not the URL of a ledger.
    """
    if not isinstance(ledger, str | PathLike):
        return ledger
    from rubric_integrations.runs.ledger.addresses import path_of

    path = path_of(ledger)
    return str(ledger) if path is None else str(path.absolute())


def check_fields(host: str, fields: Fields, *names: str) -> None:
    """Refuse fields that a host does not read.

    Args:
        host: The public name of the host.
        fields: The fields that the user set.
        names: The names of the fields that the host reads.

    Raises:
        ValueError: A field that the host does not read is set.
    """
    others = [name for name, source in fields if source is not None and name not in names]
    if others:
        read = " and ".join(f"`{name}`" for name in names)
        raise ValueError(f"`Fields.{others[0]}` has no effect on `{host}`, which reads {read} only: leave it out")


def column_of(fields: Fields, name: str) -> str:
    """Return the name of the column that the user set for a field, for a host that reads only columns.

    If the user did not set the field, its column has the name of the field.

    Raises:
        TypeError: The field is a function.
    """
    source: object = getattr(fields, name)
    if source is not None and not isinstance(source, str):
        raise TypeError(f"`Fields.{name}` must be the name of a column here, got {source!r}")
    return name if source is None else source


def _check_grader(host: str, grader: object, settings: list[str]) -> None:
    from rubric_integrations.graders import Grader

    if not isinstance(grader, Grader):
        got, judge = (repr(grader),) * 2 if isinstance(grader, str) else (type(grader).__name__, "")
        raise TypeError(
            f"`grader` of `{host}` must be a grader, got {got}: pass a judge as `judge={judge}`, also in a log or a "
            "file, which hold only the name of a grader's class"
        )
    if settings:
        names = " and ".join(f"`{name}`" for name in settings)
        raise ValueError(
            f"{names} of `{host}` goes with `judge`: set it in the `grader` that you pass; here it would have no effect"
        )
