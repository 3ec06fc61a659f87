"""The command `serve`: grades over HTTP, for trainers and other programs."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer

from rubric_integrations._util.terminal import plain
from rubric_integrations._util.text import counted
from rubric_integrations.cli.console import Exit, err, out, refuse
from rubric_integrations.cli.options import (
    GraderOptions,
    JudgeOptions,
    LedgerOptions,
    ModulesOption,
    Only,
    import_modules,
    ledger_address,
    open_ledger_of_run,
)

if TYPE_CHECKING:
    from rubric_integrations.server import GradingService

TOKEN_VARIABLE = "RUBRIC_INTEGRATIONS_TOKEN"  # noqa: S105 -- the name of a variable


@dataclass(frozen=True)
class RequestOptions:
    """The options of `serve` for the content of requests and responses."""

    panel: ClassVar[str] = "Requests"

    accept_rubrics: Annotated[
        bool,
        typer.Option("--accept-rubrics", help="Accept requests with their own rubric, in addition to the server's."),
    ] = False
    library: Annotated[
        Path | None, typer.Option(help="A file of rubrics by name, for requests whose `rubric` is a name.")
    ] = None
    label_use: Annotated[
        Literal["reference", "rubric", "ignore"],
        typer.Option(help="The meaning of the labels of /get_reward: reference responses, rubrics, or nothing."),
    ] = "reference"
    empty: Annotated[
        Literal["least", "error"],
        typer.Option(help="The reward of an empty response: the lowest score of the rubric, or an error."),
    ] = "least"
    nan_on_failure: Annotated[
        bool,
        typer.Option(
            "--nan-on-failure",
            help="Let /get_reward send NaN for a sample without a score. Only for OpenRLHF with dynamic filtering.",
        ),
    ] = False


@dataclass(frozen=True)
class ServerOptions:
    """The options of `serve` for the address and the limits of the server."""

    panel: ClassVar[str] = "Server"

    host: Annotated[
        str, typer.Option(help="The address to listen on. If other machines can reach it, it needs a token.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 for any free port.")] = 8100
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token that requests need, instead of the variable RUBRIC_INTEGRATIONS_TOKEN."
        ),
    ] = None
    max_body: Annotated[int, typer.Option(min=1, help="The largest body of a request, in bytes.")] = 8_000_000
    max_waiting: Annotated[
        int, typer.Option(min=1, help="The largest number of grades in progress; further requests get 503.")
    ] = 1024
    deadline: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a request gets 503, while its grade continues.")
    ] = 150.0
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for which grades may continue after SIGTERM or Ctrl-C.")
    ] = 30.0


def serve(
    judges: Annotated[
        JudgeOptions,
        Only(
            ("escalate_to", "escalate_below", "api_base", "api_key", "judge_option"),
            {"judge": "Required: a model, the file of an aligned judge, or offline. Several are a panel."},
        ),
    ],
    grader_options: Annotated[
        GraderOptions,
        Only(
            ("strategy", "cannot_assess", "max_concurrency", "max_retries", "timeout"),
            {
                "max_outage": "Seconds to wait for a judge that does not reply, before a grade fails.",
                "step_limit": "Show judges at most this many characters of a tool's result.",
                "chunk_size": "Judge longer responses in parts of at most this many characters.",
            },
        ),
    ],
    requests: RequestOptions,
    ledger_options: Annotated[
        LedgerOptions,
        Only(
            texts={
                "ledger": "Store each judgment in this file, or in the PostgreSQL database of this URL.",
                "run_name": "Apply --max-cost and --max-calls to this name in the ledger, also after a restart.",
                "max_cost": "Refuse to spend more US dollars.",
                "max_calls": "Refuse to make more calls.",
                "price": "Dollars per million input and output tokens of a model that has no known price.",
            }
        ),
    ],
    server: ServerOptions,
    rubric: Annotated[
        str | None,
        typer.Argument(
            help="The rubric: a YAML, JSON or TOML file. Leave it out if each request has a rubric.", show_default=False
        ),
    ] = None,
    normalize: Annotated[
        bool,
        typer.Option(
            "--normalize/--raw",
            help="Scores in [0, 1], or sums of weights, which may be negative.",
            rich_help_panel=GraderOptions.panel,
        ),
    ] = True,
    modules: ModulesOption = None,
) -> None:  # fmt: skip
    """Serve grades over HTTP: POST /get_reward (OpenRLHF), POST /grade, GET /healthz, GET /metrics.

    A failure of the judge is an HTTP error, never a number. After SIGTERM or Ctrl-C, the server finishes the grades in
    progress and ends.

    Exit codes: 0 stopped by a signal; 2 bad usage or bad input; 130 stopped by a signal, and grades were cancelled.
    """
    import asyncio

    from rubric_integrations.judges.offline import WHAT_IT_IS
    from rubric_integrations.judges.store import StoreError
    from rubric_integrations.server import GradingService, make_app
    from rubric_integrations.server.running import run_until_signal

    if judges.judge is None:
        refuse(
            "name the judge with `--judge`: a model, such as openai/gpt-5-mini; or `--judge offline`, without a model, "
            "which gives mostly meaningless rewards"
        )
    token = _read_token(server.token_file)
    _require_token(server.host, token)
    ledger = ledger_options.ledger
    store = open_ledger_of_run(None if ledger is None else ledger_address(ledger), ledger_options.run_name)
    try:
        with store or nullcontext():
            import_modules(modules or ())
            grader = replace(grader_options, normalize=normalize).make_grader(judges.make_judges())
            service = GradingService(
                rubric, grader, library=requests.library, ledger=store,
                accept_rubrics=requests.accept_rubrics or requests.label_use == "rubric",
                max_calls=ledger_options.max_calls, max_cost=ledger_options.max_cost,
                prices=ledger_options.prices, run=ledger_options.run_name, max_waiting=server.max_waiting,
                deadline=server.deadline,
            )  # fmt: skip
            app = make_app(
                service, token=token, label_use=requests.label_use, empty=requests.empty,
                nan_on_failure=requests.nan_on_failure, max_body=server.max_body,
            )  # fmt: skip
            if not judges.uses_model:
                err.print(plain(WHAT_IT_IS), soft_wrap=True)
            settings = _settings(service, rubric, judges.display_name, None if store is None else store.address, token)

            def announce(url: str) -> None:
                out.print(plain(f"Listening on {url} with {settings}"), soft_wrap=True)
                out.file.flush()

            cancelled = asyncio.run(
                run_until_signal(
                    app, service, host=server.host, port=server.port, grace=server.grace, announce=announce
                )
            )
    except OSError as error:
        refuse(f"{server.host}:{server.port}: cannot listen there: {error.strerror or error}")
    except (StoreError, ValueError, TypeError) as error:
        refuse(str(error))
    out.print(f"Stopped. {counted(cancelled, 'grade')} cancelled." if cancelled else "Stopped.")
    raise typer.Exit(Exit.INTERRUPTED if cancelled else Exit.DONE)


def _read_token(file: Path | None) -> str | None:
    """Return the token from the file or the environment. An option would show it to other users."""
    from rubric_integrations.server.app import check_token

    text = os.environ.get(TOKEN_VARIABLE)
    try:
        if file is not None:
            text = file.read_text(encoding="utf-8")
        return None if text is None else check_token(text)
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'is not text'}")
    except ValueError as error:
        refuse(f"{file or TOKEN_VARIABLE}: {error}")


def _require_token(host: str, token: str | None) -> None:
    from rubric_integrations.server.app import is_loopback

    if token is None and not is_loopback(host):
        refuse(
            f"--host {host}: other machines can reach it, so it needs a token: set {TOKEN_VARIABLE} or --token-file; "
            "without one, anybody could spend your money"
        )


def _settings(service: GradingService, rubric: str | None, judges: str, ledger: str | None, token: str | None) -> str:
    own = service.shared_rubric
    parts = [
        f"{rubric} ({counted(len(own), 'criterion', 'criteria')})" if own else "the rubrics of requests",
        f"judge {judges}",
        f"ledger {ledger}" if ledger else "no ledger (a restart requests judgments again)",
        "a token" if token else "no token",
    ]
    return ", ".join(parts)
