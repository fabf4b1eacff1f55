"""One run, judged from the facts and the rows of its logs, in passes that share nothing but the store.

1. Facts: who is complete, crashed, late or has a gap; how long chains are. No row is read.
2. Odd chains only: what was sent and delivered of them, number by number.
3. Per block of a log: its order of delivery as addresses, and its edges.
4. Per process: every judge looks at what it delivered.
5. What judges conclude, with more passes where they need them.

Each pass is a function of the run and a job, and `each` carries it out for all jobs: one after the other where the run
is in memory, as tasks of Spark where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from isthmus.pipeline.engine.chains import Chains, Settled, note_numbers, settle
from isthmus.pipeline.engine.edges import Stretch, Walked, stretches, walk
from isthmus.pipeline.engine.finding import Finding
from isthmus.pipeline.engine.logs import (
    DELIVER,
    EVERYONE,
    SEND,
    Array,
    Audiences,
    Block,
    Log,
    Rows,
    audiences_of,
    coded,
    facts,
    table_of,
)
from isthmus.pipeline.engine.receiver import Receiver
from isthmus.pipeline.engine.store import InMemory, Store
from isthmus.trace.schema import Event

Job = TypeVar("Job")
Result = TypeVar("Result")


class Source(Protocol):
    """Where the rows of blocks come from. Origins and audiences are numbered by file."""

    def rows(self, block: Block) -> Rows: ...

    def audiences(self, path: str) -> Audiences: ...


class Look(Struct):
    """What a judge says of one process: what it found, and whatever else it needs to conclude."""

    number: int
    finding: Finding
    said: Any = None


class Judge:
    """Judges one property: looks at each application process by itself, and then concludes.

    A judge travels to tasks, so it keeps nothing that it saw; what `look` gives back must be plain values.
    """

    def __init__(self, judged: str) -> None:
        self.judged = judged

    def look(self, receiver: Receiver, found: Finding) -> Any:
        """One process: add what is wrong there to what was found."""

    def conclude(self, run: Run, looks: Sequence[Look]) -> Finding:
        """Everybody was looked at."""
        return Finding(self.judged).merge(look.finding for look in looks)


class Run:
    """One run while it is audited."""

    def __init__(self, name: str, blocks: Sequence[Block], source: Source, store: Store) -> None:
        self.name, self.source, self.store = name, source, store
        by_log: dict[str, list[Block]] = {}
        for block in blocks:
            by_log.setdefault(block.name, []).append(block)
        self.logs = [Log(by_log[log]) for log in sorted(by_log)]
        self.members = [number for number, log in enumerate(self.logs) if log.app]
        self.events = sum(log.rows for log in self.logs)
        names = sorted({name for block in blocks for name in block.highest})
        self.chains = Chains(self.logs, names, store)
        self.direct: list[Stretch] = []
        self._name_audiences(sorted({block.path for block in blocks}))

    # What passes use

    def each(self, function: Callable[[Run, Job], Result], jobs: Sequence[Job], result: type[Result]) -> list[Result]:
        """What a function gives for each of these jobs, in their order. `result` is the type of what it gives."""
        return [function(self, job) for job in jobs]

    def read(self, number: int, block: int) -> Rows:
        """A block of a log, with chains as origins and numbers of `audiences`."""
        place = self.logs[number].blocks[block]
        rows = self.source.rows(place)
        chain = np.array([self.chains.number.get(name, -1) for name in rows.names] + [-1], np.int32)
        audience = rows.audience
        if audience is not None:
            audience = np.where(audience == EVERYONE, EVERYONE, audience + self._first_audience[place.path])
        return rows._replace(origin=chain[rows.origin], audience=audience)

    def put_addresses(self, name: str, addresses: Array) -> None:
        self.store.put(name, addresses.astype(np.int32) if self.chains.messages < 1 << 31 else addresses)

    def orders(self, number: int) -> list[Array]:
        """The addresses that a log delivered, block by block."""
        return [self.store.get(f"order-{number}-{block}") for block in range(len(self.logs[number].blocks))]

    def index_at(self, number: int, place: int) -> int:
        """The index of a delivery, by its number among those of a log."""
        log = self.logs[number]
        block = int(np.searchsorted(log.delivered_before, place, side="right")) - 1
        rows = self.source.rows(log.blocks[block])
        return int(rows.index[np.flatnonzero(rows.kind == DELIVER)[place - log.delivered_before[block]]])

    def delivered_before_sending(self, first: int, message: int) -> bool:
        """Whether the sender of a message had delivered another before that."""
        chain = int(self.chains.chain_at(message))
        slot, number = message - int(self.chains.base[chain]), int(self.chains.log_of[chain])
        if number < 0:
            return False
        log = self.logs[number]
        for before, order in zip(log.delivered_before, self.orders(number), strict=False):
            found = np.flatnonzero(order == first)
            if len(found):
                return self.index_at(number, before + int(found[0])) < self._sent_at(log, chain, slot)
        return False

    def _sent_at(self, log: Log, chain: int, slot: int) -> int:
        if chain in self.chains.odd:
            return int(self.chains.sent_at(chain)[slot])
        block = int(np.searchsorted(log.sent_before, slot, side="right")) - 1
        rows = self.source.rows(log.blocks[block])
        return int(rows.index[np.flatnonzero(rows.kind == SEND)[slot - log.sent_before[block]]])

    # For whom

    def _name_audiences(self, paths: Sequence[str]) -> None:
        """Number the sets of destinations of all files."""
        number = {log.name: each for each, log in enumerate(self.logs)}
        inside, lost = [np.zeros((0, len(self.logs)), bool)], [np.zeros(0, np.int64)]
        self._first_audience: dict[str, int] = {}
        count = 0
        for path in paths:
            sets = self.source.audiences(path)
            self._first_audience[path] = count
            count += len(sets.sizes)
            named = np.array([number.get(name, -1) for name in sets.names] + [-1])[np.array(sets.members, np.int64)]
            of_set = np.repeat(np.arange(len(sets.sizes)), sets.sizes)
            there = np.zeros((len(sets.sizes), len(self.logs) + 1), bool)
            there[of_set, named] = True
            inside.append(there[:, :-1])
            lost.append(np.bincount(of_set[named < 0], minlength=len(sets.sizes)))
        self.store.put("audiences", np.concatenate(inside))
        self.store.put("lost", np.concatenate(lost))
        self.multicast = count > 0

    @property
    def audiences(self) -> Array:
        """Set of destinations to the logs that it names."""
        return self.store.get("audiences")

    @property
    def lost(self) -> Array:
        """Set of destinations to how many of its names have no log."""
        return self.store.get("lost")

    # Passes

    def prepare(self) -> None:
        """Everything that judges look at."""
        numbers = range(len(self.logs))
        if self.chains.odd:
            self.each(note_numbers, numbers, type(None))
            self.chains.settle(self.each(settle, self.chains.odd, Settled))
        if self.multicast:
            self.each(note_audiences, range(self.chains.count), type(None))
            parts = [self.store.get(f"audience-{chain}") for chain in range(self.chains.count)]
            self.store.put("audience", np.concatenate([np.zeros(0, np.int32), *parts]))
        jobs = [(number, block) for number in numbers for block in range(len(self.logs[number].blocks))]
        walked: dict[int, list[tuple[str, Walked]]] = {}
        for (number, block), each in zip(jobs, self.each(walk, jobs, Walked), strict=True):
            walked.setdefault(number, []).append((f"{number}-{block}", each))
        own = [(self.chains.number.get(self.logs[number].name), blocks) for number, blocks in walked.items()]
        self.direct = stretches(self.chains, [(chain, blocks) for chain, blocks in own if chain is not None])

    def judge(self, judges: Mapping[str, Judge | None]) -> list[Finding]:
        """What these judges find; a property that has none is unknown."""
        self.prepare()
        at_work = [judge for judge in judges.values() if judge is not None]
        looks = self.each(look_with, [(number, at_work) for number in self.members], list[Look])
        found = [judge.conclude(self, [each[place] for each in looks]) for place, judge in enumerate(at_work)]
        by_name = {each.judged: each for each in found}
        return [by_name.get(name) or Finding(name, unknown=True) for name in judges]


def look_with(run: Run, job: tuple[int, Sequence[Judge]]) -> list[Look]:
    """One process, for all judges."""
    number, judges = job
    receiver = Receiver(run, number)
    looks = []
    for judge in judges:
        found = Finding(judge.judged)
        looks.append(Look(number, found, judge.look(receiver, found)))
    return looks


def note_audiences(run: Run, chain: int) -> None:
    """One chain: for whom its messages are. Without a `send` row, the first `deliver` row that says so counts."""
    chains = run.chains
    audience = np.full(int(chains.slots[chain]), EVERYONE, np.int32)
    told = np.zeros(len(audience), bool)

    def note(number: int, kind: int) -> None:
        for block in range(len(run.logs[number].blocks)):
            rows = run.read(number, block)
            said = np.full(len(rows.kind), EVERYONE) if rows.audience is None else rows.audience
            at = np.flatnonzero((rows.kind == kind) & (rows.origin == chain) & ((kind == SEND) | (said != EVERYONE)))
            slot = chains.slot(chain, rows.seq[at])
            fresh = np.flatnonzero(~told[slot])[::-1]  # the first of several is written last
            audience[slot[fresh]] = said[at[fresh]]
            told[slot] = True

    if chains.log_of[chain] >= 0:
        note(int(chains.log_of[chain]), SEND)
    if not told.all():
        for number in run.members:
            note(number, DELIVER)
    run.store.put(f"audience-{chain}", audience)


# A run in memory ------------------------------------------------------------------------------------------------------


class RowsAtHand:
    """Blocks whose rows are in memory. The path of a block is its number."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Rows, Audiences]] = {}

    def add(self, events: Sequence[Event]) -> Block:
        """Some rows of one log, in order of index."""
        table = table_of(events)
        rows = coded(table)
        audience, sets = audiences_of(table, rows)
        block = facts(rows, events[0].run, events[0].system, events[0].process)
        block.path = str(len(self._rows))
        if sets.sizes:
            rows = rows._replace(audience=audience.fill_null(EVERYONE).to_numpy(zero_copy_only=False))
        self._rows[block.path] = rows, sets
        return block

    def rows(self, block: Block) -> Rows:
        return self._rows[block.path][0]

    def audiences(self, path: str) -> Audiences:
        return self._rows[path][1]


def run_of(events: Sequence[Event], *, block_rows: int = 1 << 20, store: Store | None = None) -> Run:
    """Rows of one run, as objects in memory. They must be sound: nothing is quarantined here."""
    logs: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        logs.setdefault((event.system, event.process), []).append(event)
    source = RowsAtHand()
    blocks = []
    for log in logs.values():
        log.sort(key=lambda event: event.index)
        blocks += [source.add(log[start : start + block_rows]) for start in range(0, len(log), block_rows)]
    return Run(events[0].run, blocks, source, store or InMemory())
