"""Mistakes in how a daisy whose messages are for everybody is joined to others (docs/design/daisy-joins.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.daisy import Finished
from isthmus.hierarchy.daisy.member import DaisyMember
from isthmus.lab.mutants.mutant import mutant

# The originals that mutants build on, taken before anything is replaced.
_hand_over = DaisyMember._hand_over
_delivered = DaisyMember._delivered


@mutant("daisy-joined-stable-when-settled", of=DaisyMember.finished_beyond, scenario="joined daisies")
def _stable_when_settled(self: DaisyMember) -> int:
    """A message is stable when the daisy has it, whatever becomes of it beyond."""
    return self.own[-1].marks[self.id] if self.own else 0


@mutant("daisy-joined-answers-what-is-settled", of=DaisyMember._on_how_far, scenario="joined daisies")
def _answers_what_is_settled(self: DaisyMember, source: ProcessId, out: Outbox) -> None:
    """A gateway calls finished what is only settled in its own daisy."""
    left = [member for member in self.view.members if member in self.gateways]
    if self.is_gateway:
        out.sends.append(((source,), Finished(self.view.number, left, self.settled_through.get(source, 0))))


@mutant("daisy-joined-settled-when-delivered", of=DaisyMember._hand_over, scenario="joined daisies")
def _settled_when_delivered(self: DaisyMember, out: Outbox) -> None:
    """A gateway confirms to the sending side what it has delivered itself."""
    if self.is_gateway:
        batches = (item for item in self._inner.deliveries if isinstance(item, Batch))
        self._inner.settled += [(batch.sender, batch.number) for batch in batches]
    _hand_over(self, out)


@mutant("daisy-joined-sealed", of=DaisyMember._opened, scenario="joined daisies")
def _sealed(self: DaisyMember, run: Segment) -> Iterator[Segment]:
    """What came in is handed out as a message of the gateway."""
    return iter((run,))


@mutant("daisy-joined-views-first", of=DaisyMember._delivered, scenario="joined daisies")
def _views_first(self: DaisyMember, items: Sequence[Batch | View]) -> Iterator[Batch | View]:
    """Views overtake what was delivered before them."""
    return _delivered(self, sorted(items, key=lambda item: isinstance(item, Batch)))
