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

import numpy as np
from msgspec.structs import astuple

from isthmus.pipeline.source.cut import Histories, History
from isthmus.pipeline.source.files import Decoded, Tail
from isthmus.pipeline.source.journal import Gap, Journal
from isthmus.pipeline.source.offset import Gaps, LogPlace, Offset
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

    def moved(self, moved: Mapping[str, str]) -> Piece:
        path = moved.get(self.block.path)
        return self._replace(block=self.block._replace(path=path)) if path else self


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

    def part(self, start: int, stop: int) -> _Steps:
        rows = slice(start, stop)
        piece = Piece(self.piece.block, self.piece.first + start, self.piece.places[rows])
        ended = self.ended and stop == len(self.seqs)
        return _Steps(piece, self.origins[rows], self.seqs[rows], self.selected[rows], ended)


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

    def move(self, moved: Mapping[str, str]) -> None:
        """Files have other names now."""
        self.pieces = [each.moved(moved) for each in self.pieces]
        self.ahead = [each._replace(piece=each.piece.moved(moved)) for each in self.ahead]
        self.last_path = moved.get(self.last_path or "", self.last_path)

    def drop(self, path: str) -> list[Piece]:
        """A file has gone: let go of the pieces that it held, and tell which of them were taken."""
        dropped = [each for each in self.pieces if each.block.path == path]
        if dropped:
            self.pieces = [each for each in self.pieces if each.block.path != path]
        self.ahead = [each for each in self.ahead if each.piece.block.path != path]
        return [each._replace(first=max(each.first, self.history.first)) for each in dropped]


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
    """All logs below the paths of a source.

    The **base** is the offset that is committed. Everything before it is forgotten; a batch begins there.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.histories = Histories()
        self.base: Offset | None = None
        self._journal = Journal(options.checkpoint)
        self._tail = Tail(options.paths)
        self._logs: dict[LogKey, _Log] = {}
        self._origins: dict[LogKey, History | None] = {}
        self._bad: str | None = None
        self.clock = time.monotonic
        self._silent: dict[str, tuple[int, float]] = {}
        """Logs that others wait for: how far they were read, and since when they are no longer than that."""
        self._holes: dict[str, int] = {}
        self._gaps: list[Gap] = []
        """Rows behind the base that are lost."""
        self._warned: set[str] = set()
        self._frozen = False

    @property
    def bytes_read(self) -> int:
        return self._tail.bytes_read

    # Where it stands

    def freeze(self) -> None:
        """What is not in the files now will never be read."""
        self._tail.freeze()
        self._frozen = True

    def settle(self, base: Offset, planned: Offset | None = None) -> None:
        """Everything up to an offset is committed. A new index begins there, with a batch that is `planned` already."""
        if self.base is None:
            self._restore(base, planned)
        elif base != self.base:
            self.histories.settle({name: place[0] for name, place in base.logs.items()})
            self._tail.settle()
            for log in self._logs.values():
                del log.pieces[: bisect_right(log.pieces, log.history.first, key=lambda piece: piece.stop)]
            self._gaps = [gap for gap in self._gaps if gap.stop > self._history(gap.log).first]
        self.base = base

    def _restore(self, base: Offset, planned: Offset | None) -> None:
        last = planned or base
        if last.kept:
            self._journal.load(last.cut)
            self._tail.restore(self._journal.files, again=planned is not None)
        elif last.cut:
            self._tail.begin_again()
        for name, place in base.logs.items():
            self.histories.by_name[name] = History(name, *place)
        if planned is not None:
            self._gaps = [Gap(name, *each, "") for name, gaps in planned.gaps.items() for each in gaps]

    def _history(self, name: str) -> History:
        """The process of that name; one that has ended is remembered by the journal."""
        known = self.histories.by_name.get(name)
        if known is None:
            ended = self._journal.finished.get(name)
            known = History(name, *ended) if ended else History(name)
            self.histories.by_name[name] = known
        return known

    # Reading

    def poll(self, limit: int | None) -> None:
        """Read on until there are `limit` selected rows to give away, or to the ends of all files."""
        self._look()
        while limit is None or self.histories.available() < limit:
            if not self._read_on() and not self._skip_holes() and not self._give_up():
                self._tell_who_waits()
                return

    def poll_to(self, end: Offset) -> None:
        """Read on to a cut that was planned in an earlier life."""
        self._look()
        while missing := [name for name in end.logs if self._history(name).frontier < end.count(name)]:
            if self._read_on() or self._pass_known_gaps() or self._skip_holes(certain=True):
                continue
            if self._give_up(certain=True) or (end.gaps and self._wait_no_more(missing)):
                continue
            name = missing[0]
            what = (
                f"the checkpoint has a batch with rows up to index {end.count(name) - 1} of it, "
                f"but now there are only {self._history(name).read}"
            )
            if self.options.fail_on_data_loss:
                way_out = "put the log back, set the option failOnDataLoss to false, or start with a new checkpoint"
                raise TraceError(name, what, way_out)
            self._go_on_without(end, missing)

    def _go_on_without(self, end: Offset, missing: list[str]) -> None:
        """Reach a planned cut although rows of it are gone."""
        for name in missing:
            history, count = self._history(name), end.count(name)
            if history.read < count:
                self._lose(history, count, "they were gone when a batch was repeated")
        self.histories.advance()
        self._wait_no_more(missing)

    def _wait_no_more(self, names: list[str]) -> bool:
        """The planned cut was closed: what these wait for was known to be lost; whether they wait for anything."""
        awaited = {origin for who, _, origin, _ in self.histories.waits() if who in names}
        for origin in awaited:
            self.histories.give_up(origin)
        self.histories.advance()
        return bool(awaited)

    def _look(self) -> None:
        self._tail.look()
        if self._tail.moved:
            moved, self._tail.moved = self._tail.moved, {}
            for log in self._logs.values():
                log.move(moved)
        self._face_losses()

    def _read_on(self) -> bool:
        """Read one more block of every log; whether there was one."""
        found = False
        for file, decoded in self._tail.next_blocks():
            found = True
            file.holds(decoded.block, self._take(decoded))
        self.histories.advance()
        self._face_losses()
        return found

    def _face_losses(self) -> None:
        losses, self._tail.losses = self._tail.losses, []
        for loss in losses:
            if self.options.fail_on_data_loss:
                way_out = "put it back or repair it; with the option failOnDataLoss=false, the query goes on without"
                raise TraceError("data loss", f"{loss.path}: {loss.reason}", way_out)
            self._tell(f"{'lost' if loss.is_gone else 'in quarantine'}: {loss.path}: {loss.reason}")
            if loss.is_gone:
                for log in self._logs.values():
                    for piece in log.drop(loss.path):
                        self._gaps.append(Gap(log.name, piece.first, piece.stop, f"{loss.path} {loss.reason}"))

    def _take(self, decoded: Decoded) -> list[tuple[History, int]]:
        """Take the rows of a block; whose they are, and up to where."""
        for reason in decoded.bad:
            self._bad = reason
            self._tell(f"not a row: {reason}")
        steps = self._take_at_once(decoded)
        if steps is not None:
            self._add(*steps)
            return [(steps[0].history, steps[1].piece.stop)]
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
        return [(each.log.history, max(each.indices) + 1) for each in builders.values()]

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
            log = self._logs[key] = _Log(key, name, self._history(name), self.options.wants(*key[1:]))
        return log

    def _origin(self, run: str, system: str | None, process: str | None) -> History | None:
        """Who sent a message; None when there is none, or it came from outside, so that nobody waits for it."""
        if system is None or process is None:
            return None
        key = (run, system, process)
        if key not in self._origins:
            outside = self.options.is_outside(system, process)
            self._origins[key] = None if outside else self._history(log_name(*key))
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
            if again >= len(steps.seqs):
                if steps.piece.first >= log.history.first:
                    self._tell(
                        f"rows that came twice in the log of {log.name} are left out, from {steps.piece.block.path}"
                    )
                return
            steps = steps.part(again, len(steps.seqs))
        gap = self._gap_at(log.name, steps.piece.first, steps.piece.stop)
        if gap is not None:  # a batch that is repeated: these rows were lost at that time
            if gap.first > steps.piece.first:
                self._append(log, steps.part(0, gap.first - steps.piece.first))
            self._pass(log.history, gap.stop)
            self._append(log, steps)
            return
        log.last_path = steps.piece.block.path
        if log.wanted:
            log.pieces.append(steps.piece)
        self.histories.append(log.history, steps.origins, steps.seqs, bytes(steps.selected), ended=steps.ended)

    def _gap_at(self, name: str, first: int, stop: int) -> Gap | None:
        """Rows among these of which it is known that they are lost."""
        if not self._gaps:
            return None
        return next((gap for gap in self._gaps if gap.log == name and first <= gap.first < stop), None)

    def _pass_known_gaps(self) -> bool:
        """Go on behind rows that were lost when the batch was planned; whether there were any."""
        known = [gap for gap in self._gaps if self._history(gap.log).read == gap.first]
        for gap in known:
            self._pass(self._history(gap.log), gap.stop)
        for log in self._logs.values() if known else ():
            while log.ahead and log.ahead[0].piece.first <= log.history.read:
                self._append(log, log.ahead.pop(0))
        self.histories.advance()
        return bool(known)

    def _lose(self, history: History, stop: int, reason: str) -> None:
        """Go on without the rows before an index."""
        self._gaps.append(Gap(history.name, history.read, stop, reason))
        self._pass(history, stop)

    def _pass(self, history: History, stop: int) -> None:
        lost = stop - history.read
        if lost > LARGEST_HOLE:
            what = f"rows {history.read} to {stop - 1} of {history.name} are missing"
            raise TraceError("data loss", what, "that is more than can be skipped")
        self.histories.append(history, [None] * lost, [0] * lost, bytes(lost))

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
                self._tell(f"skipped: {what}")
                self._lose(log.history, stop, what)
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

    def plan(self, limit: int | None) -> Offset:
        """The end of the next batch: the base itself when there is nothing new."""
        assert self.base is not None
        cut = self.histories.cut(limit)
        new = {name: count for name, count in cut.items() if count > self.histories.by_name[name].first}
        if not new:
            return self.base
        gaps = [gap for gap in self._gaps if gap.first < cut.get(gap.log, 0)]
        in_cut: Gaps = {}
        for gap in gaps:
            in_cut.setdefault(gap.log, []).append((gap.first, min(gap.stop, cut[gap.log])))
        logs, finished = self._ended(cut) if self._journal.is_kept else (self._places(cut), {})
        ranks = [self.histories.ranks(name, count - 1, count)[0] for name, count in new.items()]
        id_of_cut = self.base.next_cut([sorted(new.items()), sorted(in_cut.items())], self.options.choice())
        end = Offset(id_of_cut, self.base.rank + max(ranks) + 1, self._journal.is_kept, logs, in_cut)
        self._journal.write(end.cut, finished, self._tail.changes(cut), [gap for gap in gaps if gap.reason])
        return end

    def _places(self, cut: Mapping[str, int]) -> dict[str, LogPlace]:
        return {name: self.histories.by_name[name].place(count) for name, count in cut.items()}

    def _ended(self, cut: Mapping[str, int]) -> tuple[dict[str, LogPlace], dict[str, LogPlace]]:
        """What an offset names, and what the journal remembers instead: logs that have ended and are committed."""
        places = self._places(cut)
        ended = {}
        for name in places:
            history = self.histories.by_name[name]
            if history.ended and history.first == history.read and not history.waiting:
                ended[name] = places[name]
        for name in ended:
            del places[name], self.histories.by_name[name]
        if ended:
            self._logs = {key: log for key, log in self._logs.items() if log.name not in ended or log.ahead}
            self._origins = {key: each for key, each in self._origins.items() if not each or each.name not in ended}
        known = self._journal.finished
        return places, {name: place for name, place in ended.items() if known.get(name) != place}

    def slices(self, end: Offset) -> Iterator[Slice]:
        """Everything that was asked for between the base and an offset, log by log."""
        assert self.base is not None
        for log in sorted(self._logs.values(), key=lambda each: each.name):
            begin, stop = log.history.first, end.count(log.name)
            place = bisect_right(log.pieces, begin, key=lambda piece: piece.stop)
            for piece in log.pieces[place:]:
                if piece.first >= stop:
                    break
                first, last = max(piece.first, begin), min(piece.stop, stop)
                ranks = np.array(self.histories.ranks(log.name, first, last), dtype=np.int64) + self.base.rank
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
