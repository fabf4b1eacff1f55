"""Mistakes in how a daisy whose messages are for everybody is joined to others (docs/design/daisy-joins.md)."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch, Message
from isthmus.core.wire.daisy import Finished
from isthmus.hierarchy.daisy.member import DaisyMember
from isthmus.lab.mutants.mutant import Mutant


def _stable_when_settled(self: DaisyMember) -> int:
    """Does not ask whether anybody beyond the daisy has it."""
    return self.own[-1].seq if self.own else 0


def _answers_what_is_settled(self: DaisyMember, link: ProcessId, out: Outbox) -> None:
    """A gateway that says how far its own daisy is, and not the systems beyond."""
    left = [member for member in self.view.members if member in self.gateways]
    if self.is_gateway:
        out.sends.append(((link,), Finished(self.view.number, left, self.settled_through.get(link, 0))))


def _settled_when_delivered(self: DaisyMember, out: Outbox) -> None:
    """What a gateway has delivered it takes for delivered everywhere in the daisy."""
    if self.is_gateway:
        batches = (item for item in self._inner.deliveries if isinstance(item, Batch))
        self._inner.settled += [(batch.sender, batch.number) for batch in batches]
    _hand_over(self, out)


def _sealed(self: DaisyMember, message: Message) -> Message | None:
    """Hands out what a gateway sent as if it were the gateway's."""
    return Message(message.origin, message.seq, message.payload)


def _views_first(self: DaisyMember, items: Sequence[Batch | View]) -> list[Batch | View]:
    """Tells of a new view before what belongs to the last one."""
    return _delivered(self, sorted(items, key=lambda item: isinstance(item, Batch)))


_hand_over = DaisyMember._hand_over
_delivered = DaisyMember._delivered


def _mutant(name: str, mistake: str, *patches: tuple[object, str, object]) -> Mutant:
    return Mutant(f"daisy-joined-{name}", "causal", mistake, patches, "joined daisies")


DAISY_JOIN_MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "stable-when-settled",
        "a message is stable when the daisy has it, whatever becomes of it beyond",
        (DaisyMember, "finished_beyond", property(_stable_when_settled)),
    ),
    _mutant(
        "answers-what-is-settled",
        "a gateway calls finished what is only settled in its own daisy",
        (DaisyMember, "_on_how_far", _answers_what_is_settled),
    ),
    _mutant(
        "settled-when-delivered",
        "a gateway confirms to the sending side what it has delivered itself",
        (DaisyMember, "_hand_over", _settled_when_delivered),
    ),
    _mutant("sealed", "what came in is handed out as a message of the gateway", (DaisyMember, "_opened", _sealed)),
    _mutant("views-first", "views overtake what was delivered before them", (DaisyMember, "_delivered", _views_first)),
)
"""All in two daisies that are joined, whose gateways crash."""
