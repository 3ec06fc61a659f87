"""The judges that `--judge`, `--escalate-to`, `--api-base`, `--api-key` and `--judge-option` describe."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rubric_integrations._util.urls import url_without_secrets

if TYPE_CHECKING:
    from rubric_integrations.judges import Judge


class _Kind(NamedTuple):
    """The type of an option's value, and its name in messages."""

    convert: Callable[[str], float | str | bool]
    name: str


def _read_flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError
    return value == "true"


_NUMBER, _WHOLE, _TEXT = _Kind(float, "a number"), _Kind(int, "a whole number"), _Kind(str, "text")
_FLAG = _Kind(_read_flag, "true or false")

JUDGE_OPTIONS: dict[str, _Kind] = {
    "temperature": _NUMBER,
    "max_tokens": _WHOLE,
    "seed": _WHOLE,
    "reasoning_effort": _TEXT,
    "service_tier": _TEXT,
    "system_prompt": _TEXT,
    "confidence": _FLAG,
    "name": _TEXT,
}
"""The keys of `--judge-option` beside `header.NAME`: arguments of `LMJudge`."""

_HEADER = "header."


def has_model(judge: str) -> bool:
    """Whether `--judge` names a model, and no judge that has none."""
    from rubric_integrations.judges import NAMED_JUDGES

    return judge not in NAMED_JUDGES


def make_judge(
    judge: str,
    api_base: str | None,
    options: Sequence[str] = (),
    *,
    api_key: str | None = None,
    confidence: bool = False,
) -> Judge:
    """Make a judge of a model name or a judge's file and the base URL of its server, or the judge without a model.

    Args:
        judge: The model's name, the file of an aligned judge, or `offline`.
        api_base: The base URL of the model's server; None for that of its provider.
        options: Settings of the model, each `key=value` with a key of `JUDGE_OPTIONS` or `header.NAME`.
        api_key: The key of the server; None for that of the environment.
        confidence: Whether the model states how sure it is.

    Raises:
        ValueError: The model name is empty, an option is unknown or has a wrong value, the base URL or an option
            goes with a judge that has no model, or the file is not that of an aligned judge.
    """
    from rubric_integrations.judges import LMJudge, as_judge, judge_file_of

    settings = parse_judge_options(options)
    if not has_model(judge):
        chosen = {"--api-base": api_base is not None, "--api-key": api_key is not None, "--judge-option": bool(options)}
        for option, is_set in chosen.items():
            if is_set:
                raise ValueError(f"`{option}` has no effect on the judge {judge!r}: leave it out, or name a model")
        return as_judge(judge)
    if file := judge_file_of(judge):
        from rubric_integrations.judges.loading import load_judge
        from rubric_integrations.judges.models.from_name import ModelOptions

        for fixed in ("system_prompt", "confidence", "name"):
            if fixed in settings:
                raise ValueError(
                    f"`--judge-option` {fixed!r} has no effect on {file}, whose prompts decide: leave it out"
                )
        return load_judge(file, ModelOptions(api_base=api_base, api_key=api_key, **settings))
    settings.setdefault("confidence", confidence)
    return LMJudge(judge, api_base=api_base, api_key=api_key, **settings)


def make_judges(
    judges: Sequence[str],
    api_base: str | None,
    options: Sequence[str] = (),
    *,
    api_key: str | None = None,
    escalate_to: str | None = None,
    escalate_below: float | None = None,
) -> list[Judge]:
    """Make one judge, the judges of a panel, or a cascade, all with the same base URL and options.

    Args:
        judges: The names of the judges.
        api_base: See `make_judge`.
        options: See `make_judge`.
        api_key: See `make_judge`.
        escalate_to: The expensive judge of a cascade, of which `judges` are the cheap ones; None for no cascade.
        escalate_below: The confidence below which a question is escalated.

    Raises:
        ValueError: As for `make_judge`; a judge without a model is on a panel; only one of `escalate_to` and
            `escalate_below` is set; the judges make no cascade; or several models would get one name.
    """
    if len({*judges, escalate_to} - {None}) > 1 and "name" in parse_judge_options(options):
        raise ValueError(
            "`--judge-option` 'name' would give one name to several models, and the ledger would take their judgments "
            "for each other's: leave it out, or name one model"
        )
    if escalate_to is not None:
        make = partial(make_judge, api_base=api_base, options=options, api_key=api_key)
        return [_make_cascade(judges, escalate_to, escalate_below, make)]
    if escalate_below is not None:
        raise ValueError("`--escalate-below` has no effect without `--escalate-to`: name the expensive model there")
    if len(judges) > 1 and (named := [judge for judge in judges if not has_model(judge)]):
        raise ValueError(
            f"`--judge` {named[0]!r} beside other judges uses no model, and abstains where they vote: leave it out "
            "(criteria with a check are decided in code with every judge)"
        )
    return [make_judge(judge, api_base, options, api_key=api_key) for judge in judges]


def _make_cascade(
    judges: Sequence[str], escalate_to: str, escalate_below: float | None, make: Callable[..., Judge]
) -> Judge:
    from rubric_integrations.judges import Cascade, as_judge

    if escalate_below is None:
        raise ValueError(
            "`--escalate-to` needs `--escalate-below`, the confidence below which a question is escalated: `certify` "
            "prints one; with 0, only failures, abstentions and differing verdicts are escalated"
        )
    states_confidence = escalate_below > 0
    # A judge without a model takes no options: they are for the other judges.
    cheap = [make(judge, confidence=states_confidence) if has_model(judge) else as_judge(judge) for judge in judges]
    return Cascade(cheap, make(escalate_to), escalate_below)


def parse_judge_options(options: Sequence[str]) -> dict[str, Any]:
    """Parse `key=value` texts to arguments of `LMJudge`.

    Raises:
        ValueError: A key is unknown or repeated, or a value has the wrong type. The message shows the value only in the
            last case, since that of a header or an unknown key may be a credential.

    Example:
        >>> parse_judge_options(["temperature=0", "seed=7", "header.X-Team=evals"])
        {'temperature': 0.0, 'seed': 7, 'headers': {'X-Team': 'evals'}}
    """
    headers: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for option in options:
        key, separator, value = option.partition("=")
        if not separator:
            shown = re.split(r"[:\s]", option)[0]
            raise ValueError(f"`--judge-option` {shown!r} must be KEY=VALUE, such as temperature=0")
        if key.startswith(_HEADER):
            _add_header(headers, key, value)
            continue
        if key not in JUDGE_OPTIONS:
            close = difflib.get_close_matches(key, JUDGE_OPTIONS, n=1)
            known = f"known are {', '.join(JUDGE_OPTIONS)} and {_HEADER}NAME"
            hint = f"did you mean `{close[0]}`?" if close else known
            if key.startswith("header"):
                hint = f"write `{_HEADER}NAME=VALUE`"
            raise ValueError(f"`--judge-option` {key!r} is not a known key: {hint}")
        if key in settings:
            raise ValueError(f"`--judge-option` has {key!r} twice: the first value would be lost, so remove one")
        kind = JUDGE_OPTIONS[key]
        try:
            settings[key] = kind.convert(value)
        except ValueError:
            raise ValueError(f"`--judge-option` {key}={value!r}: must be {kind.name}") from None
    return settings | ({"headers": headers} if headers else {})


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Replace what may be secret in the arguments of a command: keys, values of headers, and parts of URLs.

    Example:
        >>> without_secrets(["--judge-option", "header.X-Team=evals", "--api-key", "sk-1", "--api-base=https://me:pw@host"])
        ['--judge-option', 'header.X-Team=VALUE', '--api-key', 'KEY', '--api-base=https://host']
    """
    shown: list[str] = []
    for previous, argument in zip(["", *arguments], arguments, strict=False):
        if previous in _HIDE:
            shown.append(_HIDE[previous](argument))
            continue
        option, separator, value = argument.partition("=")
        shown.append(f"{option}={_HIDE[option](value)}" if separator and option in _HIDE else argument)
    return shown


def _hide_key(_value: str) -> str:
    return "KEY"


def _hide_header(value: str) -> str:
    return re.sub(r"^(header\.[^=]*=).*", r"\1VALUE", value, flags=re.DOTALL)


def _hide_password(address: str) -> str:
    from rubric_integrations.runs.ledger.addresses import address_text

    return address_text(address)


# What to print in place of the values of options that may be secret.
_HIDE: dict[str, Callable[[str], str]] = {
    "--api-key": _hide_key,
    "--api-base": url_without_secrets,
    "--judge-option": _hide_header,
    "--ledger": _hide_password,
}


def _add_header(headers: dict[str, str], key: str, value: str) -> None:
    name = key.removeprefix(_HEADER)
    if not name:
        raise ValueError(f"`--judge-option` {key!r} needs the name of a header: write `{_HEADER}NAME=VALUE`")
    if name.lower() in map(str.lower, headers):
        raise ValueError(f"`--judge-option` has {key!r} twice: the first value would be lost, so remove one")
    headers[name] = value
