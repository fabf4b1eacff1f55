"""`isthmus compare`: the contents of joined brokers against each other."""

from __future__ import annotations

from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, duration_of, err, fail, out, print_json, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from isthmus.runtime.log.compare import Comparison
    from isthmus.topology.model import Topology

_WRONG = ("lost", "twice", "out_of_order", "before_cause", "changed")
_APART = ("under_way", "filtered", "parked", "retried", "gone")
_BY_CONTENT = ("lost_by_content", "twice_by_content", "out_of_order_by_content")


def compare(
    topology: Annotated[Path, typer.Argument(help="A topology file.")],
    run_name: Annotated[str | None, typer.Option("--run", help="Name of the run, as `isthmus run` has it.")] = None,
    systems: Annotated[str | None, typer.Option(help="Only these brokers, such as a,b.")] = None,
    wait: Annotated[str, typer.Option(help="How long to wait for what is under way.")] = "30s",
    output: OutputOption = Output.HUMAN,
) -> int:
    """Read every broker and say what is lost, twice, out of order or changed between them. Exit code 1: something is.

    It needs no gateway and no trace, writes nothing, and may run beside the join.
    """
    from isthmus.core.ids import SECOND
    from isthmus.runtime.log.contents import BYTES_PER_ENTRY
    from isthmus.runtime.loop import run as run_loop
    from isthmus.topology.file import load

    loaded = load(topology)
    there = [system.name for system in loaded.systems if system.acts_alone and loaded.is_joined(system.name)]
    names = systems.split(",") if systems is not None else there
    if len(set(names)) < 2:
        fail(f"{topology}: it takes two joined brokers to compare, and this is about {', '.join(names) or 'none'}")
    seconds = duration_of("--wait", wait) / SECOND
    with err.status("reading") if err.is_terminal else nullcontext() as status:
        read: dict[str, int] = {}

        def tell(name: str, entries: int) -> None:
            read[name] = entries
            if status is not None:
                size = sum(read.values()) * BYTES_PER_ENTRY >> 20
                counts = ", ".join(f"{each} {count:,}" for each, count in read.items())
                status.update(f"entries read: {counts} ({size:,} MiB)")

        found = run_loop(_compare(loaded, names, run_name, seconds, tell))
    if output is Output.JSON:
        print_json(_plain(found))
    else:
        _print(found)
    return HOLDS if found.holds else VIOLATED


async def _compare(
    topology: Topology, names: list[str], run_name: str | None, wait: float, tell: Callable[[str, int], None]
) -> Comparison:
    from isthmus.cli.brokers import broker_of, log_of
    from isthmus.runtime.log.compare import compare, far_flows
    from isthmus.runtime.log.contents import Contents
    from isthmus.runtime.log.outside import opened
    from isthmus.runtime.log.place import place_of

    run = run_name or Path(topology.file).stem
    places = {name: place_of(topology, broker_of(topology, name)) for name in dict.fromkeys(names)}
    async with AsyncExitStack() as stack:
        contents = []
        for place in places.values():
            outside = await stack.enter_async_context(opened(place, log_of(topology, place.system, run)))
            others = [each for each in places.values() if each is not place]
            contents.append(Contents(outside, far_flows(topology, place, others)))
        return await compare(topology, run, contents, wait, tell)


def _plain(found: Comparison) -> dict[str, Any]:
    return {
        "holds": found.holds,
        "under_way": found.under_way,
        "is_moving": found.is_moving,
        "logs": found.logs,
        "pairs": found.pairs,
    }


def _print(found: Comparison) -> None:
    logs = table("Logs", "log", "entries", "own", "brought in", "copied headers")
    for log in found.logs:
        logs.add_row(log.name, *(f"{each:,}" for each in (log.entries, log.own, log.brought_in, log.copied)))
    out.print(logs)
    listing = table("What became of messages", "of → in", "messages", *(each.replace("_", " ") for each in _WRONG))
    for each in _APART:
        if any(getattr(pair, each) for pair in found.pairs):
            listing.add_column(each.replace("_", " "), justify="right")
    shown = [each for each in _APART if any(getattr(pair, each) for pair in found.pairs)]
    for pair in found.pairs:
        wrong = [_red(getattr(pair, each)) for each in _WRONG]
        listing.add_row(
            f"{pair.of} → {pair.into}", f"{pair.messages:,}", *wrong, *(f"{getattr(pair, each):,}" for each in shown)
        )
    out.print(listing)
    by_content = table("The same, by what entries say", "of → in", "said by one alone", "lost", "twice", "out of order")
    for pair in found.pairs:
        cells = [_red(getattr(pair, each)) for each in _BY_CONTENT]
        by_content.add_row(f"{pair.of} → {pair.into}", f"{pair.unique:,}", *cells)
    out.print(by_content)
    for pair in found.pairs:
        for words in pair.examples:
            out.print(f"  {words}", markup=False)
    if found.under_way and found.is_moving:
        out.print(f"{found.under_way:,} messages are still under way; what is there holds" if found.holds else "")
    elif found.under_way:
        out.print(f"{found.under_way:,} messages are not there, and nothing moves: does the join run?", style="red")
    out.print("[green]it holds[/]" if found.holds else "[red]it does not hold[/]")


def _red(count: int) -> str:
    return f"[red]{count:,}[/]" if count else "0"
