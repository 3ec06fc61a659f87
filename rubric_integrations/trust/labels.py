"""Reads human labels from a file or from the rows of a run, and finds the criterion and submission of each label."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from rubric_integrations._util.json import read_json_lines
from rubric_integrations._util.text import one_line
from rubric_integrations.formats.registry import RubricLike, as_rubric
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.rubric.rubric import Rubric
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.labels import (
    NO_TEXT,
    LabelledJudgment,
    Sampled,
    has_digest,
    index_by_digest,
    rater_key,
    same_text,
)
from rubric_integrations.scoring.report import CriterionReport, EvaluationReport
from rubric_integrations.submission.columns import fold
from rubric_integrations.submission.submission import Submission, error_line
from rubric_integrations.submission.tables import read_csv
from rubric_integrations.submission.text_files import LayoutError, binary_problem, how_to_encode
from rubric_integrations.trust.matching import RunLike, is_run, read_rows
from rubric_integrations.trust.questions import read_verdict

FIELDS = (
    "id", "criterion", "verdict", "rater", "reason", "sampled", "judged", "blind", "digest", "requirement",
    "submission", "response", "query",
)  # fmt: skip
"""The names of the fields of a label."""
_OPTIONAL = ("rater", "reason", "sampled", "judged", "blind", "digest")

# Field names of earlier report pages: `was` is the judge's answer.
_EARLIER_NAMES = {"was": "judged"}


class LabelsError(ValueError):
    """Raised if labels cannot be read, or do not belong to the rubric or to the run."""


class InvalidLabelsWarning(UserWarning):
    """Warns about labels that are left out because they cannot be used. The message lists one label per line."""


class OtherTextError(LabelsError):
    """Raised if a label has only the digest (hash) of its text, and no submission of the run has this digest."""


class LabelLine(NamedTuple):
    """One label of a file or of a run's row, as fields that are not yet parsed.

    Attributes:
        place: The position of the label for error messages, such as the file and the line.
        fields: The fields that are not empty.
    """

    place: str
    fields: Mapping[str, Any]


def read_label_file(path: Path, leave_out: Callable[[str], None]) -> Iterator[LabelLine]:
    """Yield the labels of a file. Lines whose `verdict` is empty are skipped, with one warning for the file.

    Args:
        path: The file.
        leave_out: A function that is called for each line that is not a label, with the line's position and the reason.

    Raises:
        LabelsError: The file cannot be read, or has no label.
    """
    if (problem := binary_problem(path)) is not None:
        raise LabelsError(f"{path}: {problem}")
    read_lines = _read_csv if path.suffix.lower() in (".csv", ".tsv") else _read_json
    count = unlabelled = 0
    try:
        for number, record in read_lines(path):
            count += 1
            fields = {} if isinstance(record, str) else _known_fields(record)
            if isinstance(record, str):
                leave_out(f"{path}:{number}: {record}")
            elif "verdict" in fields:
                yield LabelLine(f"{path}:{number}", fields)
            elif "verdict" in {fold(name) for name in record}:
                unlabelled += 1
            else:
                leave_out(f"{path}:{number}: is no label: it has no `verdict`")
    except OSError as error:
        raise LabelsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        remedy = how_to_encode(path.suffix.lower())
        raise LabelsError(f"{path}: is not text (byte {error.start}): {remedy}") from None
    if count == unlabelled:
        lines = "none of its lines has a `verdict`" if count else "it is empty"
        raise LabelsError(f"{path}: has no labels: {lines}; label some judgments, or name another file")
    if unlabelled:
        warnings.warn(
            f"{path}: {unlabelled:,} of {count:,} lines have no `verdict` and are skipped: if they were the difficult "
            "ones, the others are no random part of the run any more",
            stacklevel=3,
        )


def labels_of_rows(rows: Sequence[GradedRow], sampled: Sampled | None = None) -> Iterator[LabelLine]:
    """Yield the labels in the `labels` column of a run's rows: human answers by the name of the criterion.

    A single answer is a label without a rater. If a criterion has a list of answers, each answer is the label of a
    different rater. The position in the list, from 1, is the name of the rater. These labels are `blind`, because they
    existed before the judge answered.

    Args:
        rows: The rows.
        sampled: How the judgments were drawn. By default, the labels are `random` if every labelled criterion has a
            label in all rows, because then no judgments were selected. Otherwise they are `chosen`.

    Raises:
        LabelsError: No row has labels.
    """
    answers = [_answers_of(row) for row in rows]
    labelled = {name for of_row in answers for name in of_row}
    if not labelled:
        raise LabelsError(
            "the run has no labels: its rows have no `labels`: human answers by the name of the criterion"
        )
    judged = [_judged_names(row.report) for row in rows]
    is_census = all(
        bool(of_row) and names & labelled <= of_row.keys()
        for of_row, names in zip(answers, judged, strict=True)
        if names
    )
    drawn: Sampled = sampled or ("random" if is_census else "chosen")
    for row, of_row in zip(rows, answers, strict=True):
        for name, of_raters in of_row.items() if row.submission or row.report else ():
            for rater, verdict in of_raters.items():
                fields = {
                    "criterion": name,
                    "verdict": verdict,
                    "submission": row.submission or NO_TEXT,
                    "sampled": drawn,
                }
                fields["blind"] = True  # the row had its labels before the judge answered
                yield LabelLine(f"row {row.id!r}", {"id": row.id} | fields | ({"rater": rater} if rater else {}))


def _answers_of(row: GradedRow) -> dict[str, dict[str, Any]]:
    """Return the non-empty answers of a row, by criterion and rater. The rater of a single answer is ""."""
    answers: dict[str, dict[str, Any]] = {}
    for name, value in (row.labels or {}).items():
        of_raters = value if isinstance(value, list) else [value]
        known = {str(number): answer for number, answer in enumerate(of_raters, start=1) if not _is_empty(answer)}
        if known:
            answers[name] = known if isinstance(value, list) else {"": value}
    return answers


def _judged_names(report: EvaluationReport | None) -> set[str]:
    entries = report.criteria if report else ()
    return {entry.name for entry in entries if entry.was_judged}


def _known_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the non-empty fields that are in `FIELDS`, also under other spellings or earlier names."""
    fields: dict[str, Any] = {}
    for name, value in record.items():
        known = _EARLIER_NAMES.get(fold(name), fold(name))
        if known in FIELDS and not _is_empty(value):
            fields[known] = value
    return fields


def _is_empty(value: object) -> bool:
    """Whether a value is None, NaN or a text without a visible character."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())  # noqa: PLR0124


def _read_json(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Yield the number of each line with its fields, or with the reason why it is invalid."""
    invalid: list[tuple[int, str]] = []
    remedy = "name a file of labels, which has one JSON object per line"
    try:
        for number, value in read_json_lines(path, lambda number, reason: invalid.append((number, reason))):
            yield from ((place, f"{reason}: {remedy}") for place, reason in invalid)
            invalid.clear()
            if isinstance(value, dict):
                yield number, value
            else:
                yield number, f"is {type(value).__name__}, not a label: write one object a line"
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise LabelsError(f"{error}: {remedy}") from None
    yield from ((place, f"{reason}: {remedy}") for place, reason in invalid)


def _read_csv(path: Path) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """Yield the number of each line with its fields, or with the reason why it is invalid."""
    try:
        for record in read_csv(path, _find_problem):
            yield record.number, record.error or record.fields
    except LayoutError as error:
        raise LabelsError(f"{path}: {error}") from None


def _find_problem(names: Sequence[str]) -> str | None:
    folded = {fold(name) for name in names}
    missing = next((name for name in ("criterion", "verdict") if name not in folded), None)
    return missing and (
        f"has no column `{missing}`; its columns are {list(names)[:20]!r}: a file of labels needs `criterion` (its "
        "name) and `verdict` (MET, UNMET or CANNOT_ASSESS), and usually `id` (of the row) and `sampled` (`random` if "
        "the rows were drawn at random)"
    )


class CriteriaOfLabels(Protocol):
    """An interface that finds the criterion of a label, in a rubric or in the rows of a run."""

    def find_criterion(self, name: str, requirement: str | None, row_id: str | None) -> Criterion:
        """Return the criterion with a name.

        Args:
            name: The criterion's name in the rubric.
            requirement: The criterion's requirement at the time of labelling, or None if the label does not have it.
            row_id: The id of the row, or None if the label does not have it.

        Raises:
            LabelsError: There is no criterion with this name, or it has another requirement.
        """
        ...


class RubricCriteria:
    """Finds the criterion of each label in a rubric."""

    def __init__(self, rubric: Rubric):
        words = [criterion.requirement for criterion in rubric.criteria]
        # If two criteria have equal requirements, only the name identifies the criterion of a label.
        self._criteria = {
            key: criterion if words.count(criterion.requirement) == 1 else criterion.model_copy(update={"name": key})
            for key, criterion in zip(rubric.keys, rubric.criteria, strict=True)
        }

    def find_criterion(self, name: str, requirement: str | None, row_id: str | None) -> Criterion:
        """Return the rubric's criterion with a name. The row is ignored.

        Raises:
            LabelsError: The rubric has no criterion with this name, or it has another requirement.
        """
        criterion = self._criteria.get(name)
        if criterion is None:
            raise LabelsError(f"the rubric has no criterion {name!r}; it has {list(self._criteria)[:20]!r}")
        if requirement not in (None, criterion.requirement, criterion.full_requirement):
            raise _other_words(name, requirement, criterion.requirement, "rubric")
        return criterion


class LabelledRows:
    """Finds the criterion and the submission of each label in the rows of the labelled run."""

    def __init__(self, rows: Sequence[GradedRow]):
        self._rows: dict[str, list[GradedRow]] = {}
        self._entries: dict[str, dict[str, CriterionReport]] = {}
        for row in rows:
            self._rows.setdefault(row.id, []).append(row)
            for entry in row.report.criteria if row.report else ():
                self._entries.setdefault(entry.name, {}).setdefault(entry.requirement, entry)

    @cached_property
    def _by_digest(self) -> dict[str, Submission | None]:
        submissions = (row.submission for rows in self._rows.values() for row in rows if row.submission)
        return index_by_digest((submission, submission) for submission in submissions)

    def find_criterion(self, name: str, requirement: str | None, row_id: str | None) -> Criterion:
        """Return the criterion with a name in the row with the label's id.

        If no row has this id, the run's criterion with this name is returned. If there are several such criteria,
        `requirement` selects one.
        """
        of_row = [row.report.criteria for row in self._rows.get(row_id or "", []) if row.report]
        if of_row:
            known = list(dict.fromkeys(entry.name for entries in of_row for entry in entries))
            entries = {entry.requirement: entry for entries in of_row for entry in entries if entry.name == name}
        else:
            known, entries = list(self._entries), self._entries.get(name, {})
        where = f"row {row_id!r} of the run" if of_row else "run"
        if not entries:
            raise LabelsError(f"the {where} has no criterion {name!r}; it has {known[:20]!r}")
        if requirement is None and len(entries) > 1:
            raise LabelsError(
                f"the run has {len(entries):,} different criteria {name!r}, and the label has no `id` of a row in it: "
                "add the `id`, or the `requirement`"
            )
        entry = next(iter(entries.values())) if requirement is None else entries.get(requirement)
        if entry is None:
            raise _other_words(name, requirement, next(iter(entries)), where)
        return entry.to_criterion()

    def find_submission(
        self, row_id: str | None, own: Submission | None, digest: str | None = None
    ) -> Submission | None:
        """Return the submission of a label from the run, because it is more complete than the submission in the label.

        If the run does not have the text of the label, the result is the submission in the label.

        Args:
            row_id: The id of the row, or None if the label does not have it.
            own: The submission in the label, which may lack parts such as the context. None if the label has none.
            digest: The `submission_digest` of the labelled submission, or None if the label does not have it.

        Returns:
            The submission, or None if neither the label nor the run identifies one. `NO_TEXT` if the run has a report
            of the row, but not its text.

        Raises:
            OtherTextError: (a LabelsError) The label has a digest without a text, and no submission matches it.
            LabelsError: The label has no submission, and its `id` does not identify one: the run does not have this
                row, or has several rows with this id and different submissions.
        """
        of_id = self._rows.get(row_id or "", [])
        submissions = [row.submission for row in of_id if row.submission]
        if digest is not None:
            of_digest = (each for each in submissions if has_digest(each, digest))
            submission = next(of_digest, None) or self._by_digest.get(digest) or own
            if submission is None and digest in self._by_digest:
                raise LabelsError(
                    "is of an earlier version, and several rows of the run have its texts with different steps: add "
                    "the `id` of its row"
                )
            if submission is None:
                raise OtherTextError("is about a text that the run does not have")
            return submission
        if own is None and not submissions and any(row.report for row in of_id):
            return NO_TEXT
        if own is not None:
            equal = [each for each in submissions if same_text(each.response) == same_text(own.response)]
            same_steps = (each for each in equal if own.trajectory in (None, each.trajectory))
            return next(same_steps, own)
        if row_id is not None and not submissions:
            raise LabelsError(
                f"is about the row {row_id!r}, which the run does not have: name the run that was labelled"
            )
        if len({each.model_dump_json() for each in submissions}) > 1:
            raise LabelsError(f"is about the row {row_id!r}, and the run has several with this id: add the `response`")
        return submissions[0] if submissions else None


def _other_words(name: str, requirement: str | None, now: str, where: str) -> LabelsError:
    return LabelsError(
        f"the requirement of `{name}` was {requirement!r} when it was labelled, and is {now!r} in the {where}: label "
        "it again, since an answer to other words says nothing about these"
    )


def read_labels(
    source: str | Path | RunLike,
    rubric: RubricLike | RunLike | None = None,
    *,
    run: RunLike | None = None,
    sampled: Sampled | None = None,
    strict: bool = False,
) -> list[LabelledJudgment]:
    r"""Read human labels from a file, or from the `labels` of a run's rows.

    A file has one label per line, as JSON (the export of a report page) or as CSV. The fields are:

    - `criterion` (its name in the rubric) and `verdict`, which are required.
    - `submission`, or `response` and `query`, or only `digest` (see `submission_digest`): the labelled text. Without
      them, the `id` of the row decides, with a warning.
    - `id` (of the row), `rater`, `reason`, `sampled`, `judged` (the judge's answer at the time), `blind` and
      `requirement`, which are optional.

    Field names are not case-sensitive. A line without a verdict is skipped, and also an incomplete last line. A line
    that is not a label for this rubric or run is left out. A warning lists these lines with the reasons.

    Several raters may label the same judgment. If one rater labels it twice, the later label counts. The earlier label
    may be of a judgment that was drawn, and the later one may be `chosen`. The later label then gets the `sampled` of
    the earlier one, because the judgment must stay in the sample. All labels of a source without a `rater` count as
    labels of one rater.

    Args:
        source: The path of a file of labels, or a run whose rows have `labels`: the path of a file that `grade --out`
            wrote, or results of `grade_many`.
        rubric: The rubric of the labels, or the run that was labelled, which contains the criteria of each row. None if
            `source` is the run. A label is refused if its `requirement` differs from the criterion.
        run: The run that was labelled, if `rubric` is a rubric. A label without a submission gets the submission of the
            row with its `id`.
        sampled: How the judgments were drawn, for labels without this field. The default is `chosen`. Labels in the
            rows of a run are `random` if they cover every judgment of the labelled criteria, because then no judgments
            were selected.
        strict: Whether a line that is not a label for this rubric or run is an error.

    Raises:
        LabelsError: The file cannot be read, or none of its lines is a label for this rubric or run. With `strict`, one
            such line is enough.
        RubricError: The rubric is invalid.
        RunFileError: The file of a run cannot be read.

    Example:
        >>> import tempfile
        >>> text = "criterion,verdict,rater,sampled,response\nc1,MET,Ana,random,It is 42."
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels.csv")
        ...     path.write_text(text) and None
        ...     [label] = read_labels(path, [{"requirement": "Says 42"}])
        >>> label.verdict, label.rater, label.sampled
        ('MET', 'Ana', 'random')
    """
    if rubric is not None and is_run(rubric):
        run, rubric = cast("RunLike", rubric), None
    name = str(source) if isinstance(source, str | Path) else "the run"
    remarks = _Remarks(name, strict=strict)
    if is_run(source):
        of_rows = read_rows(source)
        lines = labels_of_rows(of_rows, sampled)
        rows = LabelledRows(of_rows if run is None else read_rows(run))
    else:
        lines = read_label_file(Path(cast("str | Path", source)), remarks.leave_out)
        rows = None if run is None else LabelledRows(read_rows(run))
    criteria = rows if rubric is None else RubricCriteria(as_rubric(cast("RubricLike", rubric)))
    if criteria is None:
        raise TypeError("`rubric` is None: pass the rubric of the labels, or the run that was labelled")
    labels: dict[tuple[object, ...], LabelledJudgment] = {}
    for place, fields in lines:
        if not {"submission", "response", "digest"} & fields.keys():
            remarks.by_id_alone.append(place)
        earlier: LabelledJudgment | None = None
        try:
            row_id, submission, criterion = _find_judgment(fields, criteria, rows)
            rater = rater_key(_text(fields.get("rater")) or "")
            key = (row_id, submission.model_dump_json(), criterion.full_requirement, rater)
            # An invalid answer also replaces the earlier answer of its rater, who has withdrawn the earlier one.
            earlier = labels.pop(key, None)
            verdict = _read_verdict(fields["verdict"], criterion, needs_rubric=criteria is rows)
            others = {name: fields[name] for name in _OPTIONAL if name in fields}
            if sampled is not None:
                others.setdefault("sampled", sampled)
            label = LabelledJudgment(submission=submission, criterion=criterion, verdict=verdict, id=row_id, **others)
        except OtherTextError:
            remarks.of_other_texts.append(place)
            continue
        except (ValueError, TypeError) as error:
            problem = str(error) if isinstance(error, LabelsError) else error_line(error)
            kind = "" if isinstance(error, LabelsError) else "is not a label for this rubric: "
            withdrawn = "" if earlier is None else "; the rater's earlier answer is left out, too"
            remarks.leave_out(f"{place}: {kind}{problem}{withdrawn}")
            continue
        remarks.valid += 1
        if earlier is not None:
            remarks.repeated.append(place)
        labels[key] = label.replacing(earlier)
    remarks.warn(has_labels=bool(labels))
    return list(labels.values())


# A file with more invalid lines is probably the wrong file, so a longer list would not help.
_MOST_LISTED = 20


class _Remarks:
    """Collects the problems of the lines of a file or run of labels."""

    def __init__(self, source: str, *, strict: bool):
        self._source, self._strict = source, strict
        self.valid = 0
        self._invalid: list[str] = []
        self.by_id_alone: list[str] = []
        self.of_other_texts: list[str] = []
        self.repeated: list[str] = []

    def leave_out(self, problem: str) -> None:
        """Record a line that is not a label, or raise `LabelsError` if `strict` is set."""
        if self._strict:
            raise LabelsError(problem)
        self._invalid.append(problem)

    def warn(self, *, has_labels: bool) -> None:
        """Give one warning for each kind of problem, or raise `LabelsError` if the problems leave no label."""
        if self._invalid and not has_labels:
            more = f"; {len(self._invalid) - 1:,} more are no labels either" if len(self._invalid) > 1 else ""
            raise LabelsError(f"{self._invalid[0]}{more}")
        if self._invalid:
            warnings.warn(self._describe_invalid(), InvalidLabelsWarning, stacklevel=3)
        if self.of_other_texts:
            message = (
                f"{self.of_other_texts[0]}: {len(self.of_other_texts):,} labels, of which this is the first, are about "
                "other texts than the run has, by their `digest`: they belong to no judgment of it and are left out"
            )
            if not has_labels:
                raise LabelsError(f"{message}; name the run that was labelled")
            warnings.warn(message, stacklevel=3)
        if self.by_id_alone:
            warnings.warn(
                f"{self.by_id_alone[0]}: {len(self.by_id_alone):,} labels, of which this is the first, have no text "
                "and no `digest`, and count for the rows with their `id`: if the responses have changed since, they "
                "say nothing about them; keep the `submission` or the `digest` of exported labels",
                stacklevel=3,
            )
        if self.repeated:
            warnings.warn(
                f"{self.repeated[0]}: the same rater has labelled a judgment before, here and "
                f"{len(self.repeated) - 1:,} times more: the later label counts; if several raters labelled it, give "
                "each label its `rater`",
                stacklevel=3,
            )

    def _describe_invalid(self) -> str:
        lines = [f"  {one_line(problem)}" for problem in self._invalid[:_MOST_LISTED]]
        if len(self._invalid) > len(lines):
            lines.append(f"  and {len(self._invalid) - len(lines):,} more")
        first = (
            f"{self._source}: {len(self._invalid):,} of {len(self._invalid) + self.valid:,} labels cannot be used and "
            "are left out; if these were the difficult ones, the others are no random part of the run any more: "
            "correct them"
        )
        return "\n".join([first, *lines])


def _find_judgment(
    fields: Mapping[str, Any], criteria: CriteriaOfLabels, rows: LabelledRows | None
) -> tuple[str | None, Submission, Criterion]:
    """Return the id of the row, the submission and the criterion of a label."""
    row_id, requirement = (_text(fields.get(name)) for name in ("id", "requirement"))
    row_id = row_id.strip() if row_id else None
    if "criterion" not in fields:
        raise LabelsError("is no label: it has no `criterion`")
    submission = _own_submission(fields)
    if rows is not None:
        submission = rows.find_submission(row_id, submission, fields.get("digest"))
    if submission is None:
        raise LabelsError(
            "is no label: it has no `submission` and no `response`: add one, or the `id` of the row, and pass the run "
            "that was labelled"
        )
    return row_id, submission, criteria.find_criterion(str(fields["criterion"]).strip(), requirement, row_id)


def _read_verdict(answer: object, criterion: Criterion, *, needs_rubric: bool) -> str:
    try:
        return read_verdict(criterion, answer)
    except ValueError as error:
        if needs_rubric and criterion.kind == "binary":
            more = "if the criterion has options, and the run is from an earlier version, pass the rubric, too"
            raise ValueError(f"{error}; {more}") from None
        raise


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _own_submission(fields: Mapping[str, Any]) -> Submission | None:
    if "submission" in fields:
        return Submission.model_validate(fields["submission"])
    return Submission(response=fields["response"], query=fields.get("query")) if "response" in fields else None
