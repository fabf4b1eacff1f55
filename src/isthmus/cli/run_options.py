"""`isthmus run TOPOLOGY --site SYSTEM`: its options. What they do is in `run`, which imports the whole runtime."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.console import Output, OutputOption


class MediumName(StrEnum):
    AUTO = "auto"
    HUB = "hub"
    MULTICAST = "multicast"


def run(
    topology: Annotated[Path, typer.Argument(help="A topology file.")],
    site: Annotated[str, typer.Option(help="The system to run here.")],
    process: Annotated[list[str] | None, typer.Option(help="Only these processes of it; again for more.")] = None,
    joining: Annotated[bool, typer.Option(help="Join a system that runs already; --process p1+1 for p1 anew.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write traces to this directory.")] = None,
    trace_sync: Annotated[bool, typer.Option(help="Have every row written before anybody can know of it.")] = False,
    run_name: Annotated[str | None, typer.Option("--run", help="Name of the run; the same at all processes.")] = None,
    lines: Annotated[bool, typer.Option(help="Send each line of standard input, print deliveries.")] = False,
    rate: Annotated[float, typer.Option(help="Send this many messages per second and process.", min=0)] = 0,
    size: Annotated[int, typer.Option(help="Bytes of each of those.", min=0, max=1 << 20)] = 100,
    life: Annotated[
        int | None, typer.Option(help="With a journal: how often the whole site was started before.", min=0)
    ] = None,
    journal_sync: Annotated[bool, typer.Option(help="Have the journal on the disk itself, at every step.")] = False,
    duration: Annotated[str | None, typer.Option(help='Stop after this long, such as "10s".')] = None,
    medium: Annotated[
        MediumName,
        typer.Option(help="With [acknowledged]: what carries its PDUs; auto: multicast for po, if there is any."),
    ] = MediumName.AUTO,
    loss: Annotated[
        float, typer.Option(help="With [acknowledged]: the chance that a process misses a PDU.", min=0, max=0.9)
    ] = 0,
    loss_seed: Annotated[int, typer.Option(help="The seed of what is missed.")] = 0,
    hub: Annotated[
        bool, typer.Option("--hub", help="Run the hub here, and no process but those of --process.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option(help="Of a broker: go on behind entries that are gone, as a new origin.")
    ] = False,
    trace_open: Annotated[
        bool, typer.Option("--trace-open", help="Of a broker: do not end the trace of its log when stopping.")
    ] = False,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Run the processes of one site until SIGTERM, SIGINT or --duration. What was accepted is seen through."""
    given = dict(locals())
    from isthmus.cli.run import run_site

    return run_site(**given)
