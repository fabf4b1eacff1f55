"""`isthmus demo`: two sites joined over an emulated WAN, with 1, 2 and 4 links; then a gateway dies under load.

The traces of the latter are audited by Spark, which also writes a report of them. A machine without Spark or Java has
the same verdicts from the oracles that need neither, and no report.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, fail, out, print_json, table
from isthmus.cli.spark import COLOURS
from isthmus.pipeline.problems import SparkProblem, refuse_target

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.failover import FailoverFigures
    from isthmus.lab.demonstration import Throughput
    from isthmus.lab.harness.sites import JoinedSites
    from isthmus.trace.schema import Report

LOOK_EVERY = 0.2


class Result(Struct, frozen=True):
    """The whole demo, as `-o json` prints it. `report` is the page that was written, if it was."""

    line: str
    throughput: list[Throughput]
    figures: FailoverFigures
    verdicts: list[object]
    violations: list[object]
    report: str | None


def demo(
    seconds: Annotated[float, typer.Option(help="How long to measure each number of links.", min=1, max=600)] = 6,
    rate: Annotated[float, typer.Option(help="Messages/s and process while a gateway dies.", min=1, max=5000)] = 250,
    links: Annotated[list[int] | None, typer.Option(help="Links to measure; again for more.", min=1, max=16)] = None,
    trace: Annotated[Path | None, typer.Option(help="Keep the traces in this directory.")] = None,
    report: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE")] = Path("demo-report.html"),
    spark: Annotated[bool, typer.Option(help="Audit with Spark and write a report.")] = True,
    brokers: Annotated[bool, typer.Option("--brokers", help="Join real brokers of several kinds instead.")] = False,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Join two systems over an emulated WAN with 1, 2 and 4 links, kill a gateway under load, audit the traces."""
    if brokers:
        from isthmus.cli.demo_brokers import demo_brokers

        return demo_brokers(seconds, rate, trace, report, spark=spark, output=output)
    from isthmus.lab.benchmarks.failover import VICTIM, figures_of
    from isthmus.lab.benchmarks.wan import LINE, SIZE
    from isthmus.lab.demonstration import kill_gateway, measure_links
    from isthmus.lab.harness.os_process import ChildFailed
    from isthmus.lab.harness.sites import FAR, NEAR
    from isthmus.runtime.loop import run as run_loop
    from isthmus.simulator.run import promised_by
    from isthmus.trace.oracles import judge
    from isthmus.trace.reader import read_trace

    promised = promised_by("causal")
    if spark:
        refuse_target(report)
    numbers = sorted(set(links or (1, 2, 4)))
    human = output is Output.HUMAN
    if human:
        out.print(f"Two causal systems, {NEAR} and {FAR}, joined over an emulated WAN: {LINE}. All processes are real.")
        out.print(f"One busy process of {NEAR} sends messages of {SIZE} B; a process of {FAR} counts them.")
    with tempfile.TemporaryDirectory(prefix="isthmus-demo-") as temporary:
        directory = trace or Path(temporary) / "trace"
        directory.mkdir(parents=True, exist_ok=True)
        try:
            throughput = run_loop(measure_links(numbers, seconds, _watch))
            if human:
                print_throughput(throughput)
                out.print(
                    f"Now every process of both sites sends {rate:,.0f} messages/s. Half-way through, a gateway of "
                    f"{NEAR} is killed with SIGKILL: {VICTIM}, the sequencer."
                )
            most = max(2, *numbers)
            killed_at = run_loop(kill_gateway(Path(temporary), directory, most, rate, seconds, _watch))
        except (ChildFailed, TimeoutError) as problem:
            fail(f"the demo could not be run to its end: {problem or 'a step took far too long'}")
        events = list(read_trace([directory]).events())
        figures = figures_of(events, killed_at)
        if human:
            print_figures(figures)
        found = audited(directory, report) if spark else None
        page = report if found is not None else None
        if found is None:
            found = judge(events, promised)
    broken = [verdict for verdict in found.violated if verdict.property in promised]
    if human:
        print_verdicts(found, promised, broken=bool(broken))
        print_where(page, trace)
    else:
        shown = str(page) if page is not None else None
        print_json(Result(str(LINE), throughput, figures, [*found.verdicts], [*found.violations], shown))
    return VIOLATED if broken else HOLDS


def audited(trace: Path, page: Path) -> Report | None:
    """What Spark finds, with a page about it. None, and a word why, where there is no Spark."""
    from isthmus.pipeline.session import require_packages

    try:
        require_packages()
        from isthmus.lab.benchmarks.wan import LINE
        from isthmus.pipeline.report import write_report
        from isthmus.pipeline.session import spark_session

        with err.status("Spark audits the traces and writes a report"):
            return write_report(spark_session(), [trace], page, bits_per_second=LINE.rate)
    except SparkProblem as problem:
        err.print(f"judged without Spark, and no report: {problem}", markup=False, style="yellow")
        return None


async def _watch(sites: JoinedSites, what: str, seconds: float) -> None:
    """Let time pass, and show how much arrives."""
    import asyncio

    from rich.progress import BarColumn, Progress, TextColumn

    from isthmus.lab.harness.sites import FAR, Traffic

    columns = (TextColumn("{task.description:<34}"), BarColumn(), TextColumn("{task.fields[rate]:>8,.0f} messages/s"))
    with Progress(*columns, console=err.console, disable=not err.is_terminal) as progress:
        task = progress.add_task(what, total=seconds, rate=0.0)
        started = time.perf_counter()
        if progress.disable:
            await asyncio.sleep(seconds)
            return
        while (elapsed := time.perf_counter() - started) < seconds:
            before = await sites[FAR].figures()
            await asyncio.sleep(LOOK_EVERY)
            arrived = Traffic(before, await sites[FAR].figures())
            progress.update(task, completed=elapsed, rate=arrived.imported_per_second("p1"))
        progress.update(task, completed=seconds)


# Printing.


def print_throughput(throughput: list[Throughput]) -> None:
    listing = table(
        "what parallel links are worth, causal order kept", "links", "messages/s", "share of raw", "speed-up"
    )
    for each in throughput:
        row = (str(each.links), f"{each.messages_per_second:,.0f}", f"{each.share:.0%}", f"{each.speed_up:.2f} ×")
        listing.add_row(*row)
    out.print(listing)


def print_figures(figures: FailoverFigures) -> None:
    listing = table("figures", "what", "measured")
    listing.add_row("messages sent", f"{figures.messages:,}")
    listing.add_row("deliveries at application processes", f"{figures.deliveries:,}")
    latency = " / ".join(f"{value:g} ms" for value in figures.latency_ms.values())
    listing.add_row("latency between the sites, p50 / p90 / p99", latency)
    listing.add_row("new view after the kill", f"{figures.next_view_after_kill_ms} ms")
    listing.add_row("messages flowed again after", f"{figures.flowed_again_after_ms} ms")
    out.print(listing)


def print_verdicts(report: Report, promised: Collection[str], *, broken: bool) -> None:
    verdicts = table("verdicts, from the traces alone", "property", "verdict", "checked")
    for verdict in report.verdicts:
        colour, aside = COLOURS[verdict.verdict], ""
        if verdict.property not in promised:
            colour, aside = "dim", ", not promised"
        verdicts.add_row(verdict.property, f"[{colour}]{verdict.verdict}{aside}[/{colour}]", f"{verdict.checked:,}")
    out.print(verdicts)
    for violation in report.violations[:5] if broken else ():
        out.print(f"  {violation.why}", markup=False)
    if broken:
        out.print("[red]The joined systems broke their promise.[/red]")
    else:
        out.print("[green]Causal order kept across all sites, nothing lost, nothing twice, through the crash.[/green]")


def print_where(page: Path | None, trace: Path | None) -> None:
    from isthmus.lab.harness.sites import NEAR

    if page is not None:
        out.print(f"The report is in {page}.", markup=False)
    if trace is not None:
        out.print(f"Traces are in {trace}; try: isthmus story {trace} {NEAR}/p1/100", markup=False)
