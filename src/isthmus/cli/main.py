"""The `isthmus` command: collects the subcommands, and turns every error that a user can cause into one line."""

from __future__ import annotations

import sys

import typer
from typer.exceptions import TyperException

import isthmus
from isthmus.cli import (
    audit,
    bench,
    campaign,
    check,
    counts,
    demo,
    explore,
    frames,
    measure,
    plan,
    report,
    run,
    shiviz,
    simulate,
    story,
    wan,
)
from isthmus.cli.console import BAD_INPUT, CommandError, err
from isthmus.runtime.problems import RuntimeProblem
from isthmus.topology.problem import TopologyError
from isthmus.trace.schema import TraceError

app = typer.Typer(
    name="isthmus",
    help="Joins existing message-broadcast systems into one, without changing any of them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (
    demo,
    check,
    plan,
    simulate,
    campaign,
    explore,
    run,
    audit,
    measure,
    report,
    shiviz,
    wan,
    story,
    frames,
    counts,
    bench,
):
    module.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isthmus {isthmus.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Options before the command."""


def main() -> None:
    """Run one command. Exit code 0: it holds or worked; 1: a property is violated; 2: bad input or usage."""
    try:
        code = app(prog_name="isthmus", standalone_mode=False)
    except TyperException as error:
        what = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        _complain(f"{what.rstrip(chr(46))}; see `isthmus --help`")
    except TopologyError as error:
        _complain(*(str(problem) for problem in error.problems))
    except (CommandError, TraceError, RuntimeProblem) as error:
        _complain(str(error))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _complain(*lines: str) -> None:
    for line in lines:
        err.print(f"isthmus: {line}", markup=False, style="red")
    sys.exit(BAD_INPUT)
