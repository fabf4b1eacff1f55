"""`isthmus bench mutants`: after how many seeds each mistake of the catalogue is caught, and by what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, HolesOption, Output, OutputOption, out, table, tracked


def bench(
    seeds: Annotated[int, typer.Option(help="Seeds after which a mutant has got away.", min=1)] = 2000,
    known_holes: HolesOption = Path("tests/known-holes.toml"),
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Hunt every mutant of the catalogue. Exit code 1: one has got away."""
    from isthmus.cli.seeds import holes_of
    from isthmus.lab.benchmarks.mutants import hunt_all
    from isthmus.lab.mutants.catalogue import CATALOGUE

    catches = list(tracked(hunt_all(holes_of(known_holes), seeds), len(CATALOGUE), "hunting mutants"))
    if output is Output.HUMAN:
        listing = table("mutants of the protocols", "mutant", "order", "caught after seeds", "by", "mistake")
        for catch in catches:
            after = f"{catch.seeds:,}" if catch.seeds else "[red]got away[/red]"
            listing.add_row(catch.mutant, catch.order, after, catch.by, catch.mistake)
        out.print(listing)
    return catches, HOLDS if all(catch.seeds for catch in catches) else VIOLATED
