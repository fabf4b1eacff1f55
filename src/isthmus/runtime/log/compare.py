"""The contents of joined logs against each other: what is lost, twice, out of order or changed between them.

It looks at nothing but what the brokers hold: entries, the import record, what was put aside. Messages are identified
in two ways that know nothing of each other: by the headers that we added, believed as a gateway believes them, and by
what they say, where only one entry that a client wrote says it.

Memory is `BYTES_PER_ENTRY` for each entry of each log, one byte more for each pair that it is looked at for, and some
100 MB for what entries say. It takes some 10 µs to read an entry, and 1 µs for each pair to judge it.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, permutations
from typing import TypeAlias

from msgspec import Struct

from isthmus.core.ids import ProcessId
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.contents import Contents, Suspect, begun
from isthmus.runtime.log.flow import Passing, flows_into
from isthmus.runtime.log.place import LogPlace
from isthmus.topology.model import Topology

_MOST_BODIES = 1 << 20
"""Of entries of clients that are remembered by what they say; where there are more, every 2nd, 4th, 8th, …"""
_MOST_SAMPLES = 1 << 16
_EXAMPLES = 5
_QUIET = 3
"""Looks in a row that bring nothing new, each of about a second, after which nothing moves."""


_Presence: TypeAlias = dict[tuple[str, ProcessId], bytearray]
"""By the log and the origin: which of its messages, by their count, are there."""
_Born: TypeAlias = dict[int, tuple[str, int]]
"""By what it says: the log that a client wrote it into, and where there; no name: several say so."""


class LogFigures(Struct):
    """What one log holds. `copied`: headers of ours that a client copied or made up."""

    name: str
    entries: int
    own: int
    brought_in: int
    copied: int


class PairFigures(Struct):
    """What became in the log `into` of messages born in the log `of`.

    `gone` are in `into` alone, because retention has removed them from `of`; `filtered`, `parked` and `retried` are
    where they were meant to be. `by_content` counts again, by what entries say.
    """

    of: str
    into: str
    messages: int = 0
    lost: int = 0
    twice: int = 0
    out_of_order: int = 0
    before_cause: int = 0
    changed: int = 0
    under_way: int = 0
    filtered: int = 0
    parked: int = 0
    retried: int = 0
    gone: int = 0
    unique: int = 0
    lost_by_content: int = 0
    twice_by_content: int = 0
    out_of_order_by_content: int = 0
    examples: list[str] = []

    @property
    def violations(self) -> int:
        by_headers = self.lost + self.twice + self.out_of_order + self.before_cause + self.changed
        return by_headers + self.lost_by_content + self.twice_by_content + self.out_of_order_by_content

    def tell(self, words: str) -> None:
        if len(self.examples) < _EXAMPLES:
            self.examples.append(words)


class Comparison(Struct):
    """All logs, all ordered pairs of them. `is_moving`: entries were still coming when it ended."""

    logs: list[LogFigures]
    pairs: list[PairFigures]
    is_moving: bool

    @property
    def under_way(self) -> int:
        return sum(pair.under_way for pair in self.pairs)

    @property
    def holds(self) -> bool:
        """Nothing is wrong; and what is not there yet comes, as far as one can see."""
        return not any(pair.violations for pair in self.pairs) and (self.is_moving or not self.under_way)


async def compare(
    topology: Topology, run: str, contents: Sequence[Contents], wait: float, tell: Callable[[str, int], None]
) -> Comparison:
    """Read all logs, then what has come since, until everything is everywhere, nothing moves, or time is over."""
    loop = asyncio.get_running_loop()
    await begun(contents, run)
    give_up = loop.time() + wait
    quiet = 0
    is_moving = False
    await asyncio.gather(*(each.follow(give_up, tell) for each in contents))
    give_up = max(give_up, loop.time() + wait)
    while quiet < _QUIET and loop.time() < give_up:
        judge = Judge(topology, contents)
        if not judge.may_be_under_way():
            break
        came = sum(await asyncio.gather(*(each.follow(give_up, tell) for each in contents)))
        is_moving = came > 0
        quiet = 0 if came else quiet + 1
    return Judge(topology, contents).judge(is_moving=is_moving and quiet < _QUIET)


def far_flows(topology: Topology, home: LogPlace, others: Sequence[LogPlace]) -> Iterator[tuple[str, Passing]]:
    """By each other system: what of the entries of `home` gets there, if anything is left out on the way."""
    for other in others:
        way = _way(home, other)
        hops = [flows_into(topology, there).get(here) for here, there in pairwise(way)]
        passings = [each for each in hops if each is not None]
        if passings:
            yield other.system.name, partial(_passes_all, passings)


def _way(near: LogPlace, far: LogPlace) -> list[str]:
    """By which systems messages go from the one to the other; none, if nothing joins them."""
    way = far.paths.get(near.system.name, "").split(",")
    return way if len(way) > 1 else []


def _passes_all(passings: Sequence[Passing], content: Content) -> Content | None:
    found: Content | None = content
    for each in passings:
        found = None if found is None else each(found)
    return found


class Judge:
    """Compares what was read."""

    def __init__(self, topology: Topology, contents: Sequence[Contents]) -> None:
        self._topology = topology
        self._contents = contents
        self._unsound: dict[str, set[int]] = {each.name: set() for each in contents}
        """Places of entries that came in, and that gateways take for a log's own all the same."""
        self._offsets = {
            (each.name, part): self._offset(each, part) for each in contents for part in range(len(each.own))
        }

    def may_be_under_way(self) -> bool:
        """Whether some log has not read, of another, as much as that has; a quick look."""
        for near, far in self._pairs():
            for part, origin in enumerate(near.own_origins):
                if far.marks.get(origin) < len(near.own[part]) + self._offsets[near.name, part]:
                    return True
        return False

    def judge(self, *, is_moving: bool) -> Comparison:
        pairs = [(near, far, PairFigures(near.name, far.name)) for near, far in self._pairs()]
        suspects = [self._suspects(near, far) for near, far, _ in pairs]
        presence: _Presence = {}
        for (near, far, pair), suspicious in zip(pairs, suspects, strict=True):
            for part, origin in enumerate(near.own_origins):
                presence[far.name, origin] = self._presence(near, part, far, pair, suspicious)
            pair.retried = sum(origin in near.own_origins for origin, _ in far.retried)
        for near, far, pair in pairs:
            if len(near.own) == len(far.own) == 1 and self._is_causal(near.place, far.place):
                self._look_for_causes(near, far, pair, presence)
        self._look_at_bodies(pairs)
        logs = []
        for each in self._contents:
            own = sum(map(len, each.own))
            figures = LogFigures(each.name, len(each), own, len(each) - own, 0)
            figures.copied = sum(not each.is_bare(place) for places in each.own for place in places)
            figures.copied -= len(self._unsound[each.name])
            logs.append(figures)
        return Comparison(logs, [pair for _, _, pair in pairs], is_moving)

    def _pairs(self) -> list[tuple[Contents, Contents]]:
        return [(near, far) for near, far in permutations(self._contents, 2) if _way(near.place, far.place)]

    def _is_causal(self, near: LogPlace, far: LogPlace) -> bool:
        joins = {frozenset(join.between): join for join in self._topology.joins}
        return all(joins[frozenset(hop)].order == "causal" for hop in pairwise(_way(near, far)))

    # By headers

    def _offset(self, near: Contents, part: int) -> int:
        """What is to be added to the count of the log's own entries to have their numbers.

        Clients wrote before the first gateway began, or retention has removed some: then others know the numbers, of
        those entries that they have, by what these say.
        """
        places = near.own[part]
        mask = _mask(len(places), _MOST_SAMPLES)
        samples: dict[int, int] = {}
        for count, place in enumerate(places, 1):
            body = near.bodies[place]
            if not body & mask:
                samples[body] = -1 if body in samples else count
        origin = near.own_origins[part]
        offsets: Counter[int] = Counter()
        for far in self._contents:
            index = far.index_of(origin)
            if far is near or index < 0:
                continue
            for whose, seq, body in zip(far.whose, far.seqs, far.bodies, strict=True):
                if whose == index and (count := samples.get(body, -1)) > 0:
                    offsets[seq - count] += 1
        return offsets.most_common(1)[0][0] if offsets else 0

    def _suspects(self, near: Contents, far: Contents) -> dict[int, Suspect]:
        """Of the entries that say again that they are from `near`: those that say the truth, by their place."""
        found: dict[int, Suspect] = {}
        for suspect in far.suspects:
            if suspect.origin in near.own_origins:
                own = self._own_place(near, suspect.origin, suspect.seq)
                if own is not None and near.bodies[own] == far.bodies[suspect.place]:
                    found[suspect.place] = suspect
                    self._unsound[far.name].add(suspect.place)
        return found

    def _own_place(self, near: Contents, origin: ProcessId, seq: int) -> int | None:
        part = near.own_origins.index(origin)
        count = seq - self._offsets[near.name, part]
        return near.own[part][count - 1] if 0 < count <= len(near.own[part]) else None

    def _presence(
        self, near: Contents, part: int, far: Contents, pair: PairFigures, suspects: dict[int, Suspect]
    ) -> bytearray:
        """Which of the messages of one stream are in the other log, by their count; the pair's figures on the way."""
        origin, places = near.own_origins[part], near.own[part]
        offset, most = self._offsets[near.name, part], len(places)
        name = near.place.names.name(origin)
        present = bytearray(most + 1)
        index = far.index_of(origin)
        fields = self._comparable(near, far)
        if index >= 0:
            for place, (whose, seq) in enumerate(zip(far.whose, far.seqs, strict=True)):
                if whose != index:
                    continue
                count = seq - offset
                if count < 1:
                    pair.gone += 1
                elif count <= most:
                    present[count] = 1
                    there = places[count - 1]
                    if any(column_far[place] != column_near[there] for column_near, column_far in fields):
                        pair.changed += 1
                        pair.tell(f"{name}/{seq}: entry {place + 1} of {far.name} does not say the same")
        for place, suspect in suspects.items():
            if suspect.origin == origin:
                count = suspect.seq - offset
                if present[count]:
                    pair.twice += 1
                    pair.tell(f"{name}/{suspect.seq} is in {far.name} again, as entry {place + 1}")
                else:
                    present[count] = 1
                    pair.out_of_order += 1
                    pair.tell(f"{name}/{suspect.seq} stands behind later ones in {far.name}, as entry {place + 1}")
        self._count_missing(near, part, far, pair, present)
        return present

    def _comparable(self, near: Contents, far: Contents) -> list[tuple[array[int], array[int]]]:
        """The columns that have to be the same, as far as both kinds of broker carry what they are of."""
        kinds = {near.place.system.provider, far.place.system.provider}
        fields = [(near.bodies, far.bodies)]
        if len(kinds) == 1 or "postgres" not in kinds:
            fields.append((near.headers, far.headers))
        if len(kinds) == 1 or kinds <= {"redis", "kafka"}:
            fields.append((near.keys, far.keys))
        return fields

    def _count_missing(self, near: Contents, part: int, far: Contents, pair: PairFigures, present: bytearray) -> None:
        origin, places = near.own_origins[part], near.own[part]
        offset = self._offsets[near.name, part]
        name = near.place.names.name(origin)
        filtered = set(near.filtered.get(far.name, ()))
        unsound = self._unsound[near.name]
        settled = max(far.marks.get(origin), far.settled.get(origin))
        for count, place in enumerate(places, 1):
            seq = count + offset
            if seq < 1:
                continue  # nobody had begun to read
            pair.messages += 1
            if present[count] or place in unsound:
                continue
            if place in filtered:
                pair.filtered += 1
            elif (origin, seq) in far.parked:
                pair.parked += 1
            elif seq > settled:
                pair.under_way += 1
            else:
                pair.lost += 1
                pair.tell(f"{name}/{seq}, entry {place + 1} of {near.name}, is not in {far.name}")

    def _look_for_causes(self, near: Contents, far: Contents, pair: PairFigures, presence: _Presence) -> None:
        """What stands before an entry where it was written stands before it elsewhere, too, if it is there at all."""
        origin = near.own_origins[0]
        index, offset, places = far.index_of(origin), self._offsets[near.name, 0], near.own[0]
        if index < 0:
            return
        there: dict[ProcessId, int] = {}
        """Of each origin, how far its entries stand before, in `far`."""
        here: dict[ProcessId, int] = {}
        absent: dict[ProcessId, int] = {}
        """Of each origin, up to where nothing behind `there` is in `far` at all."""
        read = 0
        own_far, far_offset = far.own_origins[0], self._offsets[far.name, 0]
        for place, (whose, seq) in enumerate(zip(far.whose, far.seqs, strict=True)):
            born = far.origins[whose]
            there[born] = max(there.get(born, 0), seq + (far_offset if born == own_far else 0))
            count = seq - offset
            if whose != index or not 0 < count <= len(places):
                continue
            end = places[count - 1]
            while read < end:
                cause = near.origins[near.whose[read]]
                if cause != origin:
                    here[cause] = max(here.get(cause, 0), near.seqs[read])
                read += 1
            for cause, through in here.items():
                after = max(there.get(cause, 0), absent.get(cause, 0))
                numbers = range(after + 1, through + 1)
                missing = next((number for number in numbers if self._is_in(far, cause, number, presence)), 0)
                if missing:
                    pair.before_cause += 1
                    names = near.place.names
                    pair.tell(
                        f"{names.name(origin)}/{seq} is entry {place + 1} of {far.name}, before "
                        f"{names.name(cause)}/{missing}, which it stands behind in {near.name}"
                    )
                else:
                    absent[cause] = max(after, through)

    def _is_in(self, far: Contents, origin: ProcessId, seq: int, presence: _Presence) -> bool:
        if origin in far.own_origins:
            count = seq - self._offsets[far.name, far.own_origins.index(origin)]
            return 0 < count <= len(far.own[far.own_origins.index(origin)])
        present = presence.get((far.name, origin))
        if present is None or (origin, seq) in far.retried:
            return False
        home = next(each for each in self._contents if origin in each.own_origins)
        count = seq - self._offsets[home.name, home.own_origins.index(origin)]
        return 0 < count < len(present) and bool(present[count])

    # By what entries say

    def _look_at_bodies(self, pairs: Sequence[tuple[Contents, Contents, PairFigures]]) -> None:
        mask = _mask(sum(sum(map(len, each.own)) for each in self._contents), _MOST_BODIES)
        born: _Born = {}
        for each in self._contents:
            for places in each.own:
                for place in places:
                    body = each.bodies[place]
                    if not body & mask and each.is_bare(place):
                        born[body] = ("", 0) if body in born else (each.name, place)
        for near, far, pair in pairs:
            self._compare_bodies(near, far, pair, born)

    def _compare_bodies(self, near: Contents, far: Contents, pair: PairFigures, born: _Born) -> None:
        seen: set[int] = set()
        last = [-1] * len(near.own)
        part_of = {place: part for part, places in enumerate(near.own) for place in places} if len(last) > 1 else {}
        retried = {self._own_place(near, *each) for each in far.retried if each[0] in near.own_origins}
        for body in far.bodies:
            name, place = born.get(body, ("", 0))
            if name != near.name:
                continue
            if place in seen:
                pair.twice_by_content += 1
                continue
            seen.add(place)
            part = part_of.get(place, 0)
            if place not in retried:
                pair.out_of_order_by_content += place < last[part]
                last[part] = max(place, last[part])
        filtered = set(near.filtered.get(far.name, ()))
        for part, origin in enumerate(near.own_origins):
            offset = self._offsets[near.name, part]
            settled = max(far.marks.get(origin), far.settled.get(origin))
            for count, place in enumerate(near.own[part], 1):
                if born.get(near.bodies[place]) != (near.name, place):
                    continue
                seq = count + offset
                if place in seen:
                    pair.unique += 1
                elif 0 < seq <= settled and place not in filtered and (origin, seq) not in far.parked:
                    pair.unique += 1
                    pair.lost_by_content += 1


def _mask(entries: int, most: int) -> int:
    """Bits that are 0 in the digests of about so many of these entries."""
    mask = 0
    while entries // (mask + 1) > most:
        mask = 2 * mask + 1
    return mask
