"""`isthmus bench brokers`: joins of real brokers, beside a bare reader and appender and beside what people use."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, fail, out, table, tracked
from isthmus.core.units import format_rate

if TYPE_CHECKING:
    from isthmus.lab.benchmarks.brokers import Carried


def bench(
    kind: Annotated[list[str] | None, typer.Option(help="Kind of broker; again for more. Else all there are.")] = None,
    short: Annotated[bool, typer.Option(help="A quick look: 100 B, one rate, 1 and 4 links.")] = False,
    seconds: Annotated[float, typer.Option(help="About how long each run takes.", min=0.5, max=60)] = 2.5,
    pairs: Annotated[int | None, typer.Option(help="Instead: so many questions and answers.", min=1)] = None,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Carry entries from one broker to another. Exit code 1: some were lost, twice or out of order."""
    from isthmus.lab.benchmarks import brokers
    from isthmus.lab.brokers.plain import KINDS, installed

    unknown = [each for each in kind or () if each not in KINDS]
    if unknown:
        fail(f"--kind {unknown[0]}: there are {', '.join(KINDS)}")
    kinds = tuple(kind or installed().kinds)
    if pairs is not None:
        return _questions_and_answers((kinds[0], kinds[-1]), pairs, output)
    work = brokers.measure(kinds, short=short, seconds=seconds)
    figures = list(tracked(work, brokers.count(kinds, short=short), "brokers, joined and beside"))
    if output is Output.HUMAN:
        _print(figures)
    return {"figures": figures}, VIOLATED if any(each.sound is False for each in figures) else HOLDS


def _questions_and_answers(kinds: tuple[str, str], pairs: int, output: Output) -> tuple[Any, int]:
    """From the first kind to the last."""
    from isthmus.lab.brokers.causality import DELAYS, questions_and_answers

    with TemporaryDirectory(prefix="isthmus-bench-") as directory:
        found = asyncio.run(questions_and_answers(Path(directory), kinds, pairs))
    if output is Output.HUMAN:
        links = ", ".join(f"{delay} ms" for delay in DELAYS)
        out.print(f"{kinds[0]} to {kinds[1]}, {pairs:,} questions and their answers, over links of {links}:")
        out.print(f"  answers before their questions, joined: {found.overtaken:,}")
        if found.overtaken_copied is not None:
            copied, rate = found.overtaken_copied, found.overtaken_copied / pairs
            out.print(f"  answers before their questions, copied by two scripts: {copied:,} ({rate:.1%})")
        for difference in found.differences:
            out.print(f"[red]{difference}[/red]")
    return found, VIOLATED if found.overtaken or found.differences else HOLDS


def _print(figures: list[Carried]) -> None:
    from isthmus.lab.benchmarks.brokers import beside

    columns = ("broker", "line", "bytes", "way", "links", "entries/s", "of bare", "of copier", "µs each", "contents")
    listing = table("entries from one broker to another, in the order of the first", *columns)
    for each in figures:
        peers = [beside(each, figures, way) for way in ("bare", "copier")]
        listing.add_row(
            each.kind,
            "loopback" if each.rate is None else f"50 ms, {format_rate(each.rate)}/s",
            str(each.size),
            each.way,
            str(each.links) if each.way == "join" else "",
            f"{each.per_second:,.0f}",
            *(f"{ratio:.2f} ×" if ratio and each.way == "join" else "" for ratio in peers),
            " + ".join(f"{one:.1f}" for one in each.cpu),
            {None: "", True: "the same", False: "[red]differ[/red]"}[each.sound],
        )
    out.print(listing)
