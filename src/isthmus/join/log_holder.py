"""One gateway process of a log: what reads, appends, notes how far it is, and stops when it should.

It holds the claim from the beginning to its end. Whatever it wants of the broker is an `Ask` in `asks`; whoever runs
it puts that to the log, at whatever pace and in whatever order the asks of one kind keep, and comes back with the
answer (`answered`), or with none (`Unavailable`). So simulator and explorer decide when everything happens, and what a
real driver does around a real broker (docs/design/brokers.md) is played here around one in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from copy import deepcopy
from typing import NamedTuple, Self, TypeAlias

from isthmus.core.endpoint import Outbox
from isthmus.core.freeze import freeze
from isthmus.core.gateway import UNKNOWN_LINE
from isthmus.core.ids import LinkId, Nanos, ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Segment, join
from isthmus.core.wire.join import Line, LinkPdu
from isthmus.core.wire.pdu import Pdu
from isthmus.join.gateway import RETRY_AFTER
from isthmus.join.logged import LogGateway
from isthmus.join.memory_log import (
    Checkpoint,
    Counted,
    Kept,
    LogEntry,
    MemoryLog,
    Place,
    Recreated,
    Superseded,
    Trimmed,
)
from isthmus.join.plan import JoinPlan

MOST_ENTRIES = 4096
WINDOW = 1_000_000


class Unavailable(Exception):
    """The broker has not answered; nobody knows what came of the ask."""


class Read(NamedTuple):
    """The entries behind a place, so many at most; `durable` ones, or whatever can be read."""

    after: Place
    most: int
    durable: bool

    def put(self, log: MemoryLog) -> list[LogEntry]:
        return log.read(self.after, self.most, durable=self.durable)


class Append(NamedTuple):
    """All of a segment, in one atomic step with the record that follows from it."""

    token: int
    segment: Segment
    record: Counted
    expected: Counted

    def put(self, log: MemoryLog) -> list[LogEntry]:
        return log.append(self.token, list(self.segment), self.record, self.expected)


class Sync(NamedTuple):
    """Answered when all that is there is durable, with what is kept then. `marks` say what of it this is about."""

    marks: Counted

    def put(self, log: MemoryLog) -> Kept:
        log.sync()
        return log.kept


class Note(NamedTuple):
    token: int
    checkpoint: Checkpoint

    def put(self, log: MemoryLog) -> None:
        log.note(self.token, self.checkpoint)


class Look(NamedTuple):
    """What is kept now, whoever holds the claim."""

    def put(self, log: MemoryLog) -> Kept:
        return log.kept


Ask: TypeAlias = Read | Append | Sync | Note | Look
Answer: TypeAlias = object


class LogHolder:
    """Serves a log, as an endpoint that somebody else runs. `origins` are the processes that the log's streams are.

    `stopped` says why it takes no further part: it is superseded, or `trouble` says what a person has to look at. It
    reads nothing that is not durable yet, unless it does not wait for that (`waits`).
    """

    def __init__(
        self,
        owner: ProcessId,
        origins: Sequence[ProcessId],
        plans: Sequence[JoinPlan],
        retry_after: Nanos = RETRY_AFTER,
    ) -> None:
        self.gateway = LogGateway(owner, plans, retry_after)
        self.window = WINDOW
        self.most = MOST_ENTRIES
        self.waits = True
        self.stopped = self.trouble = ""
        self.asks: list[Ask] = []
        self._origins = tuple(origins)
        self._token = 0
        self._record: Counted = ()
        self._brought_in = SlotMarks()
        self._place = Place()
        self._marks = SlotMarks()
        self._passed: deque[Checkpoint] = deque()
        self._noted = Place()
        self._is_reading = self._is_noting = self._is_syncing = False
        self._doubtful: Sequence[LogEntry] = ()
        self._waiting: deque[Segment] = deque()
        self._under_way: Append | None = None
        self._not_durable = SlotMarks()

    @property
    def id(self) -> ProcessId:
        return self.gateway.id

    # The claim

    def begin(self, kept: Kept, now: Nanos, out: Outbox) -> None:
        """We hold the claim, and this is what the broker keeps."""
        self._token, self._record, (self._place, begin) = kept
        self._noted = self._place
        self._brought_in = SlotMarks(self._record)
        self._marks = SlotMarks(begin)
        # Whoever held it before may have died before he said that these are durable.
        self._not_durable.update(dict(self._record))
        self.gateway.claimed(self._token, dict(self._record), dict(begin), now, out)
        self._pump(out)

    def lost_claim(self, now: Nanos, out: Outbox) -> None:
        """Somebody else holds it: stop at once."""
        self._stop("superseded", out)

    def _stop(self, why: str, out: Outbox) -> None:
        if not self.stopped:
            self.stopped = out.stopped = why

    # Answers of the broker

    def answered(self, ask: Ask, answer: Answer, now: Nanos, out: Outbox) -> None:
        """What came of an ask: its answer, or the exception that it ended with."""
        if self.stopped:
            return
        if isinstance(answer, Superseded):
            self._stop("superseded", out)
        elif isinstance(answer, Trimmed | Recreated):
            trimmed = isinstance(answer, Trimmed)
            self.trouble = "entries were trimmed before they were read" if trimmed else "it was deleted, or set back"
            self._stop(self.trouble, out)
        elif isinstance(ask, Append):
            self._has_appended(ask, answer, out)
        elif isinstance(ask, Look):
            self._has_looked(answer, now, out)
        elif isinstance(ask, Read):
            self._is_reading = False
            if not isinstance(answer, Unavailable):
                assert isinstance(answer, list)
                self._has_read(answer, now, out)
        elif isinstance(ask, Sync):
            self._has_synced(ask, answer, out)
        else:
            self._is_noting = False
            if not isinstance(answer, Unavailable):
                self._noted = ask.checkpoint.place
        self._pump(out)

    # Reading

    def _has_read(self, entries: Sequence[LogEntry], now: Nanos, out: Outbox) -> None:
        if any(self._is_doubtful(entry) for entry in entries):
            # Headers name what we have not brought in. Either a client wrote them; or somebody else has the claim, and
            # what he brings in must never go out as something of our own.
            self._doubtful = entries
            self.asks.append(Look())
        elif entries:
            self._take(entries, now, out)

    def _is_doubtful(self, entry: LogEntry) -> bool:
        return entry.seq > self._brought_in.get(entry.origin) and self.gateway.comes_in(entry.origin)

    def _take(self, entries: Sequence[LogEntry], now: Nanos, out: Outbox) -> None:
        messages = []
        for entry in entries:
            origin, seq = self._identity(entry)
            self._marks.raise_to(origin, seq)
            messages.append((origin, seq, entry.payload))
        self._place = self._place._replace(number=self._place.number + len(entries), born=entries[-1].born)
        self._passed.append(Checkpoint(self._place, tuple(self._marks.counted())))
        self.gateway.read(Segment.pack(messages), now, out)

    def _identity(self, entry: LogEntry) -> tuple[ProcessId, int]:
        """Headers alone prove nothing: brought in is what follows on what was read, as far as the record goes."""
        if entry.seq and self._marks.get(entry.origin) < entry.seq <= self._brought_in.get(entry.origin, -1):
            return entry.origin, entry.seq
        own = self._origins[entry.part]
        return own, self._marks.get(own) + 1

    # Appending

    def _has_appended(self, ask: Append, answer: Answer, out: Outbox) -> None:
        if isinstance(answer, Unavailable):
            self.asks.append(Look())
            return
        self._under_way = None
        self._record = ask.record
        self._not_durable.update(ask.segment.marks)
        self.gateway.appended(ask.segment, out)

    def _has_synced(self, ask: Sync, answer: Answer, out: Outbox) -> None:
        self._is_syncing = False
        if isinstance(answer, Unavailable):
            self._not_durable.update(dict(ask.marks))
            return
        assert isinstance(answer, Kept)
        there = SlotMarks(answer.record)
        if answer.token == self._token and all(there.get(origin) >= seq for origin, seq in ask.marks):
            self.gateway.durable(dict(ask.marks), out)
        else:
            # A broker that has died since makes durable what it has left, and that is without these.
            self._stop("superseded", out)

    def _has_looked(self, answer: Answer, now: Nanos, out: Outbox) -> None:
        """What the broker keeps tells what became of an append, and who brought in what we did not."""
        if isinstance(answer, Unavailable):
            self.asks.append(Look())
            return
        assert isinstance(answer, Kept)
        if answer.token != self._token:
            self._stop("superseded", out)
            return
        if self._under_way is not None and answer.record == self._under_way.record:
            self._has_appended(self._under_way, None, out)
        elif self._under_way is not None and answer.record == self._under_way.expected:
            self.asks.append(self._under_way)
        elif answer.record != self._record:
            self._stop("superseded", out)
            return
        if self._doubtful:
            entries, self._doubtful = self._doubtful, ()
            self._take(entries, now, out)

    # What follows from a step

    def _pump(self, out: Outbox) -> None:
        """Ask for whatever may be asked for now."""
        self._waiting.extend(out.relays)
        out.relays.clear()
        # Nobody else is there.
        out.to_fellows.clear()
        if self.stopped:
            return
        if self._waiting and self._under_way is None:
            self._append()
        if self._not_durable and not self._is_syncing:
            self._is_syncing = True
            self.asks.append(Sync(tuple(self._not_durable.items())))
            self._not_durable = SlotMarks()
        if not self._is_reading and not self._doubtful and not self.is_full:
            self._is_reading = True
            self.asks.append(Read(self._place, self.most, self.waits))

    @property
    def is_full(self) -> bool:
        """Whether so much is not confirmed that reading waits: the log is the spool."""
        return self.gateway.unfinished() >= self.window

    def _append(self) -> None:
        segments = [self._waiting.popleft()]
        count = segments[0].messages
        while self._waiting and count + self._waiting[0].messages <= self.most:
            segments.append(self._waiting.popleft())
            count += segments[-1].messages
        record = tuple(self.gateway.record_after(segments))
        self._brought_in = SlotMarks(record)
        self._under_way = Append(self._token, join(segments), record, self._record)
        self.asks.append(self._under_way)

    @property
    def may_note(self) -> bool:
        """Whether more is confirmed than the broker has been told."""
        confirmed = self.gateway.confirmed
        return bool(self._passed) and all(confirmed.get(origin) >= seq for origin, seq in self._passed[0].marks)

    def note(self, now: Nanos, out: Outbox) -> None:
        """Have the broker keep from where a successor has to read: behind what every join has confirmed."""
        latest = None
        while self.may_note:
            latest = self._passed.popleft()
        if latest is not None and self._is_noting:
            self._passed.appendleft(latest)
        elif latest is not None and not self.stopped:
            self._is_noting = True
            self.asks.append(Note(self._token, latest))

    def has_read_to(self, number: int) -> bool:
        """Whether it has read so many entries, those that were there before it."""
        return self._place.number == number

    @property
    def is_noted(self) -> bool:
        """Whether all that was read is confirmed, and the broker knows it."""
        return self._noted == self._place and not self._is_noting

    # As the end of links

    def from_link(self, link: LinkId, pdus: Sequence[LinkPdu], now: Nanos, out: Outbox) -> None:
        self.gateway.from_link(link, pdus, now, out)
        self._pump(out)

    def link_up(self, link: LinkId, peer: ProcessId, now: Nanos, out: Outbox) -> None:
        self.gateway.link_up(link, peer, now, out)
        self._pump(out)

    def link_down(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        self.gateway.link_down(link, now, out)
        self._pump(out)

    def link_ready(self, link: LinkId, now: Nanos, out: Outbox, line: Line = UNKNOWN_LINE) -> None:
        self.gateway.link_ready(link, now, out, line)
        self._pump(out)

    def leave(self, now: Nanos, out: Outbox) -> None:
        """Go in good order: both ends of the links know it, and a successor need not wait for the lease."""
        self.gateway.leave(now, out)
        self._pump(out)
        self._stop("left", out)

    # As an endpoint

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        """Nobody speaks to it but its broker and the far ends of its links."""

    def wake(self, now: Nanos, out: Outbox) -> None:
        self.gateway.wake(now, out)
        self._pump(out)

    def deadline(self) -> Nanos | None:
        return None if self.stopped else self.gateway.deadline()

    def unfinished(self) -> int:
        return self.gateway.unfinished() + len(self._waiting) + (self._under_way is not None)

    def invariants(self) -> None:
        self.gateway.invariants()
        assert not (self._under_way is None and self._waiting and not self.stopped), (
            "nothing is under way, and more waits"
        )

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return freeze(self)
