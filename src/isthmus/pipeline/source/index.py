"""What the driver keeps of delivery logs: how far each was read, where its rows stand, and the cuts through them all.

Files become pieces of logs, pieces become histories, and `Histories` finds the cut. A piece is usually a whole block
of a file; a file in which several processes write, or in which rows stand in no order, gives several pieces per block.

Rows that are missing from a log for good (their line was damaged, or their writer's disk was full) are a **loss**. It
is certain when the same file goes on behind it. A hole between two files may be a file that is on its way.
"""

from __future__ import annotations

import logging
import time
from array import array
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from msgspec.structs import astuple

from isthmus.pipeline.source.cut import Histories, History
from isthmus.pipeline.source.files import Decoded, Tail
from isthmus.pipeline.source.options import SourceOptions
from isthmus.trace.rows import Stretch
from isthmus.trace.schema import LAST_EVENTS, TraceError, printable

logger = logging.getLogger("isthmus.pipeline.source")

LARGEST_HOLE = 1 << 22
"""Rows that may be skipped as lost; a longer hole is a mistake of whoever numbered them."""

LogKey: TypeAlias = tuple[str, str, str]
Places: TypeAlias = range | array  # type: ignore[type-arg]
"""Where the rows of a piece stand among the rows of their block."""


class Piece(NamedTuple):
    """Rows of one process that follow each other, `first` being the index of the first."""

    block: Stretch
    first: int
    places: Places

    @property
    def stop(self) -> int:
        return self.first + len(self.places)


class Slice(NamedTuple):
    """What a task needs to make rows: where they stand, whose they are, and their ranks as 64-bit numbers."""

    block: Stretch
    log: str
    places: Places
    ranks: bytes


class _Steps(NamedTuple):
    """A piece as a history wants it."""

    piece: Piece
    origins: list[History | None]
    seqs: list[int]
    selected: bytearray
    ended: bool


class _Log:
    """One process: its history, and the pieces that it came in."""

    def __init__(self, key: LogKey, name: str, history: History, wanted: bool) -> None:
        self.key = key
        self.name = name
        self.history = history
        self.wanted = wanted
        """Its rows are among those that the user asked for."""
        self.pieces: list[Piece] = []
        self.last_path: str | None = None
        """The file with the latest row that was read."""
        self.ahead: list[_Steps] = []
        """Read, but something before them is missing; by index."""


class _Builder:
    """Gathers the rows of one process in one block."""

    def __init__(self, log: _Log) -> None:
        self.log = log
        self.indices: list[int] = []
        self.places: list[int] = []
        self.origins: list[History | None] = []
        self.seqs: list[int] = []
        self.selected = bytearray()
        self.events: list[str] = []


def log_name(run: str, system: str, process: str) -> str:
    """The name of a log in offsets and ids. No other log has it: systems have no slash in their names."""
    return f"{quote(run, safe='')}/{system}/{process}"


class LogIndex:
    """All logs below the paths of a source."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.histories = Histories()
        self._tail = Tail(options.paths)
        self._logs: dict[LogKey, _Log] = {}
        self._origins: dict[LogKey, History | None] = {}
        self._bad: str | None = None
        self.clock = time.monotonic
        self._silent: dict[str, tuple[int, float]] = {}
        """Logs that others wait for: how far they were read, and since when they are no longer than that."""
        self._holes: dict[str, int] = {}
        self._warned: set[str] = set()
        self._frozen = False

    # Reading

    def freeze(self) -> None:
        """What is not in the files now will never be read."""
        self._tail.freeze()
        self._frozen = True

    def poll(self, start: Mapping[str, int], limit: int | None) -> None:
        """Read on until there are `limit` selected rows to give away, or to the ends of all files."""
        self._tail.look()
        while limit is None or self.histories.available(start) < limit:
            empty = True
            for decoded in self._tail.next_blocks():
                self._take(decoded)
                empty = False
            self.histories.advance()
            if empty and not self._skip_holes() and not self._give_up():
                self._tell_who_waits()
                return

    def poll_to(self, end: Mapping[str, int]) -> None:
        """Read on to a cut that was planned in an earlier life."""
        self._tail.look()
        while missing := [name for name, count in end.items() if self._frontier(name) < count]:
            empty = True
            for decoded in self._tail.next_blocks():
                self._take(decoded)
                empty = False
            self.histories.advance()
            if empty and not self._skip_holes(certain=True) and not self._give_up(certain=True):
                name = missing[0]
                there = self._frontier(name)
                raise TraceError(
                    name,
                    f"the checkpoint has it read up to index {end[name]}, but now it is there up to {there}",
                    "put the log back, or start the query with a new checkpoint",
                )

    def _frontier(self, name: str) -> int:
        history = self.histories.by_name.get(name)
        return history.frontier if history else 0

    def _take(self, decoded: Decoded) -> None:
        for reason in decoded.bad:
            self._bad = reason
            self._tell(f"not a row: {reason}")
        steps = self._take_at_once(decoded)
        if steps is not None:
            self._add(*steps)
            return
        builders: dict[LogKey, _Builder] = {}
        rows = zip(*astuple(decoded.keys), strict=True)
        for place, (run, system, process, index, event, role, *message) in enumerate(rows):
            if place in decoded.senseless or (self.options.runs is not None and run not in self.options.runs):
                continue
            log = self._log((run, system, process))
            builder = builders.setdefault(log.key, _Builder(log))
            builder.indices.append(index)
            builder.places.append(place)
            builder.events.append(event)
            builder.selected.append(event in self.options.events and role in self.options.roles and log.wanted)
            origin_system, origin_process, seq = message
            origin = self._origin(run, origin_system, origin_process)
            own = event == "send" and origin_process == process and origin_system == system
            builder.origins.append(log.history if own else origin)
            builder.seqs.append((-seq if own else seq) if seq is not None else 0)
        for each in builders.values():
            for piece in _pieces(decoded.block, each):
                self._add(each.log, piece)

    def _take_at_once(self, decoded: Decoded) -> tuple[_Log, _Steps] | None:
        """A block with rows of one process, one after the other: nearly all are. A third of the time of row by row."""
        keys = decoded.keys
        count = len(keys.index)
        if not count or decoded.senseless:
            return None
        first = keys.index[0]
        if keys.index != list(range(first, first + count)):
            return None
        names = (keys.run, keys.system, keys.process)
        if any(column.count(column[0]) != count for column in names):
            return None
        run, system, process = keys.run[0], keys.system[0], keys.process[0]
        if self.options.runs is not None and run not in self.options.runs:
            return None
        log = self._log((run, system, process))
        senders = list(zip(keys.origin_system, keys.origin_process, strict=True))
        origins = {sender: self._origin(run, *sender) for sender in set(senders)}
        own = (system, process)
        seqs = [
            (-seq if event == "send" and sender == own else seq) if seq is not None else 0
            for event, sender, seq in zip(keys.event, senders, keys.origin_seq, strict=True)
        ]
        histories = [origins[sender] for sender in senders]
        if own in origins and origins[own] is None:  # outside, but its own log is here
            histories = [log.history if seq < 0 else each for each, seq in zip(histories, seqs, strict=True)]
        selected = bytearray(count)
        if log.wanted:
            events, roles = self.options.events, self.options.roles
            selected = bytearray(event in events for event in keys.event)
            if not roles.issuperset(keys.role):
                selected = bytearray(flag and role in roles for flag, role in zip(selected, keys.role, strict=True))
        piece = Piece(decoded.block, first, range(count))
        return log, _Steps(piece, histories, seqs, selected, keys.event[-1] in LAST_EVENTS)

    def _log(self, key: LogKey) -> _Log:
        log = self._logs.get(key)
        if log is None:
            name = log_name(*key)
            log = self._logs[key] = _Log(key, name, self.histories.history(name), self.options.wants(*key[1:]))
        return log

    def _origin(self, run: str, system: str | None, process: str | None) -> History | None:
        """Who sent a message; None when there is none, or it came from outside, so that nobody waits for it."""
        if system is None or process is None:
            return None
        key = (run, system, process)
        if key not in self._origins:
            outside = self.options.is_outside(system, process)
            self._origins[key] = None if outside else self.histories.history(log_name(*key))
        return self._origins[key]

    def _add(self, log: _Log, steps: _Steps) -> None:
        read = log.history.read
        if steps.piece.first > read:
            insort(log.ahead, steps, key=lambda each: each.piece.first)
            return
        self._append(log, steps)
        while log.ahead and log.ahead[0].piece.first <= log.history.read:
            self._append(log, log.ahead.pop(0))

    def _append(self, log: _Log, steps: _Steps) -> None:
        again = log.history.read - steps.piece.first
        if again:
            self._tell(
                f"rows that came twice in the log of {log.name} are left out, the first from {steps.piece.block.path}"
            )
            if again >= len(steps.seqs):
                return
            piece = Piece(steps.piece.block, log.history.read, steps.piece.places[again:])
            rest = (steps.origins[again:], steps.seqs[again:], steps.selected[again:])
            steps = _Steps(piece, *rest, steps.ended)
        log.last_path = steps.piece.block.path
        if log.wanted:
            log.pieces.append(steps.piece)
        self.histories.append(log.history, steps.origins, steps.seqs, bytes(steps.selected), ended=steps.ended)

    # What is missing

    def _skip_holes(self, certain: bool = False) -> bool:
        """Deal with holes at the end of what there is to read; whether anything can go on."""
        skipped = False
        for log in self._logs.values():
            if not log.ahead:
                continue
            steps = log.ahead[0]
            first, stop = log.history.read, steps.piece.first
            same_file = log.last_path == steps.piece.block.path
            seen_before = self._holes.get(log.name) == first
            self._holes[log.name] = first
            what = f"rows {first} to {stop - 1} of {log.name} are missing before {steps.piece.block.path} goes on"
            if self._bad:
                what += f" (the last line that was no row: {self._bad})"
            if self.options.fail_on_data_loss:
                if same_file:
                    raise TraceError("data loss", what, "repair the log, or set the option failOnDataLoss to false")
                self._tell(f"waiting: {what}")
            elif same_file or seen_before or self._frozen or certain:
                if stop - first > LARGEST_HOLE:
                    raise TraceError("data loss", what, "that is more than can be skipped")
                self._tell(f"skipped: {what}")
                lost = stop - first
                self.histories.append(log.history, [None] * lost, [0] * lost, bytes(lost))
                self._add(log, log.ahead.pop(0))
                skipped = True
        self.histories.advance()
        return skipped

    def _give_up(self, certain: bool = False) -> bool:
        """Wait no more for logs that have not grown for too long; whether there was one."""
        if self.options.patience is None:
            return False
        now = self.clock()
        logs = {origin: self.histories.by_name[origin].read for _, _, origin, _ in self.histories.waits()}
        silent = {}
        for origin, read in logs.items():
            known = self._silent.get(origin)
            silent[origin] = known if known is not None and known[0] == read else (read, now)
        self._silent = silent
        given_up = [origin for origin, (_, since) in silent.items() if certain or now - since >= self.options.patience]
        for origin in given_up:
            self._tell(f"given up: {origin} has not grown for {self.options.patience} s, and others wait for it")
            self.histories.give_up(origin)
        self.histories.advance()
        return bool(given_up)

    def _tell_who_waits(self) -> None:
        for who, index, origin, seq in self.histories.waits():
            if not self.histories.by_name[origin].read:
                self._tell(
                    f"{who} waits at index {index} for message {seq} of {origin}, of which there is no log here; "
                    f"add its path, or name it (or its system) in the option outside"
                )

    def absent_senders(self) -> list[str]:
        """Processes without any log for whose messages others wait."""
        waits = self.histories.waits()
        return sorted({origin for _, _, origin, _ in waits if not self.histories.by_name[origin].read})

    def _tell(self, what: str) -> None:
        if what not in self._warned and len(self._warned) < 1000:
            self._warned.add(what)
            logger.warning("%s", printable(what))

    # Giving away

    def forget(self, cut: Mapping[str, int]) -> None:
        self.histories.forget(cut)
        for log in self._logs.values():
            done = bisect_right(log.pieces, cut.get(log.name, 0), key=lambda piece: piece.stop)
            del log.pieces[:done]

    def slices(self, start: Mapping[str, int], end: Mapping[str, int]) -> Iterator[Slice]:
        """Everything that was asked for between two cuts, log by log."""
        for log in sorted(self._logs.values(), key=lambda each: each.name):
            begin, stop = start.get(log.name, 0), end.get(log.name, 0)
            place = bisect_right(log.pieces, begin, key=lambda piece: piece.stop)
            for piece in log.pieces[place:]:
                if piece.first >= stop:
                    break
                first, last = max(piece.first, begin), min(piece.stop, stop)
                ranks = self.histories.ranks(log.name, first, last)
                places = piece.places[first - piece.first : last - piece.first]
                yield Slice(piece.block, log.name, places, ranks.tobytes())


def _pieces(block: Stretch, builder: _Builder) -> Iterator[_Steps]:
    """Rows of one process in a block, in stretches without a hole. Nearly always that is one stretch."""
    indices = builder.indices
    if not indices:
        return
    count = len(indices)
    if indices == list(range(indices[0], indices[0] + count)):
        places: Places = array("i", builder.places)
        if builder.places[-1] - builder.places[0] == count - 1:
            places = range(builder.places[0], builder.places[0] + count)
        ended = builder.events[-1] in LAST_EVENTS
        yield _Steps(Piece(block, indices[0], places), builder.origins, builder.seqs, builder.selected, ended)
        return
    order: dict[int, int] = {}
    for at, index in enumerate(indices):
        order.setdefault(index, at)  # where one comes twice, the first counts
    stretch: list[int] = []
    for index in sorted(order):
        if stretch and index != indices[stretch[-1]] + 1:
            yield _stretch(block, builder, stretch)
            stretch = []
        stretch.append(order[index])
    yield _stretch(block, builder, stretch)


def _stretch(block: Stretch, builder: _Builder, order: Sequence[int]) -> _Steps:
    piece = Piece(block, builder.indices[order[0]], array("i", [builder.places[at] for at in order]))
    return _Steps(
        piece,
        [builder.origins[at] for at in order],
        [builder.seqs[at] for at in order],
        bytearray(builder.selected[at] for at in order),
        builder.events[order[-1]] in LAST_EVENTS,
    )
