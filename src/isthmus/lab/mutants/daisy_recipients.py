"""Mistakes where messages go to recipients only: parcels, their matrix, the flush (docs/design/daisy.md)."""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.core.ids import MessageId
from isthmus.core.message import Batch, Clocked
from isthmus.hierarchy.daisy.flush import by_clock
from isthmus.hierarchy.daisy.parcels import Parcels
from isthmus.hierarchy.daisy.point import Flush, PointGroup, Told
from isthmus.hierarchy.daisy.record import id_of
from isthmus.lab.mutants.mutant import Mutant
from isthmus.ordering.orders.matrix import MatrixOrder

# Parcels


def _on_receipt(self: MatrixOrder, rank: int, batch: Batch) -> tuple[int, int] | None:
    """Waits for causes, and not until others hold it."""
    unmet = _unmet(self, rank, batch)
    return unmet if unmet is not None and unmet[0] < len(self.delivered) else None


def _alone(self: Parcels, batch: Batch) -> bool:
    """Takes a parcel for safe when it is here, whatever has become of the earlier ones of its sender."""
    return self.needed <= 1


def _learns_nothing(self: MatrixOrder, batch: Batch) -> None:
    pass


def _learns_of_itself(self: MatrixOrder, batch: Batch) -> None:
    """Counts a batch for itself, and does not heed whom else its sender had sent something."""
    rank, size = self._ranks[batch.sender], len(self.delivered)
    self.sent[rank * size + self._own_rank] = self.delivered[rank]


# The flush


def _without_witnesses(self: PointGroup) -> Iterator[Told]:
    return (each for each in _tell(self) if self.id in (each.message.origin, *each.message.destinations))


def _without_kept(self: PointGroup) -> Iterator[Told]:
    """Tells the parcels that are not done, and not what it keeps for a new server."""
    return (each._replace(kept=False) for each in _tell(self))


def _past_the_gap(self: Flush) -> list[Clocked]:
    """Begins with everything that anybody told, whether its causes are there or not."""
    found: dict[MessageId, Clocked] = {id_of(each.message): each.message for each in self.everything()}
    return sorted(found.values(), key=by_clock)


_unmet, _tell = MatrixOrder._unmet, PointGroup._tell


def _mutant(name: str, mistake: str, *patches: tuple[object, str, object]) -> Mutant:
    return Mutant(f"daisy-recipients-{name}", "causal", mistake, patches, "recipients daisy")


DAISY_POINT_MUTANTS: tuple[Mutant, ...] = (
    _mutant("not-safe", "members deliver what no other may hold", (MatrixOrder, "_unmet", _on_receipt)),
    _mutant(
        "safe-alone",
        "a parcel counts as safe before the earlier ones of its sender are",
        (Parcels, "_safe_on_arrival", _alone),
    ),
    _mutant("not-merged", "matrices are not merged", (MatrixOrder, "_learn", _learns_nothing)),
    _mutant(
        "other-receivers-ignored",
        "a member does not learn whom else a message went to",
        (MatrixOrder, "_learn", _learns_of_itself),
    ),
    _mutant(
        "witnesses-left-out", "the flush leaves out what witnesses hold", (PointGroup, "_tell", _without_witnesses)
    ),
    _mutant("kept-left-out", "the flush leaves out what is kept for a server", (PointGroup, "_tell", _without_kept)),
    _mutant("past-the-gap", "the flush goes on where a parcel is lost", (Flush, "agreed", _past_the_gap)),
)
"""In three groups of four, whose servers crash one after the other; two members at a time hold a message."""
