"""`isthmus check TOPOLOGY`: is this topology file one that isthmus can keep its promises for?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, out, print_json, table
from isthmus.hierarchy.clusters.options import ClusterTable
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.topology.check.rules import check as problems_of
from isthmus.topology.file import load


def register(app: typer.Typer) -> None:
    app.command("check")(check)


def check(
    topology: Annotated[Path, typer.Argument(help="A topology file (TOML).")],
    output: OutputOption = Output.HUMAN,
) -> int:
    """Validate a topology file. A bad one is refused with the key, the reason and the way out."""
    loaded = load(topology)
    warnings = [str(problem) for problem in problems_of(loaded)]
    if output is Output.JSON:
        systems = [
            {
                "name": system.name,
                "kind": system.kind,
                "order": system.order,
                "processes": len(system.processes),
                **({"clusters": clusters_of(system.clusters)} if system.clusters is not None else {}),
                **({"daisy": groups_of(system.daisy, system.members)} if system.daisy is not None else {}),
            }
            for system in loaded.systems
        ]
        print_json(
            {
                "file": str(topology),
                "valid": True,
                "promise": loaded.promise(),
                "systems": systems,
                "warnings": warnings,
            }
        )
        return HOLDS
    listing = table(f"{topology}: good; the whole keeps {loaded.promise()} order", "system", "kind", "order", "members")
    for system in loaded.systems:
        listing.add_row(system.name, system.kind, system.order, str(len(system.members)))
    out.print(listing)
    for system in loaded.systems:
        if system.clusters is not None:
            tree = table(
                f"{system.name}: messages from one process to one other", "cluster", "delivery", "members", "agent"
            )
            for each in clusters_of(system.clusters):
                tree.add_row(each["name"] or "topmost", each["delivery"], str(each["members"]), each["agent"] or "–")
            out.print(tree)
        if system.daisy is not None:
            audience = "any set of processes" if system.is_addressed else "everybody"
            title = f"{system.name}: messages to {audience}{options_of(system.daisy.options)}"
            tree = table(title, "group", "members", "first server")
            for each in groups_of(system.daisy, system.members):
                tree.add_row(each["name"] or "topmost", each["members"], each["server"])
            out.print(tree)
    for warning in warnings:
        out.print(f"note: {warning}", markup=False)
    return HOLDS


def clusters_of(top: ClusterTable) -> list[dict[str, Any]]:
    """All clusters of a system, from the topmost down."""
    return [
        {
            "name": cluster.name,
            "delivery": cluster.delivery,
            "members": len(cluster.members),
            "agent": cluster.representative if cluster.name else None,
        }
        for cluster in top.all_clusters()
    ]


def groups_of(top: DaisyTable, processes: Sequence[str]) -> list[dict[str, str]]:
    """All groups of a daisy, from the topmost down. The first server of a group is the first process below it."""
    return [
        {
            "name": group.name,
            "members": " ".join(group.processes) if group.processes else f"the servers of {len(group.parts)} groups",
            "server": min((name for each in group.all_groups() for name in each.processes), key=processes.index),
        }
        for group in top.all_groups()
    ]


def options_of(options: DaisyOptions) -> str:
    """What is not as in every daisy."""
    said = ""
    if options.inside == "recipients":
        said = f"; in a group to recipients only, {options.resilience + 1} members hold each"
    if options.changes:
        said += f"; groups of {options.merge_below} to {options.split_above}, which split and merge"
    return said
