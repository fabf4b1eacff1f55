"""`isthmus bench [NAME]`: benchmarks; each prints ratios measured side by side in one run.

A benchmark is a line of the table and a module with a function `bench`, whose parameters are its options. It shows
what it has measured to people, and returns it for `-o json`, with the exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from isthmus.cli.commands import PLAIN, Command, CommandGroup
from isthmus.cli.console import HOLDS, Output, OutputOption, print_json

_ALL = "Benchmarks, all of them if none is named"
_LONG = "As long as you let it"
BENCHMARKS = (
    Command("core", _ALL, "bench.core:bench", "Causal broadcast beside a plain loop over the same frames."),
    Command("targets", _ALL, "bench.targets:bench", "What this code is to carry, beside what it carries here."),
    Command("memory", _ALL, "bench.memory:bench", "Whether memory grows in a long run of causal broadcast."),
    Command("mutants", _ALL, "bench.mutants:bench", "After how many seeds each mistake of the catalogue is caught."),
    Command("wan", _ALL, "bench.wan:bench", "What 1, 2, 4 and 8 links carry between two sites over emulated lines."),
    Command("kills", _ALL, "bench.kills:bench", "How soon messages flow again after kill -9 at one of two sites."),
    Command("starts", _ALL, "bench.starts:bench", "Whether anybody is excluded at birth on a busy machine."),
    Command("audit", _ALL, "bench.audit:bench", "The audit beside reading and sorting the same table."),
    Command("source", _ALL, "bench.source:bench", "The streaming source beside Spark's own file streams."),
    Command("hierarchies", _ALL, "bench.hierarchies:bench", "Daisies with servers killed, joined ones, and clusters."),
    Command("daisies", _ALL, "bench.daisies:bench", "The options of a daisy: what each saves and what it costs."),
    Command("acknowledged", _ALL, "bench.acknowledged:bench", "TO and PO beside a sequencer, and a long audited run."),
    Command("brokers", _LONG, "bench.brokers:bench", "Joins of real brokers beside copiers and a bare reader."),
    Command("nats", _LONG, "bench.nats:bench", "The NATS adapter beside the same code without record and contents."),
    Command("postgres", _LONG, "bench.postgres:bench", "The PostgreSQL adapter beside COPY and a bare slot reader."),
    Command("scale", _LONG, "bench.scale:bench", "Thousands of simulated processes, beside the planner's forecast."),
    Command("kafka", _LONG, "bench.kafka:bench", "The Kafka adapter beside a bare producer and a bare consumer."),
    Command("topologies", _LONG, "bench.topologies:bench", "Random topologies under faults; what fails is made small."),
    Command("soak", _LONG, "bench.soak:bench", "The long explorations and simulated campaign."),
)


class Benchmarks(CommandGroup):
    table = BENCHMARKS

    def called(self, command: Command) -> Callable[..., int]:
        benchmark = command.load()

        @wraps(benchmark)
        def printed(**options: Any) -> int:
            figures, code = benchmark(**options)
            if options["output"] is Output.JSON:
                print_json({command.name: figures})
            return int(code)

        return printed


app = typer.Typer(cls=Benchmarks, **PLAIN)


@app.callback(invoke_without_command=True)
def bench(ctx: typer.Context, output: OutputOption = Output.HUMAN) -> int:
    """Run benchmarks: the one that is named, or all of them one after the other."""
    if ctx.invoked_subcommand is not None:
        ctx.default_map = {ctx.invoked_subcommand: {"output": output.value}}
        return HOLDS
    results: dict[str, Any] = {}
    worst = HOLDS
    for each in BENCHMARKS:
        if each.heading == _ALL:
            results[each.name], code = each.load()(output=output)
            worst = max(worst, code)
    if output is Output.JSON:
        print_json(results)
    return worst
