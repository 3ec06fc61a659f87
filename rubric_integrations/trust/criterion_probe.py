"""`probe_criteria`: tests each criterion of a rubric with mutations of the rubric's cases.

The cases are graded unchanged, several times. Then mutants of the cases that the judge answered as expected are graded,
by the same grader and ledger. `trust/mutations.py` makes the mutants, and `trust/criterion_faults.py` finds the faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal, NamedTuple

from rubric_integrations._util.records import Record, html_table
from rubric_integrations._util.text import counted, decimal
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.graders import Grader, PerCriterionGrader
from rubric_integrations.judges.spend import Prices
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.case import Case
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger import use_ledger
from rubric_integrations.scoring.judgment import NO_SPEND, Spend
from rubric_integrations.scoring.report import NOT_APPLICABLE
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.asked_again import Asked, ask_repeatedly
from rubric_integrations.trust.cases import CaseReport, read_tested, run_cases
from rubric_integrations.trust.criterion_faults import (
    ASSUMED_NOISE,
    FEWEST_MUTANTS,
    AdditionFlips,
    CaseFlips,
    CriterionFaults,
    CriterionFlips,
    FaultKind,
    FlipRate,
    find_faults,
)
from rubric_integrations.trust.mutations import (
    MUST_CHANGE,
    SENSITIVITIES,
    AdditionKind,
    ChangeKind,
    ExpectedRange,
    Mutant,
    MutationKind,
    answer_value,
    evidence_for,
    expected_range,
    mutations_of,
    select_mutants,
)
from rubric_integrations.trust.statistics import check_alpha


class MutantResult(Record):
    """The answer to one mutant.

    Attributes:
        criterion: The name of the criterion.
        case: The name of the case.
        kind: What the mutation changes.
        name: The change in words.
        must_change: Whether the mutation must change the verdict.
        verdict: The verdict, or None if there is none.
        flipped: Whether the verdict is a flip. None if the judge failed, or if the criterion does not apply.
        error: Why the judge failed, or None.
    """

    criterion: str
    case: str
    kind: MutationKind
    name: str
    must_change: bool
    verdict: str | None
    flipped: bool | None
    error: str | None = None


class ProbedCriterion(Record):
    """The results of one criterion.

    Attributes:
        result: The flips of its mutants, and the faults.
        findings: The faults, one sentence each, with their figures and advice.
        untested: What was not tested, and why, one clause each.
        left_out: The names of the cases without mutants, because the judge's first answer to the unchanged case was not
            an expected one, or failed.
        failed: The number of mutants on which the judge failed.
    """

    result: CriterionFaults
    findings: tuple[str, ...]
    untested: tuple[str, ...]
    left_out: tuple[str, ...]
    failed: int

    @property
    def faults(self) -> tuple[FaultKind, ...]:
        """The faults that were found."""
        return self.result.faults


class MutationReport(Record):
    """The results of `probe_criteria`.

    Attributes:
        criteria: The results of each criterion, by its name.
        mutants: The answers to the mutants.
        requested: The largest number of mutants of each kind, and of either side.
        repeat: How often each unchanged case was asked.
        alpha: The probability of any finding but `blind`, if all criteria are good.
        seed: The number by which mutants were selected.
        spend: The calls, tokens and cost.
        stopped: Why not all mutants were graded, or None.
        is_unusable: Whether the judge could not be used at all.
    """

    criteria: dict[str, ProbedCriterion]
    mutants: tuple[MutantResult, ...]
    requested: int
    repeat: int
    alpha: float
    seed: int
    spend: Spend
    stopped: str | None = None
    is_unusable: bool = False

    @property
    def failed(self) -> int:
        """The number of mutants on which the judge failed."""
        return sum(row.failed for row in self.criteria.values())

    @property
    def headline(self) -> str:
        """The result in one or two sentences, with what it proves."""
        faulty = [name for name, row in self.criteria.items() if row.faults]
        answered = sum(result.flipped is not None for result in self.mutants)
        if not answered:
            return "Nothing was tested: no case has a mutant with an answer."
        faults = f"{counted(len(faulty), 'criterion', 'criteria')} of {len(self.criteria):,} with a fault"
        text = f"{counted(answered, 'mutant')}: {faults}{': ' + ', '.join(faulty) if faulty else ''}."
        return (
            f"{text} If all criteria are good, a finding other than `blind` has a probability of at most "
            f"{100 * self.alpha:g} %. No finding does not prove that a criterion is good."
        )

    def summary(self) -> str:
        """Return the results as text."""
        lines = [self.headline]
        for name, row in self.criteria.items():
            lines += [*row.findings, *(f"`{name}`: {text}" for text in row.untested)]
        return "\n".join(lines)

    @property
    def proof(self) -> str:
        """What the figures of the table mean, and how much they prove."""
        counts = {addition.rate.count for row in self.criteria.values() for addition in row.result.additions}
        counts |= {row.result.evidence.count for row in self.criteria.values()}
        limits = ", ".join(
            f"0/{count} at most {decimal(FlipRate.of(0, count).high, 2)}" for count in sorted(counts - {0})
        )
        return (
            "Flips of mutants: `evidence` must flip, additions must not (* from the lowest answer, such as UNMET). "
            "`own flips` are repeated answers to unchanged cases that differ from the most frequent one. True flip "
            f"rates (95 % limits): {limits or 'unknown'}. Mutants of one case resemble each other: more cases prove "
            "more."
        )

    def table(self) -> list[tuple[str, ...]]:
        """Return the cells of a table with `COLUMNS`, a row for each criterion."""
        return [(name, *_cells(row.result), ", ".join(row.faults) or "-") for name, row in self.criteria.items()]

    def _repr_html_(self) -> str:
        return html_table(f"{self.summary()} {self.proof}", COLUMNS, self.table())


COLUMNS = ("criterion", "evidence", "length", "tone", "format", "claim", "own flips", "faults")
"""The columns of `MutationReport.table`."""


def _cells(result: CriterionFaults) -> Iterator[str]:
    yield _flips_of(result.evidence)
    for kind in _ADDITIONS:
        sides = sorted((each.from_lowest, _flips_of(each.rate)) for each in result.additions if each.kind == kind)
        yield ", ".join(f"{text}{'*' if from_lowest else ''}" for from_lowest, text in sides) or "-"
    yield _flips_of(result.noise)


def _flips_of(rate: FlipRate) -> str:
    return f"{rate.flips:,}/{rate.count:,}" if rate.count else "-"


class AnsweredCase(NamedTuple):
    """The answers to an unchanged case, for one criterion.

    Attributes:
        case: The name of the case.
        expected: The expected answer.
        evidence: Whether the case names the evidence for the answer: clearly, ambiguously or not.
        values: The value of each answer, in the order of the repetitions. None for an abstention. Failed answers are
            left out.
    """

    case: str
    expected: ExpectedRange
    evidence: Literal["clear", "ambiguous", "none"]
    values: tuple[float | None, ...]

    @property
    def is_usable(self) -> bool:
        """Whether the first answer is an expected one. Otherwise a flip would mean nothing."""
        return bool(self.values) and self.expected.contains(self.values[0])

    @property
    def differing(self) -> int:
        """The number of answers that differ from the most frequent one."""
        return len(self.values) - max(Counter(self.values).values(), default=0)


_ADDITIONS: tuple[AdditionKind, ...] = (*SENSITIVITIES, "claim")
_MOST_READS = 3


class MutationPlan:
    """The mutants of a rubric's cases, and the questions about them.

    Args:
        rubric: The rubric with its cases.
        grader: The grader of the mutants.
        mutants: The largest number of mutants of each kind, for each criterion.
        seed: The number by which mutants are selected.

    Raises:
        ValueError: `mutants` is below 1.
    """

    def __init__(self, rubric: Rubric, grader: Grader, mutants: int = 10, seed: int = 0):
        if mutants < 1:
            raise ValueError(f"`mutants` must be at least 1, got {mutants!r}: there would be nothing to test")
        self.rubric, self.mutants, self.seed = rubric, mutants, seed
        # The answers of other graders may depend on the other criteria of a call.
        self._asks_alone = isinstance(grader, PerCriterionGrader)

    def select(self, usable: Collection[tuple[str, str]] | None = None) -> dict[str, list[Mutant]]:
        """Select the mutants of each criterion, by its name, in turn from each of the first cases that have some.

        At most `mutants` change the evidence. Of each addition, at most `mutants` are from cases whose expected answer
        is the lowest one, such as UNMET, and at most `mutants` are from the other cases.

        Args:
            usable: The names of the cases and criteria that the judge answered as expected. None for all.
        """
        return {key: self._select_for(key, criterion, usable) for key, criterion in self._criteria()}

    def _select_for(self, key: str, criterion: Criterion, usable: Collection[tuple[str, str]] | None) -> list[Mutant]:
        """Select the mutants of one criterion. The cases are read until there are enough."""
        groups: dict[tuple[str, bool], list[list[Mutant]]] = {}
        reads = Counter[bool]()

        def needs(kind: str, *, from_lowest: bool) -> bool:
            return len(groups.get((kind, from_lowest), ())) < self.mutants

        for case in self.rubric.cases:
            expected = _expected(case, key, criterion)
            if expected is None or (usable is not None and (case.name, key) not in usable):
                continue
            from_lowest = not expected.can_fall
            has_change = (
                not from_lowest and evidence_for(case, key) is not None and needs("evidence", from_lowest=False)
            )
            # Some kinds have no mutants of some cases, so not all of many cases are read for them.
            reads_on = reads[from_lowest] < _MOST_READS * self.mutants
            if not has_change and not (reads_on and any(needs(kind, from_lowest=from_lowest) for kind in _ADDITIONS)):
                continue
            reads[from_lowest] += 1
            kinds: dict[MutationKind, list[Mutant]] = {}
            for mutant in mutations_of(case, key, criterion, self.seed):
                kinds.setdefault(mutant.kind, []).append(mutant)
            changes = [kinds.pop(kind) for kind in MUST_CHANGE if kind in kinds]
            if changes:
                groups.setdefault(("evidence", False), []).append(select_mutants(changes, self.mutants))
            for kind, of_kind in kinds.items():
                groups.setdefault((kind, from_lowest), []).append(of_kind)
        return [mutant for cases in groups.values() for mutant in select_mutants(cases, self.mutants)]

    def rows(self, selected: Mapping[str, Sequence[Mutant]]) -> list[MutantRow]:
        """Return the rows to grade. Mutants of several criteria with the same submission are one row."""
        rows: dict[tuple[str, str, str], dict[str, Mutant]] = {}
        for key, mutants in selected.items():
            for mutant in mutants:
                rows.setdefault((mutant.case, mutant.name, mutant.submission.response), {})[key] = mutant
        return [MutantRow(mutants, self._rubric_of(mutants)) for mutants in rows.values()]

    def _rubric_of(self, keys: Collection[str]) -> Rubric:
        criteria = [
            criterion.model_copy(update={"name": key})
            for key, criterion in self._criteria()
            if key in keys or not self._asks_alone
        ]
        return Rubric(criteria, guidelines=self.rubric.instructions or None)

    def _criteria(self) -> list[tuple[str, Criterion]]:
        return list(zip(self.rubric.keys, self.rubric.criteria, strict=True))


class MutantRow(NamedTuple):
    """A changed submission that is graded once.

    Attributes:
        mutants: The mutants with this submission, by the name of the criterion.
        rubric: The criteria to grade it by.
    """

    mutants: Mapping[str, Mutant]
    rubric: Rubric

    @property
    def submission(self) -> Submission:
        """The changed submission."""
        return next(iter(self.mutants.values())).submission


def _expected(case: Case, key: str, criterion: Criterion) -> ExpectedRange | None:
    expected = case.expect.verdicts.get(key)
    return None if expected is None else expected_range(criterion, expected)


def _named_evidence(case: Case, key: str) -> Literal["clear", "ambiguous", "none"]:
    if case.evidence_of(key) is None:
        return "none"
    return "ambiguous" if evidence_for(case, key) is None else "clear"


def answered_cases(rubric: Rubric, report: CaseReport) -> dict[str, list[AnsweredCase]]:
    """Return the answers to the unchanged cases that expect an answer to a criterion, by the criterion's name."""
    repeated = {(each.case, each.criterion): each.repeated for each in report.results if each.kind == "verdict"}
    tested: dict[str, list[AnsweredCase]] = {}
    for key, criterion in zip(rubric.keys, rubric.criteria, strict=True):
        tested[key] = []
        for case in rubric.cases:
            expected = _expected(case, key, criterion)
            if expected is not None:
                answers = [
                    answer for answer in repeated.get((case.name, key), ()) if answer not in (None, NOT_APPLICABLE)
                ]
                values = tuple(answer_value(criterion, answer) for answer in answers)
                tested[key].append(AnsweredCase(case.name, expected, _named_evidence(case, key), values))
    return tested


def probe_criteria(
    rubric: RubricLike,
    grader: Grader,
    *,
    cases: CaseReport | None = None,
    mutants: int = 10,
    repeat: int = 5,
    alpha: float = 0.05,
    seed: int = 0,
    ledger: LedgerLike | None = None,
    max_concurrency: int = 64,
    max_cost: float | None = None,
    max_calls: int | None = None,
    prices: Prices | None = None,
    progress: bool = False,
) -> MutationReport:
    """Test each criterion with mutations of the rubric's cases: whether it is blind, sensitive, gullible or flaky.

    `trust/criterion_faults.py` defines the faults. A judge that fails is neither a flip nor the absence of one.

    Args:
        rubric: The rubric with its `cases`, or the path of its file.
        grader: The grader with the judge. With `on_failure="abstain"`, one lost answer does not lose the others.
        cases: The report of `run_cases` about the same rubric and grader, whose answers are used. None to ask about the
            unchanged cases first.
        mutants: The largest number of mutants of each kind, for each criterion. At least 5 are needed to call a
            criterion blind.
        repeat: How often each unchanged case is asked, to measure the judge's noise. Not used with `cases`.
        alpha: The probability of any finding but `blind`, if all criteria are good.
        seed: The number by which mutants are selected.
        ledger: The store of the answers. An answer in it is not requested again.
        max_concurrency: The largest number of concurrent calls.
        max_cost: The largest cost in US dollars, with the cost of `cases`.
        max_calls: The largest number of calls to models, with the calls of `cases`.
        prices: The prices of models (see `grade_many`).
        progress: Whether to show a progress bar.

    Raises:
        ValueError: There are no cases, a number is out of range, or the grader gives no verdicts.
        RubricError: (a ValueError) The rubric or a case is invalid.
        ImportError: scipy is not installed.

    Example:
        >>> from rubric_integrations.testing import ScriptedJudge
        >>> case = {"name": "states it", "response": "It is 42. So be it.", "evidence": "It is 42.",
        ...         "expect": {"verdicts": {"answer": "MET"}}}
        >>> rubric = Rubric([{"name": "answer", "requirement": "Says 42"}], cases=[case])
        >>> probe_criteria(rubric, PerCriterionGrader(ScriptedJudge("MET"))).criteria["answer"].faults
        ('blind',)
    """
    check_alpha(alpha)
    tested = read_tested(rubric)
    plan = MutationPlan(tested, grader, mutants, seed)
    with use_ledger(ledger) if ledger is not None else nullcontext() as store:
        if cases is None:
            cases = run_cases(
                tested, grader, repeat=repeat, ledger=store, max_concurrency=max_concurrency, max_cost=max_cost,
                max_calls=max_calls, prices=prices, progress=progress,
            )  # fmt: skip
        answered = answered_cases(tested, cases)
        usable = {(each.case, key) for key, of_key in answered.items() for each in of_key if each.is_usable}
        rows = plan.rows(plan.select(usable))
        spent = cases.spend
        answers = Asked([], NO_SPEND, cases.stopped, cases.is_unusable)
        if rows and not cases.stopped:
            [answers] = ask_repeatedly(
                [(row.submission, row.rubric) for row in rows], grader, 1, store=store,
                max_concurrency=max_concurrency, prices=prices, progress=progress,
                max_cost=None if max_cost is None else max(0.0, max_cost - (spent.cost or 0.0)),
                max_calls=None if max_calls is None else max(0, max_calls - spent.calls),
            )  # fmt: skip
        if answers.stopped and spent.calls and not cases.stopped and not answers.is_unusable:
            answers = answers._replace(stopped=f"{answers.stopped}; the unchanged cases had used the rest")
    results = tuple(_results(tested, rows, answers))
    return MutationReport(
        criteria=_probed(tested, answered, results, alpha, is_stopped=bool(answers.stopped)),
        mutants=results,
        requested=mutants,
        repeat=cases.repeat,
        alpha=alpha,
        seed=seed,
        spend=spent + answers.spend,
        stopped=answers.stopped,
        is_unusable=answers.is_unusable,
    )


def _results(rubric: Rubric, rows: Sequence[MutantRow], answers: Asked) -> Iterator[MutantResult]:
    """Yield the result of each mutant that was graded."""
    criteria = dict(zip(rubric.keys, rubric.criteria, strict=True))
    cases = {case.name: case for case in rubric.cases}
    for row, report in zip(rows, answers.reports, strict=False):
        if report is None and answers.stopped:
            continue
        entries = {entry.name: entry for entry in report.criteria} if report else {}
        for key, mutant in row.mutants.items():
            entry, expected = entries.get(key), _expected(cases[mutant.case], key, criteria[key])
            error = "the judge gave no answer" if entry is None else entry.error
            flipped = None
            if entry is not None and entry.was_judged and expected is not None:
                flipped = expected.is_flip(answer_value(criteria[key], entry.verdict), mutant.kind, criteria[key])
            yield MutantResult(
                criterion=key,
                case=mutant.case,
                kind=mutant.kind,
                name=mutant.name,
                must_change=mutant.must_change,
                verdict=entry.verdict if entry is not None and error is None else None,
                flipped=flipped,
                error=error,
            )


def _probed(
    rubric: Rubric,
    tested: Mapping[str, Sequence[AnsweredCase]],
    results: Sequence[MutantResult],
    alpha: float,
    *,
    is_stopped: bool,
) -> dict[str, ProbedCriterion]:
    """Count the flips of each criterion, and find its faults."""
    stopped = ("not completely tested: the run was stopped",)
    criteria = dict(zip(rubric.keys, rubric.criteria, strict=True))
    of_criteria: dict[str, list[MutantResult]] = {key: [] for key in criteria}
    for result in results:
        of_criteria[result.criterion].append(result)
    flips = {key: _count_flips(criterion, tested[key], of_criteria[key]) for key, criterion in criteria.items()}
    return {
        key: ProbedCriterion(
            result=result,
            findings=tuple(_findings(key, criteria[key], result)),
            untested=stopped
            if is_stopped
            else tuple(
                _untested(tested[key], criteria[key], result, {each.kind for each in of_criteria[key] if each.error})
            ),
            left_out=tuple(each.case for each in tested[key] if not each.is_usable),
            failed=sum(each.error is not None for each in of_criteria[key]),
        )
        for key, result in find_faults(flips, alpha).items()
    }


def _count_flips(
    criterion: Criterion, tested: Sequence[AnsweredCase], results: Sequence[MutantResult]
) -> CriterionFlips:
    """Count the flips of a criterion's mutants, and of the repeated answers to the same cases."""
    by_name = {each.case: each for each in tested}
    by_kind: dict[tuple[MutationKind, str], list[bool]] = {}
    for each in results:
        if each.flipped is not None:
            by_kind.setdefault((each.kind, each.case), []).append(each.flipped)
    evidence: dict[ChangeKind, tuple[int, int]] = {}
    additions: dict[tuple[AdditionKind, bool], list[CaseFlips]] = {}
    for (kind, name), flips in by_kind.items():
        answered, flipped, mutants = by_name[name], sum(flips), len(flips)
        match kind:
            case "removed" | "number" | "negation":
                before = evidence.get(kind, (0, 0))
                evidence[kind] = before[0] + flipped, before[1] + mutants
            case _:
                repeats = answered.values[1:]
                repeat_flips = sum(answered.expected.is_flip(value, kind, criterion) for value in repeats)
                additions.setdefault((kind, not answered.expected.can_fall), []).append(
                    CaseFlips(flipped, mutants, repeat_flips, len(repeats))
                )
    repeated = [each for each in tested if len(each.values) > 1 and criterion.check is None]
    return CriterionFlips(
        evidence,
        additions,
        sum(each.differing for each in repeated),
        sum(len(each.values) for each in repeated),
    )


_ADDED = {
    "length": "padding or a repeated conclusion",
    "tone": "polite phrases",
    "format": "Markdown",
    "claim": "the claim that they are correct",
}


def _findings(key: str, criterion: Criterion, result: CriterionFaults) -> Iterator[str]:
    """Yield each fault as a sentence."""
    if "blind" in result.faults:
        evidence = result.evidence
        yield (
            f"`{key}` is blind: {evidence.flips:,} of {evidence.count:,} responses without their evidence, or with "
            f"changed evidence, get another verdict (at most {decimal(evidence.high, 2)}); see whether the requirement "
            "names what decides it, and whether the rest of the response has the evidence, too"
        )
    for addition in result.additions:
        if not addition.is_significant:
            continue
        rate, noise, kind = addition.rate, addition.noise, addition.kind
        own = (
            f"{noise.flips:,} of {noise.count:,} repeated answers to the unchanged cases"
            if noise.count
            else f"{100 * ASSUMED_NOISE:g} %, which is assumed, because no answer was repeated"
        )
        figures = (
            f"{rate.flips:,} of {rate.count:,} responses with {_ADDED[kind]} {_change(criterion, addition)} (at least "
            f"{decimal(rate.low, 2)}), against {own}"
        )
        if kind == "claim":
            yield f"the judge can be talked into `{key}`: {figures}; measure the judge with `probe`"
        else:
            yield f"`{key}` depends on {kind}: {figures}; if it should, write `sensitive_to: [{kind}]`"
    if "flaky" in result.faults:
        noise = result.noise
        yield (
            f"the judge contradicts itself on `{key}`: {noise.flips:,} of {noise.count:,} answers differ from the most "
            f"frequent one about the same case (at least {decimal(noise.low, 2)}); make the requirement observable, or "
            "ask several times and vote"
        )


def _change(criterion: Criterion, addition: AdditionFlips) -> str:
    if criterion.kind != "binary":
        return "get another answer than the expected one"
    return f"get another verdict than {'UNMET' if addition.from_lowest else 'MET'}"


def _untested(
    cases: Sequence[AnsweredCase], criterion: Criterion, result: CriterionFaults, failed: set[MutationKind]
) -> Iterator[str]:
    """Yield what was not tested, and why.

    Args:
        cases: The cases that expect an answer to the criterion.
        criterion: The criterion.
        result: Its flips.
        failed: The kinds of mutants on which the judge failed.
    """
    if criterion.check is not None:
        yield "not tested: a check decides it"
        return
    if not any(case.is_usable for case in cases):
        yield f"not tested: {'the judge answers no case as expected' if cases else 'no case expects a verdict on it'}"
        return
    can_fall = [case for case in cases if case.expected.can_fall]
    if not can_fall:
        yield "not tested for blindness: add a case in which it is MET, with its `evidence`"
    elif not any(case.evidence == "clear" for case in can_fall):
        is_ambiguous = any(case.evidence == "ambiguous" for case in can_fall)
        yield f"not tested for blindness: name `evidence`{' for each criterion of a case' if is_ambiguous else ''}"
    elif result.evidence.count < FEWEST_MUTANTS:
        lacking = f"{result.evidence.count} of at least {FEWEST_MUTANTS} mutants"
        yield f"not tested for blindness: {lacking}; add cases with `evidence`"
    tested = {addition.kind for addition in result.additions}
    for kind in SENSITIVITIES:
        if kind in criterion.sensitive_to:
            yield f"not tested for {kind}: it is `sensitive_to` it"
        elif kind not in tested:
            lacking = "the judge failed on its mutants" if kind in failed else "no case has such a mutant"
            yield f"not tested for {kind}: {lacking}"
    if "claim" in failed - tested:
        yield "not tested for claims: the judge failed on its mutants"
    elif "claim" not in tested:
        verdict = "MET" if criterion.is_penalty else "UNMET"
        yield f"not tested for claims: add a case in which it is {verdict}, and that the judge answers so"
