"""What must hold in every simulation, whatever happens in it.

Each function returns what does not hold, in plain words: `check_request` at the moment of each request, `check_run`
when a run has ended, and `check_ledger` and `check_secrets` at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar

import pytest

from rubric_integrations.runs import Graded, Run
from rubric_integrations.scoring import CriterionReport, EvaluationReport, Judgment
from rubric_integrations.scoring.judgment import total_spend
from tests.simulation.network import API_KEY, Cell, Network, Traffic, describe, reason_of, true_judgment
from tests.simulation.scenario import FEWEST_RESERVED, PRICE, TOKENS, Life, Scenario
from tests.simulation.virtual_loop import Process

_ROUNDING = 1e-9


class RunRecord:
    """One run of one process.

    Attributes:
        process: The process.
        life: Its limits.
        traffic: What it has sent.
        results: What it has yielded.
        end: How it ended: `done`, `stopped`, `interrupted`, `crashed` or `raised`.
        error: What it raised; empty if nothing.
        run: The run; None if the process ended before it began.
    """

    def __init__(self, process: Process, life: Life, traffic: Traffic):
        self.process, self.life, self.traffic = process, life, traffic
        self.results: list[Graded] = []
        self.end, self.error = "", ""
        self.run: Run | None = None

    def is_complete(self, scenario: Scenario) -> bool:
        """Whether the run has given a complete report for every row whose judge gives verdicts."""
        graded = [graded for graded in self.results if self._text_of(scenario, graded) not in scenario.unanswered]
        return self.end == "done" and all(
            row.judge_error is None and row.report and row.report.complete for row in graded
        )

    @staticmethod
    def _text_of(scenario: Scenario, graded: Graded) -> str:
        return scenario.texts[int(graded.row.id) - 1]


probing: ContextVar[bool] = ContextVar("probing", default=False)
"""Whether a request is about another text than its row's, to tell a text that fails alone from an outage."""


def check_request(
    process: Process,
    cells: Sequence[Cell],
    stored: Sequence[str],
    network: Network,
    life: Life,
    price: float,
    scenario: Scenario,
    now: float,
) -> list[str]:
    """Check one request before it is sent.

    Args:
        process: Who sends it.
        cells: The judgments that it requests.
        stored: The judgments in the ledger.
        network: What was sent until now.
        life: The limits of the run.
        price: What the provider charges for it, in US dollars.
        scenario: The settings of all runs.
        now: The time in seconds.
    """
    faults: list[str] = []
    traffic = network.traffic[process]
    for cell in cells:
        if any(reason_of(cell) in judgment for judgment in stored):
            # Each process that has only failed texts left asks for itself whether the model replies.
            if probing.get():
                continue
            faults.append(f"{process} requests {reason_of(cell)}, which is stored")
        faults += [
            f"{process} requests {reason_of(cell)} while {other} does"
            for other in dict.fromkeys([process, *network.requesters[cell]])
            if other.is_alive
            # Whoever was stopped, while it waited for a reply, for longer than its lease lasts has lost the lease.
            and network.traffic[other].under_way_cells.get(cell) == other.long_pauses
        ]
    if traffic.under_way >= scenario.max_concurrency:
        faults.append(f"{process} has more than {scenario.max_concurrency} requests under way")
    if life.max_calls is not None and traffic.requests >= life.max_calls:
        faults.append(f"{process} sends {describe(cells)} beyond its limit of {life.max_calls} calls")
    # The price of a reply is known beforehand only if the judge says the most that it can be. Otherwise, the limit may
    # be exceeded by the requests under way, and each request has reserved a part of the limit.
    cost = traffic.cost + price
    if scenario.reports != "cost":
        reservations = traffic.requests - traffic.reported + 1
        cost = traffic.reported_cost + reservations * PRICE * FEWEST_RESERVED / TOKENS
    if life.max_cost is not None and cost > life.max_cost + _ROUNDING:
        faults.append(f"{process} sends {describe(cells)} beyond its limit of ${life.max_cost:.2f}")
    if now < traffic.not_before - _ROUNDING:
        faults.append(f"{process} sends {describe(cells)} although the provider wants no request")
    return faults


def check_run(
    scenario: Scenario, run: RunRecord, undisturbed: Mapping[str, EvaluationReport], stored: Sequence[str]
) -> list[str]:
    """Check a run that has ended.

    Args:
        scenario: What was planned.
        run: What happened.
        undisturbed: The report of each text where nothing fails.
        stored: The judgments in the ledger.
    """
    return [
        *_check_end(scenario, run),
        *_check_spend(run),
        *(fault for graded in run.results for fault in _check_result(scenario, graded, undisturbed)),
        *_check_stored(run, stored),
        *check_secrets(_texts_of(run)),
    ]


def check_ledger(scenario: Scenario, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Check the judgments of the ledger, as pairs of status and JSON, when all runs have ended."""
    faults = ["a lease is left in the ledger" for status, _ in rows if status != "stored"]
    reasons = sorted(Judgment.model_validate_json(text).reason for status, text in rows if status == "stored")
    texts = set(scenario.texts) - scenario.unanswered
    cells = {Cell(text, criterion.requirement) for text in texts for criterion in scenario.rubric.criteria}
    true_judgments = [true_judgment(scenario.seed, cell) for cell in cells]
    by_reason = {judgment.reason: judgment.verdict for judgment in true_judgments}
    if reasons != sorted(by_reason):
        faults.append(f"the ledger does not have each judgment once: {reasons}")
    for _, text in rows:
        if text and (judgment := Judgment.model_validate_json(text)).verdict != by_reason.get(judgment.reason):
            faults.append(f"the ledger has a wrong verdict: {judgment!r}")
    return faults


def check_secrets(texts: Mapping[str, str]) -> list[str]:
    """Check that the judge's credential is in nothing that the library leaves, by what each text is."""
    excerpts = {name: text[max(0, text.find(API_KEY) - 60) :][:120] for name, text in texts.items() if API_KEY in text}
    return [f"the key is in {name}: {excerpt!r}" for name, excerpt in excerpts.items()]


def _check_end(scenario: Scenario, run: RunRecord) -> Iterator[str]:
    """Check that a run ends as it should, and that each row ends exactly once."""
    ids = [graded.row.id for graded in run.results]
    expected = [str(number) for number in range(1, len(scenario.texts) + 1)]
    if run.end == "raised":
        yield f"the run raised {run.error}"
    if len(ids) != len(set(ids)) or not set(ids) <= set(expected):
        yield f"rows ended more than once: {ids}"
    if run.end == "done" and sorted(ids, key=int) != expected:
        yield f"rows are missing: only {ids} ended"
    if scenario.ordered and ids != sorted(ids, key=int):
        yield f"rows are not in order: {ids}"
    if run.end == "stopped" and run.run and run.run.summary.judge_is_unusable and not run.traffic.failures:
        yield f"the run ended although no request had failed: {run.run.summary.stopped}"
    stopped = (run.run.summary.stopped if run.run else None) or ""
    # No simulation has that many.
    if "submissions failed" in stopped:
        yield f"the run of {len(scenario.texts)} rows ended because of a few texts: {stopped}"
    if run.end == "stopped" and run.run and not run.run.summary.judge_is_unusable:
        limited = run.life.max_calls is not None or run.life.max_cost is not None
        if not limited:
            yield f"the run ended by a limit that it does not have: {run.run.summary.stopped}"


def _check_spend(run: RunRecord) -> Iterator[str]:
    """Check that every request is counted, also if it was lost, timed out or was cancelled by Ctrl-C or a failure.

    The cost of the run is None if a reply did not report its cost, and otherwise the sum of what was answered: a lower
    bound if a request was not answered.
    """
    if run.run and run.end in ("done", "stopped", "interrupted"):
        spend, traffic = run.run.summary.spend, run.traffic
        if spend.calls != traffic.requests:
            yield f"the run counts {spend.calls} calls and has sent {traffic.requests}"
        cost = traffic.answered_cost if traffic.is_cost_known else None
        if spend.cost != pytest.approx(cost, abs=_ROUNDING):
            yield f"the run counts a cost of {spend.cost}, and has spent {cost}"
        if spend.is_lower_bound != traffic.is_lower_bound:
            yield f"the cost of the run is {'' if spend.is_lower_bound else 'not '}a lower bound"
        # The reports count stored judgments, too, at the cost of their requests.
        if run.end == "done" and not run.run.summary.reused:
            reported = total_spend(graded.report.spend for graded in run.results if graded.report)
            if (reported.calls, reported.is_lower_bound) != (spend.calls, spend.is_lower_bound):
                yield f"the reports count {reported!r}, and the run {spend!r}"
    if run.run and run.run.summary.submissions != len(run.results) and run.end != "crashed":
        yield f"the summary counts {run.run.summary.submissions} rows of {len(run.results)}"


def _check_result(scenario: Scenario, graded: Graded, undisturbed: Mapping[str, EvaluationReport]) -> Iterator[str]:
    """Check that no failure became a value, and that a complete report is the undisturbed one."""
    text = scenario.texts[int(graded.row.id) - 1]
    report = graded.report
    if report is None:
        yield f"row {graded.row.id} has no report"
        return
    failed = [criterion for criterion in report.criteria if criterion.error]
    for criterion in report.criteria:
        truth = true_judgment(scenario.seed, Cell(text, criterion.requirement))
        if criterion.verdict is not None and (criterion.verdict, criterion.value) != (truth.verdict, truth.value):
            yield f"row {graded.row.id} has the verdict {criterion.verdict} in place of {truth.verdict}"
    if any(_has_value(criterion) for criterion in failed):
        yield f"a failure in row {graded.row.id} has a value"
    if bool(failed) == report.complete or bool(failed) > (graded.judge_error is not None) + (
        scenario.on_failure == "abstain"
    ):
        yield f"row {graded.row.id} does not tell of its {len(failed)} failures"
    if graded.judge_error and graded.score is not None:
        yield f"row {graded.row.id} has a score and a failure"
    if not failed and _comparable(report) != _comparable(undisturbed[text]):
        yield f"row {graded.row.id} differs from the undisturbed report: {report!r}"


def _check_stored(run: RunRecord, stored: Sequence[str]) -> Iterator[str]:
    """Check that whatever arrived was stored, unless the process crashed."""
    if run.end == "crashed":
        return
    for cell in run.traffic.answered:
        if not any(reason_of(cell) in judgment for judgment in stored):
            yield f"{reason_of(cell)} arrived and is not stored"


def _texts_of(run: RunRecord) -> dict[str, str]:
    """The reports, failures and summary of a run, by what each is."""
    texts = {"the error of the run": run.error, "the summary": repr(run.run)}
    for graded in run.results:
        texts[f"row {graded.row.id}"] = f"{graded.judge_error} {graded!r}"
        texts[f"the report of row {graded.row.id}"] = graded.report.model_dump_json() if graded.report else ""
    return texts


def _has_value(criterion: CriterionReport) -> bool:
    return criterion.verdict is not None or criterion.value is not None


def _comparable(report: EvaluationReport) -> object:
    """Everything but what depends on the requests that were needed."""
    fields = report.model_dump(exclude={"spend"})
    fields["report"] = [{k: v for k, v in row.items() if k != "spend"} for row in fields["report"]]
    return fields
