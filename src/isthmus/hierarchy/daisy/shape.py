"""Which groups a daisy should have: by how many there are, and by who talks to whom (docs/design/daisy-changes.md).

Pure functions from shapes to shapes. `fit` keeps all groups within their sizes and changes nothing else; `regroup`
divides everybody anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, structs

from isthmus.core.ids import ProcessId
from isthmus.core.message import MAX_MEMBERS, Number

Pair = tuple[ProcessId, ProcessId]
Traffic = Mapping[Pair, int]
"""Messages between two processes, in both directions, by the pair in order."""


class Shape(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One group with everything below it: processes, or parts. A group that is new has no name."""

    name: Annotated[str, Meta(max_length=1024)] = ""
    processes: Annotated[tuple[Number, ...], Meta(max_length=MAX_MEMBERS)] = ()
    parts: Annotated[tuple[Shape, ...], Meta(max_length=MAX_MEMBERS)] = ()

    @property
    def is_local(self) -> bool:
        return not self.parts

    def everybody(self) -> Iterator[ProcessId]:
        yield from self.processes
        for part in self.parts:
            yield from part.everybody()

    def locals(self) -> Iterator[Shape]:
        """All local groups."""
        if self.is_local:
            yield self
        for part in self.parts:
            yield from part.locals()

    def only(self, living: Collection[ProcessId]) -> Shape:
        """The same groups, of these processes."""
        processes = tuple(each for each in self.processes if each in living)
        return structs.replace(self, processes=processes, parts=tuple(part.only(living) for part in self.parts))

    def same_as(self, other: Shape) -> bool:
        """Whether the groups are the same, whatever they are called, and in whatever order parts are."""
        return self._groups() == other._groups()

    def _groups(self) -> frozenset[object]:
        """The groups as nested sets, for comparing."""
        return frozenset(part._groups() for part in self.parts) if self.parts else frozenset(self.processes)


class Sizes(NamedTuple):
    """How large groups may be: a local group from `least` to `most`, a servers' group up to `most`."""

    least: int
    most: int


def fit(shape: Shape, sizes: Sizes, traffic: Traffic) -> Shape:
    """The shape with groups split that are too large, and merged that are too small. A result stays as it is."""
    while True:
        parts = _Fitting(sizes, traffic).in_place_of(shape)
        while len(parts) > sizes.most:
            parts = [Shape(parts=tuple(parts[place] for place in each)) for each in _divide(parts, sizes, traffic)]
        fitted = parts[0] if len(parts) == 1 else Shape(parts=tuple(parts))
        if fitted.same_as(shape):
            return shape
        shape = fitted


def regroup(shape: Shape, sizes: Sizes, traffic: Traffic) -> Shape | None:
    """All processes in groups by who talks to whom; None unless that halves what goes from group to group."""
    everybody = sorted(shape.everybody())
    units = [Shape(processes=(each,)) for each in everybody]
    count = max(sum(1 for _ in shape.locals()), -(-len(units) // sizes.most))
    groups = arrange([each.processes for each in units], count, traffic)
    divided = Shape(parts=tuple(Shape(processes=tuple(everybody[place] for place in each)) for each in groups))
    if 2 * crossing(divided, traffic) >= crossing(shape, traffic):
        return None
    return fit(divided, sizes, traffic)


def admit(shape: Shape, newcomers: Collection[ProcessId]) -> Shape:
    """The shape with these processes in the smallest local group each."""
    for newcomer in sorted(newcomers):
        smallest = min(shape.locals(), key=lambda each: (len(each.processes), each.processes))
        shape = _with(shape, smallest, newcomer)
    return shape


def _with(shape: Shape, group: Shape, newcomer: ProcessId) -> Shape:
    if shape is group:
        return structs.replace(shape, processes=tuple(sorted((*shape.processes, newcomer))))
    return structs.replace(shape, parts=tuple(_with(part, group, newcomer) for part in shape.parts))


def crossing(shape: Shape, traffic: Traffic) -> int:
    """Messages between processes of different local groups."""
    home = {process: place for place, group in enumerate(shape.locals()) for process in group.processes}
    return sum(messages for (a, b), messages in traffic.items() if a in home and b in home and home[a] != home[b])


def arrange(units: Sequence[Collection[ProcessId]], count: int, traffic: Traffic) -> list[list[int]]:
    """Divide units, by their places, into `count` heaps that differ by one at most.

    Those that have most to do with each other come together, greedily: the heaviest pair first, if their clusters fit
    a heap; then clusters go into heaps, the largest first, each to those that it has most to do with.
    """
    rooms = [len(units) // count + (place < len(units) % count) for place in range(count)]
    weights = _between(units, traffic)
    cluster = {place: [place] for place in range(len(units))}
    for (a, b), _ in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        if cluster[a] is not cluster[b] and len(cluster[a]) + len(cluster[b]) <= rooms[0]:
            cluster[a] += cluster[b]
            for place in cluster[b]:
                cluster[place] = cluster[a]
    heaps: list[list[int]] = [[] for _ in rooms]
    whole = {id(each): each for each in cluster.values()}
    for each in sorted(whole.values(), key=lambda places: (-len(places), min(places))):
        for piece in _pieces(sorted(each), heaps, rooms):
            fitting = [place for place, heap in enumerate(heaps) if len(heap) + len(piece) <= rooms[place]]
            heaps[min(fitting, key=lambda place: (-_weight(piece, heaps[place], weights), place))] += piece
    return [sorted(heap) for heap in heaps]


def _pieces(cluster: list[int], heaps: list[list[int]], rooms: list[int]) -> list[list[int]]:
    """A cluster as a whole if a heap has room for it; otherwise one by one."""
    most = max(room - len(heap) for heap, room in zip(heaps, rooms, strict=True))
    return [cluster] if len(cluster) <= most else [[place] for place in cluster]


def _weight(some: list[int], others: list[int], weights: Mapping[tuple[int, int], int]) -> int:
    return sum(weights.get((min(a, b), max(a, b)), 0) for a in some for b in others)


def _between(units: Sequence[Collection[ProcessId]], traffic: Traffic) -> Counter[tuple[int, int]]:
    """The traffic between units, by the pair of their places in order."""
    place_of = {process: place for place, unit in enumerate(units) for process in unit}
    weights: Counter[tuple[int, int]] = Counter()
    for (one, other), messages in traffic.items():
        a, b = place_of.get(one), place_of.get(other)
        if a is not None and b is not None and a != b:
            weights[min(a, b), max(a, b)] += messages
    return weights


def _divide(parts: Sequence[Shape], sizes: Sizes, traffic: Traffic) -> list[list[int]]:
    """The places of these parts, divided among as few groups as the largest size allows."""
    return arrange([tuple(part.everybody()) for part in parts], -(-len(parts) // sizes.most), traffic)


class _Fitting:
    """One pass over a tree, from below."""

    def __init__(self, sizes: Sizes, traffic: Traffic) -> None:
        self.sizes = sizes
        self.traffic = traffic

    def in_place_of(self, shape: Shape) -> list[Shape]:
        """What the group above has in place of this group: the group itself, the groups it was split into, or none."""
        if shape.is_local:
            return self._local(shape)
        parts = [each for part in shape.parts for each in self.in_place_of(part)]
        parts = self._none_too_small(self._without_needless_levels(parts))
        if len(parts) <= 1:
            return parts
        if len(parts) > self.sizes.most:
            heaps = _divide(parts, self.sizes, self.traffic)
            return [Shape(parts=tuple(parts[place] for place in heap)) for heap in heaps]
        return [structs.replace(shape, parts=tuple(parts))]

    def _local(self, shape: Shape) -> list[Shape]:
        members = sorted(shape.processes)
        if not members:
            return []
        if len(members) <= self.sizes.most:
            return [shape]
        heaps = arrange([(each,) for each in members], -(-len(members) // self.sizes.most), self.traffic)
        return [Shape(processes=tuple(members[place] for place in heap)) for heap in heaps]

    def _without_needless_levels(self, parts: list[Shape]) -> list[Shape]:
        """A servers' group with few parts gives them to the group above, where there is room."""
        for part in parts:
            if len(part.parts) < self.sizes.least and part.parts:
                if len(parts) - 1 + len(part.parts) <= self.sizes.most:
                    rest = [each for each in parts if each is not part]
                    return self._without_needless_levels([*rest, *part.parts])
        return parts

    def _none_too_small(self, parts: list[Shape]) -> list[Shape]:
        while len(parts) > 1:
            small = min(parts, key=lambda part: (not part.is_local, len(part.processes), part.processes))
            if not small.is_local or len(small.processes) >= self.sizes.least:
                return parts
            rest = [part for part in parts if part is not small]
            kind = any(part.is_local for part in rest)
            neighbour = self._neighbour(small, [part for part in rest if part.is_local == kind])
            if neighbour.is_local:
                together = self._local(Shape(processes=tuple(sorted((*small.processes, *neighbour.processes)))))
            else:
                together = self.in_place_of(structs.replace(neighbour, parts=(*neighbour.parts, small)))
            parts = [*(part for part in rest if part is not neighbour), *together]
        return parts

    def _neighbour(self, small: Shape, others: Sequence[Shape]) -> Shape:
        """The neighbour to merge with: the group that this one has most traffic with; without traffic, the smallest."""
        weights = _between([tuple(each.everybody()) for each in (small, *others)], self.traffic)
        sizes = [sum(1 for _ in each.everybody()) for each in others]
        best = min(range(len(others)), key=lambda place: (-weights[0, place + 1], sizes[place], place))
        return others[best]


def names_given(shape: Shape, prefix: str) -> Shape:
    """The shape with a name for every group that has none: the prefix and a number. The topmost needs none."""
    fresh = iter(range(1, 1 << 30))

    def named(each: Shape) -> Shape:
        name = each.name or f"{prefix}-{next(fresh)}"
        return structs.replace(each, name=name, parts=tuple(map(named, each.parts)))

    return structs.replace(shape, name="", parts=tuple(map(named, shape.parts)))


def traffic_of(sent: Mapping[ProcessId, Sequence[tuple[ProcessId, int]]]) -> Counter[Pair]:
    """The traffic between all processes, put together from what each says about whom it writes to."""
    traffic: Counter[Pair] = Counter()
    for sender, partners in sent.items():
        for partner, messages in partners:
            if partner != sender:
                traffic[min(sender, partner), max(sender, partner)] += messages
    return traffic
