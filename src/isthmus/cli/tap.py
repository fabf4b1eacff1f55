"""`isthmus tap`: read a log as any consumer would, and write the trace of that consumer."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, duration_of, err, fail, print_json


class Start(StrEnum):
    START = "start"
    NOW = "now"


class Kept(StrEnum):
    BODY = "body"
    ALL = "all"


def tap(
    topology: Annotated[Path, typer.Argument(help="A topology file.")],
    site: Annotated[str, typer.Option(help="The broker to read.")],
    start: Annotated[
        Start, typer.Option("--from", help="Where to begin: where the join did, or about where its gateway is now.")
    ] = Start.START,
    trace: Annotated[Path | None, typer.Option(help="Write the trace into this directory.")] = None,
    keep: Annotated[Path | None, typer.Option(help="The same, with what entries said.")] = None,
    content: Annotated[Kept, typer.Option(help="With --keep: the body alone, or JSON of the whole entry.")] = Kept.BODY,
    name: Annotated[str, typer.Option(help="Name of the process that the trace is of.")] = "tap",
    run_name: Annotated[str | None, typer.Option("--run", help="Name of the run, as `isthmus run` has it.")] = None,
    duration: Annotated[str | None, typer.Option(help='Stop after this long, such as "10s".')] = None,
    quiet: Annotated[str | None, typer.Option(help="Stop when nothing has come for so long.")] = None,
    end: Annotated[bool, typer.Option(help="When it stops, write down that nothing will follow.")] = False,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Write what a consumer of this log sees, until SIGTERM or SIGINT. Started again, it goes on where it was.

    Kept entries are read by `spark.readStream.format("isthmus")`, together with the traces of the gateways.
    """
    from isthmus.cli.brokers import broker_of, log_of
    from isthmus.core.ids import SECOND
    from isthmus.runtime.log.outside import opened
    from isthmus.runtime.log.place import place_of
    from isthmus.runtime.log.tap import Tap
    from isthmus.runtime.loop import run as run_loop
    from isthmus.topology.file import load

    loaded = load(topology)
    system = broker_of(loaded, site)
    directory = keep or trace
    if directory is None or (keep is not None and trace is not None):
        fail("say where to write, either --trace DIR or --keep DIR: what is kept is a trace, too")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name) or name in system.members:
        there = ", ".join(system.members)
        fail(f"--name {name}: choose letters, digits, _ and -, and none of {there}, which {site} has")
    began = next(join.flow(site).start for join in loaded.joins if site in join.between)
    if start is Start.START and began == "now":
        fail(f"--from start: {topology} has the join begin with 'now', and nobody knows when that was; use --from now")
    seconds = None if duration is None else duration_of("--duration", duration) / SECOND
    rest = None if quiet is None else duration_of("--quiet", quiet) / SECOND
    run = run_name or Path(loaded.file).stem
    logging.basicConfig(level=logging.INFO, format="isthmus: %(message)s", stream=sys.stderr)

    async def until_stopped() -> Tap:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stop.set)
        if seconds is not None:
            loop.call_later(seconds, stop.set)
        async with opened(place_of(loaded, system), log_of(loaded, system, run)) as outside:
            begin = began if start is Start.START else ""
            made = Tap(outside, loaded.run_of(run, site), name, directory, content.value if keep else "nothing", begin)
            await made.run(stop, rest, end=end)
            return made

    made = run_loop(until_stopped())
    if output is Output.JSON:
        print_json({"site": site, "name": name, "delivered": made.delivered})
    else:
        err.print(f"isthmus: {site}: {made.delivered:,} entries written", markup=False)
    return HOLDS
