"""`isthmus check TOPOLOGY`: is this topology file one that isthmus can keep its promises for?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, out, print_json, table
from isthmus.topology.check.rules import check as problems_of
from isthmus.topology.file import load
from isthmus.topology.kinds.table import KINDS
from isthmus.topology.problem import listing as listed


def check(
    topology: Annotated[Path, typer.Argument(help="A topology file (TOML).")],
    output: OutputOption = Output.HUMAN,
) -> int:
    """Validate a topology file. A bad one is refused with the key, the reason and the way out."""
    loaded = load(topology)
    warnings = [str(problem) for problem in problems_of(loaded)]
    pictures = {system.name: picture for system in loaded.systems if (picture := KINDS[system.kind].picture(system))}
    if output is Output.JSON:
        print_json(
            {
                "file": str(topology),
                "valid": True,
                "promise": loaded.promise(),
                "parts": [{"systems": part, "promise": loaded.promise(part)} for part in loaded.parts()],
                "systems": [
                    {
                        "name": system.name,
                        "kind": system.provider,
                        "order": system.order,
                        "processes": len(system.processes),
                        **({system.kind: pictures[system.name].plain} if system.name in pictures else {}),
                    }
                    for system in loaded.systems
                ],
                "warnings": warnings,
            }
        )
        return HOLDS
    parts = loaded.parts()
    kept = f"the whole keeps {loaded.promise()} order"
    if len(parts) > 1:
        kept = "; ".join(f"{loaded.promise(part)} order in {listed(part)}" for part in parts)
    listing = table(f"{topology}: good; {kept}", "system", "kind", "order", "members")
    for system in loaded.systems:
        listing.add_row(system.name, system.provider, system.order, str(len(system.members)))
    out.print(listing)
    for picture in pictures.values():
        tree = table(picture.title, *picture.columns)
        for row in picture.rows:
            tree.add_row(*row)
        out.print(tree)
    for warning in warnings:
        out.print(f"note: {warning}", markup=False)
    return HOLDS
