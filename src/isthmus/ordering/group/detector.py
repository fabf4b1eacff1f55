"""Failure detection by silence.

A peer that was not heard of for `suspect_after` is suspected; one word from it clears it. Suspicion may be wrong, at
any time: it triggers view changes, and no safety property rests on it.

Suspicions travel in heartbeats, so that a member that only some cannot reach is dealt with by whoever has to. What
somebody says counts only while we hear that somebody ourselves, and it hears us: one that hears nobody would
otherwise have everybody suspect everybody else.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.core.ids import Nanos, ProcessId


class FailureDetector:
    __slots__ = ("_heard", "_owner", "_reports", "suspect_after")

    def __init__(self, owner: ProcessId, suspect_after: Nanos) -> None:
        self._owner = owner
        self.suspect_after = suspect_after
        self._heard: dict[ProcessId, Nanos] = {}
        self._reports: dict[ProcessId, tuple[ProcessId, ...]] = {}

    def watch(self, peers: Iterable[ProcessId], now: Nanos) -> None:
        """A new view: watch exactly these, and start with the benefit of the doubt."""
        self._heard = dict.fromkeys(peers, now)
        self._reports.clear()

    def heard(self, peer: ProcessId, now: Nanos) -> None:
        if peer in self._heard:
            self._heard[peer] = now

    def report(self, peer: ProcessId, suspects: Iterable[ProcessId]) -> None:
        """Note which members `peer` suspects."""
        if peer in self._heard:
            self._reports[peer] = tuple(suspects)

    def give_up(self, peer: ProcessId) -> None:
        """Evidence of death: a new process has taken its place."""
        if peer in self._heard:
            self._heard[peer] = -self.suspect_after

    def silent(self, now: Nanos) -> set[ProcessId]:
        """Whom this process itself has not heard of for too long."""
        return {peer for peer, at in self._heard.items() if now - at >= self.suspect_after}

    def suspects(self, now: Nanos) -> set[ProcessId]:
        """Everybody under suspicion: by our own silence, for not hearing us, or by the word of somebody else."""
        suspects = self.silent(now)
        suspects.update(reporter for reporter, named in self._reports.items() if self._owner in named)
        reports = [named for reporter, named in self._reports.items() if reporter not in suspects]
        return suspects.union(*reports) & self._heard.keys()
