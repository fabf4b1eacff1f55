"""The shape of a topology file: tables in, a `Topology` and a list of problems out.

Here every value is read on its own: keys, types, names, numbers, and what each kind of system needs. What the parts of
a file must be to each other is the business of `check/rules.py`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from isthmus.core.ids import ProcessName
from isthmus.core.message import MAX_MEMBERS
from isthmus.topology.kinds.table import KINDS, all_keys, kind_of, providers
from isthmus.topology.model import (
    ORDERS,
    REST,
    Assign,
    Join,
    Path,
    System,
    Topology,
    TransferSet,
)
from isthmus.topology.problem import Problems, listing, quote
from isthmus.topology.read.exploration import read_exploration
from isthmus.topology.read.flow import read_flows
from isthmus.topology.read.keys import read_address
from isthmus.topology.read.simulation import read_simulation
from isthmus.topology.read.table import NAME, Table, describe, shorten

MAX_LINKS = 4096
EMBEDDED = "embedded"

_ASSIGNS: tuple[Assign, ...] = ("striped", "transfer-sets", "paths", "uncoordinated")

_PROCESS_FORM = 'write "process" or "system/process"'

_Sets: TypeAlias = list[tuple[str, list[str], str]]
"""Rows of a transfer-sets table: gateway, processes, key."""


def read_topology(report: Problems, document: dict[str, Any]) -> Topology:
    """Everything that the document says. Where it says nonsense the report has a problem and the topology a default."""
    top = Table(report, "", document)
    unsafe = top.boolean("unsafe", False)
    systems_table = top.table("systems", named=True)
    systems = tuple(_system(systems_table, name) for name in systems_table.entries)
    path_tables = top.tables("paths")
    paths = tuple(_path(table) for table in path_tables)
    joins = tuple(_join(table, systems, in_paths=bool(path_tables)) for table in top.tables("joins"))
    incomplete = report.incomplete
    simulation = read_simulation(top.table("simulation"))
    exploration = read_exploration(top.table("exploration"), {each.name: each.processes for each in systems})
    # Nothing in these two tables bears on systems and joins, so a slip there keeps no rule from being checked.
    report.incomplete = incomplete
    top.close()
    return Topology(
        file=report.file,
        systems=systems,
        joins=joins,
        paths=paths,
        simulation=simulation,
        exploration=exploration,
        unsafe=unsafe,
    )


# Systems.


def _system(systems: Table, name: str) -> System:
    if not NAME.fullmatch(name):
        systems.refuse(name, f"{quote(name)} is not a name", "use letters, digits, _ and -")
    table = systems.table(name)
    provider = table.choice("kind", providers(), None, "what runs this system")
    is_known = table.entries.get("kind") in providers()
    embedded = provider == EMBEDDED and is_known
    # A broker stream is a log: all its readers see one order.
    order = table.choice("order", ORDERS, None if embedded else "total", "what the system itself guarantees")
    processes = table.names("processes")
    if processes is None and embedded:
        table.missing("processes", "an embedded system consists of its processes", 'write processes = ["p1", "p2"]')
    gateways = _gateways(table)
    system = System(name=name, provider=provider, order=order, processes=processes or (), gateways=gateways)
    for gateway in sorted(set(gateways).intersection(system.processes)):
        reason = f"the name {quote(gateway)} is there twice, as a process and as a gateway"
        table.refuse("gateways", reason, "rename one of the two")
    if len(system.members) > MAX_MEMBERS:
        reason = f"more than {MAX_MEMBERS} processes and gateways"
        table.refuse("processes", reason, "split the system and join the parts")
    if is_known:
        system = _of_its_kind(table, system)
    else:
        # One cause, one line: without a kind nobody can say which of these belong here.
        for key in all_keys():
            table.take(key)
    table.close()
    return system


def _of_its_kind(table: Table, system: System) -> System:
    """With what its kind reads. Keys of kinds that others provide are refused here, all others by the kind itself."""
    kind = kind_of(system.provider, table)
    own = (KINDS[kind].table, *KINDS[kind].keys)
    foreign = [other for other in KINDS.values() if system.provider not in other.providers]
    for key, words in {key: other.providers for other in foreign for key in (other.table, *other.keys)}.items():
        if key and key not in own:
            reason = f"is for {listing(words)}, and this system is {system.provider}"
            table.foreign(key, reason, "remove it, or change kind")
    return KINDS[kind].read(table, replace(system, kind=kind))


def _gateways(table: Table) -> tuple[str, ...]:
    """The names of a system's gateways: `3` stands for g1, g2, g3."""
    value = table.entries.get("gateways", 0)
    if isinstance(value, list):
        return table.names("gateways", empty=True) or ()
    table.take("gateways")
    if type(value) is not int:
        table.refuse("gateways", f"must be a number or an array of names, not {describe(value)}", "write gateways = 1")
        return ()
    if not 0 <= value <= MAX_MEMBERS:
        table.refuse("gateways", f"must be from 0 to {MAX_MEMBERS}, not {shorten(value)}", "write gateways = 1")
        return ()
    return tuple(f"g{number}" for number in range(1, value + 1))


# Joins.


def _join(table: Table, systems: tuple[System, ...], in_paths: bool) -> Join:
    between = _between(table)
    order = table.choice("order", ORDERS, None, "what the join preserves", hidden="total")
    usual: Assign = "paths" if in_paths else "transfer-sets" if order == "fifo" else "striped"
    join = Join(
        between=between,
        order=order,
        assign=table.choice("assign", _ASSIGNS, usual, hidden="uncoordinated"),
        links=_links(table),
        sets=_simple_sets(table, between, systems) + tuple(_sets(table)),
        dial=read_address(table, "dial", 1),
        flows=read_flows(table),
    )
    table.close()
    return join


def _between(table: Table) -> tuple[str, str]:
    value = table.take("between")
    example = 'write between = ["madrid", "valencia"]'
    if value is None:
        table.missing("between", "which two systems are joined", example)
        return "", ""
    if not isinstance(value, list) or len(value) != 2:
        found = f"{len(value)} of them" if isinstance(value, list) else describe(value)
        table.refuse("between", f"must be an array of two systems, not {found}", example)
        return "", ""
    for index, each in enumerate(value):
        if not isinstance(each, str):
            table.refuse_element("between", index, f"must be the name of a system, not {describe(each)}", example)
    return str(value[0]), str(value[1])


def _links(table: Table) -> int | Literal["auto"] | None:
    value = table.entries.get("links")
    if value == "auto":
        table.take("links")
        return "auto"
    if value is not None and type(value) is not int:
        table.take("links")
        table.refuse("links", f'must be a number or "auto", not {describe(value)}', "write links = 1")
        return None
    return table.integer("links", 0, 1, MAX_LINKS) or None


def _simple_sets(table: Table, between: tuple[str, str], systems: tuple[System, ...]) -> tuple[TransferSet, ...]:
    """`g1 = ["p1"]`: which of the two systems a row is about shows from its names, unless it says `madrid/g1`.

    Rows that do not say are about the system that they divide completely: every gateway there, every process there
    exactly once. When they divide both systems they are about both; when neither, about the one whose names they fit
    best, and the checks will say what is missing.
    """
    inner = table.table("transfer-sets", named=True)
    rows: _Sets = []
    result: list[TransferSet] = []
    for gateway in inner.entries:
        processes = inner.names(gateway, is_name=_is_origin, form=_PROCESS_FORM)
        if processes is None:
            continue
        if "/" not in gateway:
            rows.append((gateway, list(processes), inner.at(gateway)))
        elif (name := _reference(inner, gateway, gateway)) is not None:
            result.append(_transfer_set(name, None, processes, inner.at(gateway)))
    sides = [system for name in dict.fromkeys(between) for system in systems if system.name == name]
    for side in _sides_meant(rows, sides):
        for gateway, row, key in rows:
            result.append(_transfer_set(ProcessName(side.name, gateway), None, row, key))
    return tuple(result)


def _sides_meant(rows: _Sets, sides: list[System]) -> list[System]:
    named = sorted(process for _, processes, _ in rows for process in processes if "/" not in process)
    gateways = {gateway for gateway, _, _ in rows}

    def known(system: System) -> int:
        processes = (*system.processes, REST)
        return sum(process in processes for process in named) + len(gateways.intersection(system.gateways))

    fitting = [system for system in sides if known(system) == len(named) + len(gateways)]
    complete = [system for system in fitting if named == sorted(system.processes) or REST in named]
    best = sorted(sides, key=known, reverse=True)[:1]
    return complete or fitting or best


def _sets(table: Table) -> list[TransferSet]:
    """`[[joins.sets]]` says everything: from which gateway, to which gateway, whose messages."""
    result = []
    for row in table.tables("sets"):
        example = 'write "system/gateway"'
        ends = []
        for name in ("from", "to"):
            text = row.text(name)
            if text is not None:
                ends.append(_reference(row, name, text))
            elif name not in row.entries:
                row.missing(name, "which gateway", example)
        processes = row.names("processes", is_name=_is_origin, form=_PROCESS_FORM)
        if processes is None:
            row.missing("processes", "whose messages", f'write processes = ["p1"], or ["{REST}"] for all others')
        row.close()
        if len(ends) == 2 and ends[0] is not None and ends[1] is not None and processes:
            result.append(_transfer_set(ends[0], ends[1], processes, row.at("processes")))
    return result


def _transfer_set(
    gateway: ProcessName, to: ProcessName | None, processes: list[str] | tuple[str, ...], key: str
) -> TransferSet:
    """A process without a system's name before it is of the gateway's own system."""
    names = tuple(
        ProcessName(*process.split("/")) if "/" in process else ProcessName(gateway.system, process)
        for process in processes
    )
    return TransferSet(gateway=gateway, to=to, processes=names, key=key)


# Paths.


def _path(table: Table) -> Path:
    value = table.entries.get("process")
    if isinstance(value, list):
        texts = list(table.names("process", is_name=_is_path_origin, form='write "system/process"') or ())
    else:
        text = table.text("process")
        if "process" not in table.entries:
            table.missing("process", "whose messages take this path", 'write process = "system/process"')
        texts = [] if text is None else [text]
    processes = [_reference(table, "process", text, origin=True) for text in texts]
    links = []
    pairs = table.take("links")
    if not isinstance(pairs, list) or not pairs:
        found = "missing" if pairs is None else f"must be an array of links, not {describe(pairs)}"
        table.refuse("links", found, 'write links = [["s0/g1", "s1/g1"]]')
        pairs = []
    for index, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(end, str) for end in pair):
            table.refuse_element("links", index, "must be two gateways, from and to", 'write ["s0/g1", "s1/g1"]')
            continue
        start, end = (_reference(table, "links", text, f"[{index}][{place}]") for place, text in enumerate(pair))
        if start is not None and end is not None:
            links.append((start, end))
    table.close()
    return Path(processes=tuple(name for name in processes if name is not None), links=tuple(links))


# References to members: `system/name`.


def _is_member(text: str) -> bool:
    """`madrid/p1`; whether there is such a member is checked later."""
    parts = text.split("/")
    return len(parts) == 2 and all(NAME.fullmatch(part) for part in parts)


def _is_origin(text: str) -> bool:
    """In a transfer set: `p1`, `madrid/p1`, or `*` for all others."""
    return text == REST or bool(NAME.fullmatch(text)) or _is_member(text)


def _is_path_origin(text: str) -> bool:
    """In a path: `madrid/p1`, or `madrid/*`."""
    return _is_member(text.removesuffix(REST) + "p" if text.endswith("/" + REST) else text)


def _reference(table: Table, name: str, text: str, suffix: str = "", origin: bool = False) -> ProcessName | None:
    """`system/gateway` (or the origin of a path) as a name, or None and a problem."""
    if _is_path_origin(text) if origin else _is_member(text):
        return ProcessName(*text.split("/"))
    table.report.incomplete = True
    what = "process" if origin else "gateway"
    table.report.refuse(table.at(name) + suffix, f"{quote(text)} names no {what}", f'write "system/{what}"')
    return None
