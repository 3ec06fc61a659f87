"""`rescore`: scores the submissions of an earlier run with a new rubric, from the run's ledger and without calls."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, NamedTuple, cast

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.text import one_line
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.formats.row_rubrics import RowRubrics, RubricFunction, problem_of
from rubric_integrations.graders import GRADERS, CallLimits, Grader, OptionDisplay, TextLimits, Voting
from rubric_integrations.judges.cascade import Cascade
from rubric_integrations.judges.explained import Explained
from rubric_integrations.judges.exploration import ExplorationRequest, ExplorerReply
from rubric_integrations.judges.protocol import Judge
from rubric_integrations.judges.store import Lease, LedgerLike
from rubric_integrations.judges.thresholds import Thresholds, ThresholdsLike, as_thresholds
from rubric_integrations.judges.trajectory_tools import ExplorerLimits
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import IncompleteRunWarning, describe_stop
from rubric_integrations.runs.ledger import LedgerError, RunLedger, use_ledger
from rubric_integrations.runs.summary import record_rubric
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Judgment
from rubric_integrations.scoring.length import LengthPenalty
from rubric_integrations.scoring.policies import CannotAssess
from rubric_integrations.scoring.report import EvaluationReport
from rubric_integrations.submission.inputs import Row


class Rescored(NamedTuple):
    """The result of `rescore` for one submission.

    Attributes:
        row: The row of the submission, with its id.
        report: The report, from the judgments in the ledger. It is complete only if `missing` is 0.
        missing: The number of judgments that the new rubric needs and that are not in the ledger.
        rubric: The new rubric of the row.
        grader: The settings of the run's grader that determine its scores (`Grader.scoring_record`).
        run: For the first result of a run that was stopped or is still in progress: the number of its `rows`, for the
            first line of a run file. Otherwise None.
    """

    row: Row
    report: EvaluationReport
    missing: int
    rubric: Rubric
    grader: Mapping[str, Any]
    run: Mapping[str, Any] | None = None

    @property
    def score(self) -> float | None:
        """The score. None if a judgment is missing, or if the report has no score."""
        return None if self.missing else self.report.score

    def to_dict(self) -> dict[str, Any]:
        """Return the row and the fields of its report as JSON values, as `rescore --out` writes them."""
        fields = {"id": self.row.id, "missing": self.missing, **self.report.model_dump(mode="json")}
        passed = self.report.passed and not self.missing
        scoring = {**record_rubric(self.rubric, self.report), "grader": self.grader}
        mark = {"run": dict(self.run)} if self.run else {}
        return fields | {"score": self.score, "passed": passed, "rubric": self.rubric.name, "scoring": scoring} | mark


def rescore(
    ledger: LedgerLike,
    rubric: RubricLike | RubricFunction | None = None,
    cannot_assess: CannotAssess | None = None,
    thresholds: ThresholdsLike | None = None,
) -> Generator[Rescored]:
    """Score all submissions in a ledger with a new rubric and the grader settings of the last run, without calls.

    The new rubric may have other weights, names, pass marks, gates and option values without a new judgment. A
    criterion with a new requirement text needs a new judgment, which counts as `missing`. A warning tells if the last
    run was stopped before it began all of its rows, which are then not in the ledger.

    Args:
        ledger: The ledger of a run, the path of its file, or the URL of its database.
        rubric: The new rubric of all rows. If a row of the run had its own rubric, the criteria of this rubric are
            added to the new rubric. With None, each row is scored with its own rubric only. You can also pass a
            function that receives each `Row` and returns its new rubric. The `rubric` of this `Row` is the row's own
            rubric as JSON text.
        cannot_assess: The effect of an abstention on the score. By default, the setting of the run's grader.
        thresholds: Thresholds for the run's judges, or the path of their file. They replace the thresholds of a
            `Cascade`, and another judge becomes a `Cascade` without an expensive judge. By default, the run's own.

    Raises:
        LedgerError: The ledger has no run, or its last run used a grader class that does not belong to this library, or
            a length penalty with its own `count_fn`.
        TypeError: The ledger is a store that records no submissions.
        ValueError: A row has no rubric, because `rubric` is None and the row does not have its own rubric. Or the new
            rubric and the row's own rubric cannot be joined.

    Example:
        >>> import tempfile
        >>> from rubric_integrations import PerCriterionGrader, grade_many
        >>> from rubric_integrations.runs import Ledger
        >>> def make_rubric(*weights: float) -> Rubric:
        ...     requirements = ["States the margin as 17.2%", "States the cost as 4.1%"]
        ...     return Rubric.from_dict([{"weight": w, "requirement": r} for w, r in zip(weights, requirements)])
        >>> texts, grader = ["The margin was 17.2%."], PerCriterionGrader("offline")
        >>> with tempfile.TemporaryDirectory() as folder, Ledger(f"{folder}/run.sqlite") as ledger:
        ...     before = [graded.score for graded in grade_many(texts, make_rubric(1, 1), grader, ledger=ledger)]
        ...     before, [result.score for result in rescore(ledger, make_rubric(1, 3))]
        ([0.5], [0.25])
    """
    with use_ledger(ledger) as store:
        if not isinstance(store, RunLedger):
            kind = type(store).__name__
            raise TypeError(f"`ledger` must be a path, a URL or a ledger that records submissions, got {kind}")
        chosen = None if thresholds is None else as_thresholds(thresholds)
        yield from _rescore(store, rubric, cannot_assess, chosen)


def _rescore(
    ledger: RunLedger,
    rubric: RubricLike | RubricFunction | None,
    cannot_assess: CannotAssess | None,
    thresholds: Thresholds | None,
) -> Generator[Rescored]:
    """Grade all submissions of a ledger again from its stored judgments."""
    configuration = ledger.latest_grader()
    if configuration is None:
        raise LedgerError(f"`ledger` {ledger.address!r} has no run: rescore the ledger of `grade_many` or of `grade`")
    if configuration["grader"] not in GRADERS:
        raise LedgerError(
            f"`ledger` {ledger.address!r} was written by the grader {configuration['grader']!r}, which is not one of "
            f"{sorted(GRADERS)!r}, so it cannot be rebuilt: run `grade_many` again with the new rubric"
        )
    judges = [_recorded_judge(description, thresholds) for description in configuration["judges"]]
    counters: list[_RecordedJudge | _RecordedExplorer] = [leaf for judge in judges for leaf in _final_judges(judge)]
    if thresholds is None and any(map(_is_fitted, configuration["judges"])):
        warnings.warn(
            f"`ledger` {ledger.address!r} has only a digest of the labels with which the thresholds of its judge were "
            "found: the new reports do not mark the answers that must not measure the judge; pass `thresholds`",
            stacklevel=3,
        )
    penalty = _length_penalty(ledger, configuration["settings"])
    explorer = _recorded_explorer(configuration["settings"])
    try:
        grader = _grader(configuration, judges, cannot_assess, penalty, explorer).with_store(_ReadOnlyStore(ledger))
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            f"`ledger` {ledger.address!r}: this version cannot rebuild the grader of its last run "
            f"({one_line(str(error))}): use the version that wrote it, or run `grade_many` again with the new rubric "
            "and this ledger, whose judgments it reuses"
        ) from None
    counters += [explorer] if explorer is not None else []
    # A ledger has only the fingerprints of the judges, not their names.
    record = {name: value for name, value in grader.scoring_record().items() if name != "names"}
    rubrics = RowRubrics(rubric)
    # An earlier version, and a run whose number of rows is unknown or that was not stopped, records no number.
    expected: int | None = configuration.get("rows")
    digest = sha256(ledger.address.encode("utf-8", "replace")).hexdigest()[:8]
    mark = None if expected is None else {"id": digest, "rows": expected}
    count = 0
    for row, submission in ledger.submissions():
        try:
            new_rubric = rubrics.of(row, row.rubric)
        except ValueError as error:
            raise ValueError(f"row {row.id} {problem_of(error)}") from None
        missing_before = sum(judge.missing for judge in counters)
        report = run_sync(grader.grade(new_rubric, submission))
        missing = sum(judge.missing for judge in counters) - missing_before
        yield Rescored(row, report, missing, new_rubric, record, mark)
        mark, count = None, count + 1
    if note := describe_stop(count, expected):
        warnings.warn(f"{ledger.address}: {note}", IncompleteRunWarning, stacklevel=3)


def _length_penalty(ledger: RunLedger, settings: Mapping[str, Any]) -> LengthPenalty | None:
    """Rebuild the length penalty of a run from the recorded settings of its grader."""
    if "length_penalty" not in settings:
        warnings.warn(
            f"`ledger` {ledger.address!r} does not say whether its run had a length penalty, and the scores have none: "
            "if it had one, run `grade_many` again with the new rubric and this ledger, whose judgments it reuses",
            stacklevel=4,
        )
    fields: dict[str, Any] = dict(settings.get("length_penalty") or {})
    if name := fields.pop("count_fn", ""):
        raise LedgerError(
            f"`ledger` {ledger.address!r}: the length penalty of its run counts with the `count_fn` {name!r}, which "
            "cannot be rebuilt: run `grade_many` again with the new rubric and this ledger, whose judgments it reuses"
        )
    return LengthPenalty(**fields) if fields else None


def _grader(
    configuration: Mapping[str, Any],
    judges: Sequence[Judge],
    cannot_assess: CannotAssess | None,
    length_penalty: LengthPenalty | None,
    explorer: _RecordedExplorer | None,
) -> Grader:
    """Rebuild the grader of a run from its recorded configuration.

    Raises:
        TypeError: A setting is not known.
        ValueError: A setting is not valid.
    """
    settings: dict[str, Any] = {**configuration["settings"], "length_penalty": length_penalty}
    # The names and forms of two settings in ledgers of earlier versions.
    if "limits" in settings:
        settings["text_limits"] = settings.pop("limits")
    partial_credit = settings.pop("partial_credit", 0.5)
    if settings["cannot_assess"] == "partial" and partial_credit != 0.5:
        settings["cannot_assess"] = partial_credit
    settings["voting"] = Voting.model_validate(settings["voting"])
    if "options" in settings:
        settings["options"] = OptionDisplay.model_validate(settings["options"])
    if "text_limits" in settings:
        text_limits = dict(settings["text_limits"])
        if explorer is not None:
            text_limits["explorer"] = explorer
        settings["text_limits"] = TextLimits.model_validate(text_limits)
    if cannot_assess is not None:
        settings["cannot_assess"] = cannot_assess
    make_grader: Any = GRADERS[configuration["grader"]]
    grader: Grader = make_grader(judges=judges, limits=CallLimits(max_retries=0), on_failure="abstain", **settings)
    # The order in which a judge saw options depends on its name.
    members = zip(grader.panel, configuration["names"], strict=True)
    return grader.with_panel(member._replace(name=name) for member, name in members)


def _recorded_judge(description: Any, thresholds: Thresholds | None = None) -> _RecordedJudge | Cascade | Explained:
    """Make a judge from a fingerprint, or a cascade or an explained judge from its description.

    Args:
        description: The fingerprint or the description.
        thresholds: Thresholds that replace the recorded ones, if there are any.
    """
    if not isinstance(description, dict):
        judge = _RecordedJudge(str(description))
        return judge if thresholds is None else Cascade(judge, thresholds=thresholds)
    recorded = cast("dict[str, Any]", description)
    if "explained_by" in recorded:
        by = _RecordedJudge(recorded["explained_by"], recorded["explainer"])
        return Explained(_recorded_judge(recorded["judge"], thresholds), by)
    cheap = [_recorded_judge(member) for member in recorded["cheap"]]
    strong = None if recorded["strong"] is None else _recorded_judge(recorded["strong"])
    if thresholds is None:
        own = {"pooled": recorded["escalate_below"], **recorded.get("thresholds", {})}
        thresholds = Thresholds.from_description(own)
    return Cascade(cheap, strong, thresholds=thresholds)


def _is_fitted(description: Any) -> bool:
    """Whether a judge, or a judge inside of it, has thresholds that were found with labels."""
    if not isinstance(description, dict):
        return False
    recorded = cast("dict[str, Any]", description)
    if "explained_by" in recorded:
        return _is_fitted(recorded["judge"])
    return "trained_on" in recorded.get("thresholds", {}) or any(
        map(_is_fitted, [*recorded["cheap"], recorded["strong"]])
    )


def _final_judges(judge: Any) -> list[_RecordedJudge]:
    """Return the judges that count the missing judgments: the judge itself or, of a cascade, the judges that decide.

    These are the expensive judge or, without one, the cheap judges.
    """
    if isinstance(judge, Explained):
        return _final_judges(judge.answering)
    if not isinstance(judge, Cascade):
        return [judge]
    return [leaf for member in ([judge.strong] if judge.strong else judge.cheap) for leaf in _final_judges(member)]


class _RecordedJudge:
    """Replaces a judge of an earlier run, by its fingerprint. It counts the judgments that are not in the ledger."""

    def __init__(self, fingerprint: str, name: str = ""):
        self._fingerprint, self.name = fingerprint, name
        self.missing = 0

    def fingerprint(self) -> str:
        return self._fingerprint

    async def judge(self, question: object) -> Judgment:
        raise self._failure(1)

    async def judge_batch(self, questions: Mapping[int, object]) -> Any:
        raise self._failure(len(questions))

    async def judge_overall(self, submission: object, rubric: object) -> Any:
        raise self._failure(1)

    def _failure(self, count: int) -> JudgeFailure:
        self.missing += count
        return JudgeFailure("config", "the judgment is not in the ledger")


class _RecordedExplorer:
    """Replaces the explorer of an earlier run, by its fingerprint. Its replies are read from the ledger.

    If a reply is not in the ledger, all judgments about the submission are missing.
    """

    def __init__(self, fingerprint: str, limits: ExplorerLimits):
        self._fingerprint, self.limits = fingerprint, limits
        self.missing = 0

    def fingerprint(self) -> str:
        return self._fingerprint

    async def explore(self, request: ExplorationRequest) -> ExplorerReply:
        self.missing += len(request.criteria)
        raise JudgeFailure("config", "the exploration is not in the ledger: criteria with other texts need another one")


def _recorded_explorer(settings: Mapping[str, Any]) -> _RecordedExplorer | None:
    """Rebuild the explorer of a run from the recorded settings of its grader. None if it had none."""
    recorded: dict[str, Any] | None = settings.get("text_limits", {}).get("explorer")
    if recorded is None:
        return None
    return _RecordedExplorer(recorded["fingerprint"], ExplorerLimits.model_validate(recorded["limits"]))


class _ReadOnlyLease(NamedTuple):
    stored: Mapping[str, Judgment]

    async def store(self, judgments: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        """Store nothing: no judgment is requested here."""
        return judgments

    def is_held(self) -> bool:
        """Return True, because no other caller requests judgments."""
        return True

    def record_failure(self, key: str, failure: JudgeFailure) -> None:
        """Do nothing: a judgment that is missing is not a failure of the judge."""


class _ReadOnlyStore:
    """The judgments of a ledger, without leases."""

    def __init__(self, ledger: RunLedger):
        self._ledger = ledger

    @asynccontextmanager
    async def lease(self, keys: Sequence[str]) -> AsyncGenerator[Lease]:
        # In a thread, because a database replies over the network.
        stored = await asyncio.to_thread(self._ledger.lookup, keys)
        # The calls were made and paid for in the earlier run. Therefore a rescored report costs nothing.
        yield _ReadOnlyLease({key: judgment.model_copy(update={"spend": NO_SPEND}) for key, judgment in stored.items()})
