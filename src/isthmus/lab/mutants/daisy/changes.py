"""Mistakes in how the groups of a daisy split and merge (docs/design/daisy-changes.md)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.wire.daisy import Census, ChangePdu, DaisyFrame
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.census import Poll, fellows
from isthmus.hierarchy.daisy.generation import Level
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.lab.mutants.mutant import mutant

# The originals that mutants build on, taken before anything is replaced.
_send_waiting = DaisyProcess._send_waiting
_receive = DaisyProcess.receive
_begin = DaisyProcess._begin
_consider = DaisyProcess._consider
_gather = Poll.gather


@mutant("daisy-halt-ignored", of=DaisyProcess._send_waiting, scenario="changing daisy")
def _halt_ignored(self: DaisyProcess, now: Nanos, out: Outbox) -> None:
    """A process goes on sending while the tree changes."""
    halted, self.halted = self.halted and self.is_outside, False
    if not halted:
        _send_waiting(self, now, out)
    self.halted = halted


@mutant("daisy-not-drained", of=DaisyProcess._consider, scenario="changing daisy")
def _at_once(self: DaisyProcess, census: Census, now: Nanos, out: Outbox) -> None:
    """A generation ends before its messages are delivered."""
    _consider(self, census, now, out)
    if self.halted:
        _consider(self, structs.replace(census, halted=True, ready=True), now, out)


@mutant("daisy-generations-mixed", of=DaisyProcess.receive, scenario="changing daisy")
def _generations_mixed(self: DaisyProcess, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
    """Words of one tree are taken for words of another."""
    number = self.tree.generation
    taken: list[Pdu] = [
        DaisyFrame(pdu.group, number, pdu.pdu)
        if isinstance(pdu, DaisyFrame) and not isinstance(pdu.pdu, ChangePdu) and not self.is_outside
        else pdu
        for pdu in pdus
    ]
    _receive(self, source, taken, now, out)


@mutant("daisy-waiting-lost", of=DaisyProcess._begin, scenario="changing daisy")
def _waiting_lost(self: DaisyProcess, generation: int, last_message: bytes, now: Nanos, out: Outbox) -> None:
    """What was sent while the tree changed is forgotten."""
    self.waiting_to_send.clear()
    _begin(self, generation, last_message, now, out)


@mutant("daisy-many-deciders", of=Poll.gather, scenario="changing daisy")
def _many_deciders(self: Poll, level: Level, own: Census) -> Census | None:
    """Every server says what the next tree is.

    A server does not wait for what others have to tell, and decides for itself alone.
    """
    return own if fellows(level) and own.halted else _gather(self, level, own)


@mutant("daisy-former-given-up", of=DaisyProcess._of_before, scenario="changing daisy")
def _no_more_than_before(self: DaisyProcess, source: ProcessId, frame: DaisyFrame, now: Nanos, out: Outbox) -> None:
    """Who has the last message leaves those who have not."""
