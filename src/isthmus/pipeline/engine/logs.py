"""Rows of logs as numbers, and what the rest of a run needs to know of each log without looking at its rows.

A log comes in **blocks**: stretches of its rows, in order of index. `Block` holds the facts of one: they are made where
the block is written, so that an audit begins with them and reads no row to learn who is complete, who crashed, and how
many messages each sender has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from isthmus.trace.columns import TRACE_EVENTS
from isthmus.trace.schema import Event

Array: TypeAlias = Any
"""A numpy array. Its element types are said where they matter."""

NEVER = np.iinfo(np.int64).max
EVERYONE = -1
"""The audience of a message that names no destinations."""

OTHER, SEND, DELIVER, JOIN, CRASH, LEAVE, END, VIEW = range(8)
KINDS = {"send": SEND, "deliver": DELIVER, "join": JOIN, "crash": CRASH, "leave": LEAVE, "end": END, "view": VIEW}
_LAST = [KINDS[event.name] for event in TRACE_EVENTS if event.last]

CODED_COLUMNS = ("role", "index", "event", "origin_system", "origin_process", "origin_seq", "peer")
"""What is read of a table, beside `audience`."""


class Rows(NamedTuple):
    """Rows as numbers. Those of gateways count for gaps and for the end of a log only: their kind is OTHER or END."""

    index: Array
    kind: Array
    origin: Array
    """Number of the sender's name, in `names` or among the chains of a run; -1 where there is no message."""
    seq: Array
    audience: Array | None
    """Number of the set of destinations, or EVERYONE; None where nobody names any."""
    names: Sequence[str]
    app: Array
    peer: Any

    def part(self, start: int, stop: int) -> Rows:
        some = slice(start, stop)
        audience = None if self.audience is None else self.audience[some]
        return Rows(
            self.index[some], self.kind[some], self.origin[some], self.seq[some], audience,
            self.names, self.app[some], self.peer.slice(start, stop - start),
        )  # fmt: skip


class View(Struct, frozen=True):
    """A process enters a view: at which index, after how many rows and deliveries of its block; its number as text."""

    index: int
    row: int
    delivered: int
    number: str


class Block(Struct):
    """A stretch of one log in order of index, what it holds, and where it lies."""

    run: str
    system: str
    process: str
    rows: int
    first: int
    """Its first and last index."""
    last: int
    gap: int
    """The first index that is missing in between, or -1; and the deliveries of this block that come before."""
    gap_delivered: int
    app: bool
    joined: bool
    crashed: bool
    left: bool
    ends: bool
    """Its last row ends a log."""
    sends: int
    first_seq: int
    contiguous: bool
    """Sends are numbered `first_seq`, `first_seq` + 1, …"""
    deliveries: int
    highest: dict[str, int]
    """Sender to the highest number delivered; the process itself is there if it sent anything."""
    views: list[View]
    path: str = ""
    group: int = 0
    start: int = 0
    """The file, its row group, and the first row there."""

    @property
    def name(self) -> str:
        return f"{self.system}/{self.process}"


def words(column: Any) -> tuple[Array, list[Any]]:
    """A column as numbers and what they stand for; null is -1."""
    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return numbers(column.indices, -1), column.dictionary.to_pylist()


def numbers(column: Any, null: int = 0) -> Array:
    """A column of integers, with a number instead of null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return (column.fill_null(null) if column.null_count else column).to_numpy(zero_copy_only=False)


def coded(table: Any) -> Rows:
    """Rows of a table as numbers. Its column `audience` is optional."""
    event, events = words(table.column("event"))
    role, roles = words(table.column("role"))
    app = np.array([each == "app" for each in roles] + [False])[role]
    kind = np.array([KINDS.get(each, OTHER) for each in events] + [OTHER], np.int8)[event]
    if not app.all():
        kind = np.where(app, kind, np.where(np.isin(kind, _LAST), END, OTHER)).astype(np.int8)
    systems, system_names = words(table.column("origin_system"))
    processes, process_names = words(table.column("origin_process"))
    pair = systems.astype(np.int64) * len(process_names) + processes
    pair[(kind != SEND) & (kind != DELIVER)] = -1
    there = np.zeros(len(system_names) * len(process_names) + 1, bool)
    there[pair] = True
    used = np.flatnonzero(there[:-1])
    number = np.full(len(there), -1, np.int32)
    number[used] = np.arange(len(used))
    names = [f"{system_names[each // len(process_names)]}/{process_names[each % len(process_names)]}" for each in used]
    audience = None
    if "audience" in table.column_names and table.column("audience").null_count < len(kind):
        audience = numbers(table.column("audience"), EVERYONE)
    return Rows(
        numbers(table.column("index")), kind, number[pair], numbers(table.column("origin_seq")), audience, names,
        app, table.column("peer"),
    )  # fmt: skip


def facts(rows: Rows, run: str, system: str, process: str) -> Block:
    """The facts of a block of one log."""
    index, kind = rows.index, rows.kind
    count, first, last = len(index), int(index[0]), int(index[-1])
    gap = gap_delivered = -1
    if last - first != count - 1:
        at = int(np.argmax(index != np.arange(first, first + count)))
        gap, gap_delivered = first + at, int(np.count_nonzero(kind[:at] == DELIVER))
    kinds = np.bincount(kind, minlength=len(KINDS) + 1)
    seqs = rows.seq[kind == SEND]
    delivered = kind == DELIVER
    highest = np.zeros(len(rows.names), np.int64)
    np.maximum.at(highest, rows.origin[delivered], rows.seq[delivered])
    tops = {name: top for name, top in zip(rows.names, highest.tolist(), strict=True) if top}
    if len(seqs):
        tops.setdefault(f"{system}/{process}", 0)
    views = []
    if kinds[VIEW]:
        places = np.flatnonzero(kind == VIEW)
        before = np.cumsum(delivered)[places]
        told = rows.peer.take(pa.array(places)).to_pylist()
        views = [View(int(index[at]), int(at), int(n), peer) for at, n, peer in zip(places, before, told, strict=True)]
    rising = bool((seqs[1:] == seqs[:-1] + 1).all())
    return Block(
        run=run, system=system, process=process, rows=count, first=first, last=last, gap=gap,
        gap_delivered=gap_delivered, app=bool(rows.app.any()), joined=bool(kinds[JOIN]), crashed=bool(kinds[CRASH]),
        left=bool(kinds[LEAVE]), ends=kind[-1] in _LAST, sends=len(seqs), first_seq=int(seqs[0]) if len(seqs) else 0,
        contiguous=rising, deliveries=int(kinds[DELIVER]), highest=tops, views=views,
    )  # fmt: skip


class Audiences(Struct):
    """Sets of destinations by number: `members` has the numbers of their names, one set after the other."""

    names: list[str] = []
    members: list[int] = []
    sizes: list[int] = []


def audiences_of(table: Any, rows: Rows) -> tuple[Any, Audiences]:
    """The column `audience` of a table, and the sets that its numbers stand for. Only rows of messages have one.

    A set is known by the sum of one random number per name: no list of Python is made but for each distinct set.
    """
    lists = table.column("destinations")
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    counts = (rows.kind == SEND) | (rows.kind == DELIVER)
    counts &= lists.is_valid().to_numpy(zero_copy_only=False)
    if not counts.any():
        return pa.nulls(len(counts), pa.int32()), Audiences()
    member, names = words(lists.flatten())
    sizes = numbers(pc.list_value_length(lists), 0).astype(np.int64)
    ends = np.cumsum(sizes)
    random = np.random.default_rng(7).integers(1, 1 << 62, len(names), dtype=np.uint64)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(random[member])])
    sums = (total[ends] - total[ends - sizes])[counts]
    _, first, number = np.unique(sums, return_index=True, return_inverse=True)
    chosen = np.flatnonzero(counts)[first]
    sets = [np.unique(member[ends[row] - sizes[row] : ends[row]]) for row in chosen]
    column = np.zeros(len(counts), np.int32)
    column[counts] = number
    found = Audiences(names, np.concatenate(sets).tolist() if sets else [], [len(each) for each in sets])
    return pa.array(column, mask=~counts), found


class Log:
    """A log from the facts of its blocks."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.blocks = sorted(blocks, key=lambda block: block.first)
        self.system, self.process = self.blocks[0].system, self.blocks[0].process
        self.name = self.blocks[0].name
        self.app = any(block.app for block in self.blocks)
        self.joined = any(block.joined for block in self.blocks)
        self.crashed = any(block.crashed for block in self.blocks)
        self.gone = self.crashed or any(block.left for block in self.blocks)
        """It crashed or left: it owes no deliveries any more."""
        self.deliveries, self.sends = (sum(getattr(each, what) for each in self.blocks) for what in _SUMMED)
        self.rows = sum(block.rows for block in self.blocks)
        self.delivered_before = [0, *accumulate(block.deliveries for block in self.blocks)]
        self.sent_before = [0, *accumulate(block.sends for block in self.blocks)]
        self.first_gap = self.gap_place = NEVER
        """The first index that is missing before the last row, and how many deliveries come before that."""
        self.contiguous = True
        """Its messages are numbered 1, 2, 3, … in the order of sending."""
        expected = 0
        for block, delivered, sent in zip(self.blocks, self.delivered_before, self.sent_before, strict=False):
            if self.first_gap == NEVER and block.first != expected:
                self.first_gap, self.gap_place = expected, delivered
            if self.first_gap == NEVER and block.gap >= 0:
                self.first_gap, self.gap_place = block.gap, delivered + block.gap_delivered
            expected = block.last + 1
            self.contiguous &= not block.sends or (block.contiguous and block.first_seq == sent + 1)
        self.complete = self.first_gap == NEVER and self.blocks[-1].ends

    @property
    def has_gap(self) -> bool:
        return self.first_gap != NEVER

    def views(self) -> list[View]:
        """Its views, counted from the beginning of the log."""
        rows = accumulate((block.rows for block in self.blocks), initial=0)
        return [
            View(view.index, before + view.row, delivered + view.delivered, view.number)
            for block, before, delivered in zip(self.blocks, rows, self.delivered_before, strict=False)
            for view in block.views
        ]


_SUMMED = ("deliveries", "sends")


def table_of(events: Sequence[Event]) -> Any:
    """Rows of one log that are in memory, in order, as the columns that an audit reads."""
    columns: Mapping[str, Any] = {
        name: pa.array([getattr(event, name) for event in events], pa.int64() if name in _NUMBERS else pa.string())
        for name in CODED_COLUMNS
    }
    lists = pa.array([event.destinations for event in events], pa.list_(pa.string()))
    return pa.table({**columns, "destinations": lists})


_NUMBERS = ("index", "origin_seq")
