"""Failure detection by silence.

A peer that was not heard of for `suspect_after` is suspected; one word from it clears it. Suspicion may be wrong, at
any time: it triggers view changes, and no safety property rests on it.

Suspicions travel in heartbeats, so that a member that only some cannot reach is dealt with by whoever has to. What
somebody says counts only while we hear that somebody ourselves, and it hears us: one that hears nobody would
otherwise have everybody suspect everybody else.

In a large group a member speaks unasked only to its *watchers*, the few after it in the ring (`ring.py`). So silence
counts only of those before us, and of whoever we have asked to speak. Who doubts all those before it asks everybody: a
member whose watchers are all gone is suspected together with the last of these. docs/design/group.md, "Heartbeats".

Before a system has begun, silence means that somebody is still on its way. So founders wait for each other: nobody is
suspected here until every founder has been heard once, or a quorum of them, this process among them, has waited for
`start_within`. A founder whose place was taken by a new process will not come, and is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isthmus.core.ids import Nanos, ProcessId
from isthmus.ordering.group.quorum import is_quorum
from isthmus.ordering.group.ring import Ring


class FailureDetector:
    """`_missing` are founders that may still come, `_present` those that were heard or are this process itself.

    `_quorum_since` is when those present became a quorum. After the first view nobody is missing. `_watched` are the
    peers that speak unasked; `_asked` those that are asked to, and since when their silence counts; `_reported_at` is
    when others than these last named somebody: their word counts for as long as silence is borne. `_told_at`
    is when we last told others which founders have come, and `_tellings` how often we did.
    """

    __slots__ = (
        "_asked",
        "_before",
        "_founders",
        "_heard",
        "_missing",
        "_owner",
        "_present",
        "_quorum_since",
        "_reported_at",
        "_reports",
        "_start_within",
        "_tellings",
        "_told_at",
        "_watched",
        "_width",
        "suspect_after",
    )

    def __init__(self, owner: ProcessId, suspect_after: Nanos) -> None:
        self._owner = owner
        self.suspect_after = suspect_after
        self._heard: dict[ProcessId, Nanos] = {}
        self._watched: set[ProcessId] = set()
        self._before: tuple[ProcessId, ...] = ()
        self._width = 0
        self._asked: dict[ProcessId, Nanos] = {}
        self._reports: dict[ProcessId, tuple[ProcessId, ...]] = {}
        self._reported_at: dict[ProcessId, Nanos] = {}
        self._founders: tuple[ProcessId, ...] = ()
        self._start_within: Nanos = 0
        self._missing: set[ProcessId] = set()
        self._present: set[ProcessId] = set()
        self._quorum_since: Nanos | None = None
        self._tellings = 0
        self._told_at: Nanos = 0

    def watch(self, peers: Iterable[ProcessId], now: Nanos, ring: Ring | None = None) -> None:
        """A new view: watch exactly these, and start with the benefit of the doubt. Without a ring all speak to us."""
        self._heard = dict.fromkeys(peers, now)
        self._before, self._width = ((), 0) if ring is None or ring.is_whole else (ring.before, ring.width)
        self._watched = set(self._before[: self._width] or self._heard)
        self._asked.clear()
        self._reports.clear()
        self._reported_at.clear()
        self._missing.clear()

    def await_founders(self, founders: Sequence[ProcessId], start_within: Nanos, now: Nanos) -> None:
        """The first view of all: suspect nobody before it was whole. With 0 they are known to be there already."""
        if start_within:
            self._founders = tuple(founders)
            self._start_within = start_within
            self._told_at = now
            self._missing = set(self._heard)
            self._come(self._owner, now)

    def _come(self, founder: ProcessId, now: Nanos) -> None:
        self._missing.discard(founder)
        self._is_there(founder, now)

    def _is_there(self, founder: ProcessId, now: Nanos) -> None:
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
            if self._missing and peer in self._missing:
                self._come(peer, now)

    @property
    def present(self) -> list[ProcessId]:
        """The founders that are known to have come."""
        return sorted(self._present)

    def to_tell_of_founders(self, now: Nanos) -> ProcessId | None:
        """Whom to tell which founders have come, beside our watchers, if now is the time; another one each time.

        The watchers would be enough if there were no rows of founders missing that are longer than the row of watchers.
        """
        if not self._before or not self.is_waiting(now) or now - self._told_at < self.suspect_after // 4:
            return None
        self._told_at = now
        self._tellings += 1
        return self._before[self._tellings % len(self._before)]

    def are_there(self, founders: Iterable[ProcessId], now: Nanos) -> None:
        """Somebody says that these founders have come. They count for the quorum, but who waits for all waits on."""
        for founder in self._missing.intersection(founders):
            self._is_there(founder, now)

    def all_were_heard(self, now: Nanos) -> None:
        """The collector has heard every member, so the system was whole."""
        for founder in list(self._missing):
            self.heard(founder, now)

    def report(self, peer: ProcessId, suspects: Iterable[ProcessId], now: Nanos = 0) -> bool:
        """Note which members `peer` suspects. Says whether it names one that only others can tell us of."""
        if peer not in self._heard:
            return False
        named = tuple(suspects)
        if not self._before:
            self._reports[peer] = named
            return False
        if not named and peer not in self._reports:
            return False
        is_news = bool(named) and not self._watched.union(*self._reports.values()).issuperset(named)
        self._reports.pop(peer, None)
        self._reported_at.pop(peer, None)
        if named:
            self._reports[peer] = named
            if peer not in self._watched:
                self._reported_at[peer] = now
        return is_news

    def give_up(self, peer: ProcessId) -> None:
        """Evidence of death: a new process has taken its place."""
        if peer in self._heard:
            self._heard[peer] = -self.suspect_after
            self._watched.add(peer)
            self._missing.discard(peer)

    def doubts_all(self, now: Nanos) -> bool:
        """Whether all those before us in the ring, who speak unasked, are in doubt."""
        return bool(self._before) and all(self.doubts(peer, now) for peer in self._before[: self._width])

    def doubts(self, peer: ProcessId, now: Nanos) -> bool:
        """Whether a peer has been silent for half as long as it takes to suspect one that should have spoken."""
        return now - self._heard[peer] >= self.suspect_after // 2

    def ask(self, peers: Iterable[ProcessId], now: Nanos) -> set[ProcessId]:
        """Ask these to speak in this heartbeat: their silence counts from the first time on. Returns who has to be.

        Whoever is suspected for not answering is asked on: the reason to ask may be gone only because it is suspected.
        """
        asked = self._asked.keys() & self.silent(now) | set(peers)
        self._asked = {peer: self._asked.get(peer, now) for peer in asked}
        return asked

    def silent(self, now: Nanos) -> set[ProcessId]:
        """Whom this process itself has not heard of for too long."""
        if self.is_waiting(now):
            return set()
        heard, patience = self._heard, self.suspect_after
        silent = {peer for peer in self._watched if now - heard[peer] >= patience}
        if self._asked:
            self._add_unanswering(silent, now)
        return silent

    def _add_unanswering(self, silent: set[ProcessId], now: Nanos) -> None:
        """Add those that were asked and do not answer. One that nobody else is left to watch gets less time for it."""
        heard, asked, patience = self._heard, self._asked, self.suspect_after
        silent.update(peer for peer, since in asked.items() if now - max(heard[peer], since) >= patience)
        silent_after_it = 0
        for peer in self._before:
            if silent_after_it >= self._width and peer in asked:
                # Asked since half of the patience was over, it has a quarter for its first answer, half for the next.
                if now - max(heard[peer], asked[peer] - patience // 4) >= patience // 2:
                    silent.add(peer)
            silent_after_it = silent_after_it + 1 if peer in silent else 0

    def suspects(self, now: Nanos) -> set[ProcessId]:
        """Everybody under suspicion: by our own silence, for not hearing us, or by the word of somebody else."""
        if self.is_waiting(now):
            return set()
        for reporter, at in list(self._reported_at.items()):
            if now - at >= self.suspect_after:
                del self._reports[reporter], self._reported_at[reporter]
        suspects = self.silent(now)
        suspects.update(reporter for reporter, named in self._reports.items() if self._owner in named)
        reports = [named for reporter, named in self._reports.items() if reporter not in suspects]
        return suspects.union(*reports) & self._heard.keys()

    def first_trusted(self, members: Sequence[ProcessId], now: Nanos) -> ProcessId:
        """The first member that is not suspected here: it coordinates, and it collects."""
        suspects = self.suspects(now)
        return next(member for member in members if member not in suspects)
