"""`Thresholds`: the lowest probability at which each verdict of a judge counts, and the file that contains them.

A `Cascade` applies thresholds to the stored judgments of its cheap judges. Other thresholds therefore need no new
judgment. A file of thresholds contains no server address and no key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from rubric_integrations._util.json import read_json_file, write_whole_file
from rubric_integrations._util.records import EncodableText, SparseRecord, UnitScore
from rubric_integrations.rubric.criterion import Criterion
from rubric_integrations.scoring.judgment import Judgment

MODEL_NAME = re.compile(r"(?!.*https?:)[\w.@:+~-]+(?:/[\w.@:+~-]+)*", re.IGNORECASE)
"""The names of models in a judge's file. A name contains no address, because LiteLLM sends requests for some models to
an address in their name."""

# A file with the labels of a hundred thousand judgments has less than a tenth of this size.
_MOST_BYTES = 50_000_000
_KINDS = ("thresholds",)
_DECIDED = ("MET", "UNMET")

ThresholdSource = Literal["chosen", "tuned", "certified"]
"""The origin of thresholds: `chosen` by a user, `tuned` by an optimizer for its metric, or `certified` (`certify`)."""


class CriterionThresholds(SparseRecord):
    """The lowest probability at which each verdict on one criterion counts.

    Attributes:
        requirement: The requirement of the criterion, with the meaning of its `operator`. It identifies the criterion,
            because names change and the judge sees only the requirement. With other words, it is another question.
        name: The name of the criterion when the thresholds were made, for readers of the file.
        met: The lowest probability at which MET counts. None for the pooled threshold.
        unmet: The lowest probability at which UNMET counts. None for the pooled threshold.
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("name", "met", "unmet")

    requirement: EncodableText
    name: EncodableText = ""
    met: UnitScore | None = None
    unmet: UnitScore | None = None


class Thresholds(SparseRecord):
    """The lowest probability at which each verdict of a judge counts, for each criterion and for all others.

    The pooled threshold applies to the verdict that the judge gave. The thresholds of a criterion can also replace this
    verdict: with `met=0.3` and `unmet=0.8`, an answer with the probability 0.4 of MET becomes MET. If MET and UNMET
    both reach their thresholds, the verdict that exceeds its threshold by more counts.

    Attributes:
        kind: The kind of the file.
        judge: The name of the judge's model. None if a user of the file must name the judge.
        source: The origin of the thresholds.
        alpha: For certified thresholds, the highest accepted rate of wrong answers. Otherwise None.
        delta: For certified thresholds, the probability that a guarantee fails. Otherwise None.
        pooled: The lowest confidence at which a verdict counts if its criterion has no threshold for it. With 0, each
            verdict of the judge counts. None if no such verdict counts, because nothing is certified.
        criteria: The thresholds of single binary criteria. If a criterion has a threshold for only one verdict, the
            other verdict needs the pooled threshold and at least 0.5.
        trained_on: The digests (see `judgment_digest`) of the judgments whose labels were used to find the thresholds.
            Measurements of the judge exclude these judgments.

    Raises:
        pydantic.ValidationError: (a ValueError) A threshold is not in [0, 1], or a criterion has two entries.

    Example:
        >>> facts = CriterionThresholds(requirement="States the margin", met=0.9, unmet=0.7)
        >>> thresholds = Thresholds(pooled=0.95, criteria=[facts])
        >>> answer = Judgment(verdict="UNMET", value=0.0, confidence=0.8, probabilities={"MET": 0.2, "UNMET": 0.8})
        >>> thresholds.decide(Criterion(requirement="States the margin"), answer) is answer
        True
        >>> thresholds.decide(Criterion(requirement="Is polite"), answer) is None
        True
    """

    _left_out_if_unused: ClassVar[tuple[str, ...]] = ("judge", "alpha", "delta", "criteria", "trained_on")

    kind: Literal["thresholds"] = "thresholds"
    judge: str | None = None
    source: ThresholdSource = "chosen"
    alpha: Annotated[float, Field(gt=0, lt=1)] | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    pooled: UnitScore | None = 0.0
    criteria: tuple[CriterionThresholds, ...] = ()
    trained_on: tuple[str, ...] = ()

    @field_validator("judge")
    @classmethod
    def _require_a_name(cls, judge: str | None) -> str | None:
        if judge is not None and (not MODEL_NAME.fullmatch(judge) or judge.lower().endswith(".json")):
            raise ValueError(f"{judge!r} is not the name of a model, such as 'openai/gpt-5-mini'")
        return judge

    @model_validator(mode="after")
    def _require_distinct_criteria(self) -> Self:
        if len({entry.requirement for entry in self.criteria}) < len(self.criteria):
            raise ValueError("`criteria` has a requirement twice: keep one entry")
        return self

    @property
    def use_confidence(self) -> bool:
        """Whether some verdicts count only if the judge states a confidence or probabilities."""
        return self.pooled != 0 or bool(self.criteria)

    def decide(self, criterion: Criterion, judgment: Judgment) -> Judgment | None:
        """Return the judgment with the verdict that counts and its probability, or None if no verdict counts.

        An abstention stays one: its result is None.
        """
        if judgment.value is None or self._entry_of(criterion) is None:
            return judgment if is_kept(judgment.value, judgment.confidence, self.pooled) else None
        probabilities = verdict_probabilities(judgment)
        limits = [(verdict, self.limit(criterion, verdict)) for verdict in _DECIDED]
        margins = {
            verdict: probabilities[verdict] - limit
            for verdict, limit in limits
            if limit is not None and probabilities.get(verdict, -1.0) >= limit
        }
        if not margins:
            return None
        verdict = max(margins, key=lambda name: (margins[name], name == judgment.verdict))
        value, confidence = float(verdict == "MET"), probabilities[verdict]
        if (verdict, confidence) == (judgment.verdict, judgment.confidence):
            return judgment
        return judgment.model_copy(update={"verdict": verdict, "value": value, "confidence": confidence})

    def limit(self, criterion: Criterion, verdict: str) -> float | None:
        """Return the lowest probability at which a verdict on a criterion counts. None if it never counts."""
        entry = self._entry_of(criterion)
        if entry is None:
            return self.pooled
        limit = entry.met if verdict == "MET" else entry.unmet
        if limit is None and self.pooled is not None:
            return max(0.5, self.pooled)
        return limit

    def _entry_of(self, criterion: Criterion) -> CriterionThresholds | None:
        if not self.criteria or criterion.kind != "binary":
            return None
        requirement = criterion.full_requirement
        return next((entry for entry in self.criteria if entry.requirement == requirement), None)

    def describe(self) -> dict[str, Any]:
        """Return the thresholds as JSON for the record of a run, with a digest instead of `trained_on`.

        `from_description` reads it.
        """
        record = self.model_dump(mode="json", include={"source", "pooled", "criteria"})
        if self.trained_on:
            record["trained_on"] = sha256("\n".join(sorted(self.trained_on)).encode()).hexdigest()[:32]
        return record

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """Make thresholds from the result of `describe`. They have no `trained_on`."""
        return cls.model_validate({name: part for name, part in description.items() if name != "trained_on"})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the thresholds to a JSON file, which can be used wherever a judge is named if `judge` is set."""
        write_whole_file(Path(path), self.file_text())

    def file_text(self) -> str:
        """Return the text that `save` writes."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=2) + "\n"


ThresholdsLike: TypeAlias = Thresholds | str | os.PathLike[str]
"""Thresholds, or the path of their file."""


def as_thresholds(thresholds: ThresholdsLike) -> Thresholds:
    """Return thresholds, or read them from the file that a user passes.

    Raises:
        ValueError: The file cannot be read, or has no thresholds. The message names the file.
    """
    return thresholds if isinstance(thresholds, Thresholds) else read_thresholds(thresholds)


def read_thresholds(path: str | os.PathLike[str]) -> Thresholds:
    """Read a file of thresholds.

    Raises:
        ValueError: The file cannot be read, or has no thresholds. The message names the file.
    """
    content = read_json_file(Path(path), _MOST_BYTES)
    try:
        require_kind(content, "thresholds")
        return Thresholds.model_validate(content)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, details["loc"])) or "file"
        raise ValueError(f"{path}: `{place}` is not as `Thresholds.save` writes it: {details['msg']}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def has_thresholds(path: str | os.PathLike[str]) -> bool:
    """Whether a judge's file has thresholds, and not prompts. A file of another version is refused.

    Raises:
        ValueError: The file cannot be read, or was made by a newer version.
    """
    content = read_json_file(Path(path), _MOST_BYTES)
    kind = cast("dict[str, Any]", content).get("kind") if isinstance(content, dict) else None
    if kind not in (None, *_KINDS):
        raise ValueError(f"{path}: {_newer(kind)}")
    return kind == "thresholds"


def require_kind(content: object, kind: str | None) -> None:
    """Check the kind of a judge's file. The file of an aligned judge has no kind.

    Raises:
        ValueError: The file has another kind. The message is a predicate of the file.
    """
    actual = cast("dict[str, Any]", content).get("kind") if isinstance(content, dict) else None
    if actual not in (None, *_KINDS):
        raise ValueError(_newer(actual))
    if actual == kind:
        return
    if kind is None:
        raise ValueError("has thresholds and no prompts: pass it as `thresholds` of a `Cascade`, or as `judge`")
    raise ValueError('has no thresholds: `certify(..., by="criterion")` makes them, and `Thresholds.save` writes them')


def _newer(kind: object) -> str:
    return f"was made by a newer version: this one does not know the `kind` {kind!r}. Update rubric-integrations"


def verdict_probabilities(judgment: Judgment) -> Mapping[str, float]:
    """Return the probability of each verdict that a judge considered.

    For a judge that states only a confidence, the result has only the probability of its verdict.

    Example:
        >>> verdict_probabilities(Judgment(verdict="MET", value=1.0, confidence=0.9))
        {'MET': 0.9}
    """
    if judgment.probabilities is not None:
        return judgment.probabilities
    return {} if judgment.confidence is None else {judgment.verdict: judgment.confidence}


def is_kept(value: float | None, confidence: float | None, escalate_below: float | None) -> bool:
    """Whether a cascade keeps a cheap answer: it is a verdict, and its confidence is not below the threshold.

    Args:
        value: The value of the answer. None for an abstention.
        confidence: The confidence that the judge states. None if the judge does not state one. Such an answer is kept
            only if the threshold is 0.
        escalate_below: The threshold. With None, no answer is kept.

    Example:
        >>> is_kept(1.0, 0.8, 0.8), is_kept(1.0, None, 0.8), is_kept(1.0, None, 0.0), is_kept(None, 0.9, 0.8)
        (True, False, True, False)
    """
    if value is None or escalate_below is None:
        return False
    return escalate_below == 0 or (confidence is not None and confidence >= escalate_below)
