"""Checks whether two runs can be compared: the same rubric, the same inputs and the same judge.

A comparison is refused if the inputs differ, or if the runs have different settings that change the scores of equal
answers, such as the weights of criteria. A difference that may have changed the answers, such as another judge, is a
warning. Names, tags, metadata, the order of the criteria, ledgers, retries and limits do not change a score and are not
compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from rubric_integrations._util.json import JsonObject
from rubric_integrations._util.text import counted, one_line
from rubric_integrations.rubric.answers import Option, Scale
from rubric_integrations.runs.files import GradedRow, import_notes, matched_rows
from rubric_integrations.scoring.report import CriterionReport, ReplyModels, merge_models
from rubric_integrations.submission.columns import TASK_ID
from rubric_integrations.submission.submission import Submission
from rubric_integrations.trust.matching import RunLike, as_run
from rubric_integrations.trust.model_versions import (
    FINGERPRINT_PARTS,
    fingerprints,
    replies_text,
    unversioned_models,
)

QuestionKey = tuple[str, str]

PROGRAM_DOUBT = ": the change may be the judges' and not the program's"
"""The end of the warning about another judge, if two programs are compared."""

OTHER_QUESTIONS = ": judges may answer otherwise"
"""The end of a warning about another setting of the grader, which changes the questions to a judge."""


def question_keys(criteria: Sequence[CriterionReport]) -> list[QuestionKey]:
    """Return the key by which each criterion of a row is found in another run.

    The key is the requirement, with the criterion's name if several criteria of the row have this requirement.
    """
    counts = Counter(entry.requirement for entry in criteria)
    return [(entry.requirement, entry.name if counts[entry.requirement] > 1 else "") for entry in criteria]


class Comparability(NamedTuple):
    """Whether two runs can be compared.

    Attributes:
        refused: The reasons why a comparison would be meaningless. Empty if the runs can be compared.
        warnings: Other differences between the runs, and properties that cannot be checked.
        passing: Whether both runs have the same conditions for a passed row. If not, the shares of passed rows cannot
            be compared.
        other_judge: A warning if the second run has another judge or another explorer of long trajectories, or the same
            with other settings. Otherwise "".
    """

    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    passing: bool = True
    other_judge: str = ""

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The reasons to refuse the comparison, each marked "not comparable", followed by `warnings`."""
        return (*(f"not comparable: {reason}" for reason in self.refused), *self.warnings)

    def require(self, anyway: bool) -> Comparability:
        """Return this record, or raise an error if the comparison is meaningless.

        Args:
            anyway: Whether to allow a meaningless comparison, whose result is then marked.

        Raises:
            ValueError: The comparison is meaningless, and `anyway` is false.
        """
        if self.refused and not anyway:
            reasons = "; ".join(self.refused)
            raise ValueError(
                f"the runs cannot be compared: {reasons}: grade both alike, or pass anyway=True (in the shell "
                "--anyway), which marks the result"
            )
        return self


def comparability(before: RunLike, after: RunLike | None = None) -> Comparability:
    """Check whether two runs can be compared, by their rubrics, inputs and judges. Answers are not compared.

    Rows with equal ids are compared. If the runs have no id in common, they must have a rubric in common. A file of an
    earlier version does not record the judge and all settings. For such a file, the result contains a warning.

    Args:
        before: The first run: the path of a file that `grade --out` wrote, results of `grade_many`, or reports.
        after: The second run. None checks only the first run: its rows with equal ids must have the same criteria.

    Example:
        >>> from rubric_integrations import PerCriterionGrader, Rubric, grade_many
        >>> def run(words: str) -> list:
        ...     rubric = Rubric.from_dict([{"name": "answer", "requirement": "Is right", "check": {"contains": words}}])
        ...     return list(grade_many(["It is 42."], rubric, PerCriterionGrader("offline")))
        >>> comparability(run("42"), run("42"))
        Comparability(refused=(), warnings=(), passing=True, other_judge='')
        >>> print(*comparability(run("42"), run("is")).refused)
        the criterion `answer` of the row '1' has the check {"contains": "42"} in before and {"contains": "is"} in after
    """
    runs = [as_run(before, "before"), *([] if after is None else [as_run(after, "after")])]
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = ["the first run", "the second run"]
    differences = _Differences(names)
    keys = [{row_id for row_id, _ in run.row_keys()} for run in runs]
    repeated = {row_id for run in runs for row_id, number in run.row_keys() if number > 1}
    for (row_id, _), rows in matched_rows(runs):
        differences.add(rows, is_repeated=row_id in repeated)
    if len(runs) == 1:
        return Comparability(tuple(differences.refused.values()))
    result = differences.result([run.judge for run in runs], is_disjoint=keys[0].isdisjoint(keys[-1]))
    notes = [f"{name}: {note}" for name, run in zip(names, runs, strict=True) for note in import_notes(run.rows)]
    return result._replace(warnings=(*result.warnings, *notes))


# Fields of a criterion and of a rubric that decide only whether a row passes, and do not change its score.
_FOR_PASSING = frozenset(("required", "min_score", "pass_mark", "min_coverage", "left_out"))
# Settings of a grader that change the score of given answers.
_POLICIES = ("normalize", "length_penalty")
_EXPLORER_FIELDS = {"explorer", "explore_above"}
# Rows with different queries are different inputs, but a few corrected queries do not make another data set.
_MOST_OTHER_QUERIES = 0.1
_INPUTS = ("query", "reference", "context")
# Fields that reports of earlier versions lack.
_ANSWERS = ("options", "scale", "cap")


class _Differences:
    """Collects how the rows of two runs differ.

    Attributes:
        refused: The reasons to refuse a comparison, by the part that differs, such as "criteria".
    """

    def __init__(self, names: Sequence[str]):
        self.refused: dict[str, str] = {}
        self._names = names
        self._where = f"{names[0]} and {names[-1]}" if len(names) > 1 else f"its rows in {names[0]}"
        self._warnings: dict[str, str] = {}
        self._first: dict[str, tuple[int, GradedRow]] = {}
        self._rubrics = [set[int]() for _ in names]
        self._judges = [set[str]() for _ in names]
        self._judge_names = [set[str]() for _ in names]
        self._explorers = [set[str]() for _ in names]
        self._models: list[ReplyModels] = [{} for _ in names]
        self._unrecorded = [0 for _ in names]
        self._abstentions, self._policies, self._passing = 0, "", True
        self._inputs, self._other_inputs = Counter[str](), Counter[str]()
        self._examples: dict[str, str] = {}

    def add(self, rows: Sequence[GradedRow | None], *, is_repeated: bool) -> None:
        """Add one row with its grade in each run, or None for a run without the row."""
        for number, row in enumerate(rows):
            if row is None or row.report is None:
                continue
            self._note(number, row)
            if is_repeated:
                earlier = self._first.setdefault(row.id, (number, row))
                if earlier[1] is not row:
                    self._compare_criteria(earlier[1], row, (earlier[0], number))
        before, after = rows[0], rows[-1]
        if len(rows) == 1 or before is None or after is None:
            return
        self._compare_inputs(before, after)
        if before.report is not None and after.report is not None:
            self._abstentions += before.report.cannot_assess_count + after.report.cannot_assess_count
            if not is_repeated:
                self._compare_criteria(before, after, (0, 1))
            self._compare_settings(before, after)

    def _note(self, number: int, row: GradedRow) -> None:
        """Record the rubric and the judge of a row."""
        if row.report is not None and row.report.criteria:
            self._rubrics[number].add(hash(frozenset((c.name, c.requirement, c.weight) for c in row.report.criteria)))
        if row.report is not None:
            self._models[number] = merge_models(self._models[number], row.report.reply_models)
        grader = recorded_part(row, "grader")
        if not grader:
            self._unrecorded[number] += 1
            return
        # An imported judge is the same in another file.
        judges: list[Any] = [
            {key: value for key, value in judge.items() if key != "file"} if isinstance(judge, dict) else judge
            for judge in _without_explainers(grader.get("judges") or [])
        ]
        self._judges[number].add(json.dumps(sorted(judges, key=str), sort_keys=True) if all(judges) else "")
        self._judge_names[number].add(", ".join(map(str, grader.get("names") or ())))
        self._explorers[number].add(_explorer_of(grader))

    def _compare_criteria(self, before: GradedRow, after: GradedRow, numbers: tuple[int, int]) -> None:
        """Note the first criterion that only one of the rows has, and the settings in which their criteria differ."""
        if "criteria" in self.refused:
            return
        one, other = _questions(before), _questions(after)
        if not one or not other:
            return
        where = self._where if numbers[0] != numbers[1] else f"its rows in {self._names[numbers[0]]}"
        in_one = {**one, **other}
        for key in sorted(one.keys() ^ other.keys(), key=lambda key: (in_one[key]["name"], key)):
            fields = in_one[key]
            self.refused["criteria"] = (
                f"the row {after.id!r} has the criterion `{fields['name']}` {key[0]!r} (weight {fields['weight']:g}) "
                f"in only one of {where}"
            )
            return
        is_recorded = before.scoring is not None and after.scoring is not None
        for key, fields in one.items():
            for name in sorted((fields.keys() | other[key].keys()) - {"name"}):
                first, second = fields.get(name), other[key].get(name)
                is_in_both = name in ("weight", "required") or (name in _ANSWERS and first and second)
                if first == second or not (is_recorded or is_in_both):
                    continue
                what = f"the criterion `{other[key]['name']}` of the row {after.id!r}"
                self._note_setting("criteria", name, what, first, second, numbers)

    def _compare_settings(self, before: GradedRow, after: GradedRow) -> None:
        """Note the settings of the rubric and of the grader in which two runs differ."""
        for part in ("rubric", "grader"):
            one, other = recorded_part(before, part), recorded_part(after, part)
            if not one or not other or one == other:
                continue
            for name in sorted((one.keys() | other.keys()) - {"judges", "names"}):
                first, second = one.get(name), other.get(name)
                if name == "text_limits":
                    first, second = _without_explorers(first, second)
                if first == second:
                    continue
                if name == "cannot_assess":
                    self._policies = self._policies or _both(first, second, self._names)
                elif part == "rubric" or name in _POLICIES:
                    self._note_setting(part, name, f"the {part}", first, second, (0, 1))
                else:
                    text = f"the grader's `{name}` is {_both(first, second, self._names)}"
                    self._warnings.setdefault(f"grader {name}", text + OTHER_QUESTIONS)

    def _note_setting(
        self, part: str, name: str, what: str, first: object, second: object, numbers: tuple[int, int]
    ) -> None:
        text = f"{what} has the {name} {_both(first, second, [self._names[number] for number in numbers])}"
        if name in _FOR_PASSING:
            self._passing = False
            self._warnings.setdefault(name, f"{text}: the shares of passed rows cannot be compared")
        else:
            self.refused.setdefault(part, text)

    def _compare_inputs(self, before: GradedRow, after: GradedRow) -> None:
        """Count the inputs of a pair of rows, and those that differ."""
        if before.submission is None or after.submission is None:
            return
        inputs = {name: [_text(row.submission, name) for row in (before, after)] for name in _INPUTS}
        # In runs of earlier versions, the id of a row with a `task_id` is its number.
        values = [(row.metadata or {}).get(TASK_ID) for row in (before, after)]
        tasks = [None if value is None else str(value) for value in values]
        inputs |= {TASK_ID: tasks} if after.id in tasks else {}
        for name, (first, second) in inputs.items():
            if first is None or second is None:
                continue
            self._inputs[name] += 1
            if first != second:
                self._other_inputs[name] += 1
                self._examples.setdefault(name, f"{after.id!r}: {_both(first, second, self._names)}")

    def result(self, judge_names: Sequence[str | None], *, is_disjoint: bool) -> Comparability:
        """Return the result of the comparison.

        Args:
            judge_names: The name of each run's judge, or None if its file does not have one.
            is_disjoint: Whether the runs have no row in common.
        """
        if is_disjoint and all(self._rubrics) and self._rubrics[0].isdisjoint(self._rubrics[1]):
            self.refused["criteria"] = f"{self._where} have no row and no rubric in common"
        # Without an abstention, all `cannot_assess` policies give the same scores.
        if self._abstentions and self._policies:
            self.refused.setdefault("grader", f"the grader has the cannot_assess {self._policies}")
        warnings = [*self._warnings.values()]
        for name, count in self._other_inputs.items():
            rows = f"{count:,} of {counted(self._inputs[name], 'row')} {'has' if count == 1 else 'have'}"
            text = f"{rows} another `{name}` under the same id, such as {self._examples[name]}"
            if name in ("query", TASK_ID) and count > _MOST_OTHER_QUERIES * self._inputs[name]:
                self.refused[name] = text
            else:
                warnings.append(text)
        others = "; ".join(filter(None, (self._other_judge(judge_names), self._other_explorer())))
        other_judge = others and others + PROGRAM_DOUBT
        warnings += self._judge_warnings(other_judge)
        return Comparability(tuple(self.refused.values()), tuple(warnings), self._passing, other_judge)

    def _judge_warnings(self, other_judge: str) -> Iterator[str]:
        """Yield a warning for each reason why the runs may have different judges."""
        if lacking := [name for name, count in zip(self._names, self._unrecorded, strict=True) if count]:
            yield (
                f"{' and '.join(lacking)} recorded neither the judge's settings nor all that scores (a run of an "
                "earlier version, or reports without their run): whether they are the same cannot be checked"
            )
        if other_judge:
            yield other_judge
        for name, models in zip(self._names, self._models, strict=True):
            if any(len(of_judge) > 1 for of_judge in models.values()):
                yield f"{name}: {replies_text(models)}"
        first, second = (
            sorted({model for of_judge in models.values() for model in of_judge})
            for models in (self._models[0], self._models[-1])
        )
        if first and second and first != second and self._judge_names[0] == self._judge_names[-1]:
            yield (
                f"the replies name the model {one_line(' and '.join(first))} in {self._names[0]} and "
                f"{one_line(' and '.join(second))} in {self._names[-1]}"
            )
        records = (text for of_run in (*self._judges, *self._explorers) for text in of_run)
        floating = sorted({model for text in records for model in unversioned_models(text)})
        if floating:
            yield (
                f"the judge {' and '.join(floating)} is a name without a date: its provider may have changed the model "
                "between the runs, and scores with it; name a dated version if there is one"
            )

    def _other_judge(self, judge_names: Sequence[str | None]) -> str:
        """Return a warning that describes how the judges differ, or "" if they are equal or unknown."""
        named = [{name} if name else names for name, names in zip(judge_names, self._judge_names, strict=True)]
        is_known = all(self._judges) and all("" not in judges for judges in self._judges)
        if not (self._judges[0] != self._judges[1] if is_known else all(named) and named[0] != named[1]):
            return ""
        shown = [", ".join(sorted(names)) or "another judge" for names in named]
        difference = f"{shown[0]} in {self._names[0]} and {shown[1]} in {self._names[1]}"
        if is_known and shown[0] == shown[1]:
            difference = f"{shown[0]}, with other {_other_parts(*self._judges)}"
        return f"another judge: {difference}"

    def _other_explorer(self) -> str:
        """Return a warning if the judges saw steps that different explorers chose, or "" if the explorers are equal."""
        before, after = self._explorers
        if not before or not after or before == after:
            return ""
        shown = [", ".join(sorted(filter(None, map(_explorer_name, of_run)))) or "none" for of_run in (before, after)]
        difference = f"{shown[0]} in {self._names[0]} and {shown[1]} in {self._names[-1]}"
        if shown[0] == shown[1]:
            difference = f"{shown[0]}, with other settings, prompts or limits"
        return f"another explorer of long trajectories: {difference}"


def _explorer_of(grader: Mapping[str, Any]) -> str:
    """Return the recorded explorer of a grader as JSON. Empty if it has none."""
    explorer = (grader.get("text_limits") or {}).get("explorer")
    return json.dumps(explorer, sort_keys=True) if explorer else ""


def _explorer_name(explorer: str) -> str:
    """Return the model of a recorded explorer, without its settings."""
    known = fingerprints(explorer)
    return str(known[0][0]) if known else _shown(json.loads(explorer)["fingerprint"]) if explorer else ""


def _without_explorers(*text_limits: dict[str, Any] | None) -> list[dict[str, Any] | None]:
    """Return recorded limits of texts without the explorers, and without the size above which only one explores."""
    left_out = {"explorer"} if all(limits and "explorer" in limits for limits in text_limits) else _EXPLORER_FIELDS
    kept = [{name: value for name, value in (limits or {}).items() if name not in left_out} for limits in text_limits]
    return [limits or None for limits in kept]


def recorded_part(row: GradedRow, name: str) -> Mapping[str, Any]:
    """Return the recorded settings of one part of a row's grade: `rubric`, `criteria` or `grader`. Empty if missing."""
    part = (row.scoring or {}).get(name)
    return part if isinstance(part, dict) else {}


def _questions(row: GradedRow) -> dict[QuestionKey, JsonObject]:
    """Return the fields of each criterion of a row that change the score or the pass."""
    entries, recorded = row.report.criteria if row.report else (), recorded_part(row, "criteria")
    return {
        key: {
            "name": entry.name,
            "weight": entry.weight,
            "options": _options_text(entry.options, entry.scale_type),
            "scale": _scale_text(entry.scale) if entry.cap is None else "",
            "cap": entry.cap,
            "required": entry.required,
            **(recorded.get(entry.name) or {}),
        }
        for key, entry in zip(question_keys(entries), entries, strict=True)
    }


def _options_text(options: Sequence[Option], scale_type: str) -> str:
    # The grader decides the order in which judges see options, so their order in the rubric is ignored.
    shown = [
        f"{option.label!r} = {'n/a' if option.na else f'{option.value:g}'}"
        + (f" ({option.description})" if option.description else "")
        for option in sorted(options, key=lambda option: (option.na, option.value, option.label))
    ]
    return ", ".join([*shown, *(["in no order"] if options and scale_type == "nominal" else [])])


def _scale_text(scale: Scale | None) -> str:
    if scale is None:
        return ""
    levels = "".join(f", {level}: {text}" for level, text in scale.model_dump()["levels"].items())
    return f"{scale.min:g} to {scale.max:g}{' in whole numbers' if scale.integer else ''}{levels}"


def _text(submission: Submission | None, name: str) -> object:
    """Return an input in normalized form, because spreadsheet programs change the line breaks within a cell."""
    value = getattr(submission, name)
    return value.replace("\r\n", "\n").strip() if isinstance(value, str) else value or None


def _both(first: object, second: object, names: Sequence[str]) -> str:
    return f"{_shown(first)} in {names[0]} and {_shown(second)} in {names[-1]}"


_MOST_SHOWN = 120


def _shown(value: object) -> str:
    if value is None or value == "":
        return "none"
    text = f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _other_parts(before: set[str], after: set[str]) -> str:
    """Return the names of the differing parts of the fingerprints of two judges with equal names."""
    one, other = (fingerprints(next(iter(judges), "")) for judges in (before, after))
    parts = [
        f"{name} ({_shown(first)} and {_shown(second)})" if name == "settings" else name
        for earlier, later in zip(one, other, strict=False)
        for name, first, second in zip(FINGERPRINT_PARTS, earlier, later, strict=False)
        if first != second
    ]
    return " and ".join(dict.fromkeys(parts)) or "settings"


def _without_explainers(record: Any) -> Any:
    """Return the record of judges without the models that only explain answers (see `Explained`)."""
    if isinstance(record, dict):
        members = cast("dict[str, Any]", record)
        if "explained_by" in members:
            return _without_explainers(members["judge"])
        return {name: _without_explainers(member) for name, member in members.items()}
    return list(map(_without_explainers, cast("list[Any]", record))) if isinstance(record, list) else record
