"""Mistakes with logs (docs/design/logs.md): of the gateway process that serves one, and of a broker that does not keep
what is assumed of it.

What is not here: a gateway that does not look who has the claim before it takes an entry with the headers of another
system for one of its own log. It may only be wrong while it has lost the claim and still has a link that works, and in
the simulator its links end with its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.join.export import Export
from isthmus.join.log_holder import Answer, Append, LogHolder, Sync, Unavailable
from isthmus.join.memory_log import Counted, Kept, LogEntry, MemoryLog, Place, Superseded
from isthmus.lab.mutants.mutant import mutant

Entries = Sequence[tuple[ProcessId, int, bytes]]

_has_appended: Callable[..., None] = LogHolder._has_appended
_claim: Callable[..., Kept] = MemoryLog.claim
_read: Callable[..., list[LogEntry]] = MemoryLog.read


# The broker


@mutant("log-record-after-entries", of=MemoryLog.append, scenario="brokers")
def _record_after(self: MemoryLog, token: int, entries: Entries, record: Counted, expected: Counted) -> list[LogEntry]:
    """A broker appends entries in one step and keeps the record in the next."""
    if token != self.kept.token or expected != self.kept.record:
        raise Superseded
    self._change()
    appended = [self._append(0, payload, origin, seq) for origin, seq, payload in entries]
    self._change()
    self.kept = self.kept._replace(record=record)
    return appended


@mutant("log-without-a-fence", of=MemoryLog.append, scenario="brokers")
def _without_a_fence(
    self: MemoryLog, token: int, entries: Entries, record: Counted, expected: Counted
) -> list[LogEntry]:
    """A broker takes the appends of whoever held the claim once."""
    self._change()
    self.kept = self.kept._replace(record=record)
    return [self._append(0, payload, origin, seq) for origin, seq, payload in entries]


@mutant("log-read-before-durable", of=MemoryLog.read, scenario="brokers")
def _read_before_durable(self: MemoryLog, after: Place, most: int, *, durable: bool = True) -> list[LogEntry]:
    """What is not durable yet is carried on, and what is written when it is lost gets its number."""
    return _read(self, after, most, durable=False)


@mutant("log-claim-lost", of=MemoryLog.claim, scenario="brokers")
def _claim_lost(self: MemoryLog) -> Kept:
    """A claim may be lost with the broker's tail, and the next one gets the same token."""
    self._change()
    before = self._before.copy()
    kept = _claim(self)
    self._before += before
    return kept


# The gateway


@mutant("log-confirmed-before-durable", of=LogHolder._has_appended, scenario="brokers")
def _confirmed_before_durable(self: LogHolder, ask: Append, answer: Answer, out: Outbox) -> None:
    """What has been appended is confirmed at once."""
    _has_appended(self, ask, answer, out)
    if not isinstance(answer, Unavailable):
        self.gateway.durable(dict(ask.segment.marks), out)


@mutant("log-durable-without-a-look", of=LogHolder._has_synced, scenario="brokers")
def _durable_without_a_look(self: LogHolder, ask: Sync, answer: Answer, out: Outbox) -> None:
    """Nobody looks whether what was appended is still there when the broker says that all is durable."""
    self._is_syncing = False
    if isinstance(answer, Unavailable):
        self._not_durable.update(dict(ask.marks))
    else:
        self.gateway.durable(dict(ask.marks), out)


@mutant("log-noted-when-read", of=LogHolder.may_note, scenario="brokers")
def _noted_when_read(self: LogHolder) -> bool:
    """A gateway notes how far it has read, and its successor does not read what is not confirmed."""
    return bool(self._passed)


@mutant("log-headers-believed", of=LogHolder._identity, scenario="brokers")
def _headers_believed(self: LogHolder, entry: LogEntry) -> tuple[ProcessId, int]:
    """Whatever has headers is taken for brought in."""
    if entry.seq:
        return entry.origin, entry.seq
    own = self._origins[entry.part]
    return own, self._marks.get(own) + 1


@mutant("log-new-holder-ignored", of=Export.is_held_by, scenario="brokers")
def _new_holder_ignored(self: Export, peer: ProcessId, now: Nanos, out: Outbox) -> None:
    """Who sends to a log goes on with its epoch when another gateway holds the log."""
