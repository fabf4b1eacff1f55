"""Mistakes in how the groups of a daisy split and merge (docs/design/daisy-changes.md)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import LinkId, Nanos
from isthmus.core.wire.daisy import Census, ChangePdu, DaisyFrame
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.census import Poll, fellows
from isthmus.hierarchy.daisy.generation import Level
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.lab.mutants.mutant import Mutant


def _halt_ignored(self: DaisyProcess, now: Nanos, out: Outbox) -> None:
    """Goes on sending in a generation that is about to end."""
    halted, self.halted = self.halted and self.is_outside, False
    if not halted:
        _send_waiting(self, now, out)
    self.halted = halted


def _at_once(self: DaisyProcess, census: Census, now: Nanos, out: Outbox) -> None:
    """Ends a generation as soon as groups should be others."""
    _consider(self, census, now, out)
    if self.halted:
        _consider(self, structs.replace(census, halted=True, ready=True), now, out)


def _generations_mixed(self: DaisyProcess, link: LinkId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
    """Takes what is said in one tree for words of another."""
    number = self.tree.generation
    taken: list[Pdu] = [
        DaisyFrame(pdu.group, number, pdu.pdu)
        if isinstance(pdu, DaisyFrame) and not isinstance(pdu.pdu, ChangePdu) and not self.is_outside
        else pdu
        for pdu in pdus
    ]
    _receive(self, link, taken, now, out)


def _waiting_lost(self: DaisyProcess, generation: int, last_message: bytes, now: Nanos, out: Outbox) -> None:
    self.waiting_to_send.clear()
    _begin(self, generation, last_message, now, out)


def _many_deciders(self: Poll, level: Level, own: Census) -> Census | None:
    """A server does not wait for what others have to tell, and decides for itself alone."""
    return own if fellows(level) and own.halted else _gather(self, level, own)


def _no_more_than_before(self: DaisyProcess, link: LinkId, frame: DaisyFrame, now: Nanos, out: Outbox) -> None:
    """Who is in the next generation has nothing to say in the former one."""


_send_waiting = DaisyProcess._send_waiting
_receive = DaisyProcess.receive
_begin = DaisyProcess._begin
_consider = DaisyProcess._consider
_gather = Poll.gather


def _mutant(name: str, mistake: str, *patches: tuple[object, str, object]) -> Mutant:
    return Mutant(f"daisy-{name}", "causal", mistake, patches, "changing daisy")


DAISY_CHANGE_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "halt-ignored",
        "a process goes on sending while the tree changes",
        (DaisyProcess, "_send_waiting", _halt_ignored),
    ),
    _mutant(
        "not-drained",
        "a generation ends before its messages are delivered",
        (DaisyProcess, "_consider", _at_once),
    ),
    _mutant(
        "generations-mixed",
        "words of one tree are taken for words of another",
        (DaisyProcess, "receive", _generations_mixed),
    ),
    _mutant(
        "waiting-lost",
        "what was sent while the tree changed is forgotten",
        (DaisyProcess, "_begin", _waiting_lost),
    ),
    _mutant("many-deciders", "every server says what the next tree is", (Poll, "gather", _many_deciders)),
    _mutant(
        "former-given-up",
        "who has the last message leaves those who have not",
        (DaisyProcess, "_of_before", _no_more_than_before),
    ),
)
"""All in a daisy that begins as one group of six, and that three others join."""
