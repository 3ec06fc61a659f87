"""Removes texts from a report page whose readers must not see them.

Each row is replaced by a row without texts before its data reach the page. Therefore, no part of the page can contain a
text. These texts are removed:

- the submission (query, response, reference, documents, steps, thinking), its attachments and its metadata
- the texts of judges (reasons, quotations, errors), and the searches of an explorer
- the names and the notes of raters (in `trust_figures`)

Ids, the rubric, answers, scores and spend are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rubric_integrations._util.text import counted
from rubric_integrations.reporting.page.figures import Comparison
from rubric_integrations.reporting.page.runs_over_time import RunsOverTime
from rubric_integrations.runs.files import GradedRow
from rubric_integrations.scoring.judgment import Vote
from rubric_integrations.scoring.report import CriterionReport
from rubric_integrations.trust.comparable_runs import Comparability

LEFT_OUT = "the reason is left out"
"""The text that replaces an error message."""


def redact_row(row: GradedRow) -> GradedRow:
    """Return a row without its texts.

    Example:
        >>> redact_row(GradedRow("7", None, None, "cannot read 'Hello Ann'", metadata={"customer": "Ann"}))[:4]
        ('7', None, None, 'the reason is left out')
    """
    report = row.report
    if report is not None:
        criteria = None if report.report is None else tuple(map(_redact_criterion, report.report))
        explored = report.exploration and report.exploration.model_copy(update={"absent": ()})
        report = report.model_copy(
            update={
                "report": criteria, "reason": "", "error": _redact_error(report.error), "exploration": explored,
            },
        )  # fmt: skip
    return row._replace(
        submission=None, report=report, error=_redact_error(row.error), attachments=(), labels=None, metadata=None,
        guidelines="", criterion_texts=(),
    )  # fmt: skip


def _redact_criterion(entry: CriterionReport) -> CriterionReport:
    votes = tuple(map(_redact_vote, entry.votes))
    # Without probabilities, the page does not say that the judge gave no reason.
    left_out: dict[str, Any] = {"reason": "", "probabilities": None, "metadata": None}
    return entry.model_copy(update={**left_out, "error": _redact_error(entry.error), "votes": votes})


def _redact_vote(vote: Vote) -> Vote:
    return vote.model_copy(update={"reason": "", "error": _redact_error(vote.error)})


def _redact_error(error: str | None) -> str | None:
    return None if error is None else LEFT_OUT


def redact_comparability(comparable: Comparability) -> Comparability:
    """Return the result of the check whether two runs can be compared, without its sentences.

    The sentences may quote inputs of the two runs.
    """
    return comparable._replace(
        refused=redact_sentences(comparable.refused, "compare"),
        warnings=redact_sentences(comparable.warnings, "compare"),
    )


def redact_over_time(over_time: RunsOverTime) -> RunsOverTime:
    """Return the figures of many runs without the sentences that may quote inputs."""
    runs = [run._replace(reason=run.reason and LEFT_OUT) for run in over_time.runs]
    pairs = [
        pair._replace(comparison=pair.comparison and _redact_comparison(pair.comparison)) for pair in over_time.pairs
    ]
    return over_time._replace(runs=runs, pairs=pairs)


def _redact_comparison(comparison: Comparison) -> Comparison:
    figures = comparison.figures
    sentences = {"warnings": figures.warnings, "not_comparable": figures.not_comparable}
    redacted = {name: redact_sentences(values, "compare") for name, values in sentences.items()}
    return comparison._replace(figures=figures.model_copy(update=redacted))


def redact_sentences(sentences: Sequence[str], command: str) -> tuple[str, ...]:
    """Replace sentences that may quote texts by one sentence.

    The new sentence has the number of the removed sentences and the command that prints them.

    Example:
        >>> redact_sentences(["2 rows have the query 'Hello Ann'"], "agree")
        ('1 warning is left out, because it may quote texts: `rubric-integrations agree` prints it',)
    """
    if not sentences:
        return ()
    is_one = len(sentences) == 1
    words = ("is", "it", "it") if is_one else ("are", "they", "them")
    return (
        f"{counted(len(sentences), 'warning')} {words[0]} left out, because {words[1]} may quote texts: "
        f"`rubric-integrations {command}` prints {words[2]}",
    )
