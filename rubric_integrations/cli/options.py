"""Options that several commands share, as records, and the objects made from them: judges, grader, rows and ledger.

A command takes a record as one parameter, and `with_flat_signature` converts its fields to options for Typer. An option
has the same name and default in all commands. It also has the same help text, unless a command overrides it with
`Only`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from rubric_integrations._util.text import url_without_secrets
from rubric_integrations.cli.console import refuse

if TYPE_CHECKING:
    from rubric_integrations.graders import Grader
    from rubric_integrations.judges import Judge
    from rubric_integrations.judges.explorer import Explorer
    from rubric_integrations.rubric.criterion import Criterion
    from rubric_integrations.runs.ledger import RunLedger
    from rubric_integrations.submission.files import ResponsesFile

Strategy = Literal["per-criterion", "one-shot", "holistic"]


class Only(NamedTuple):
    """The fields of a record that are options of a command. The other fields keep their defaults.

    Attributes:
        names: The fields with the help text of the record.
        texts: The fields with another help text for this command, by name.
    """

    names: tuple[str, ...] = ()
    texts: Mapping[str, str] = MappingProxyType({})

    @property
    def options(self) -> set[str]:
        """The names of all fields in `names` and `texts`."""
        return {*self.names, *self.texts}


def with_flat_signature(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer in which each record parameter is replaced by one option for each of its fields.

    A parameter whose type is a dataclass is replaced by one parameter for each field with a `typer.Option` in its type.
    `Only` can limit these fields. For example, `judges: JudgeOptions` becomes `--judge`, `--escalate-to` and so on. The
    command is called with the dataclass. If the dataclass has a `panel`, `--help` shows its options in a panel with
    this title.

    Raises:
        ValueError: `Only` names a field that the dataclass does not have as an option.
    """
    parameters: list[Parameter] = []
    records: dict[str, tuple[type[Any], list[str]]] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        is_annotated = get_origin(parameter.annotation) is Annotated
        record, *extras = get_args(parameter.annotation) if is_annotated else (parameter.annotation,)
        if isinstance(record, type) and is_dataclass(record):
            options = list(_options_of(record, extras))
            records[parameter.name] = record, [option.name for option in options]
            parameters += options
        else:
            # Keyword-only, because a required option may come after an option with a default.
            annotation = Annotated[record, _with_choices(extras[0], record)] if is_annotated else record
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation))

    def flat_command(**values: Any) -> None:
        for name, (record, options) in records.items():
            values[name] = record(**{option: values.pop(option) for option in options})
        command(**values)

    flat_command.__name__, flat_command.__doc__ = command.__name__, command.__doc__
    flat_command.__dict__["__signature__"] = Signature(parameters)
    return flat_command


def _options_of(record: type[Any], extras: Sequence[object]) -> Iterator[Parameter]:
    """Yield a keyword parameter for each option of a record, limited and reworded by `Only`."""
    only = next((extra for extra in extras if isinstance(extra, Only)), None)
    types = get_type_hints(record, include_extras=True)
    options = [field for field in fields(record) if get_origin(types[field.name]) is Annotated]
    if only and (unknown := only.options - {field.name for field in options}):
        raise ValueError(f"`Only` names {sorted(unknown)}, which are no options of {record.__name__}")
    for field in options:
        if only and field.name not in only.options:
            continue
        base, option = get_args(types[field.name])
        option = copy(option)
        option.rich_help_panel = getattr(record, "panel", None)
        if only and field.name in only.texts:
            option.help = only.texts[field.name]
        default = Parameter.empty if field.default is MISSING else field.default
        annotation = Annotated[base, _with_choices(option, base)]
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_choices(option: Any, base: Any) -> Any:
    """Add the values of a `Literal` to the help text of its option. Next to the option, they would be truncated."""
    choices = next((get_args(kind) for kind in (base, *get_args(base)) if get_origin(kind) is Literal), ())
    if not choices:
        return option
    option = copy(option)
    option.metavar = "CHOICE"
    option.help = f"{option.help} Choices: {', '.join(choices)}."
    return option


ModulesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="MODULE", help="Import a Python module that registers custom metrics, by its name or file."
    ),
]

# The first of two arguments. Unlike in any parser, the first one is optional: a single argument is the responses.
RubricArgument = typer.Argument(
    help="The rubric: a YAML, JSON or TOML file, or library:NAME. Leave it out if each row has a `rubric`.",
    show_default=False,
)
NOTHING_TO_GRADE = "`responses` is missing: name the file to grade"


class OptionKey(NamedTuple):
    """A key of `--judge-option`.

    Attributes:
        convert: Converts the text to the value.
        kind: The kind of the value, for messages.
        is_of_model: Whether the key is a field of `ModelSettings`. The other keys are arguments of `LMJudge`, which the
            file of an aligned judge decides.
    """

    convert: Callable[[str], float | str | bool]
    kind: str
    is_of_model: bool = True


def _read_flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError
    return value == "true"


def _read_reason(value: str) -> str:
    if value not in ("always", "if_lost", "never"):
        raise ValueError
    return value


JUDGE_OPTIONS = {
    "temperature": OptionKey(float, "a number"),
    "max_tokens": OptionKey(int, "a whole number"),
    "seed": OptionKey(int, "a whole number"),
    "reasoning_effort": OptionKey(str, "text"),
    "service_tier": OptionKey(str, "text"),
    "system_prompt": OptionKey(str, "text", is_of_model=False),
    "confidence": OptionKey(_read_flag, "true or false", is_of_model=False),
    "reason": OptionKey(_read_reason, "always, if_lost or never", is_of_model=False),
    "name": OptionKey(str, "text", is_of_model=False),
}
"""The keys of `--judge-option`, except `header.NAME`."""

_HEADER = "header."


# Without a repr, because it would show the key.
@dataclass(frozen=True, repr=False)
class JudgeOptions:
    """The options for the judges of a command, their server and their settings."""

    panel: ClassVar[str] = "Judge"

    judge: Annotated[
        list[str] | None,
        typer.Option(
            help="A model as provider/model, such as openai/gpt-5-mini or ollama_chat/llama3.2; a decision model, such "
            "as typesafe/jev-1.13.0; the file of an aligned judge, such as judge.json; or offline (the default), which "
            "uses no model. Several judges form a panel, which votes.",
        ),
    ] = None
    escalate_to: Annotated[
        str | None,
        typer.Option(help="An expensive model, asked only if --judge is not confident, or if several judges differ."),
    ] = None
    escalate_below: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="The confidence below which --escalate-to is asked; see the command `certify`."
        ),
    ] = None
    api_base: Annotated[str | None, typer.Option(help="Base URL of an OpenAI-compatible server.")] = None
    api_key: Annotated[
        str | None,
        typer.Option(
            help="Key of that server. The variable RUBRIC_INTEGRATIONS_API_KEY keeps it out of the shell's history."
        ),
    ] = None
    judge_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help=f"A setting of the model: {', '.join(JUDGE_OPTIONS)} or {_HEADER}NAME.",
        ),
    ] = None

    @property
    def judges(self) -> list[str]:
        """The names of the judges, without the judge of `--escalate-to`. By default, only `offline`."""
        return self.judge or ["offline"]

    @property
    def uses_model(self) -> bool:
        """Whether at least one judge has a model. If so, the judgments are stored."""
        return has_model(self.judges[0]) or self.escalate_to is not None

    @property
    def judge_files(self) -> list[Path]:
        """The files of aligned judges, which the command reads."""
        from rubric_integrations.judges import judge_file_of

        return [file for judge in (*self.judges, self.escalate_to) if (file := judge_file_of(judge))]

    @property
    def display_name(self) -> str:
        """The names of all judges, for messages and files."""
        return " then ".join(filter(None, (", ".join(self.judges), self.escalate_to)))

    def make_judge(self, judge: str, *, confidence: bool = False) -> Judge:
        """Make one judge from a model name, the file of a judge, or the name of a judge without a model.

        Args:
            judge: The model's name, the file of an aligned judge, or `offline`.
            confidence: Whether the model states its confidence.

        Raises:
            ValueError: The model name is empty, a setting is unknown or has a wrong value, a judge without a model has
                a base URL or a setting, or the file is not an aligned judge.
        """
        from rubric_integrations.judges import as_judge, judge_file_of
        from rubric_integrations.judges.cascade import load_cascade
        from rubric_integrations.judges.decisions import is_decision_model
        from rubric_integrations.judges.thresholds import has_thresholds

        use_bundled_prices(self.api_base)
        settings, own = parse_judge_options(self.judge_option or ())
        server = {"api_base": self.api_base, "api_key": self.api_key}
        if not has_model(judge):
            chosen = {**server, "judge_option": self.judge_option or None}
            for name, value in chosen.items():
                if value is not None:
                    option = f"--{name.replace('_', '-')}"
                    raise ValueError(f"`{option}` has no effect on the judge {judge!r}: leave it out, or name a model")
            return as_judge(judge)
        if is_decision_model(judge):
            from rubric_integrations.judges.decision_judge import decision_judge_of

            for option in (*settings, *own):
                raise ValueError(
                    f"`--judge-option` {option!r} has no effect on the decision model {judge!r}, which reads only "
                    "questions: leave it out"
                )
            return decision_judge_of(judge, **server)
        if (file := judge_file_of(judge)) and has_thresholds(file):
            return load_cascade(file, lambda name: self.make_judge(name, confidence=True))
        # The import of DSPy takes a second: only a judge with a model needs it.
        from rubric_integrations.judges.lm_judge import LMJudge, load_judge
        from rubric_integrations.judges.models.names import ModelSettings

        if file := judge_file_of(judge):
            for fixed in own:
                raise ValueError(
                    f"`--judge-option` {fixed!r} has no effect on {file}, whose prompts decide: leave it out"
                )
            return load_judge(file, ModelSettings(**server, **settings))
        own.setdefault("confidence", confidence)
        return LMJudge(judge, settings=ModelSettings(**server, **settings), **own)

    def make_explorer(self, model: str | None) -> Explorer | None:
        """Make the explorer of `--explore` with the base URL and the settings of the judges. None without a model.

        Raises:
            ValueError: The model name is empty, a setting is unknown or has a wrong value, or no judge has a model.
        """
        if model is None:
            return None
        if not self.uses_model:
            raise ValueError(
                f"`--explore` pays for steps that the judge {self.judges[0]!r} does not read: leave it out, or name a "
                "model with `--judge`"
            )
        from rubric_integrations.judges.explorer import Explorer
        from rubric_integrations.judges.models.names import ModelSettings

        settings, _ = parse_judge_options(self.judge_option or ())
        return Explorer(model, settings=ModelSettings(self.api_base, self.api_key, **settings))

    def make_judges(self) -> list[Judge]:
        """Make one judge, the judges of a panel, or a cascade, all with the same base URL and settings.

        Raises:
            ValueError: `make_judge` refuses a judge, a judge without a model is on a panel, only one of `escalate_to`
                and `escalate_below` is set, the judges cannot form a cascade, or several models would have the same
                name.
        """
        judges, (_, own) = self.judges, parse_judge_options(self.judge_option or ())
        if len({*judges, self.escalate_to} - {None}) > 1 and "name" in own:
            raise ValueError(
                "`--judge-option` 'name' would give one name to several models, and the ledger would take their "
                "judgments for each other's: leave it out, or name one model"
            )
        if self.escalate_to is not None:
            return [self._make_cascade(self.escalate_to)]
        if self.escalate_below is not None:
            raise ValueError("`--escalate-below` has no effect without `--escalate-to`: name the expensive model there")
        if len(judges) > 1 and (named := [judge for judge in judges if not has_model(judge)]):
            raise ValueError(
                f"`--judge` {named[0]!r} next to other judges uses no model, and abstains where they vote: leave it "
                "out (criteria with a check are decided in code with every judge)"
            )
        return [self.make_judge(judge) for judge in judges]

    def _make_cascade(self, expensive: str) -> Judge:
        """Make a cascade of the judges of `--judge` and the expensive model of `--escalate-to`."""
        from rubric_integrations.judges import Cascade, as_judge, judge_file_of
        from rubric_integrations.judges.thresholds import has_thresholds

        if (file := judge_file_of(self.judges[0])) and len(self.judges) == 1 and has_thresholds(file):
            if self.escalate_below is not None:
                raise ValueError(f"`--escalate-below` has no effect on {file}, which has thresholds: leave it out")
            cascade: Any = self.make_judge(self.judges[0])
            return Cascade(cascade.cheap, self.make_judge(expensive), thresholds=cascade.thresholds)
        if self.escalate_below is None:
            raise ValueError(
                "`--escalate-to` needs `--escalate-below`, the confidence below which a question is escalated: "
                "`certify` prints one; with 0, only failures, abstentions and differing verdicts are escalated"
            )
        states_confidence = self.escalate_below > 0
        # A judge without a model has no settings. They apply to the other judges.
        cheap = [
            self.make_judge(judge, confidence=states_confidence) if has_model(judge) else as_judge(judge)
            for judge in self.judges
        ]
        return Cascade(cheap, self.make_judge(expensive), self.escalate_below)


@dataclass(frozen=True)
class GraderOptions:
    """The options for the settings of a grader.

    Attributes:
        normalize: Whether scores are in [0, 1]. If False, they are weighted sums. Only `serve` has an option for it.
    """

    panel: ClassVar[str] = "Grading"

    strategy: Annotated[
        Strategy, typer.Option(help="One call per criterion, one call for all criteria, or one overall score.")
    ] = "per-criterion"
    stop_when_decided: Annotated[
        bool,
        typer.Option(
            "--stop-when-decided", help="Skip the criteria of a submission that can no longer change `passed`."
        ),
    ] = False
    cannot_assess: Annotated[
        Literal["skip", "zero", "partial", "fail"], typer.Option(help="How an abstention counts.")
    ] = "skip"
    on_failure: Annotated[
        Literal["raise", "abstain", "worst_case"],
        typer.Option(help="After a judge failure: leave the submission ungraded (raise), or count it as this."),
    ] = "raise"
    max_concurrency: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent calls to the judge.")] = 64
    max_retries: Annotated[int, typer.Option(min=0, help="Retries after a failed call or an unreadable reply.")] = 2
    timeout: Annotated[float, typer.Option(min=0.1, help="The timeout of one call in seconds.")] = 120.0
    max_outage: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds to wait for a judge that does not reply, before the run ends. By default 300, and 7 for a "
            "server that was never reached.",
        ),
    ] = None
    step_limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show judges at most this many characters of a tool's result in a trajectory, and how many are "
            "omitted. By default all.",
        ),
    ] = None
    chunk_size: Annotated[
        int | None,
        typer.Option(
            min=1_000,
            help="Judge longer responses in parts of at most this many characters: a criterion is met if any part "
            "meets it. By default, responses are not split.",
        ),
    ] = None
    explore: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Let this model choose, once for each submission, the steps of a long trajectory that judges see.",
        ),
    ] = None
    explore_above: Annotated[
        int, typer.Option(min=0, help="Explore only trajectories of more characters, with --explore.")
    ] = 50_000
    normalize: bool = True

    def make_grader(self, judges: list[Judge], explorer: Explorer | None = None) -> Grader:
        """Make the grader, with one judge or a panel.

        Args:
            judges: The judges.
            explorer: The explorer of `--explore`, or None.

        Raises:
            ValueError: An option cannot be combined with the strategy.
            TypeError: A judge cannot answer the requests of the strategy.
        """
        from rubric_integrations.graders import (
            CallLimits,
            PerCriterionGrader,
            PerCriterionOneShotGrader,
            RubricAsJudgeGrader,
            TextLimits,
        )

        if self.explore_above != 50_000 and explorer is None:
            raise ValueError("`--explore-above` has no effect without `--explore`: name a model there")
        texts = TextLimits(step_limit=self.step_limit, chunk_size=self.chunk_size)
        if explorer is not None:
            texts = TextLimits(
                step_limit=self.step_limit,
                chunk_size=self.chunk_size,
                explorer=explorer,
                explore_above=self.explore_above,
            )
        shared: dict[str, Any] = {
            "judges": judges,
            "cannot_assess": self.cannot_assess,
            "on_failure": self.on_failure,
            "normalize": self.normalize,
            "limits": CallLimits(
                max_concurrency=self.max_concurrency,
                max_retries=self.max_retries,
                timeout=self.timeout,
                max_outage=self.max_outage,
            ),
            "text_limits": texts,
        }
        if self.strategy == "per-criterion":
            return PerCriterionGrader(**shared, stop_when_decided=self.stop_when_decided)
        if self.stop_when_decided:
            raise ValueError(
                "`--stop-when-decided` goes with `--strategy per-criterion`: with "
                f"{self.strategy} one call answers everything"
            )
        return PerCriterionOneShotGrader(**shared) if self.strategy == "one-shot" else RubricAsJudgeGrader(**shared)


@dataclass(frozen=True)
class RowOptions:
    """The options for reading rows: the columns of a file, its format, and a library of rubrics."""

    panel: ClassVar[str] = "Rows"

    query: Annotated[str | None, typer.Option(help="The task, for rows without a `query`.")] = None
    response_column: Annotated[
        str | None, typer.Option(help="The column of the responses, if not `response`, or a path: output.text.")
    ] = None
    query_column: Annotated[str | None, typer.Option(help="The column of the tasks, if not `query`.")] = None
    reference_column: Annotated[
        str | None, typer.Option(help="The column of reference responses, if not `reference`.")
    ] = None
    id_column: Annotated[str | None, typer.Option(help="The column of the ids, if not `id`.")] = None
    rubric_column: Annotated[str | None, typer.Option(help="The column of the rows' own rubrics, if not `rubric`.")] = (
        None
    )
    rows: Annotated[
        str | None,
        typer.Option(
            help="The path of the list of rows in a JSON file, such as run.results; or the sheet of an .xlsx."
        ),
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="The encoding of the file, such as cp1252, if it is not UTF-8.")
    ] = None
    input_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="The format, such as jsonl, or txt for one text, if the suffix does not name it. Needed for stdin: -.",
        ),
    ] = None
    respond: Annotated[
        Literal["last", "transcript", "trajectory"] | None,
        typer.Option(
            help="The graded part of a conversation: its last answer, or all of it (trajectory: with numbered steps)."
        ),
    ] = None
    library: Annotated[
        Path | None, typer.Option(help="A file of rubrics by name, for rows whose `rubric` is a name.")
    ] = None

    def open(self, path: Path) -> ResponsesFile:
        """Return a file of responses, to be read with these options."""
        from rubric_integrations.submission.columns import ColumnNames
        from rubric_integrations.submission.files import ResponsesFile
        from rubric_integrations.submission.tables import Layout

        columns = ColumnNames(
            self.response_column, self.query_column, self.reference_column, self.id_column, self.rubric_column
        )
        return ResponsesFile(
            path, self.query, Layout(columns, self.rows, self.encoding, self.respond, self.input_format)
        )

    @property
    def arguments(self) -> list[str]:
        """The options that are set, as command-line arguments for a command that a message suggests."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return [text for name, value in values.items() if value is not None for text in (option_name(name), str(value))]


def option_name(field: str) -> str:
    """Return the name of the option for a field of a record, such as `--id-column`."""
    return f"--{field.replace('_', '-')}"


# Without a repr, because it would show the password of a URL.
@dataclass(frozen=True, repr=False)
class LedgerOptions:
    """The options for the ledger of a run and for its limits on spend."""

    panel: ClassVar[str] = "Ledger and limits"

    ledger: Annotated[
        str | None,
        typer.Option(
            help="Store each judgment in this file, or in the PostgreSQL database of this URL: a stored one is not "
            "requested again. By default a file next to --out, if a model judges and --out is a file."
        ),
    ] = None
    resume: Annotated[
        bool | None,
        typer.Option(
            "--resume/--no-resume", help="Reuse the judgments in the ledger (the default if it exists), or ignore them."
        ),
    ] = None
    max_cost: Annotated[float | None, typer.Option(min=0, help="Stop before spending more US dollars.")] = None
    max_calls: Annotated[int | None, typer.Option(min=0, help="Stop before making more calls.")] = None
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=IN,OUT",
            help="Dollars per million input and output tokens of a model, for --max-cost: "
            "openai/mine=0.25,2. By default, the prices of DSPy's price list.",
        ),
    ] = None
    run_name: Annotated[
        str | None,
        typer.Option(
            "--run", help="Apply --max-cost and --max-calls to all processes that use this name and this ledger."
        ),
    ] = None

    @property
    def prices(self) -> dict[str, tuple[float, float]]:
        """The prices of `--price`, in the form of the argument `prices` of `grade_many`.

        Raises:
            ValueError: A price does not have the form NAME=IN,OUT.

        Example:
            >>> LedgerOptions(price=["openai/mine=0.25,2"]).prices
            {'openai/mine': (0.25, 2.0)}
        """
        prices: dict[str, tuple[float, float]] = {}
        for text in self.price or ():
            name, _, numbers = text.rpartition("=")
            try:
                sent, received = map(float, numbers.split(","))
            except ValueError:
                raise ValueError(f"`--price` {text!r} must be NAME=IN,OUT, such as openai/mine=0.25,2") from None
            prices[name] = sent, received
        return prices


def import_modules(names: Sequence[str]) -> None:
    """Import the modules of `--import`: files that end with `.py`, or modules of the working directory or of packages.

    Such modules register custom metrics, for example. If an import fails, the command ends with an error.
    """
    if names:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        try:
            if name.endswith(".py"):
                _import_file(Path(name).resolve())
            else:
                import_module(name)
        except Exception as error:  # noqa: BLE001 -- a user's module may raise any exception
            reason = str(error).partition("\n")[0]
            refuse(f"`--import` {name!r} cannot be imported: {type(error).__name__}: {reason}")


def _import_file(path: Path) -> None:
    """Import a Python file, which may import other files of its folder."""
    # Another module may have the name of the file, such as `checks`. It must not be replaced.
    name = path.stem if path.stem not in sys.modules else f"_imported_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{str(path)!r} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)


def use_bundled_prices(api_base: str | None) -> None:
    """Keep DSPy and LiteLLM from downloading newer price lists if the model's server is in the local network.

    The internet may be out of reach there. Each process would wait for it for seconds, and print a warning.
    """
    from rubric_integrations.judges.models.servers import ModelServer

    is_local = api_base is not None and ModelServer(api_base, "`--api-base`").is_local
    if is_local and not os.environ.get("LITELLM_LOCAL_MODEL_COST_MAP"):
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


def has_model(judge: str) -> bool:
    """Return whether the value of `--judge` names a model or its file, and not a judge without a model."""
    from rubric_integrations.judges import NAMED_JUDGES

    return judge not in NAMED_JUDGES


def describe_requests(judges: Sequence[Judge]) -> str:
    """Describe in one line who sends the requests of the judges' models, where to, and why, and names no version."""
    from rubric_integrations.graders.panel import describe_judge
    from rubric_integrations.judges.protocol import innermost
    from rubric_integrations.trust.model_versions import NO_VERSION, unversioned_models

    members: list[Any] = [innermost(member) for judge in judges for member in getattr(judge, "members", (judge,))]
    aliases = unversioned_models(json.dumps([describe_judge(judge) for judge in judges]))
    lines = [*filter(None, map(_describe_requests_of, members)), *(f"{model} {NO_VERSION}" for model in aliases)]
    return "; ".join(dict.fromkeys(lines))


def caution_of(judges: Sequence[Judge], criteria: Sequence[Criterion]) -> str | None:
    """Return the warning of a decision judge about some criteria. None if there is no such judge or criterion."""
    from rubric_integrations.judges.protocol import innermost

    members: list[Any] = [innermost(member) for judge in judges for member in getattr(judge, "members", (judge,))]
    judge = next((member for member in members if hasattr(member, "caution")), None)
    return judge.caution([criterion for criterion in criteria if criterion.check is None]) if judge else None


def _describe_requests_of(judge: Any) -> str:
    """Describe the requests of one judge. Empty for a judge without a model."""
    if (url := getattr(judge, "url", None)) is not None and hasattr(judge, "model_name"):
        return f"{judge.model_name}: {url}, many criteria in one request"
    if (lm := getattr(judge, "lm", None)) is None:
        return ""
    # The import of DSPy takes a second: only a judge with a language model needs it.
    from rubric_integrations.judges.fast_path import describe_path

    return f"{lm.model}: {describe_path(lm)}"


def parse_judge_options(options: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse texts such as `key=value` to the fields of a `ModelSettings` and the other arguments of `LMJudge`.

    Raises:
        ValueError: A key is unknown or repeated, or a value has the wrong type. Only in the last case the message shows
            the value, because the value of a header or of an unknown key may be a credential.

    Example:
        >>> parse_judge_options(["temperature=0", "seed=7", "name=strict", "header.X-Team=evals"])
        ({'temperature': 0.0, 'seed': 7, 'headers': {'X-Team': 'evals'}}, {'name': 'strict'})
    """
    headers: dict[str, str] = {}
    settings: dict[str, Any] = {}
    own: dict[str, Any] = {}
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
        target = settings if JUDGE_OPTIONS[key].is_of_model else own
        if key in target:
            raise ValueError(f"`--judge-option` has {key!r} twice: the first value would be lost, so remove one")
        try:
            target[key] = JUDGE_OPTIONS[key].convert(value)
        except ValueError:
            raise ValueError(f"`--judge-option` {key}={value!r}: must be {JUDGE_OPTIONS[key].kind}") from None
    return settings | ({"headers": headers} if headers else {}), own


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Replace possible secrets in the arguments of a command: keys, values of headers, and parts of URLs.

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


# The replacement of the values of options that may be secret.
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


LedgerAddress = Path | str
"""The path of a ledger's file, or the URL of a database as text."""


def ledger_address(text: str) -> LedgerAddress:
    """Return a text as the address of a ledger. End the command if it is neither a path nor the URL of a ledger."""
    from rubric_integrations.runs.ledger.addresses import path_of
    from rubric_integrations.runs.ledger.base import LedgerError

    try:
        return path_of(text) or text
    except LedgerError as error:
        refuse(str(error))


def ledger_exists(address: LedgerAddress | None) -> bool:
    """Return whether a ledger exists. True for any URL of a database: its tables are created at the first use."""
    return address.exists() if isinstance(address, Path) else address is not None


def open_ledger(address: LedgerAddress) -> RunLedger:
    """Open a ledger, or end the command if it cannot be used."""
    from rubric_integrations.runs.ledger import LedgerError
    from rubric_integrations.runs.ledger import open_ledger as open_by_address

    try:
        return open_by_address(address)
    except LedgerError as error:
        refuse(str(error))


def open_ledger_of_run(address: LedgerAddress | None, run_name: str | None) -> RunLedger | None:
    """Open the ledger of a run. Return None if the run has no ledger.

    End the command if a run with a name (`--run`) has no ledger.
    """
    if address is None and run_name is not None:
        refuse(f"--run {run_name}: name the ledger that its processes share, with --ledger")
    return None if address is None else open_ledger(address)
