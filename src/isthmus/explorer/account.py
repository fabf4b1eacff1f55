"""A schedule in words: numbered lines, one per event, with what it led to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from isthmus.core.ids import LinkId, ProcessId
from isthmus.core.segment import Opened
from isthmus.core.wire.join import Block, Confirm, Epoch, Resume
from isthmus.explorer.step import NOBODY, Effect, PduNumber, StepEvent

if TYPE_CHECKING:
    from isthmus.explorer.world import ExploredWorld


class AccountLine(Struct, frozen=True):
    """`where` is a process, or a system as a whole. `then` is what a gateway did about it."""

    number: int
    system: int
    where: str
    what: str
    then: tuple[str, ...] = ()

    def __str__(self) -> str:
        indent = "    " * self.system
        then = "".join(f"; {each}" for each in self.then)
        return f"{self.number:3}  {indent}{self.where} {self.what}{then}"


def account(world: ExploredWorld, events: Sequence[StepEvent]) -> tuple[AccountLine, ...]:
    teller = _Teller(world)
    return tuple(teller.line(number, event) for number, event in enumerate(events, start=1))


class _Teller:
    def __init__(self, world: ExploredWorld) -> None:
        self._world = world

    def line(self, number: int, event: StepEvent) -> AccountLine:
        where = self._world.sites[event.site].name if event.process == NOBODY else self._name(event.process)
        return AccountLine(number, event.site, where, self._what(event), tuple(map(self._effect, event.effects)))

    def _what(self, event: StepEvent) -> str:
        subject = event.subject
        if event.kind == "send":
            return f"sends {self._messages(subject)}"
        if event.kind == "deliver":
            return f"delivers {self._messages(subject)}"
        if event.kind == "take":
            return f"takes {self._pdu(subject[1])} from {self._peer(event.process, subject[0])}"
        if event.kind == "down":
            return f"loses its link to {self._peer(event.process, subject[0])}"
        if event.kind == "hear":
            return f"hears from {self._name(subject[0])}: {self._pdu(subject[1])}"
        if event.kind == "ready":
            return f"can send more to {self._peer(event.process, subject[0])}"
        if event.kind == "settled":
            return f"learns that {self._name(subject[0])}'s batches up to {subject[1]} are settled"
        if event.kind == "up":
            return f"has its link to {self._peer(event.process, subject[0])} again"
        if event.kind == "claims":
            return f"takes the claim with token {subject[0]}"
        if event.kind == "loses":
            return f"learns that its broker died and lost {subject[0]} of its latest changes"
        if event.kind == "agree":
            lost = f", and {subject[2]} of its last broadcasts {'is' if subject[2] == 1 else 'are'} lost"
            return f"agrees on view {subject[0]} of {self._names(subject[1])}{lost if subject[2] else ''}"
        if event.kind == "view":
            return f"enters view {subject[0]} of {self._names(subject[1])}"
        return _PLAIN[event.kind]

    def _effect(self, effect: Effect) -> str:
        if effect.kind == "broadcasts":
            return f"broadcasts {self._messages(effect.subject)}"
        target, pdu = effect.subject
        if effect.kind == "tells":
            return f"tells {self._name(target)}: {self._pdu(pdu)}"
        return f"puts {self._pdu(pdu)} on link {target}"

    def _pdu(self, number: PduNumber) -> str:
        pdu = self._world.pdus[number]
        tag = str(pdu.__struct_config__.tag)
        if isinstance(pdu, Block):
            numbers = f" number {pdu.first}" if pdu.first else ""
            return f"block{numbers} ({self._messages(pdu.segment)}){_epoch(pdu.epoch)}"
        fields = []
        for field in pdu.__struct_fields__:
            value = getattr(pdu, field)
            if field in ("epoch", "begun"):
                fields.append(f"{field} {value.number}")
            elif field in ("marks", "final", "handed"):
                fields.append(f"{field} {self._marks(value)}")
            elif field == "runs":
                runs = (f"{self._name(origin)}/{first}+{count}" for origin, first, count in value)
                fields.append(f"{field} {' '.join(runs)}")
            elif field != "join":
                fields.append(f"{field} {value}")
        if isinstance(pdu, Confirm | Resume) and len(fields) == 1:
            return f"{tag} {fields[0].partition(' ')[2]}"
        return f"{tag} ({', '.join(fields)})" if fields else tag

    def _marks(self, marks: Iterable[tuple[ProcessId, int]]) -> str:
        return " ".join(f"{self._name(origin)}/{seq}" for origin, seq in marks) or "nothing"

    def _messages(self, messages: Iterable[Opened]) -> str:
        return ", ".join(self._world.ledger.name(message) for message in messages)

    def _name(self, process: ProcessId) -> str:
        return str(self._world.directory.name(process))

    def _names(self, processes: Iterable[ProcessId]) -> str:
        return ", ".join(self._world.directory.name(process).process for process in processes)

    def _peer(self, process: ProcessId, link: LinkId) -> str:
        ends = self._world.links[link]
        return str(ends.far if self._name(process) == str(ends.near) else ends.near)


_PLAIN = {
    "crash": "crashes",
    "wake": "is woken by its timer",
    "reads": "reads what is in the log",
    "appends": "has an append carried out",
    "hears": "hears that it has appended",
    "durable": "hears that it is durable",
    "arrives": "is dead, and its last append arrives",
}


def _epoch(epoch: Epoch) -> str:
    """The first one goes without saying."""
    return f" of epoch {epoch.number}" if epoch.number > 1 else ""
