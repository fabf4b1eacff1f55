"""`isthmus campaign TOPOLOGY --seeds A..B`: many simulated runs, distributed and audited by Spark."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.console import (
    HOLDS,
    VIOLATED,
    HolesOption,
    Output,
    OutputOption,
    err,
    fail,
    out,
    print_json,
    progress_bar,
)
from isthmus.cli.spark import ConfOption, MasterOption, MemoryOption, Way, way_to_spark
from isthmus.trace.places import place

if TYPE_CHECKING:
    from isthmus.pipeline.campaign import Progress
    from isthmus.simulator.campaign import SimulationPlayer
    from isthmus.trace.account import Account

MOST_SEEDS = 100_000_000
_LAST_SEED = (1 << 63) - 2
_SHOWN_SEEDS = 20


def campaign(
    topology: Annotated[Path, typer.Argument(help="A topology file with a [simulation] table.")],
    seeds: Annotated[str, typer.Option(help="The first and the last seed, as in 1..5000.", metavar="A..B")],
    mutant: Annotated[str | None, typer.Option(help="Commit this mistake of the catalogue, to see it caught.")] = None,
    trace: Annotated[
        str | None, typer.Option(help="Keep the traces as Parquet in this new directory.", metavar="DIR")
    ] = None,
    known_holes: HolesOption = None,
    master: MasterOption = None,
    memory: MemoryOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Simulate many seeds on Spark and audit their traces in the same job. Failing seeds come with their replay."""
    from isthmus.cli.seeds import failed, holes_of, mistake_of, result_of, show, simulated
    from isthmus.simulator.campaign import SimulationPlayer

    wanted = seeds_of(seeds)
    loaded = simulated(topology, mutant)
    holes = holes_of(known_holes)
    player = SimulationPlayer((topology.read_text(), str(topology)), mistake_of(mutant))
    account, seconds = _run(player, wanted, trace, way_to_spark(master, memory, conf))
    speed = account.runs / seconds
    result = result_of(account, loaded, topology, mutant, holes)
    result |= {
        "seeds": seeds,
        "events": account.events,
        "seconds": round(seconds, 1),
        "seeds_per_second": round(speed, 1),
    }
    if output is Output.JSON:
        print_json(result)
    else:
        show(result)
        out.print(f"{account.events:,} events audited; {seconds:,.0f} s, {speed:,.1f} seeds/s")
    return VIOLATED if failed(result) else HOLDS


def seeds_of(text: str) -> range:
    """`A..B`, both included."""
    found = re.fullmatch(r"([0-9]{1,30})\.\.([0-9]{1,30})", text.strip())
    if found is None:
        fail(f"--seeds {text}: not a range; give the first and the last seed, as in 1..5000")
    first, last = int(found[1]), int(found[2])
    if first > last:
        fail(f"--seeds {text}: the first seed comes after the last; perhaps {last}..{first}")
    if last > _LAST_SEED:
        fail(f"--seeds {text}: too large; seeds go up to {_LAST_SEED}")
    if last - first >= MOST_SEEDS:
        fail(f"--seeds {text}: more than {MOST_SEEDS:,} seeds; make it several campaigns")
    return range(first, last + 1)


def _run(player: SimulationPlayer, seeds: range, trace: str | None, way: Way) -> tuple[Account, float]:
    from isthmus.pipeline.session import require_packages

    require_packages()
    from isthmus.pipeline.campaign import Progress, campaign, new_directory
    from isthmus.pipeline.session import spark_session

    target = None if trace is None else place(trace).absolute()
    if isinstance(target, Path):
        new_directory(target)  # what is wrong with it is said before the seconds that Spark takes to start
    seen = Progress()
    with progress_bar() as bar:
        task = bar.add_task("starting Spark", total=len(seeds))
        spark = spark_session(way.master, driver_memory=way.memory, settings=way.settings)

        def watch(progress: Progress) -> None:
            nonlocal seen
            seen = progress
            failing = f", {len(seen.failing):,} failing" if seen.failing else ""
            bar.update(task, completed=seen.runs, description=f"simulating and auditing{failing}")

        started = time.perf_counter()
        try:
            account = campaign(spark, seeds, player, trace=target, watch=watch)
        except KeyboardInterrupt:
            bar.stop()
            err.print(_stopped(seen, len(seeds)))
            raise
    return account, time.perf_counter() - started


def _stopped(seen: Progress, wanted: int) -> str:
    done = f"stopped after {seen.runs:,} of {wanted:,} seeds"
    if not seen.failing:
        return f"{done}, none of them failing"
    more = f" and {len(seen.failing) - _SHOWN_SEEDS:,} more" if len(seen.failing) > _SHOWN_SEEDS else ""
    return f"{done}; failing: {', '.join(map(str, seen.failing[:_SHOWN_SEEDS]))}{more}"
