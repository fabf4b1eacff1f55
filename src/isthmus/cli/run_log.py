"""`isthmus run` of a log that a broker keeps: its gateway, or a standby of it (docs/design/brokers.md)."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any

from isthmus.adapters.table import make_log
from isthmus.cli.console import HOLDS, Output, err, fail, print_json
from isthmus.runtime.log.driver import Options
from isthmus.runtime.log.settings import settings_of
from isthmus.runtime.log.site import LogSite
from isthmus.runtime.loop import run as run_loop
from isthmus.topology.model import System, Topology


def run_log(
    topology: Topology,
    system: System,
    run_name: str | None,
    trace: Path | None,
    seconds: float | None,
    output: Output,
    *,
    trace_sync: bool,
    accept_loss: bool,
    trace_open: bool,
) -> int:
    if not topology.is_joined(system.name):
        fail(f"{topology.file}: nothing joins {system.name}, so there is nothing to run; add [[joins]]")
    logging.basicConfig(level=logging.INFO, format="isthmus: %(message)s", stream=sys.stderr)
    run_name = run_name or Path(topology.file).stem
    broker = make_log(settings_of(topology, system, run_name))
    options = Options(start=_start(topology, system), accept_loss=accept_loss, trace_open=trace_open)

    async def until_stopped() -> LogSite:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stop.set)
        if seconds is not None:
            loop.call_later(seconds, stop.set)
        site = LogSite(topology, system, broker, run_name, options, trace=trace, trace_sync=trace_sync)
        await site.run(stop)
        return site

    site = run_loop(until_stopped())
    result: dict[str, Any] = {"site": system.name, "read": site.read, "brought_in": site.delivered}
    if output is Output.JSON:
        print_json(result)
    else:
        words = f"{site.read:,} entries read, {site.delivered:,} messages brought in"
        err.print(f"isthmus: {system.name}: {words}", markup=False)
    return HOLDS


def _start(topology: Topology, system: System) -> str:
    """Where the first gateway that ever runs begins to read: the same for all joins of the log."""
    return next(join.flow(system.name).start for join in topology.joins if system.name in join.between)
