"""Reads people's labels: files of labels, and the labels that the rows of a run bring."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rubric_integrations.agreement.label_lines import LabelsError, labels_of_rows, read_label_file
from rubric_integrations.agreement.labelled_rows import CriteriaOfLabels, LabelledRows, RubricCriteria
from rubric_integrations.agreement.rows import RunLike, is_run, read_rows
from rubric_integrations.formats.rubric_like import RubricLike, as_rubric
from rubric_integrations.results.interpret import to_judgment
from rubric_integrations.results.labels import LabelledJudgment, Sampled
from rubric_integrations.submission.submission import Submission, error_line


def read_labels(
    source: str | Path | RunLike,
    rubric: RubricLike | RunLike | None = None,
    *,
    run: RunLike | None = None,
    sampled: Sampled | None = None,
) -> list[LabelledJudgment]:
    r"""Read people's labels from a file, or those that the rows of a run bring.

    A file has one label a line, as JSON (which report pages export) or as CSV, with these fields: `criterion` (its name
    in the rubric) and `verdict`; and optionally `id` (of the row), `rater`, `reason`, `sampled`, `judged` (the judge's
    answer at the time), `blind`, `requirement`, and what was judged: `submission`, or `response` and `query`. Names are
    compared without regard to case. A line without a verdict is skipped, and so is a last line that was cut off.

    Several raters may label one judgment. If one rater labels it twice, the later label counts, with the `sampled` of
    the earlier one if that was drawn; labels without `rater` are taken to be from one person.

    Args:
        source: The path of a file of labels. Or a run whose rows have people's answers as `labels`: the path of a file
            that `grade --out` wrote, or results of `grade_many`.
        rubric: The rubric of the labels, or in its place the run that was labelled, which has the criteria of each row;
            None if `source` is the run. A label with other words than the criterion is refused.
        run: The run that was labelled, if a rubric is passed, too. A label without a submission gets it from the run by
            its `id`.
        sampled: How the judgments were drawn that these labels are about, where labels do not say it. By default
            `chosen`; and `random` for labels of the rows of a run, if they cover every judgment of the same criteria,
            since nothing was chosen there.

    Raises:
        LabelsError: The file cannot be read, or a line is not a label for this rubric or run.
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
    if is_run(source):
        of_rows = read_rows(source)
        lines = labels_of_rows(of_rows, sampled)
        rows = LabelledRows(of_rows if run is None else read_rows(run))
    else:
        lines = read_label_file(Path(cast("str | Path", source)))
        rows = None if run is None else LabelledRows(read_rows(run))
    criteria = rows if rubric is None else RubricCriteria(as_rubric(cast("RubricLike", rubric)))
    if criteria is None:
        raise TypeError("`rubric` is None: pass the rubric of the labels, or the run that was labelled")
    labels: dict[tuple[object, ...], LabelledJudgment] = {}
    repeated: list[str] = []
    for place, fields in lines:
        label = _to_label(place, fields if sampled is None else {"sampled": sampled, **fields}, criteria, rows)
        key = (label.id, label.submission.model_dump_json(), label.criterion.full_requirement, label.rater)
        earlier = labels.pop(key, None)
        if earlier is not None:
            repeated.append(place)
        labels[key] = label.replacing(earlier)
    if repeated:
        warnings.warn(
            f"{repeated[0]}: the same rater has labelled a judgment before, here and {len(repeated) - 1:,} times more: "
            "the later label counts; if several people labelled it, give each label its `rater`",
            stacklevel=2,
        )
    return list(labels.values())


def _to_label(
    place: str, fields: Mapping[str, Any], criteria: CriteriaOfLabels, rows: LabelledRows | None
) -> LabelledJudgment:
    others = {name: fields[name] for name in ("rater", "reason", "sampled", "judged", "blind") if name in fields}
    row_id, requirement = (str(fields[name]) if name in fields else None for name in ("id", "requirement"))
    row_id = row_id.strip() if row_id else None
    try:
        if "criterion" not in fields:
            raise LabelsError("is no label: it has no `criterion`")
        submission = _own_submission(fields)
        if rows is not None:
            submission = rows.find_submission(row_id, submission)
        if submission is None:
            raise LabelsError(
                "is no label: it has no `submission` and no `response`: add one, or the `id` of the row, and pass the "
                "run that was labelled"
            )
        criterion = criteria.find_criterion(str(fields["criterion"]).strip(), requirement, row_id)
        verdict = to_judgment(criterion, fields["verdict"]).verdict
        return LabelledJudgment(submission=submission, criterion=criterion, verdict=verdict, id=row_id, **others)
    except LabelsError as error:
        raise LabelsError(f"{place}: {error}") from None
    except (ValueError, TypeError) as error:
        problem = error_line(error)
        if criteria is rows and "is no verdict" in problem:
            problem += "; if the criterion has options, and the run is from an earlier version, pass the rubric, too"
        raise LabelsError(f"{place}: is not a label for this rubric: {problem}") from None


def _own_submission(fields: Mapping[str, Any]) -> Submission | None:
    if "submission" in fields:
        return Submission.model_validate(fields["submission"])
    return Submission(response=fields["response"], query=fields.get("query")) if "response" in fields else None
