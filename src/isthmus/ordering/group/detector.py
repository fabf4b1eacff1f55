"""Failure detection by silence.

A peer that was not heard of for `suspect_after` is suspected; one word from it clears it. Suspicion may be wrong, at
any time: it triggers view changes, and no safety property rests on it.

Suspicions travel in heartbeats, so that a member that only some cannot reach is dealt with by whoever has to. What
somebody says counts only while we hear that somebody ourselves, and it hears us: one that hears nobody would
otherwise have everybody suspect everybody else.

Before a system has begun, silence means that somebody is still on its way. So founders wait for each other: nobody is
suspected here until every founder has been heard once, or a quorum of them, this process among them, has waited for
`start_within`. A founder whose place was taken by a new process will not come, and is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus.core.ids import Nanos, ProcessId
from isthmus.ordering.group.quorum import is_quorum


class FailureDetector:
    """`_missing` are founders that may still come, `_present` those that were heard or are this process itself.

    `_quorum_since` is when those present became a quorum. After the first view nobody is missing.
    """

    __slots__ = (
        "_founders",
        "_heard",
        "_missing",
        "_owner",
        "_present",
        "_quorum_since",
        "_reports",
        "_start_within",
        "suspect_after",
    )

    def __init__(self, owner: ProcessId, suspect_after: Nanos) -> None:
        self._owner = owner
        self.suspect_after = suspect_after
        self._heard: dict[ProcessId, Nanos] = {}
        self._reports: dict[ProcessId, tuple[ProcessId, ...]] = {}
        self._founders: tuple[ProcessId, ...] = ()
        self._start_within: Nanos = 0
        self._missing: set[ProcessId] = set()
        self._present: set[ProcessId] = set()
        self._quorum_since: Nanos | None = None

    def watch(self, peers: Iterable[ProcessId], now: Nanos) -> None:
        """A new view: watch exactly these, and start with the benefit of the doubt."""
        self._heard = dict.fromkeys(peers, now)
        self._reports.clear()
        self._missing.clear()

    def await_founders(self, founders: Sequence[ProcessId], start_within: Nanos, now: Nanos) -> None:
        """The first view of all: suspect nobody before it was whole. With 0 they are known to be there already."""
        if start_within:
            self._founders = tuple(founders)
            self._start_within = start_within
            self._missing = set(self._heard)
            self._come(self._owner, now)

    def _come(self, founder: ProcessId, now: Nanos) -> None:
        self._missing.discard(founder)
        self._present.add(founder)
        if self._quorum_since is None and is_quorum(self._present, self._founders):
            self._quorum_since = now

    def is_waiting(self, now: Nanos) -> bool:
        """Whether founders are still to come, and it is too early to go on without them."""
        since = self._quorum_since
        return bool(self._missing) and (since is None or now - since < self._start_within)

    def heard(self, peer: ProcessId, now: Nanos) -> None:
        if peer in self._heard:
            self._heard[peer] = now
            if peer in self._missing:
                self._come(peer, now)

    def report(self, peer: ProcessId, suspects: Iterable[ProcessId]) -> None:
        """Note which members `peer` suspects."""
        if peer in self._heard:
            self._reports[peer] = tuple(suspects)

    def give_up(self, peer: ProcessId) -> None:
        """Evidence of death: a new process has taken its place."""
        if peer in self._heard:
            self._heard[peer] = -self.suspect_after
            self._missing.discard(peer)

    def silent(self, now: Nanos) -> set[ProcessId]:
        """Whom this process itself has not heard of for too long."""
        if self.is_waiting(now):
            return set()
        return {peer for peer, at in self._heard.items() if now - at >= self.suspect_after}

    def suspects(self, now: Nanos) -> set[ProcessId]:
        """Everybody under suspicion: by our own silence, for not hearing us, or by the word of somebody else."""
        if self.is_waiting(now):
            return set()
        suspects = self.silent(now)
        suspects.update(reporter for reporter, named in self._reports.items() if self._owner in named)
        reports = [named for reporter, named in self._reports.items() if reporter not in suspects]
        return suspects.union(*reports) & self._heard.keys()
