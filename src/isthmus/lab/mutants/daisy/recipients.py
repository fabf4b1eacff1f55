"""Mistakes where messages go to recipients only: parcels, their matrix, the flush (docs/design/daisy.md)."""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.core.ids import MessageId
from isthmus.core.message import Batch, Clocked
from isthmus.hierarchy.daisy.flush import by_clock
from isthmus.hierarchy.daisy.parcels import Parcels
from isthmus.hierarchy.daisy.point import Flush, FlushEntry, PointGroup
from isthmus.lab.mutants.mutant import mutant
from isthmus.ordering.orders.matrix import MatrixOrder

# The originals that mutants build on, taken before anything is replaced.
_unmet, _tell = MatrixOrder._unmet, PointGroup._tell


# Parcels


@mutant("daisy-recipients-not-safe", of=MatrixOrder._unmet, scenario="recipients daisy")
def _on_receipt(self: MatrixOrder, rank: int, batch: Batch) -> tuple[int, int] | None:
    """Members deliver what no other may hold."""
    unmet = _unmet(self, rank, batch)
    return unmet if unmet is not None and unmet[0] < len(self.delivered) else None


@mutant("daisy-recipients-safe-alone", of=Parcels._safe_on_arrival, scenario="recipients daisy")
def _alone(self: Parcels, batch: Batch) -> bool:
    """A parcel counts as safe before the earlier ones of its sender are."""
    return self.needed <= 1


@mutant("daisy-recipients-not-merged", of=MatrixOrder._learn, scenario="recipients daisy")
def _learns_nothing(self: MatrixOrder, batch: Batch) -> None:
    """Matrices are not merged."""


@mutant("daisy-recipients-other-receivers-ignored", of=MatrixOrder._learn, scenario="recipients daisy")
def _learns_of_itself(self: MatrixOrder, batch: Batch) -> None:
    """A member does not learn whom else a message went to."""
    rank, size = self._ranks[batch.sender], len(self.delivered)
    self.sent[rank * size + self._own_rank] = self.delivered[rank]


# The flush


@mutant("daisy-recipients-witnesses-left-out", of=PointGroup._tell, scenario="recipients daisy")
def _without_witnesses(self: PointGroup) -> Iterator[FlushEntry]:
    """The flush leaves out what witnesses hold."""
    return (each for each in _tell(self) if self.id in (each.run.origin, *each.run.destinations))


@mutant("daisy-recipients-kept-left-out", of=PointGroup._tell, scenario="recipients daisy")
def _without_kept(self: PointGroup) -> Iterator[FlushEntry]:
    """The flush leaves out what is kept for a server."""
    return (each._replace(kept=False) for each in _tell(self))


@mutant("daisy-recipients-past-the-gap", of=Flush.agreed, scenario="recipients daisy")
def _past_the_gap(self: Flush) -> list[Clocked]:
    """The flush goes on where a parcel is lost.

    Begins with everything that anybody told, whether its causes are there or not.
    """
    found: dict[MessageId, Clocked] = {each.run.id: each.run for each in self.everything()}
    return sorted(found.values(), key=by_clock)
