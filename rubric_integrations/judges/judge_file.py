"""The file of a judge: its prompts, its sampling settings, and how it was aligned with people's labels.

A file may come from anybody. It has no address of a server and no key, and of the state that DSPy can load, only
instructions, descriptions of fields and few-shot examples are used (see `saving.py`).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue, ValidationError

from rubric_integrations._util.files import refuse_endless
from rubric_integrations._util.json_lines import parse_json
from rubric_integrations._util.records import Record
from rubric_integrations.judges.alignment_record import AlignmentRecord
from rubric_integrations.results.labels import LabelledJudgment

# A file with a hundred long few-shot examples has less than a tenth of it.
_MOST_BYTES = 50_000_000
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Neither an address nor a path of one: LiteLLM sends requests for some models to an address in their names.
_MODEL_NAME = re.compile(r"(?!.*https?:)[\w.@:+~-]+(?:/[\w.@:+~-]+)*", re.IGNORECASE)
# A model of a function or of LangChain, which no name makes again.
_OBJECTS = ("generate_fn/", "langchain/")


class JudgeSettings(Record):
    """Arguments of `LMJudge` that its answers depend on beside model and prompts.

    Attributes:
        confidence: Whether it requests probabilities.
        temperature: The sampling temperature; None for the default.
        max_tokens: The most tokens of a reply; None for the provider's.
        seed: The sampling seed.
        reasoning_effort: The effort of a reasoning model.
    """

    confidence: bool = False
    temperature: Annotated[float, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None


class _SavedField(BaseModel):
    prefix: str
    description: str


class _SavedSignature(BaseModel):
    instructions: str
    fields: list[_SavedField]


class SavedPredictor(BaseModel):
    """What is loaded of a saved `dspy.Predict`: instructions, few-shot examples, and thresholds of decisions."""

    signature: _SavedSignature
    demos: list[dict[str, JsonValue]]
    fields: dict[str, JsonValue] = {}


class JudgeFile(Record):
    """The contents of a judge's file.

    Attributes:
        alignment: How the judge was aligned; None if it was not.
        settings: Its settings.
        examples: The labelled judgments that it shows as few-shot examples.
        max_examples: How many of them it shows at most.
        prompts: What each predictor's prompts are made of, by the predictor's name.
        schemas: A digest of each predictor's signature.
    """

    alignment: AlignmentRecord | None = None
    settings: JudgeSettings = JudgeSettings()
    examples: tuple[LabelledJudgment, ...] = ()
    max_examples: Annotated[int, Field(ge=0)] = 4
    prompts: dict[str, SavedPredictor]
    schemas: dict[str, str]

    def model_name(self) -> str:
        """Return the name of the model that the judge was aligned for.

        Raises:
            ValueError: The file names none, or one that cannot be called by its name alone.
        """
        if self.alignment is None:
            raise ValueError("does not name a model, since its judge was not aligned")
        name = self.alignment.model
        if name.startswith(_OBJECTS) or not _MODEL_NAME.fullmatch(name):
            raise ValueError(f"is for the model {name!r}, which cannot be called by its name alone")
        return name


_SECTIONS = frozenset(JudgeFile.model_fields) - {"prompts"}


def judge_file_text(file: JudgeFile, state: dict[str, object]) -> str:
    r"""Return the text of a judge's file. Half an emoji, which no file in UTF-8 can have, is written as its escape.

    Args:
        file: The contents, without the prompts.
        state: The prompts, with whatever DSPy writes beside them.
    """
    sections = file.model_dump(mode="json", exclude={"prompts"}, exclude_defaults=True)
    text = json.dumps({**sections, **state}, ensure_ascii=False, indent=2)
    return _LONE_SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text) + "\n"


def write_judge_file(path: Path, text: str) -> None:
    """Write the text of a judge's file. If that fails, an earlier file is unchanged.

    Raises:
        OSError: The file cannot be written.
    """
    target = path.resolve()
    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_judge_file(path: str | os.PathLike[str]) -> JudgeFile:
    """Read a judge's file.

    Raises:
        ValueError: It cannot be read, or `LMJudge.save` has not written it; the message names the file.
    """
    try:
        refuse_endless(Path(path))
        with Path(path).open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{path}: has more than {_MOST_BYTES // 1_000_000} MB, which no judge's file has")
    try:
        return _parse(data)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text: save the file as UTF-8") from None
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, details["loc"])).removeprefix("prompts.")
        raise ValueError(f"{path}: `{place}` is not as `LMJudge.save` writes it: {details['msg']}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _parse(data: bytes) -> JudgeFile:
    content = parse_json(data.decode("utf-8-sig"))
    if not isinstance(content, dict) or not isinstance(content.get("schemas"), dict):
        raise ValueError("`schemas` is missing: the file was not written by `LMJudge.save`, so that it may not fit")
    try:
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("has half of a character, such as of an emoji: remove it") from None
    except (ValueError, RecursionError):
        raise ValueError("has a number that is not finite, or is nested too deeply") from None
    prompts = {name: part for name, part in content.items() if name in content["schemas"]}
    sections = {name: content[name] for name in _SECTIONS if name in content}
    return JudgeFile.model_validate({**sections, "prompts": prompts})
