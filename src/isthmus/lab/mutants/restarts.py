"""Mistakes around the journal of a site (docs/design/sites.md); all of them show where sites die as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from isthmus.core.ids import ProcessId, life_of
from isthmus.core.segment import Segment, pack_all
from isthmus.join import export as exporting
from isthmus.join.export import Export
from isthmus.join.grouped import GroupGateway
from isthmus.join.imports import Import
from isthmus.join.recovery import Recovered, Replay, merge
from isthmus.lab.mutants.mutant import mutant, part_of
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.quorum import quorum_level
from isthmus.simulator.faults import lives

# The originals that mutants build on, taken before anything is replaced.
_go_on_from = Import.go_on_from
_merge = merge


@mutant("keepers-ignored", of=GroupMember._update_own_safe, scenario="restarts")
def _quorum_is_enough(self: GroupMember, out: object) -> None:
    """A message is delivered before the journals have it."""
    peers, sent = self.outgoing.peers, self.outgoing.sent
    level = quorum_level([peers[member].acked if member in peers else sent for member in self.view.members])
    if level > self._own_safe:
        self._own_safe = level
        self._learn_safe(self.id, level, out)  # type: ignore[arg-type]


@mutant("replay-forgotten", of=Replay.due, scenario="restarts")
def _replay_forgotten(self: Replay, members: Sequence[ProcessId]) -> Sequence[Segment]:
    """A new life leaves out what the old one had not finished."""
    return ()


@mutant("replayed-by-everybody", of=Replay.due, scenario="restarts")
def _replayed_by_everybody(self: Replay, members: Sequence[ProcessId]) -> Sequence[Segment]:
    """Every gateway broadcasts the rest of the old life."""
    if self._begun:
        return ()
    self._begun = True
    return tuple(self._left)


@mutant("new-life-at-once", of=GroupMember._is_too_early, scenario="restarts")
def _new_life_at_once(self: GroupMember) -> bool:
    """A new life sends before everybody has what the old one left."""
    return False


@part_of("done-forgotten", of=Import.go_on_from)
@mutant("done-forgotten", of=Export.go_on_from, scenario="restarts")
def _nothing_is_done(self: object, recovered: Recovered) -> None:
    """A new life does not know what the old one was done with."""


@mutant("replay-not-awaited", of=Import.go_on_from, scenario="restarts")
def _replay_not_awaited(self: Import, recovered: Recovered) -> None:
    """An import begins an epoch before the old life is replayed."""
    _go_on_from(self, recovered)
    self.last_broadcast.clear()


@mutant("replayed-out-of-order", of=merge, where=lives, scenario="restarts")
def _backwards(journals: Iterable[tuple[Mapping[ProcessId, int], Sequence[Segment]]]) -> Recovered:
    """The old life is replayed origin by origin.

    Each origin's messages stay in order, but origins come one after the other, the last one first.
    """
    recovered = _merge(journals)
    messages = sorted(chain.from_iterable(recovered.segments), key=lambda each: (-each[0], each[1]))
    return Recovered(recovered.done, tuple(pack_all(messages)))


@mutant("done-too-early", of=GroupGateway.done, scenario="restarts")
def _stored_counts_as_done(self: GroupGateway) -> dict[ProcessId, int]:
    """The journal drops what other systems lack."""
    assert self._done is not None
    return self._done.done(lambda origin: ())


@mutant("epochs-open-twice", of=life_of, where=exporting, scenario="restarts")
def _always_the_first_life(process: ProcessId) -> int:
    """A new life counts its epochs from the beginning."""
    return 0
