"""Records of options: a command gets them, and the shell has one option for each field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import typer
from typer.testing import CliRunner, Result

from rubric_integrations.cli.options import JudgeOptions, LedgerOptions, Only, with_flat_signature


@dataclass(frozen=True)
class Colours:
    """A record with a required option, two with defaults, and a field that is no option."""

    panel: ClassVar[str] = "Colours"

    front: Annotated[str, typer.Option(help="The colour in front.")]
    back: Annotated[str | None, typer.Option("--behind", help="The colour behind.")] = None
    gloss: Annotated[int, typer.Option(min=0, help="How much it shines.")] = 3
    layers: int = 1


def run(command: Callable[..., None], *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(with_flat_signature(command))
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)


def paint(wall: str, colours: Colours, times: int = 1) -> None:
    """Paint a wall."""
    typer.echo(f"{wall} {colours} {times}")


def touch_up(colours: Annotated[Colours, Only(("front",), {"back": "The colour of the wall."})]) -> None:
    """Touch up a wall."""
    typer.echo(colours)


def test_fields_of_a_record_are_options_and_the_command_gets_the_record() -> None:
    result = run(paint, "north", "--front", "red", "--behind", "blue", "--times", "2")
    assert result.stdout == "north Colours(front='red', back='blue', gloss=3, layers=1) 2\n"
    result = run(paint, "north", "--front", "red", "--gloss", "0")
    assert result.stdout == "north Colours(front='red', back=None, gloss=0, layers=1) 1\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["north"], "Missing option '--front'"),
        (["north", "--front", "red", "--gloss", "-1"], "Invalid value for '--gloss'"),
        (["north", "--front", "red", "--layers", "2"], "No such option: --layers"),
    ],
)
def test_option_of_a_record_is_checked_as_any_other(arguments: list[str], message: str) -> None:
    result = run(paint, *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_options_of_a_record_are_in_its_panel_of_the_help() -> None:
    text = run(paint, "--help").stdout
    assert "Paint a wall." in text
    assert text.index("--times") < text.index("─ Colours ─") < text.index("--front") < text.index("--behind")


def test_only_leaves_out_options_and_has_its_own_help_texts() -> None:
    text = run(touch_up, "--help").stdout
    assert ("The colour in front." in text, "The colour of the wall." in text) == (True, True)
    assert ("--gloss" in text, "The colour behind." in text) == (False, False)
    assert run(touch_up, "--front", "red").stdout == "Colours(front='red', back=None, gloss=3, layers=1)\n"


@pytest.mark.parametrize("name", ["middle", "layers"])
def test_only_with_a_name_that_is_no_option_is_refused(name: str) -> None:
    def command(colours: Colours) -> None:
        typer.echo(colours)

    command.__annotations__["colours"] = Annotated[Colours, Only((name,))]
    with pytest.raises(ValueError, match=f"`Only` names \\['{name}'\\], which are no options of Colours"):
        with_flat_signature(command)


def test_repr_of_options_shows_no_secret() -> None:
    options = JudgeOptions(["m"], api_key="sk-secret", judge_option=["header.X-Key=secret"])
    assert "secret" not in repr(options) + repr(LedgerOptions("postgresql://me:secret@host/db"))
