"""`draft_rubric`: drafts a rubric from pairs of answers, feedback or a good answer, with evidence for each criterion.

A model proposes criteria from the first part of the data, each with a quote. The ordinary judge answers them on the
second part, and only criteria that reproduce the preference there are kept. The figures come from the third part alone.
A failed judge is no verdict. This module is imported at first use, because the proposals import DSPy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, aclosing
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rubric_integrations._util.event_loop import run_sync
from rubric_integrations._util.text import counted
from rubric_integrations.formats.linting import lint
from rubric_integrations.formats.registry import RubricLike
from rubric_integrations.graders.per_criterion import PerCriterionGrader
from rubric_integrations.judges import JudgeLike, as_judge
from rubric_integrations.judges.cascade import judges_inside
from rubric_integrations.judges.protocol import Judge, ModelLike, RunStopped, fingerprint_of
from rubric_integrations.judges.spend import OTHER_LIMIT, Prices, SpendLimit, SpendLimitReached, price_name
from rubric_integrations.judges.store import LedgerLike
from rubric_integrations.rubric.case import Case, Expectation, find_evidence
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.ledger import open_ledger
from rubric_integrations.runs.ledger.addresses import path_of
from rubric_integrations.runs.run import grade_many
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.judgment import NO_SPEND, JudgeFailure, Spend
from rubric_integrations.scoring.length import word_count
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.draft_sources import (
    PARTS,
    AnswerPair,
    DraftPart,
    FeedbackLike,
    LabelledAnswer,
    PairsLike,
    pair_answers,
    read_examples,
    read_feedback,
    read_pairs,
    sample_groups,
    split_source,
)
from rubric_integrations.trust.drafts import BaseRubric, DraftedCriterion, DroppedCriterion, RubricDraft
from rubric_integrations.trust.means import Groups, number_groups
from rubric_integrations.trust.proposals import (
    CandidateCriterion,
    Proposer,
    ReplyFile,
    SourceKind,
    SourceTexts,
)
from rubric_integrations.trust.separation import (
    CandidateTest,
    Separation,
    count_pairs,
    longer_answers_win,
    measure_separation,
    prune_candidates,
)

# Requests to the model that proposes criteria, and the pairs or answers in one of them.
_MOST_REQUESTS, _PER_REQUEST = 8, 3


class DraftError(Exception):
    """Raised if a draft ended early. There is no result, but stored judgments and replies are not requested again.

    Args:
        message: The reason why the draft ended.
        spend: The calls, tokens and cost until the end.
        limit_reached: Whether `max_cost` ended the draft.

    Attributes:
        spend: The calls, tokens and cost until the end.
        limit_reached: Whether `max_cost` ended the draft.
    """

    def __init__(self, message: str, spend: Spend, *, limit_reached: bool = False):
        super().__init__(message)
        self.spend, self.limit_reached = spend, limit_reached

    def __reduce__(self) -> Any:
        return DraftError, (str(self), self.spend), vars(self)


def draft_rubric(
    *,
    pairs: PairsLike | None = None,
    feedback: FeedbackLike | None = None,
    example: Any = None,
    model: ModelLike,
    judge: JudgeLike,
    base: RubricLike | None = None,
    seed: int = 0,
    max_cost: float | None = None,
    prices: Prices | None = None,
    ledger: LedgerLike | None = None,
    replies: str | PathLike[str] | None = None,
    max_candidates: int = 12,
    max_rows: int = 300,
    max_concurrency: int = 64,
    progress: bool = False,
) -> RubricDraft:
    """Draft a rubric from data: a model proposes criteria, and those that hold on other data are kept.

    The data are split by group into three disjoint parts (see `split_source`). Pass exactly one of `pairs`, `feedback`
    and `example`. With fewer than 30 independent groups in a part there are counts and no verdict.

    This measures criteria. It does not make them good: models propose worse criteria than people.

    Args:
        pairs: Pairs of a better and a worse answer; see `read_pairs`. A criterion is kept if it orders other pairs
            rightly.
        feedback: Answers with labels and reasons of people; see `read_feedback`. For the tests, good and bad answers
            are paired. With `base`, the answers on which its score differs most from the label are read first.
        example: A good answer, or a list of them. A criterion is kept if the answer that it comes from meets it.
        model: The model that proposes criteria.
        judge: The judge that answers the criteria.
        base: A rubric whose criteria come first and are not changed. If it is a path, the text of the file is kept.
        seed: The seed of the split and of the order of the requests. If `base` was drafted from the same data, pass the
            same seed. Otherwise, figures would come from rows from which it was written.
        max_cost: The highest cost in US dollars, of proposals and judgments. None for no limit.
        prices: The prices of the model and of the judge (see `grade_many`).
        ledger: The store of judgments (see `grade_many`). None for a temporary one.
        replies: The file of the model's replies, which are no judgments. By default, a file next to the ledger's file
            (for `draft.sqlite`, `draft.replies.jsonl`). A draft that was killed goes on with them.
        max_candidates: The largest number of proposals that the judge reads.
        max_rows: The largest number of pairs or labelled answers that are used, drawn by group.
        max_concurrency: The largest number of concurrent calls.
        progress: Whether to show progress bars on stderr.

    Raises:
        DraftError: A model or the judge cannot be used, or `max_cost` is reached.
        ValueError: The arguments or the data are invalid, or criteria cannot be appended to the text of `base`.
        TypeError: There is a ledger, and the model or the judge cannot be identified.
    """
    kind, rows = _source(pairs, feedback, example)
    for name, value in (("max_candidates", max_candidates), ("max_rows", max_rows)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value!r}")
    file = _replies_of(ledger, replies)
    stored, own_base = ReplyFile(file), BaseRubric.read(base)
    spend_limit = SpendLimit(None, max_cost, prices)
    proposer = Proposer(model, spend_limit, stored, max_concurrency)
    if file is not None and not proposer.is_identified:
        raise TypeError(
            "`model` cannot be identified, and stored replies of another model would be taken for its replies: pass a "
            "model by its name, or `lm_from_fn(function, fingerprint=...)`"
        )
    judging = _Judging(as_judge(judge), ledger, spend_limit, max_concurrency, progress)
    judging.require_names_of_prices(proposer.price_name)
    drawn = [rows[place] for place in sample_groups(rows, max_rows, seed)]
    return run_sync(_Drafting(kind, drawn, proposer, judging, own_base, seed, max_candidates).draft())


def _source(
    pairs: PairsLike | None, feedback: FeedbackLike | None, example: Any
) -> tuple[SourceKind, Sequence[AnswerPair | LabelledAnswer]]:
    """Read the one source that was passed."""
    sources: dict[SourceKind, Any] = {"pairs": pairs, "feedback": feedback, "example": example}
    passed: list[SourceKind] = [name for name, value in sources.items() if value is not None]
    if len(passed) != 1:
        names = " and ".join(f"`{name}`" for name in passed) or "none"
        raise ValueError(f"pass exactly one of `pairs`, `feedback` and `example`, got {names}")
    if pairs is not None:
        rows: Sequence[AnswerPair | LabelledAnswer] = read_pairs(pairs)
    else:
        rows = read_examples(example) if feedback is None else read_feedback(feedback)
    if not rows:
        raise ValueError(f"`{passed[0]}` has no row, and nothing could be drafted: pass at least one")
    return passed[0], rows


def _replies_of(ledger: LedgerLike | None, replies: str | PathLike[str] | None) -> Path | None:
    """Return the file of the replies: the one that was passed, or the file next to the ledger's file.

    Raises:
        ValueError: The ledger is not a file, and no file of replies is passed.
    """
    if replies is not None:
        return Path(replies)
    if ledger is None:
        return None
    address = ledger if isinstance(ledger, str | PathLike) else getattr(ledger, "address", None)
    path = path_of(address) if isinstance(address, str) else None if address is None else Path(address)
    if path is None:
        raise ValueError(
            "`ledger` is not a file, next to which the proposals could be stored: pass the file `replies`, or a draft "
            "that was killed would request other proposals"
        )
    return path.with_suffix(".replies.jsonl")


class _Judging:
    """Grades answers within the spend limit of a draft."""

    def __init__(
        self, judge: Judge, ledger: LedgerLike | None, spend_limit: SpendLimit, max_concurrency: int, progress: bool
    ):
        self._judge, self._ledger, self._is_stored = judge, ledger, ledger is not None
        self._spend_limit, self._max_concurrency, self._progress = spend_limit, max_concurrency, progress
        self._names = {price_name(inner): None for inner in judges_inside(judge)}
        self.spend = NO_SPEND

    def require_names_of_prices(self, proposer: str) -> None:
        """Check that each price names the judge or the model that proposes criteria, or it would have no effect.

        Raises:
            ValueError: A name is another one.
        """
        names = self._names | {proposer: None}
        for name in self._spend_limit.prices:
            if name not in names:
                known = " and ".join(map(repr, names))
                raise ValueError(f"`prices` names {name!r}, and the models are {known}: use one of these names")

    def open(self, stack: ExitStack) -> None:
        """Open the ledger before anything is paid for. The base and the draft share the judgments of a temporary one.

        Raises:
            LedgerError: (a ValueError) The ledger cannot be used.
        """
        if self._ledger is None and fingerprint_of(self._judge) is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            self._ledger = Path(folder) / "draft.sqlite"
        if isinstance(self._ledger, str | PathLike):
            self._ledger = stack.enter_context(open_ledger(self._ledger))

    @property
    def total_spend(self) -> Spend:
        """The spend of all judgments and proposals."""
        return self.spend + self._spend_limit.spend

    async def grade(self, submissions: Sequence[Submission], rubric: Rubric) -> list[Graded]:
        """Grade answers, in their order.

        Raises:
            DraftError: The run was stopped.
        """
        limit = self._spend_limit.max_cost
        left = None if limit is None else max(0.0, limit - (self.total_spend.cost or 0.0))
        prices = {name: price for name, price in self._spend_limit.prices.items() if name in self._names}
        run = grade_many(
            submissions, rubric, PerCriterionGrader(self._judge), ledger=self._ledger, max_cost=left, prices=prices,
            max_concurrency=self._max_concurrency, progress=self._progress,
        )  # fmt: skip
        try:
            async with aclosing(aiter(run)) as results:
                rows = [graded async for graded in results]
        finally:
            self.spend += run.summary.spend
        if run.summary.stopped:
            is_limit = not (run.summary.judge_is_unusable or run.summary.has_wrong_setting)
            rest = f"; the earlier steps had used the rest of ${limit:g}" if is_limit and limit != left else ""
            raise self.error(f"{run.summary.stopped}{rest}", limit_reached=is_limit)
        return rows

    def error(self, reason: object, *, limit_reached: bool = False) -> DraftError:
        """Return the error that ends the draft, with the reason and the spend."""
        spend = self.total_spend
        stored = "" if not self._is_stored else "; stored judgments and replies are not requested again"
        reason = str(reason).removesuffix(OTHER_LIMIT)  # a draft has no `max_calls`
        return DraftError(
            f"the draft ended after {spend.summary()}: {reason}. Nothing is kept{stored}", spend,
            limit_reached=limit_reached,
        )  # fmt: skip


class _Measured(NamedTuple):
    """The judged pairs of a part: the values of some criteria, failures, and the score of each answer."""

    values: Any
    failed: Any
    scores: list[tuple[float | None, float | None]]


def _measured(graded: Sequence[Graded], first: int, count: int) -> _Measured:
    """Return the values of criteria, from two graded answers for each pair. Failures and abstentions have none."""
    values = np.full((len(graded), count), np.nan)
    failed = np.zeros((len(graded), count), bool)
    scores: list[float | None] = []
    for place, row in enumerate(graded):
        entries = row.report.criteria[first : first + count] if row.report else ()
        failed[place] = not entries
        for column, entry in enumerate(entries):
            failed[place, column] = not entry.was_judged and not entry.not_applicable
            if entry.was_judged and entry.value is not None:
                values[place, column] = entry.value
        scores.append(_score(row))
    shape = (len(graded) // 2, 2, count)
    return _Measured(values.reshape(shape), failed.reshape(shape), list(zip(scores[::2], scores[1::2], strict=True)))


def _answers(pairs: Iterable[AnswerPair]) -> list[Submission]:
    return [answer for pair in pairs for answer in (pair.better, pair.worse)]


class _Drafting:
    """One draft: its rows in three parts, and the steps in their order."""

    def __init__(
        self,
        kind: SourceKind,
        rows: Sequence[AnswerPair | LabelledAnswer],
        proposer: Proposer,
        judging: _Judging,
        base: BaseRubric,
        seed: int,
        max_candidates: int,
    ):
        self._kind: SourceKind = kind
        self._rows, self._base, self._seed = rows, base, seed
        self._proposer, self._judging, self._max_candidates = proposer, judging, max_candidates
        self._split = split_source(rows, seed)
        self._warnings: list[str] = []
        self._dropped: list[DroppedCriterion] = []

    async def draft(self) -> RubricDraft:
        """Make the draft.

        Raises:
            DraftError: A model or the judge cannot be used, or `max_cost` is reached.
            ValueError: A part has no pair, or the ledger cannot be used.
        """
        if self._kind != "example":
            self._require_pairs()
        with ExitStack() as stack:
            self._judging.open(stack)
            try:
                return await self._steps()
            except JudgeFailure as failure:
                raise self._judging.error(f"the model that proposes criteria failed: {failure}") from None
            except RunStopped as reason:
                raise self._judging.error(reason, limit_reached=isinstance(reason, SpendLimitReached)) from None

    def _require_pairs(self) -> None:
        if not all(self._pairs(part)[0] for part in ("prune", "report")):
            raise ValueError(
                f"too few groups for three parts, of which two need a pair, in {counted(len(self._rows), 'row')}: "
                "add rows with other queries and texts, or choose another `seed`"
            )

    async def _steps(self) -> RubricDraft:
        read = await self._rows_to_read()
        candidates = await self._propose(read)
        if self._kind == "example":
            return self._result(await self._met_by_examples(candidates), None, ())
        pairs, groups = self._pairs("prune")
        kept = await self._prune(candidates, pairs, groups)
        separation: Separation | None = None
        if kept:
            kept, separation = await self._report(kept, pairs)
        return self._result(kept, separation, await self._cases(kept, read))

    def _pairs(self, part: DraftPart) -> tuple[list[AnswerPair], Groups]:
        """Return the pairs of a part with their groups. Labelled answers are paired within the part."""
        places = self._split.rows(part)
        groups = [self._split.groups[place] for place in places]
        pairs = [row for place in places if isinstance(row := self._rows[place], AnswerPair)]
        if self._kind == "feedback":
            labelled = [row for place in places if isinstance(row := self._rows[place], LabelledAnswer)]
            pairs, groups = pair_answers(labelled, groups)
        return pairs, number_groups(groups)

    async def _rows_to_read(self) -> list[_RowToRead]:
        """Return the rows from which the model proposes criteria, the clearest disagreements with the base first."""
        if self._kind == "example":
            return [_RowToRead(row, 0.0) for row in self._rows]
        rows = [self._rows[place] for place in self._split.rows("propose")]
        answers = [_submissions(row) for row in rows]
        scores: list[float | None] = [None] * sum(map(len, answers))
        if self._base.rubric is not None:
            graded = await self._judging.grade([each for own in answers for each in own], self._base.rubric)
            scores = [_score(each) for each in graded]
        each_score = iter(scores)
        reading = [
            _to_read(row, [next(each_score) for _ in own], has_base=self._base.rubric is not None)
            for row, own in zip(rows, answers, strict=True)
        ]
        ordered = sorted(reading, key=lambda each: (-each.gap, _order(f"{self._seed}\n{each.row.id}")))
        return ordered[: _MOST_REQUESTS * _PER_REQUEST]

    async def _propose(self, reading: Sequence[_RowToRead]) -> list[CandidateCriterion]:
        """Return the candidates. Proposals without a valid quote are dropped."""
        sources = [each.texts() for each in reading]
        requests = [sources[start : start + _PER_REQUEST] for start in range(0, len(sources), _PER_REQUEST)]
        base = self._base.rubric
        present, taken = (base.criteria, base.keys) if base else ((), ())
        proposed = await self._proposer.propose(self._kind, requests, present, taken)
        self._warnings += [f"a request for proposals has no readable reply: {failure}" for failure in proposed.failures]
        self._dropped += [
            DroppedCriterion(requirement=each.requirement, quote=each.quote, reason=each.reason)
            for each in proposed.refused
        ]
        candidates = proposed.candidates[: self._max_candidates]
        for each in proposed.candidates[self._max_candidates :]:
            self._drop(each, f"more than {self._max_candidates} candidates (`max_candidates`)")
        return candidates

    def _drop(self, candidate: CandidateCriterion, reason: str, test: CandidateTest | None = None) -> None:
        self._dropped.append(
            DroppedCriterion(requirement=candidate.requirement, quote=candidate.quote, reason=reason, test=test)
        )

    async def _prune(
        self, candidates: Sequence[CandidateCriterion], pairs: Sequence[AnswerPair], groups: Groups
    ) -> list[DraftedCriterion]:
        """Test the candidates on pairs from which they were not written. Keep those that reproduce the preference."""
        if not candidates:
            return []
        own = self._base.rubric.criteria if self._base.rubric else ()
        graded = await self._judging.grade(_answers(pairs), self._base.with_criteria(candidates))
        measured = _measured(graded, len(own), len(candidates))
        present = _measured(graded, 0, len(own)).values * [-1 if criterion.is_penalty else 1 for criterion in own]
        tests = prune_candidates(
            measured.values, [each.sign for each in candidates], groups, failed=measured.failed, present=present
        )
        self._note_failures(graded, "pruning")
        for candidate, test in zip(candidates, tests, strict=True):
            if test.reason is not None:
                self._drop(candidate, test.reason, test)
        return [
            DraftedCriterion(candidate=candidate, test=test)
            for candidate, test in zip(candidates, tests, strict=True)
            if test.reason is None
        ]

    async def _report(
        self, kept: Sequence[DraftedCriterion], pruned_on: Sequence[AnswerPair]
    ) -> tuple[list[DraftedCriterion], Separation]:
        """Measure the rubric, and each new criterion, on the part that was used neither to propose nor to prune."""
        pairs, groups = self._pairs("report")
        answers, first = _answers(pairs), len(self._base.rubric.criteria) if self._base.rubric else 0
        candidates = [each.candidate for each in kept]
        graded = await self._judging.grade(answers, self._base.with_criteria(candidates))
        measured = _measured(graded, first, len(kept))
        self._note_failures(graded, "the report")
        base = None
        if self._base.rubric is not None:
            base = _measured(await self._judging.grade(answers, self._base.rubric), 0, first).scores
        earlier = [*self._pairs("propose")[0], *pruned_on]
        separation = measure_separation(
            measured.scores,
            _lengths(pairs),
            groups,
            longer_is_better=longer_answers_win(_lengths(earlier)),
            base=base,
        )
        counts = count_pairs(measured.values, [each.sign for each in candidates])
        reported = [each.model_copy(update={"report": own}) for each, own in zip(kept, counts, strict=True)]
        return reported, separation

    async def _met_by_examples(self, candidates: Sequence[CandidateCriterion]) -> list[DraftedCriterion]:
        """Keep the criteria that the examples with their quotes meet, and the penalties that these do not earn."""
        if not candidates:
            return []
        first = len(self._base.rubric.criteria) if self._base.rubric else 0
        answers = [answer for row in self._rows for answer in _submissions(row)]
        graded = await self._judging.grade(answers, self._base.with_criteria(candidates))
        self._note_failures(graded, "the examples")
        kept: list[DraftedCriterion] = []
        for place, candidate in enumerate(candidates):
            row = next(number for number, each in enumerate(self._rows) if candidate.source == f"answer {each.id}")
            report = graded[row].report
            entry = report.criteria[first + place] if report else None
            if entry is None or not entry.was_judged:
                self._drop(candidate, "the judge failed")
            elif entry.value is None or (entry.value == 1.0) == (candidate.kind == "penalty"):
                self._drop(candidate, "the example that it comes from does not meet it")
            else:
                kept.append(DraftedCriterion(candidate=candidate))
        return kept

    async def _cases(self, kept: Sequence[DraftedCriterion], reading: Sequence[_RowToRead]) -> list[Case]:
        """Make two test cases for each criterion, met and not met, from the answers that the model has read.

        The expected verdicts are the judge's. A failed judge gives no case.
        """
        if not kept:
            return []
        sources = [(each.source, answer) for each in reading for answer in _submissions(each.row)]
        rubric = BaseRubric(None, None, "").with_criteria([each.candidate for each in kept])
        graded = await self._judging.grade([answer for _, answer in sources], rubric)
        cases: list[Case] = []
        taken = {case.name for case in self._base.rubric.cases} if self._base.rubric else set[str]()
        for place, each in enumerate(kept):
            entries = [row.report.criteria[place] if row.report else None for row in graded]
            for verdict in ("MET", "UNMET"):
                fitting = [
                    source
                    for source, entry in zip(sources, entries, strict=True)
                    if entry is not None and entry.was_judged and entry.verdict == verdict
                ]
                cases += _case_of(each.candidate, verdict, fitting, taken)
        return cases

    def _note_failures(self, graded: Sequence[Graded], step: str) -> None:
        failed = sum(row.judge_error is not None for row in graded)
        if failed:
            self._warnings.append(f"for {step}, the judge failed on {failed} of {counted(len(graded), 'answer')}")

    def _result(
        self, kept: Sequence[DraftedCriterion], separation: Separation | None, cases: Sequence[Case]
    ) -> RubricDraft:
        """Return the result, with the rubric and its text."""
        base, rubric, warnings, text = self._base.rubric, self._base.rubric, list[str](), ""
        if kept:
            rubric = self._base.with_criteria([each.candidate for each in kept])
            known = {str(warning) for warning in lint(base)} if base else set[str]()
            warnings = [str(warning) for warning in lint(rubric) if str(warning) not in known]
            rubric = rubric.with_cases([*(base.cases if base else ()), *cases])
        draft = RubricDraft(
            rubric=rubric,
            criteria=tuple(kept),
            dropped=tuple(self._dropped),
            separation=separation,
            parts={part: len(self._split.rows(part)) for part in PARTS},
            cases=tuple(cases),
            lint=tuple(warnings),
            warnings=tuple(self._warnings),
            spend=self._judging.total_spend,
        )
        if rubric is not None:
            header = [f"Drafted from {self._kind}, seed {self._seed}. Read and edit it.", draft.headline, *warnings]
            if cases:
                header.append("The verdicts of the new test cases are the judge's, and no person has checked them.")
            text = self._base.text_with(rubric, kept, header)
        return draft.model_copy(update={"text": text})


class _RowToRead(NamedTuple):
    """A row from which the model proposes criteria.

    Attributes:
        row: The pair or labelled answer.
        gap: How far the base and people disagree. Rows with larger gaps are read first.
        score: The score of the base for a labelled answer, or None.
    """

    row: AnswerPair | LabelledAnswer
    gap: float
    score: float | None = None

    @property
    def source(self) -> str:
        """The name of the row as the source of a quote."""
        return f"{'pair' if isinstance(self.row, AnswerPair) else 'answer'} {self.row.id}"

    def texts(self) -> SourceTexts:
        """Return the texts for the model that proposes criteria."""
        row = self.row
        if isinstance(row, AnswerPair):
            quotable = {"better answer": row.better.response, "worse answer": row.worse.response, "reason": row.reason}
            return SourceTexts(self.source, quotable, {"task": row.better.query or ""})
        others = {"task": (row.submission.query if row.submission else None) or ""}
        if row.label is not None:
            others["rating of people"] = f"{row.label:g}"
        if self.score is not None:
            others["score of the present rubric"] = f"{self.score:.2f}"
        answer = row.submission.response if row.submission else ""
        return SourceTexts(self.source, {"answer": answer, "reason": row.reason}, others)


# The gap of a report or of an answer without a label: after clear disagreements, before agreement.
_UNRATED = 0.5


def _to_read(row: AnswerPair | LabelledAnswer, scores: Sequence[float | None], *, has_base: bool) -> _RowToRead:
    """Return a row with the gap between people and the base. Without a base, low labels with a reason come first."""
    first = scores[0] if scores else None
    if isinstance(row, AnswerPair):
        second = scores[1] if len(scores) > 1 else None
        return _RowToRead(row, 0.0 if first is None or second is None else second - first)
    if not has_base:
        return _RowToRead(row, bool(row.reason) + (_UNRATED if row.label is None else 1 - row.label) / 2)
    gap = _UNRATED if first is None or row.label is None else abs(row.label - first)
    return _RowToRead(row, gap, first)


def _order(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _submissions(row: AnswerPair | LabelledAnswer) -> list[Submission]:
    if isinstance(row, AnswerPair):
        return [row.better, row.worse]
    return [row.submission] if row.submission else []


def _score(graded: Graded) -> float | None:
    return None if graded.report is None or graded.judge_error else graded.report.score


def _lengths(pairs: Sequence[AnswerPair]) -> list[tuple[int, int]]:
    return [(word_count(pair.better.response), word_count(pair.worse.response)) for pair in pairs]


def _case_of(
    candidate: CandidateCriterion, verdict: str, fitting: Sequence[tuple[str, Submission]], taken: Collection[str]
) -> list[Case]:
    """Return a test case with one of the answers that have a verdict, if possible the answer with the quote.

    Only a case that is met has evidence, because its mutations expect the verdict to change without the evidence.
    """

    def distance(fit: tuple[str, Submission]) -> tuple[bool, bool]:
        return fit[0] != candidate.source, not find_evidence(fit[1].response, candidate.quote)

    # A case has no files and steps of an agent. Without them, it would be another answer.
    complete = [fit for fit in fitting if not (fit[1].trajectory or fit[1].attachments or fit[1].thinking)]
    if not complete:
        return []
    _, answer = min(complete, key=distance)
    name = f"{candidate.name}: {verdict.casefold()}"
    while name in taken:
        name += " (new)"
    has_quote = verdict == "MET" and bool(find_evidence(answer.response, candidate.quote))
    case = {
        "name": name,
        "query": answer.query,
        "response": answer.response,
        "reference": answer.reference,
        "context": list(answer.context),
        "evidence": candidate.quote if has_quote else None,
        "expect": Expectation(verdicts={candidate.name: verdict}),
    }
    return [Case.model_validate({name: value for name, value in case.items() if value})]
