"""The `isthmus` command: the table of its commands, and one line for every error that a user can cause."""

from __future__ import annotations

import sys

import typer
from typer.exceptions import TyperException

import isthmus
from isthmus.cli.commands import PLAIN, Command, CommandGroup
from isthmus.cli.console import BAD_INPUT, CommandError
from isthmus.pipeline.problems import SparkProblem
from isthmus.runtime.problems import RuntimeProblem
from isthmus.topology.problem import TopologyError
from isthmus.trace.places import StoreProblem
from isthmus.trace.schema import TraceError

COMMANDS = (
    Command("demo", "Use", "demo:demo", "Join two systems over an emulated WAN, kill a gateway, and judge."),
    Command("check", "Use", "check:check", "Say whether a topology file is one whose promises can be kept."),
    Command("plan", "Use", "plan:plan", "Say what to expect of a topology: messages, latency, links."),
    Command("run", "Use", "run_options:run", "Run the processes of one site for real, until told to stop."),
    Command("simulate", "Study", "simulate:simulate", "Simulate a topology with faults, every seed the same."),
    Command("explore", "Study", "explore:explore_topology", "Look at every schedule of a small topology."),
    Command("campaign", "Study", "campaign:campaign", "Simulate and audit many seeds on Spark, in one job."),
    Command("wan", "Study", "wan:wan", "Carry TCP connections over an emulated line that can be cut."),
    Command("compare", "Operate", "compare:compare", "Compare what joined brokers hold, entry by entry."),
    Command("parked", "Operate", "parked:app", "See messages that a broker refused; append them or give them up."),
    Command("audit", "Operate", "audit:audit", "Audit traces with Spark, complete ones or while they grow."),
    Command("measure", "Operate", "measure:measure", "Measure traces with Spark: latency, throughput, links."),
    Command("report", "Operate", "report:report", "Write a page about traces, with a diagram of each witness."),
    Command("story", "Operate", "story:story", "Tell everything that happened to one message, and why."),
    Command("shiviz", "Operate", "shiviz:shiviz", "Write a run, or a witness, as a log that ShiViz draws."),
    Command("counts", "Develop", "counts:counts", "Count what the papers count, and compare with formulas."),
    Command("frames", "Develop", "frames:frames", "Print the PDUs in a capture of the wire format."),
    Command(
        "conformance", "Develop", "conformance:conformance", "Try an adapter on a real broker, promise by promise."
    ),
    Command("bench", "Develop", "bench:app", "Run benchmarks, all of them or one by its name."),
)


class Commands(CommandGroup):
    table = COMMANDS


app = typer.Typer(
    name="isthmus",
    help="Joins existing message-broadcast systems into one, without changing any of them.",
    cls=Commands,
    no_args_is_help=True,
    **PLAIN,
)


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
        if not sys.argv[1:]:
            typer.echo(str(error), err=True)  # the help
            sys.exit(BAD_INPUT)
        what = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        _complain(f"{what.rstrip(chr(46))}; see `isthmus --help`")
    except TopologyError as error:
        _complain(*(str(problem) for problem in error.problems))
    except (CommandError, TraceError, StoreProblem, RuntimeProblem, SparkProblem) as error:
        _complain(str(error))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _complain(*lines: str) -> None:
    for line in lines:
        typer.secho(f"isthmus: {line}", fg="red", err=True)
    sys.exit(BAD_INPUT)
