"""Mistakes around the journal of a site (docs/design/sites.md); all of them show where sites die as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from isthmus.core.ids import ProcessId
from isthmus.core.message import Message
from isthmus.join import export as exporting
from isthmus.join.export import Export
from isthmus.join.gateway import JoinGateway
from isthmus.join.imports import Import
from isthmus.join.recovery import Recovered, Replay, merge
from isthmus.lab.mutants.mutant import Mutant
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.quorum import quorum_level
from isthmus.simulator.faults import lives


def _quorum_is_enough(self: GroupMember, out: object) -> None:
    peers, sent = self.outgoing.peers, self.outgoing.sent
    level = quorum_level([peers[member].acked if member in peers else sent for member in self.view.members])
    if level > self._own_safe:
        self._own_safe = level
        self._learn_safe(self.id, level, out)  # type: ignore[arg-type]


def _replay_forgotten(self: Replay, members: Sequence[ProcessId]) -> Sequence[Message]:
    return ()


def _replayed_by_everybody(self: Replay, members: Sequence[ProcessId]) -> Sequence[Message]:
    if self._begun:
        return ()
    self._begun = True
    return tuple(self._left)


def _nothing_is_done(self: object, recovered: Recovered) -> None:
    """Everything starts from zero."""


def _replay_not_awaited(self: Import, recovered: Recovered) -> None:
    _go_on_from(self, recovered)
    self.handed.clear()


def _backwards(journals: Iterable[tuple[Mapping[ProcessId, int], Iterable[Message]]]) -> Recovered:
    """Each origin's messages stay in order, but origins come one after the other, the last one first."""
    recovered = _merge(journals)
    return Recovered(recovered.done, tuple(sorted(recovered.messages, key=lambda each: (-each.origin, each.seq))))


def _stored_counts_as_done(self: JoinGateway) -> dict[ProcessId, int]:
    assert self._settling is not None
    return dict(self._settling.marks)


_go_on_from = Import.go_on_from
_merge = merge

RESTART_MUTANTS = (
    Mutant(
        "keepers-ignored",
        "causal",
        "a message is delivered before the journals have it",
        ((GroupMember, "_update_own_safe", _quorum_is_enough),),
        "restarts",
    ),
    Mutant(
        "replay-forgotten",
        "causal",
        "a new life leaves out what the old one had not finished",
        ((Replay, "due", _replay_forgotten),),
        "restarts",
    ),
    Mutant(
        "replayed-by-everybody",
        "causal",
        "every gateway broadcasts the rest of the old life",
        ((Replay, "due", _replayed_by_everybody),),
        "restarts",
    ),
    Mutant(
        "done-forgotten",
        "causal",
        "a new life does not know what the old one was done with",
        ((Export, "go_on_from", _nothing_is_done), (Import, "go_on_from", _nothing_is_done)),
        "restarts",
    ),
    Mutant(
        "replay-not-awaited",
        "causal",
        "an import begins an epoch before the old life is replayed",
        ((Import, "go_on_from", _replay_not_awaited),),
        "restarts",
    ),
    Mutant(
        "replayed-out-of-order",
        "causal",
        "the old life is replayed origin by origin",
        ((lives, "merge", _backwards),),
        "restarts",
    ),
    Mutant(
        "done-too-early",
        "causal",
        "the journal drops what other systems lack",
        ((JoinGateway, "done", _stored_counts_as_done),),
        "restarts",
    ),
    Mutant(
        "epochs-open-twice",
        "causal",
        "a new life counts its epochs from the beginning",
        ((exporting, "life_of", lambda process: 0),),
        "restarts",
    ),
)
