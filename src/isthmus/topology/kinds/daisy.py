"""The `[systems.NAME.daisy]` table: a system whose processes are in a tree of groups (docs/design/daisy.md)."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import get_args

from msgspec.structs import replace

from isthmus.core.message import MAX_MEMBERS
from isthmus.hierarchy.daisy.options import PLAIN, Audience, DaisyOptions, DaisyTable, Forward, Inside
from isthmus.topology.kinds.kind import Kind, Refusal, SystemTable
from isthmus.topology.kinds.tree import TreeReader, Wording, refuse_whole
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems
from isthmus.topology.read.keys import check_patience, read_address, read_standby, read_tls
from isthmus.topology.read.table import Table

MAX_LEVELS = 16
KEYS = ("address", "heartbeat", "link-address", "tls", "standby", "suspect-after", "start-within")
MAX_POINT_GROUP = isqrt(2 * MAX_MEMBERS)
"""Members of a local group in which messages go to recipients only: a stamp has no room for a larger matrix."""

_WORDING = Wording(
    key="daisy",
    node="group",
    nodes="groups",
    depths="levels",
    rule="daisy, Sect. 3.1",
    in_two="remove it from one; servers are elected",
    deepest=MAX_LEVELS,
)


def _read(table: Table, system: System) -> System:
    """Read a daisy: a tree of groups, with messages to any set of processes, or all of them to everybody."""
    table.foreign("journal", "is for single groups, and this system is a daisy", "remove it, or [daisy]")
    system = replace(system, standby=read_standby(table, system))
    reason = "in a daisy a message is delivered when a quorum of the group holds it, so that a new server has it too"
    table.foreign("delivery", reason, "remove it, or [daisy]")
    if system.order != "causal":
        reason = f"a daisy keeps causal order, not {system.order}"
        table.refuse("order", reason, 'write order = "causal", or remove its daisy')
    daisy = _read_tree(table, system)
    system = replace(
        system,
        address=read_address(table, "address", len(system.members)),
        link_address=read_address(table, "link-address", len(system.gateways)),
        tls=read_tls(table),
        heartbeat=table.duration("heartbeat", system.heartbeat, low=1),
        suspect_after=table.duration("suspect-after", system.suspect_after),
        start_within=table.duration("start-within", system.start_within, low=1),
        table=daisy,
        broadcasts=daisy is not None and daisy.options.audience == "everybody",
        revives=False,
    )
    if not system.gateways:
        for name in ("link-address", "tls"):
            if name in table.entries:
                table.refuse(name, "is for gateways, and this daisy has none", "remove it")
    if system.standby and daisy is not None and not daisy.options.changes:
        reason = "the groups of this daisy never change, so nobody can be let in"
        way_out = "" if system.broadcasts else f", or write {table.at('daisy')}.split-above"
        table.refuse("standby", reason, f"remove it{way_out}")
    check_patience(table, system)
    return system


def _read_tree(table: Table, system: System) -> DaisyTable | None:
    """The tree of a system with these members; None where the file has none that holds together."""
    said = table.entries["daisy"]
    audience = said.get("audience", "some") if isinstance(said, dict) else "some"
    if audience == "some":
        if system.gateways:
            reason = "its messages are for some processes each, so a gateway would miss the others"
            table.refuse("gateways", reason, f'remove it, or write {table.at("daisy")}.audience = "everybody"')
        return _Reader(system.processes, _WORDING, system.standby).read_whole(table)
    daisy = _Reader(system.members, _WORDING, system.standby).read_whole(table)
    if daisy is not None and system.gateways:
        _check_gateways(table, daisy, system.gateways)
    return daisy


def _check_gateways(table: Table, daisy: DaisyTable, gateways: tuple[str, ...]) -> None:
    """Gateways have to learn of each other's end at one point of what they deliver (docs/design/daisy-joins.md)."""
    homes = [group.name for group in daisy.all_groups() if set(gateways).intersection(group.processes)]
    if len(homes) > 1:
        reason = (
            f"they are in groups {' and '.join(homes)}: when one goes, the others would go on from different points"
        )
        table.refuse("gateways", reason, "list all of them in one group")
    if daisy.options.star:
        reason = "in a star the server may multicast what a gateway offered when that one is already known to be gone"
        table.refuse("gateways", reason, f"remove {table.at('daisy')}.star, or the gateways")


class _Reader(TreeReader[DaisyTable]):
    def make(
        self, table: Table, name: str, processes: tuple[str, ...] | None, parts: list[DaisyTable | None]
    ) -> DaisyTable | None:
        options = PLAIN if name else _read_options(table)
        table.close()
        if None in parts or processes is None:
            return None
        if parts and processes:
            reason = "a group has processes or parts: a servers' group consists of the servers of its parts"
            table.refuse("processes", f"{reason} (daisy, Sect. 3.1)", "give them a part of their own")
            return None
        if not parts and not processes:
            refuse_whole(table, "a group of nobody", "list processes, or parts")
            return None
        sound = tuple(part for part in parts if part is not None)
        group = DaisyTable(name=name, options=options, processes=processes, parts=sound)
        if not name and options.inside == "recipients":
            _check_sizes(table, group)
        return group


def _read_options(table: Table) -> DaisyOptions:
    """Read the options that hold for the whole daisy; they stand beside its topmost parts."""
    least, most, reconsider = _read_sizes(table)
    inside: Inside = table.choice("inside", get_args(Inside), "everybody")
    options = DaisyOptions(
        split_above=most,
        merge_below=least,
        reconsider=reconsider,
        star=table.boolean("star", default=False),
        inside=inside,
        resilience=_read_resilience(table, inside),
        forward=table.choice("forward", get_args(Forward), "on-delivery"),
        audience=table.choice("audience", get_args(Audience), "some"),
    )
    if options.audience == "everybody":
        _check_broadcast(table, options)
    if options.star and inside == "recipients":
        reason = "in a star the server multicasts, and all members keep what it sends"
        table.refuse("inside", f"{reason} (daisy, Sect. 3.4)", 'write inside = "everybody", or remove star')
    if options.forward == "on-receipt":
        _check_early(table, options)
    return options


def _read_resilience(table: Table, inside: Inside) -> int:
    if inside == "recipients":
        return table.integer("resilience", 1, 1, MAX_POINT_GROUP - 1)
    reason = "where messages go to everybody in a group, a quorum of the group holds them"
    table.foreign("resilience", reason, 'write inside = "recipients", or remove it')
    return 0


def _check_sizes(table: Table, top: DaisyTable) -> None:
    """Refuse local groups that are too small to hold a message so often, or too large for a matrix in a message."""
    resilience = top.options.resilience
    sizes = {group.name: len(group.processes) for group in top.all_groups() if not group.parts}
    smallest, largest = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    if sizes[smallest] <= resilience:
        reason = f"{resilience + 1} processes have to hold a message, and group {smallest or 'of all'} has"
        reason = f"{reason} {sizes[smallest]} (daisy, Sect. 3.4)"
        table.refuse("resilience", reason, f"write {resilience - 1} or less, or make that group larger")
    if max(sizes[largest], top.options.split_above) > MAX_POINT_GROUP:
        reason = f"group {largest or 'of all'} has {sizes[largest]} processes, and a message carries the square of that"
        if top.options.split_above > MAX_POINT_GROUP:
            reason = f"groups grow to {top.options.split_above} processes, and a message carries the square of that"
        table.refuse("inside", reason, f"have groups of at most {MAX_POINT_GROUP}")


def _check_early(table: Table, options: DaisyOptions) -> None:
    """Refuse what cannot be forwarded on receipt (docs/design/daisy-on-receipt.md)."""
    reason = ""
    if options.star:
        reason = "in a star the server gets everything in causal order, so nothing waits there to be forwarded"
    elif options.inside == "recipients":
        reason = "a server has to know of all messages that leave its group, and here it does not get those of others"
    if reason:
        table.refuse("forward", f"{reason} (daisy, Sect. 3.4)", 'write forward = "on-delivery", or remove the other')


def _check_broadcast(table: Table, options: DaisyOptions) -> None:
    """Refuse what does not go with messages for everybody (docs/design/daisy-joins.md)."""
    way_out = 'remove it, or audience = "everybody"'
    if options.inside == "recipients":
        table.refuse("inside", "every message is for everybody, so everybody is a recipient", way_out)
    if options.changes:
        reason = "every message is for everybody in the file, and groups that change let others in"
        table.refuse("split-above", reason, way_out)


def _read_sizes(table: Table) -> tuple[int, int, int]:
    """How small and how large groups may become; all 0 where they stay as they are in the file."""
    most = table.integer("split-above", 0, 2, MAX_MEMBERS)
    least = table.integer("merge-below", (most + 1) // 2, 1, MAX_MEMBERS)
    reconsider = table.integer("reconsider", 0, 1, 1 << 62)
    for key in ("merge-below", "reconsider"):
        if not most and key in table.entries:
            table.refuse(
                key, "groups change only where it is said how large they may be", "add split-above, or remove it"
            )
            return 0, 0, 0
    if 2 * least > most + 1:
        reason = f"a group of {most + 1} is split, and its halves are smaller than {least}"
        table.refuse("merge-below", reason, f"write {(most + 1) // 2} or less, or raise split-above")
    return least, most, reconsider


def _check(report: Problems, topology: Topology, systems: Sequence[System]) -> None:
    """A daisy stands alone if its messages are for some, and who is gone from it does not come back."""
    for system in systems:
        if len(topology.systems) > 1 and not system.broadcasts and not topology.is_joined(system.name):
            reason = "nothing can join a daisy to the others here, whose messages are for some processes each"
            report.refuse(f"systems.{system.name}.daisy", reason, "give it a file of its own")
    if topology.simulation.faults.joins and len(systems) == len(topology.systems):
        report.refuse("simulation.faults.joins", "nobody comes back to a daisy", "remove it")


def _refuse_join(system: System) -> Refusal | None:
    if system.broadcasts:
        return None
    reason = f"{system.name} is a daisy: its messages go to some processes each, and a join carries broadcasts"
    way_out = f'write systems.{system.name}.daisy.audience = "everybody" if they are for all, or remove this join'
    return Refusal(reason, way_out)


def _picture(system: System) -> SystemTable:
    """All groups, from the topmost down. The first server of a group is the first process below it."""
    daisy = system.own(DaisyTable)
    plain = [
        {
            "name": group.name,
            "members": " ".join(group.processes) if group.processes else f"the servers of {len(group.parts)} groups",
            "server": min((name for each in group.all_groups() for name in each.processes), key=system.members.index),
        }
        for group in daisy.all_groups()
    ]
    audience = "everybody" if system.broadcasts else "any set of processes"
    return SystemTable(
        title=f"{system.name}: messages to {audience}{_unusual(daisy.options)}",
        columns=("group", "members", "first server"),
        rows=[(each["name"] or "topmost", each["members"], each["server"]) for each in plain],
        plain=plain,
    )


def _unusual(options: DaisyOptions) -> str:
    """The options of this daisy that differ from the default, in words."""
    said = ""
    if options.inside == "recipients":
        said = f"; in a group to recipients only, {options.resilience + 1} members hold each"
    if options.changes:
        said += f"; groups of {options.merge_below} to {options.split_above}, which split and merge"
    return said


DAISY = Kind(
    table="daisy",
    keys=KEYS,
    orders=("causal",),
    read=_read,
    check=_check,
    refuse_join=_refuse_join,
    picture=_picture,
)
