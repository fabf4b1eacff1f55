"""`isthmus demo`: a causal group of five OS processes over real TCP, under load, through a `kill -9`."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, Progress, TextColumn

from isthmus.adapters.embedded import plan, spawn
from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, out, print_json, table
from isthmus.cli.load import VARIABLE, Load
from isthmus.core.ids import SECOND
from isthmus.runtime.loop import run as run_loop
from isthmus.simulator.oracles import judge
from isthmus.simulator.run import PROMISED
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event, Report
from isthmus.trace.writer import JsonlSink

PROCESSES = ("p1", "p2", "p3", "p4", "p5")
VICTIM = "p4"
APPLICATION = "isthmus.cli.load:application"


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    seconds: Annotated[float, typer.Option(help="How long to send.", min=2, max=600)] = 8,
    rate: Annotated[float, typer.Option(help="Messages per second and process.", min=1, max=20_000)] = 1500,
    trace: Annotated[Path | None, typer.Option(help="Keep the traces in this directory.")] = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Run a causal group of five OS processes over TCP, kill one of them, and judge the traces."""
    with tempfile.TemporaryDirectory(prefix="isthmus-demo-") as temporary:
        directory = trace or Path(temporary)
        if output is Output.HUMAN:
            out.print(
                f"Five processes, one causal group, real TCP: {rate:,.0f} messages/s from each, for {seconds:g} s."
            )
            out.print(f"Half-way through, {VICTIM} is killed with SIGKILL.")
        killed_at = run_loop(_play(directory, Load(rate, 100, seconds)))
        _certify_death(directory, killed_at)
        read = read_trace([directory])
        events = list(read.events())
        report = judge(events, PROMISED["causal"])
    figures = _figures(events, killed_at)
    if output is Output.JSON:
        print_json({"verdicts": report.verdicts, "violations": report.violations, "figures": figures})
    else:
        _print(report, figures, trace)
    return VIOLATED if report.violated else HOLDS


async def _play(directory: Path, load: Load) -> int:
    """The run. Returns when the victim was killed, in nanoseconds of the trace's clock."""
    spec, listeners = plan(PROCESSES, "causal", system="demo", run="demo", trace=str(directory), trace_sync=True)
    environment = {**os.environ, VARIABLE: msgspec.json.encode(load).decode()}
    children = {
        name: await spawn(spec, name, APPLICATION, listener, together=True, env=environment)
        for name, listener in listeners.items()
    }
    try:
        await _watch("sending", load.seconds / 2 + 1)
        children[VICTIM].kill()
        killed_at = time.time_ns()
        await _watch(f"{VICTIM} is dead, the others go on", load.seconds / 2 + 1)
        for name, child in children.items():
            if name != VICTIM:
                child.terminate()
        await asyncio.wait_for(asyncio.gather(*(child.wait() for child in children.values())), timeout=30)
    finally:
        for child in children.values():
            if child.returncode is None:
                child.kill()
    return killed_at


def _certify_death(directory: Path, killed_at: int) -> None:
    """Who was killed could not say so. We killed it, so we can: its log ends here."""
    log = next(log for log in read_trace([directory]).logs.values() if log.process == VICTIM)
    index = log.events[-1].index + 1 if log.events else 0
    note = "killed with SIGKILL by the demo"
    row = Event(
        run=log.run,
        system=log.system,
        process=log.process,
        role=log.role,
        index=index,
        event="crash",
        time_ns=killed_at,
        note=note,
    )
    sink = JsonlSink(directory / f"{log.run}.{log.system}.{log.process}.jsonl")
    sink.write([row])
    sink.close()


async def _watch(what: str, seconds: float) -> None:
    columns = (TextColumn("{task.description:<32}"), BarColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
        task = progress.add_task(what, total=seconds)
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            progress.update(task, completed=elapsed)
            await asyncio.sleep(0.1)
        progress.update(task, completed=seconds)


def _figures(events: list[Event], killed_at: int) -> dict[str, Any]:
    """What a user asks first: how much, how fast, how long was the hiccup."""
    sent_at = {_message(event): event.time_ns for event in events if event.event == "send"}
    delivered = [event for event in events if event.event == "deliver"]
    delays = sorted(event.time_ns - sent_at[_message(event)] for event in delivered if _message(event) in sent_at)
    views = [event.time_ns for event in events if event.event == "view" and event.time_ns > killed_at]
    elapsed = max(event.time_ns for event in delivered) - min(event.time_ns for event in delivered)
    return {
        "messages": len(sent_at),
        "deliveries": len(delivered),
        "deliveries_per_second": round(len(delivered) * SECOND / elapsed),
        "latency_ms": {f"p{p}": round(delays[len(delays) * p // 100] / 1e6, 2) for p in (50, 90, 99)},
        "next_view_after_kill_ms": round((min(views) - killed_at) / 1e6) if views else None,
    }


def _message(event: Event) -> tuple[str | None, int | None]:
    return event.origin_process, event.origin_seq


def _print(report: Report, figures: dict[str, Any], trace: Path | None) -> None:
    latency = figures["latency_ms"]
    listing = table("figures", "what", "measured")
    listing.add_row("messages sent", f"{figures['messages']:,}")
    listing.add_row("deliveries", f"{figures['deliveries']:,}")
    listing.add_row("deliveries per second", f"{figures['deliveries_per_second']:,}")
    listing.add_row("latency p50 / p90 / p99", " / ".join(f"{value} ms" for value in latency.values()))
    listing.add_row("new view after the kill", f"{figures['next_view_after_kill_ms']} ms")
    out.print(listing)
    verdicts = table("verdicts, from the traces alone", "property", "verdict", "checked")
    for verdict in report.verdicts:
        colour = {"holds": "green", "violated": "red", "unknown": "yellow"}[verdict.verdict]
        verdicts.add_row(verdict.property, f"[{colour}]{verdict.verdict}[/{colour}]", f"{verdict.checked:,}")
    out.print(verdicts)
    for violation in report.violations[:5]:
        out.print(f"  {violation.why}", markup=False)
    if report.violated:
        out.print("[red]The group broke its promise.[/red]")
    else:
        out.print("[green]Causal order kept, nothing lost, nothing twice, through the crash.[/green]")
    if trace is not None:
        out.print(f"Traces are in {trace}; try: isthmus story {trace} demo/p1/100", markup=False)
