"""`read_judgments`: makes a run from judgments that another program recorded, such as the replies of a published judge.

The run is like a run of `grade_many`: the same code scores, writes, shows and compares it. A reply that cannot be read
is a failure of the judge. It never ends the run, and it is always counted. Checks are computed from the responses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, overload

from rubric_integrations._util.json import read_json_lines, refuse_endless
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.graders.grader import computed_answers
from rubric_integrations.graders.per_criterion import PerCriterionGrader
from rubric_integrations.judges.recorded import read_recorded_replies
from rubric_integrations.rubric.criterion import all_criteria, condition_indices, has_checks
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import IMPORTED, MISSING_REPLY
from rubric_integrations.runs.summary import Graded
from rubric_integrations.scoring.aggregate import aggregate_answers
from rubric_integrations.scoring.judgment import JudgeAnswers, JudgeFailure, Judgment, Outcome
from rubric_integrations.submission.columns import fold
from rubric_integrations.submission.files import read_responses
from rubric_integrations.submission.inputs import Row
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.tables import read_csv
from rubric_integrations.submission.text_files import LayoutError, binary_problem, how_to_encode

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "id": ("id",),
    "criterion": ("criterion",),
    "reply": ("reply", "raw", "output", "completion", "raw_completion"),
    "verdict": ("verdict", "label", "score", "rating"),
    "judge": ("judge", "model", "annotator"),
    "reason": ("reason", "explanation", "feedback"),
}
_SAMPLE_ID = re.compile(r"([^#]+)(?:#\d{1,9}){1,2}")
_NO_TEXT = "the check needs the response: pass the file of the responses as `responses` (`--responses`)"
# The largest number of names that an error lists.
_MOST_LISTED = 20
# The largest number of characters of a value that becomes metadata.
_LONGEST_METADATA = 200


class JudgmentsError(ValueError):
    """Raised if a file cannot be read as recorded judgments."""


class UnreadReply(NamedTuple):
    """A recorded reply that could not be read.

    Attributes:
        id: The id of the row.
        criterion: The name of the criterion.
        judge: The name of the judge.
        problem: The reason why the reply could not be read, with the beginning of the reply.
    """

    id: str
    criterion: str
    judge: str
    problem: str


class ImportedRun(Sequence[Graded]):
    """The results of an imported run, one for each row.

    Args:
        graded: The results.

    Attributes:
        judges: The names of the judges. Several judges vote as a panel.
        replies: The number of recorded replies and verdicts.
        unread_replies: The replies that could not be read. Each is a failure of its judge.
        missing: The number of missing judgments: pairs of a judge and a criterion, over all rows, for which the file
            has no line.
        without_text: The number of rows without a text, because the responses were not passed or have no text.
        without_judgment: The number of responses that were left out because the file has no judgment of them.
        ignored: The number of recorded judgments of checks. They are ignored, because checks are computed.
    """

    def __init__(
        self,
        graded: Sequence[Graded],
        judges: tuple[str, ...],
        replies: int,
        unread_replies: Sequence[UnreadReply],
        missing: int,
        without_judgment: int,
        ignored: int = 0,
    ):
        self._graded = tuple(graded)
        self.judges, self.replies, self.unread_replies, self.missing = judges, replies, tuple(unread_replies), missing
        self.without_text = sum(result.row.submission is None for result in self._graded)
        self.without_judgment, self.ignored = without_judgment, ignored

    @property
    def unread(self) -> int:
        """The number of replies that could not be read. Report this number together with every result of the run."""
        return len(self.unread_replies)

    def __len__(self) -> int:
        return len(self._graded)

    @overload
    def __getitem__(self, index: int) -> Graded: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Graded]: ...

    def __getitem__(self, index: int | slice) -> Graded | Sequence[Graded]:
        return self._graded[index]

    def __repr__(self) -> str:
        return f"ImportedRun({len(self):,} rows, judges={list(self.judges)!r}, {self.summary()})"

    def summary(self) -> str:
        """Return one line with the numbers of unread replies, missing or ignored judgments, and incomplete rows."""
        parts = [f"{self.unread:,} of {self.replies:,} replies could not be read"]
        parts += [f"{self.missing:,} judgments are not in the file"] if self.missing else []
        parts += [f"{self.ignored:,} judgments of checks are ignored: checks are computed"] if self.ignored else []
        parts += [f"{self.without_judgment:,} responses have no judgment"] if self.without_judgment else []
        if self.without_text:
            lacking = f"{self.without_text:,} of {len(self):,} rows have no text"
            needed = any(result.rubric and has_checks(result.rubric.criteria) for result in self)
            parts.append(f"{lacking}, which checks need: pass the responses" if needed else lacking)
        return ", ".join(parts)


def read_judgments(
    path: str | Path,
    rubric: RubricLike,
    *,
    responses: str | Path | Iterable[Row] | None = None,
    judge: str | Sequence[str] | None = None,
) -> ImportedRun:
    r"""Make a run from recorded judgments.

    The file has one judgment per line, as JSON or CSV, in these columns:

    - `id`: the id of the row.
    - `criterion`: the name or the requirement of the criterion. Not needed if the rubric has only one criterion.
    - `reply` (also `raw` or `output`): the text that the judge wrote (see `read_recorded_reply`).
    - `verdict` (also `label` or `score`): the verdict of the judge. A line needs a reply or a verdict. If a line has
      both, the verdict counts.
    - `judge` (also `model`) and `reason`: optional.

    A column with any other name becomes metadata of the row, for example for the argument `cluster` of `compare_runs`.
    The value must be short, and all lines of the row must have the same value.

    If the file has several judges, they become a panel. Their votes are combined as in a run with several judges, and
    `panel_report` measures the value of each judge. For a run of only one of the judges, pass the name of this judge as
    `judge`.

    A reply that cannot be read, or that is not in the file, counts as a failure of the judge. The row of this reply has
    no score. Checks are computed from the responses, and lines about them are ignored. Without responses, they fail.

    Args:
        path: The file.
        rubric: The rubric that the judges applied.
        responses: The file of the responses, or its rows. Responses and judgments are matched by the `id` of the row.
            Without responses the run has no texts: it can be measured and compared, but not graded again. Rows with
            ids such as `a#1` and `a#2` are then samples of one prompt.
        judge: The names of the judges to read. By default, all judges of the file are read. If the file does not name
            its judge, this is the judge's name.

    Raises:
        JudgmentsError: The file cannot be read, has no column for a required field, has two judgments of the same row,
            criterion and judge, names an unknown criterion or row, or has no judge with a name in `judge`.
        ResponsesError: The file of responses cannot be read.
        RubricError: The rubric is invalid.

    Example:
        >>> import tempfile
        >>> text = 'id,criterion,reply\na,c1,"Yes, it says 42."\nb,c1,Content Blocked\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "judgments.csv")
        ...     path.write_text(text) and None
        ...     run = read_judgments(path, [{"requirement": "Says 42"}])
        >>> run[0].score, run[1].score, run.unread
        (1.0, None, 1)
    """
    shared, file = as_rubric(rubric), Path(path)
    if shared.hybrid_metrics:
        raise JudgmentsError(f"{file}: the rubric has metrics, which recorded judgments lack: leave them out")
    recorded = _Recorded(file, shared, judge)
    rows = _rows_by_id(responses)
    if rows is not None and (unknown := [row_id for row_id in recorded.places if row_id not in rows]):
        raise JudgmentsError(
            f"{file}: {recorded.places[unknown[0]]}: the responses have no row {unknown[0]!r}"
            + (f", and {len(unknown) - 1:,} more ids are not in them" if len(unknown) > 1 else "")
            + ": pass the responses that were judged, or the run would mix up texts"
        )
    outcomes, unread = recorded.read()
    names = tuple(dict.fromkeys(name for _, _, name in outcomes)) or tuple(recorded.judges)
    ids = list(recorded.places) if rows is None else [row_id for row_id in rows if row_id in recorded.places]
    grader = PerCriterionGrader(judge="offline")
    record = {
        "strategy": IMPORTED,
        "judges": [{"imported": name, "file": file.name} for name in names],
        "names": list(names),
        "normalize": grader.policies.normalize,
        "cannot_assess": grader.policies.cannot_assess,
        **({"voting": grader.voting.model_dump(mode="json")} if len(names) > 1 else {}),
    }
    groups = _groups_of(ids)
    graded: list[Graded] = []
    missing = 0
    for row_id in ids:
        own = Row(row_id, None, group=groups.get(row_id))
        row = own if rows is None else rows[row_id]._replace(error=None)
        checks = _check_answers(shared, row.submission)
        panel = [JudgeAnswers(_answers(shared, outcomes, checks, row_id, name), name) for name in names]
        missing += sum(_is_missing(outcome) for answers in panel for outcome in answers.outcomes.values())
        report = aggregate_answers(shared, panel, JudgeAnswers(checks, judge="check"), grader.policies)
        if shared.scale is not None and report.score is not None:
            report = report.model_copy(update={"scaled_score": shared.scale.number_at(report.score)})
        row = row._replace(metadata={**recorded.metadata[row_id], **(row.metadata or {})} or None)
        graded.append(Graded(row, report, report.error if report.failed_count else None, shared, record))
    left_out = 0 if rows is None else len(rows) - len(ids)
    return ImportedRun(graded, names, len(outcomes), unread, missing, left_out, recorded.ignored)


class _Recorded:
    """The judgments of a file.

    Attributes:
        places: For the id of each row, the place of its first judgment in the file.
        metadata: For the id of each row, the other columns that have the same short value on all its lines.
        judges: The names of the judges that are read, in the order of the file.
        ignored: The number of judgments of criteria with a check.
    """

    def __init__(self, path: Path, rubric: Rubric, judge: str | Sequence[str] | None):
        self._path = path
        self._rubric = rubric
        self._chosen = None if judge is None else dict.fromkeys([judge] if isinstance(judge, str) else judge)
        self._keys = _keys_by_name(rubric)
        self.places: dict[str, str] = {}
        self.metadata: dict[str, dict[str, Any]] = {}
        self.judges: dict[str, None] = {}
        self.ignored = 0
        self._fields: dict[tuple[str, int, str], Mapping[str, Any]] = {}
        self._add_all()

    def _add_all(self) -> None:
        """Read all lines of the file, and index the judgments by row, criterion and judge."""
        places: dict[tuple[str, int, str], str] = {}
        known: dict[str, None] = {}
        is_named = False
        for place, fields, others in _lines(self._path):
            row_id, name = _text(fields.get("id")), _text(fields.get("judge"))
            if not row_id:
                raise self._error(place, "has no `id`: give each judgment the id of its row")
            if "reply" not in fields and "verdict" not in fields:
                raise self._error(place, "has neither a `reply` nor a `verdict`")
            is_named = is_named or name is not None
            known.setdefault(name or _default_name(self._chosen))
            judge = name or _default_name(self._chosen)
            index = self._find_criterion(place, fields.get("criterion"))
            if self._chosen is not None and judge not in self._chosen:
                continue
            self.judges.setdefault(judge)
            self.places.setdefault(row_id, place)
            common = self.metadata.setdefault(row_id, others)
            self.metadata[row_id] = {name: value for name, value in common.items() if others.get(name) == value}
            if self._rubric.criteria[index].check is not None:
                self.ignored += 1
                continue
            key = (row_id, index, judge)
            if key in places:
                raise self._error(
                    place,
                    f"judges the row {row_id!r} on `{self._rubric.keys[index]}` by {judge!r}, as {places[key]} does: "
                    "keep one of them, or give each judge its name in `judge`",
                )
            places[key] = place
            self._fields[key] = fields
        if not known:
            raise JudgmentsError(
                f"{self._path}: has no judgments: write one a line, with `id`, `criterion` and `reply`"
            )
        if self._chosen is not None and (unknown := [name for name in self._chosen if name not in known]):
            names = f"it has {list(known)[:_MOST_LISTED]!r}" if is_named else "its lines have no `judge`"
            raise JudgmentsError(f"{self._path}: has no judge {unknown[0]!r}: {names}")

    def _find_criterion(self, place: str, value: object) -> int:
        name = _text(value)
        if name is None and len(self._rubric) == 1:
            return 0
        index = self._keys.get((name or "").casefold())
        if index is None:
            problem = (
                "has no `criterion`" if name is None else f"names the criterion {name!r}, which is not in the rubric"
            )
            raise self._error(place, f"{problem}: use one of {list(self._rubric.keys)[:_MOST_LISTED]!r}")
        return index

    def _error(self, place: str, problem: str) -> JudgmentsError:
        return JudgmentsError(f"{self._path}: {place} {problem}")

    def read(self) -> tuple[dict[tuple[str, int, str], Outcome], list[UnreadReply]]:
        """Read all replies and return the outcome of each and the list of unreadable replies."""
        criteria = self._rubric.criteria
        readings = read_recorded_replies((criteria[key[1]], _reply(fields)) for key, fields in self._fields.items())
        outcomes: dict[tuple[str, int, str], Outcome] = {}
        unread: list[UnreadReply] = []
        for (key, fields), outcome in zip(self._fields.items(), readings.outcomes, strict=True):
            outcomes[key] = _with_reason(outcome, fields)
            if isinstance(outcome, JudgeFailure):
                unread.append(UnreadReply(key[0], self._rubric.keys[key[1]], key[2], outcome.message))
        return outcomes, unread


def _with_reason(outcome: Outcome, fields: Mapping[str, Any]) -> Outcome:
    """Return a judgment with the reason of its line: the column `reason`, or the reply if the verdict was a column."""
    reason = _text(fields.get("reason")) or (_text(fields.get("reply")) if "verdict" in fields else None)
    if isinstance(outcome, JudgeFailure) or reason is None:
        return outcome
    return outcome.model_copy(update={"reason": reason})


def _default_name(chosen: Mapping[str, None] | None) -> str:
    return next(iter(chosen)) if chosen is not None and len(chosen) == 1 else "imported judge"


def _keys_by_name(rubric: Rubric) -> dict[str, int]:
    """Return the index of each criterion by its lower-case name, and by its requirement if no other has the same."""
    words = [criterion.requirement.casefold() for criterion in rubric.criteria]
    by_words = {text: index for index, text in enumerate(words) if words.count(text) == 1}
    return by_words | {key.casefold(): index for index, key in enumerate(rubric.keys)}


def _check_answers(rubric: Rubric, submission: Submission | None) -> dict[int, Outcome]:
    """Compute the checks of a row, by the index of the question. Without a text, each check of a criterion fails."""
    checks = {index: c for index, c in enumerate(all_criteria(rubric.criteria)) if c.check is not None}
    if submission is None:
        return {index: JudgeFailure("check", _NO_TEXT) for index, c in checks.items() if not c.is_condition}
    answers = computed_answers(rubric, submission).outcomes if checks else {}
    return {index: answers[index] for index in checks}


def _answers(
    rubric: Rubric,
    outcomes: Mapping[tuple[str, int, str], Outcome],
    checks: Mapping[int, Outcome],
    row_id: str,
    judge: str,
) -> dict[int, Outcome]:
    """Return the outcomes of a judge for a row, by the index of the question.

    A condition in words is MET if a judgment of its criterion was recorded. A criterion needs no judgment if the check
    of its condition has decided that it does not apply.
    """
    answers: dict[int, Outcome] = {}
    for index, condition in enumerate(condition_indices(rubric.criteria)):
        applies = None if condition is None else checks.get(condition)
        if index in checks or (isinstance(applies, Judgment) and applies.value == 0.0):
            continue
        outcome = outcomes.get((row_id, index, judge))
        answers[index] = JudgeFailure("transport", MISSING_REPLY) if outcome is None else outcome
        if condition is not None and outcome is not None and condition not in checks:
            answers[condition] = Judgment(verdict="MET", value=1.0)
    return answers


def _is_missing(outcome: Outcome) -> bool:
    return isinstance(outcome, JudgeFailure) and outcome.message == MISSING_REPLY


def _groups_of(ids: Iterable[str]) -> dict[str, str]:
    """Return the prompt of each row whose id is one of several samples, such as `a#1` and `a#2` of `a`.

    Taken for independent, such rows would make every interval too narrow.

    Example:
        >>> _groups_of(["a#1", "a#2", "b#1", "c"])
        {'a#1': 'a', 'a#2': 'a'}
    """
    prompts = {row_id: match[1] if (match := _SAMPLE_ID.fullmatch(row_id)) else row_id for row_id in ids}
    counts = Counter(prompts.values())
    return {row_id: prompt for row_id, prompt in prompts.items() if counts[prompt] > 1}


def _rows_by_id(responses: str | Path | Iterable[Row] | None) -> dict[str, Row] | None:
    if responses is None:
        return None
    rows = read_responses(responses) if isinstance(responses, str | Path) else responses
    return {row.id: row for row in rows}


def _reply(fields: Mapping[str, Any]) -> str | Mapping[str, Any]:
    value = fields["verdict"] if "verdict" in fields else fields["reply"]
    if isinstance(value, dict):
        return value
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(value: object) -> str | None:
    text = None if value is None else str(value).strip()
    return text or None


# --- The lines of the file ---


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield each judgment's place, its known fields by their names here, and its other fields with short values."""
    suffix = path.suffix.lower()
    if (problem := binary_problem(path)) is not None:
        raise JudgmentsError(f"{path}: {problem}")
    try:
        refuse_endless(path)
        for place, fields in _csv_lines(path) if suffix in (".csv", ".tsv") else _json_lines(path):
            others = {name: value for name, value in fields.items() if _known_name(name) is None and _is_short(value)}
            yield place, _known_fields(fields), others
    except OSError as error:
        raise JudgmentsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise JudgmentsError(f"{path}: is not text (byte {error.start}): {how_to_encode(suffix)}") from None


def _json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        for number, value in read_json_lines(path):
            if not isinstance(value, dict):
                raise JudgmentsError(
                    f"{path}: line {number} is {type(value).__name__}, not an object: write one a line"
                )
            yield f"line {number}", value
    except JudgmentsError:
        raise
    except ValueError as error:
        raise JudgmentsError(f"{error}: name a file with one judgment a line, as JSON, or a `.csv` file") from None


def _csv_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        for record in read_csv(path, _find_problem):
            if record.error:
                raise JudgmentsError(f"{path}: {record.place} {record.error}")
            yield f"{record.place}", record.fields
    except LayoutError as error:
        raise JudgmentsError(f"{path}: {error}") from None


def _find_problem(names: Sequence[str]) -> str | None:
    known = {_known_name(name) for name in names}
    if "id" not in known:
        return f"has no column `id`; its columns are {list(names)[:_MOST_LISTED]!r}"
    if known.isdisjoint(("reply", "verdict")):
        return f"has neither a column `reply` nor `verdict`; its columns are {list(names)[:_MOST_LISTED]!r}"
    return None


def _is_short(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and 0 < len(value) <= _LONGEST_METADATA)


@lru_cache(maxsize=256)
def _known_name(name: str) -> str | None:
    return next((known for known, names in _COLUMNS.items() if fold(name) in map(fold, names)), None)


def _known_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields by their names here. If two columns are one field, `_COLUMNS` gives the order of preference.

    An empty reply is kept: it was recorded, and it is counted as unreadable.
    """
    by_name = {fold(name): value for name, value in record.items()}
    fields: dict[str, Any] = {}
    for known, names in _COLUMNS.items():
        values = [by_name[fold(name)] for name in names if fold(name) in by_name]
        values = [value for value in values if value is not None and value == value]  # noqa: PLR0124 -- NaN is no value
        filled = [value for value in values if not isinstance(value, str) or value.strip()]
        if filled or (values and known != "verdict"):
            fields[known] = (filled or values)[0]
    return fields
