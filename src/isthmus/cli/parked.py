"""`isthmus parked`: messages that a far broker refused, and that `on-refusal = "park"` has put aside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from isthmus.cli.commands import PLAIN, Command, CommandGroup
from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, fail, out, print_json, table

if TYPE_CHECKING:
    from isthmus.runtime.log.outside import Outside
    from isthmus.runtime.log.parked import Outcome

_Result = TypeVar("_Result")

_WHAT = "What was put aside"
PARKED = (
    Command("list", _WHAT, "parked:listed", "What was put aside, and why."),
    Command("retry", _WHAT, "parked:retry", "Append it at the end of the log after all."),
    Command("drop", _WHAT, "parked:drop", "Give it up."),
)

TopologyArgument = Annotated[Path, typer.Argument(help="A topology file.")]
SiteOption = Annotated[str, typer.Option(help="The broker that refused them.")]
RunOption = Annotated[str | None, typer.Option("--run", help="Name of the run, as `isthmus run` has it.")]
IdsOption = Annotated[list[str] | None, typer.Option("--id", help="This one; again for more.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]


class ParkedCommands(CommandGroup):
    table = PARKED


app = typer.Typer(cls=ParkedCommands, no_args_is_help=True, **PLAIN)


@app.callback()
def parked() -> None:
    """Messages that a far broker refused: each took its number, and waits beside the log."""


def listed(
    topology: TopologyArgument,
    site: SiteOption,
    run_name: RunOption = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 1000,
    output: OutputOption = Output.HUMAN,
) -> int:
    """What was put aside, oldest first, and what the broker said."""

    async def look(outside: Outside) -> list[dict[str, Any]]:
        return [
            {
                "id": each.id,
                "origin": each.entry.origin,
                "seq": each.entry.seq,
                "bytes": len(each.entry.content.body),
                "subject": each.entry.content.subject,
                "time": _time(each.entry.content.time),
                "reason": each.reason,
            }
            for each in await outside(outside.log.parked, limit)
        ]

    found = _with_log(topology, site, run_name, look)
    if output is Output.JSON:
        print_json({"site": site, "parked": found})
        return HOLDS
    if not found:
        out.print(f"{site}: nothing was put aside", markup=False)
        return HOLDS
    listing = table(f"Put aside at {site}", "id", "message", "bytes", "reason")
    listing.columns[-1].justify = "left"
    for each in found:
        reason = each["reason"].replace("[", "\\[")
        listing.add_row(each["id"], f"{each['origin']}/{each['seq']}", f"{each['bytes']:,}", reason)
    out.print(listing)
    return HOLDS


def retry(
    topology: TopologyArgument,
    site: SiteOption,
    ids: IdsOption = None,
    everything: AllOption = False,
    run_name: RunOption = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Append them at the end of the log. They stand behind what came after them. Exit code 1: one is refused again.

    No gateway of this site may run meanwhile.
    """
    from isthmus.runtime.log.parked import retry

    chosen = _chosen(ids, everything)
    outcomes = _with_log(topology, site, run_name, partial(retry, ids=chosen))
    _print(site, outcomes, output)
    return VIOLATED if any(each.became == "refused again" for each in outcomes) else HOLDS


def drop(
    topology: TopologyArgument,
    site: SiteOption,
    ids: IdsOption = None,
    everything: AllOption = False,
    run_name: RunOption = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Give them up: they will never be in this log. Gateways may run."""
    from isthmus.runtime.log.parked import drop

    outcomes = _with_log(topology, site, run_name, partial(drop, ids=_chosen(ids, everything)))
    _print(site, outcomes, output)
    return HOLDS


def _chosen(ids: list[str] | None, everything: bool) -> Collection[str] | None:
    if bool(ids) == everything:
        fail("say which: --id ID, once or more, or --all")
    return None if everything else ids


def _with_log(file: Path, site: str, run_name: str | None, work: Callable[[Outside], Awaitable[_Result]]) -> _Result:
    from isthmus.cli.brokers import broker_of, log_of
    from isthmus.runtime.log.outside import opened
    from isthmus.runtime.log.place import place_of
    from isthmus.runtime.loop import run as run_loop
    from isthmus.topology.file import load

    topology = load(file)
    system = broker_of(topology, site)

    async def run() -> _Result:
        async with opened(place_of(topology, system), log_of(topology, system, run_name)) as outside:
            return await work(outside)

    return run_loop(run())


def _print(site: str, outcomes: list[Outcome], output: Output) -> None:
    if output is Output.JSON:
        print_json({"site": site, "messages": outcomes})
        return
    for each in outcomes:
        why = f": {each.reason}" if each.reason else ""
        out.print(f"{each.id}  {each.origin}/{each.seq}  {each.became}{why}", markup=False)
    if not outcomes:
        out.print(f"{site}: nothing was put aside", markup=False)


def _time(milliseconds: int) -> str | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat() if milliseconds else None
