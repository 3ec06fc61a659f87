"""The criteria that each predictor of a program is responsible for, for GEPA's feedback."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping

from rubric_integrations.dspy.rubric_source import RubricFunctionError
from rubric_integrations.results.report import EvaluationReport
from rubric_integrations.rubric.rubric import Rubric


class PredictorCriteria:
    """Limits the report that a predictor gets as feedback to the criteria that it is responsible for.

    Args:
        criteria_for: Names of criteria by the name of a predictor, as in `program.named_predictors()`, or of a module
            that contains it: `"answer"` covers `answer.predict`, the predictor of `answer = dspy.ChainOfThought(...)`.
            If several names match a predictor, the longest one counts.

    Raises:
        TypeError: The criteria of a predictor are a single text.
    """

    def __init__(self, criteria_for: Mapping[str, Collection[str]]):
        for predictor, names in criteria_for.items():
            if isinstance(names, str):
                raise TypeError(
                    f"`criteria_for` maps {predictor!r} to {names!r}, which would be read letter by letter: "
                    f"write a list, [{names!r}]"
                )
        self.criteria_for = {predictor: frozenset(names) for predictor, names in criteria_for.items()}
        self._names_seen, self._matched, self._reported = set[str](), set[str](), set[str]()

    def check_names(self, rubric: Rubric) -> None:
        """Check that a rubric which serves all examples has every criterion.

        Raises:
            ValueError: It has not.
        """
        problem = self._unknown_name(rubric.keys)
        if problem:
            raise ValueError(f"{problem}, but the criteria are {list(rubric.keys)!r}")

    def add_rubric(self, rubric: Rubric) -> None:
        """Record the criteria of one example's rubric; another example's rubric may have others."""
        if self.criteria_for:
            self._names_seen.update(rubric.keys)

    def part_for(self, pred_name: str | None, report: EvaluationReport) -> EvaluationReport:
        """Return the report on the criteria of a predictor, or the whole report if the predictor has no entry.

        Warns:
            UserWarning: The predictor has no entry, and there are entries that have not matched any predictor so far,
                maybe because of a typing error; once for each predictor.

        Raises:
            RubricFunctionError: An entry names a criterion that no example's rubric had so far.
        """
        if not self.criteria_for or pred_name is None:
            return report
        problem = self._unknown_name(self._names_seen)
        if problem:
            raise RubricFunctionError(
                f"{problem}, but the rubrics of the examples so far have only {sorted(self._names_seen)!r}: name one "
                "of these, or the feedback for this predictor would be empty"
            )
        matching = [name for name in self.criteria_for if f"{pred_name}.".startswith(f"{name}.")]
        if not matching:
            self._warn_once(pred_name)
            return report
        entry = max(matching, key=len)
        self._matched.add(entry)
        names = self.criteria_for[entry]
        return report.model_copy(update={"report": tuple(row for row in report.criteria if row.name in names)})

    def _unknown_name(self, known: Collection[str]) -> str | None:
        for predictor, names in self.criteria_for.items():
            unknown = sorted(names.difference(known))
            if unknown:
                return f"`criteria_for` maps {predictor!r} to {unknown[0]!r}"
        return None

    def _warn_once(self, pred_name: str) -> None:
        unmatched = sorted(self.criteria_for.keys() - self._matched)
        if not unmatched or pred_name in self._reported:
            return
        self._reported.add(pred_name)
        warnings.warn(
            f"`criteria_for` has no entry for the predictor {pred_name!r}, so its feedback covers all criteria, and no "
            f"predictor so far matches the entries {unmatched!r}: compare them with `program.named_predictors()`",
            UserWarning,
            stacklevel=4,
        )
