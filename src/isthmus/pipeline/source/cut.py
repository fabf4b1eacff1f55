"""Where a micro-batch may end: cuts through the histories of processes that hold every cause of what they hold.

A **cut** says of every process how many of its rows it holds. It is **closed** when with every row about a message it
holds the row that sent it. As a cut holds the beginning of every history, it then holds everything that any process
did or knew before, by induction. Closed cuts are closed under union, so what was read so far has a greatest one.

That one is found row by row: a history goes on until it meets a message whose `send` row did not have its turn yet,
waits for it, and is woken by it. On its way every row gets a **rank**, one more than the greatest rank among its
causes (Lamport's clock). The rank of a row depends on its causes alone, not on when anything was read. Sorted by rank,
rows stand after their causes, so whatever has a rank below some number is a closed cut too: that is how a read limit
is kept to the row.

What a history can claim and no run can do: to know a message before it was sent, directly or in a circle of
processes (a log that is written beside the process, and not by it, may do that). The rows of a circle can only come
together, so a cut takes all of them or none, even beyond a read limit.

Measured on one core: 0.3 µs per row to rank it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Cut: TypeAlias = dict[str, int]
"""Process to how many of its rows, which is the index of the first one that is not in it. Without a key: none."""

NO_CAUSE = -1
"""The rank of what causes nothing: a message from outside, or one whose `send` row is lost."""

_WAIT = -2
_SPARSE = 1 << 16


class History:
    """One process: its rows as far as they were read, and how far the greatest closed cut goes into them.

    `first <= frontier <= read`. Rows before `first` are forgotten, those up to `frontier` have a rank, those after it
    wait for the cause of the first of them.
    """

    __slots__ = (
        "_origins",
        "_sent",
        "_sent_far",
        "_seqs",
        "awaited",
        "ended",
        "first",
        "frontier",
        "highest",
        "name",
        "pending",
        "rank",
        "ranks",
        "read",
        "selected",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.first = 0
        self.frontier = 0
        self.read = 0
        self.rank = NO_CAUSE
        """Of the last row before `frontier`."""
        self.ranks = array("q")
        """Of the rows from `first` to `frontier`."""
        self.selected = bytearray()
        """1 for rows that count for a read limit, from `first` to `read`."""
        self.ended = False
        """Nothing will follow what was read."""
        self.highest = 0
        """The greatest number of a message sent here, as far as was read."""
        self.pending: dict[int, int] = {}
        """Number of a message to the index of its `send` row, from `frontier` to `read`."""
        self.waiting: dict[int, list[History]] = {}
        """Number of a message sent here to the histories that wait for it."""
        self.awaited: tuple[History, int] | None = None
        """Sender and number of the message that the row at `frontier` waits for."""
        self._origins: list[History | None] = []
        self._seqs: list[int] = []
        self._sent = array("q", [NO_CAUSE])
        self._sent_far: dict[int, int] = {}

    def append(self, origins: Sequence[History | None], seqs: Sequence[int], selected: bytes) -> None:
        """Take the next rows: per row the sender of its message (or None) and its number, below 0 to send it here."""
        pending, index = self.pending, self.read
        numbers = list(seqs)
        for place, seq in enumerate(numbers):
            if seq < 0:
                if -seq in pending or self.sent(-seq) != _WAIT:
                    numbers[place] = -seq  # sent again: the first time counts
                    continue
                pending[-seq] = index + place
                if -seq > self.highest:
                    self.highest = -seq
        self._origins += origins
        self._seqs += numbers
        self.selected += selected
        self.read += len(numbers)

    def sent(self, seq: int) -> int:
        """The rank of a `send` row that is in the greatest closed cut, or `_WAIT`."""
        sent = self._sent
        rank = sent[seq] if seq < len(sent) else self._sent_far.get(seq, NO_CAUSE)
        return rank if rank != NO_CAUSE else _WAIT

    def lost(self, seq: int) -> bool:
        """There is no such row and will not be: a process numbers its messages upwards, and the log went on."""
        return (self.ended or seq < self.highest) and seq not in self.pending and self.sent(seq) == _WAIT

    def note_sent(self, seq: int, rank: int) -> None:
        sent = self._sent
        if seq < len(sent):
            sent[seq] = rank
        elif seq < 2 * len(sent) + _SPARSE:
            if seq > len(sent):
                sent.extend([NO_CAUSE] * (seq - len(sent)))
            sent.append(rank)
        else:
            self._sent_far[seq] = rank  # numbers full of holes must not cost memory

    def needs(self, start: int, stop: int) -> Iterable[tuple[History, int]]:
        """Sender and number of the messages of rows that have no rank yet."""
        rows = slice(start - self.frontier, stop - self.frontier)
        for origin, seq in zip(self._origins[rows], self._seqs[rows], strict=True):
            if origin is not None and seq > 0:
                yield origin, seq

    def forget(self, index: int) -> None:
        """Nobody will ask for rows before this one any more."""
        index = min(index, self.frontier)
        if index > self.first:
            del self.ranks[: index - self.first]
            del self.selected[: index - self.first]
            self.first = index

    def advance(self, ready: list[History], *, force: bool = False) -> None:
        """Give ranks to rows until one has to wait. Histories that waited for what is sent on the way become `ready`.

        With `force`, the first row does not wait.
        """
        rank, ranks, pending, waiting = self.rank, self.ranks, self.pending, self.waiting
        taken = 0
        for origin, seq in zip(self._origins, self._seqs, strict=True):
            if origin is None:
                rank += 1
            elif seq < 0:
                rank += 1
                self.note_sent(-seq, rank)
                del pending[-seq]
                if waiting and -seq in waiting:
                    self._release(-seq, ready)
            else:
                sent = origin._sent
                cause = sent[seq] if seq < len(sent) else NO_CAUSE
                if cause < 0:
                    cause = origin.sent(seq)
                    if cause == _WAIT:
                        if not force and not origin.lost(seq):
                            self.awaited = (origin, seq)
                            origin.waiting.setdefault(seq, []).append(self)
                            break
                        cause = NO_CAUSE
                rank = cause + 1 if cause > rank else rank + 1
            force = False
            ranks.append(rank)
            taken += 1
        del self._origins[:taken]
        del self._seqs[:taken]
        self.frontier += taken
        self.rank = rank

    def wake(self, ready: list[History]) -> None:
        """More was read here: some that wait for a message may see now that it will not come."""
        for seq in [seq for seq in self.waiting if self.lost(seq)]:
            self._release(seq, ready)

    def _release(self, seq: int, ready: list[History]) -> None:
        for history in self.waiting.pop(seq):
            history.awaited = None
            ready.append(history)


class Histories:
    """All processes that are read together, and the cuts through them."""

    def __init__(self) -> None:
        self.by_name: dict[str, History] = {}
        self._ready: list[History] = []
        self._forced: list[tuple[History, int, History, int]] = []
        """Rows that had to come before what they needed: where they stand, and where what they needed stands."""

    def history(self, name: str) -> History:
        """The process of that name, also when nothing was read of it yet and others only wait for it."""
        known = self.by_name.get(name)
        if known is None:
            known = self.by_name[name] = History(name)
        return known

    def append(
        self,
        history: History,
        origins: Sequence[History | None],
        seqs: Sequence[int],
        selected: bytes,
        *,
        ended: bool = False,
    ) -> None:
        """Rows that were read. They count from the next `advance` on."""
        history.append(origins, seqs, selected)
        history.ended = ended
        if history.waiting:
            history.wake(self._ready)
        if history.awaited is None:
            self._ready.append(history)

    def advance(self) -> None:
        """Find the greatest closed cut in everything that was read."""
        ready = self._ready
        while True:
            while ready:
                history = ready.pop()
                if history.awaited is None:
                    history.advance(ready)
            if not self._break_a_circle():
                return

    def give_up(self, name: str) -> None:
        """Wait no more for rows of this process that were not read. Should they come, they come after their effects."""
        history = self.by_name[name]
        history.ended = True
        history.wake(self._ready)

    def greatest(self) -> Cut:
        return {name: each.frontier for name, each in sorted(self.by_name.items()) if each.frontier}

    def available(self, start: Mapping[str, int]) -> int:
        """How many selected rows there are from `start` to the greatest closed cut."""
        return sum(
            each.selected.count(1, max(start.get(name, 0) - each.first, 0), each.frontier - each.first)
            for name, each in self.by_name.items()
        )

    def cut(self, start: Mapping[str, int], limit: int | None = None) -> Cut:
        """The greatest closed cut, or one with just `limit` more selected rows than `start` if there are so many.

        It has more only where a circle leaves no choice. It is never less than `start`.
        """
        greatest = {name: max(count, start.get(name, 0)) for name, count in self.greatest().items()}
        greatest = dict(start) | greatest
        if limit is None or self.available(start) <= limit:
            return dict(sorted(greatest.items()))
        names = [name for name in sorted(self.by_name) if self.by_name[name].frontier > start.get(name, 0)]
        ranks = {name: self._ranks(name, start) for name in names}
        last = self._last_rank(names, start, ranks, max(limit, 1))
        cut = dict(start)
        room = max(limit, 1)
        for name in names:
            inside = int(np.searchsorted(ranks[name], last))  # all of a lower rank
            if inside:
                cut[name] = start.get(name, 0) + inside
                room -= self._selected(name, start).count(1, 0, inside)
        for name in names:  # those of the same rank do not need each other
            place = cut.get(name, 0) - start.get(name, 0)
            if room and place < len(ranks[name]) and ranks[name][place] == last:
                cut[name] = cut.get(name, 0) + 1
                room -= self._selected(name, start)[place]
        return dict(sorted(self._with_whole_circles(cut, start, ranks).items()))

    def forget(self, cut: Mapping[str, int]) -> None:
        """Nobody will ask for anything in this cut any more."""
        for name, count in cut.items():
            if name in self.by_name:
                self.by_name[name].forget(count)
        self._forced = [each for each in self._forced if each[0].first <= each[1] or each[2].first <= each[3]]

    def ranks(self, name: str, start: int, stop: int) -> array[int]:
        """The ranks of some rows of a process."""
        history = self.by_name[name]
        assert history.first <= start <= stop <= history.frontier, "only rows that have a rank and are not forgotten"
        return history.ranks[start - history.first : stop - history.first]

    def waits(self) -> list[tuple[str, int, str, int]]:
        """Who waits for a row that was not read: process, index, and the sender and number of the message."""
        return [
            (name, each.frontier, each.awaited[0].name, each.awaited[1])
            for name, each in sorted(self.by_name.items())
            if each.awaited is not None and each.awaited[1] not in each.awaited[0].pending
        ]

    # A read limit

    def _ranks(self, name: str, start: Mapping[str, int]) -> npt.NDArray[np.int64]:
        history = self.by_name[name]
        place = max(start.get(name, 0) - history.first, 0)
        return np.array(history.ranks[place:], dtype=np.int64)

    def _selected(self, name: str, start: Mapping[str, int]) -> bytearray:
        history = self.by_name[name]
        return history.selected[max(start.get(name, 0) - history.first, 0) : history.frontier - history.first]

    def _last_rank(
        self, names: list[str], start: Mapping[str, int], ranks: Mapping[str, npt.NDArray[np.int64]], limit: int
    ) -> int:
        """The rank of the last of `limit` selected rows, by rank."""
        masks = [np.frombuffer(bytes(self._selected(name, start)), dtype=np.uint8) == 1 for name in names]
        counted = np.concatenate([ranks[name][mask] for name, mask in zip(names, masks, strict=True)])
        return int(np.partition(counted, limit - 1)[limit - 1])

    def _with_whole_circles(
        self, cut: Cut, start: Mapping[str, int], ranks: Mapping[str, npt.NDArray[np.int64]]
    ) -> Cut:
        """A cut by rank is closed but for rows that were forced: go on to the rank of what they need."""
        changed = bool(self._forced)
        while changed:
            changed = False
            for history, index, origin, needed in self._forced:
                if cut.get(history.name, 0) > index and cut.get(origin.name, 0) <= needed:
                    last = origin.ranks[needed - origin.first]
                    for name, of_rows in ranks.items():
                        inside = int(np.searchsorted(of_rows, last, side="right"))
                        cut[name] = max(cut.get(name, 0), start.get(name, 0) + inside)
                    changed = True
        return {name: count for name, count in cut.items() if count}

    # Circles

    def _break_a_circle(self) -> bool:
        """When nothing can go on: find processes that wait for one another in a circle, and let one of them go."""
        judged: set[str] = set()
        for history in sorted(self.by_name.values(), key=lambda each: each.name):
            path: list[History] = []
            at = history
            while at.name not in judged and at.awaited is not None and at.awaited[1] in at.awaited[0].pending:
                judged.add(at.name)
                path.append(at)
                at = at.awaited[0]
            if at in path:
                circle = path[path.index(at) :]
                if self._is_whole(circle):
                    self._force(min(circle, key=lambda each: each.name))
                    return True
            judged.add(at.name)
        return False

    def _is_whole(self, circle: Sequence[History]) -> bool:
        """Everything that the circle needs was read."""
        reached = {each.name: each.frontier + 1 for each in circle}
        todo = [(each, each.frontier, each.frontier + 1) for each in circle]
        while todo:
            history, begin, stop = todo.pop()
            for origin, seq in history.needs(begin, stop):
                if seq in origin.pending:
                    done = reached.get(origin.name, origin.frontier)
                    if origin.pending[seq] >= done:
                        reached[origin.name] = origin.pending[seq] + 1
                        todo.append((origin, done, origin.pending[seq] + 1))
                elif origin.sent(seq) == _WAIT and not origin.lost(seq):
                    return False
        return True

    def _force(self, history: History) -> None:
        assert history.awaited is not None
        origin, seq = history.awaited
        origin.waiting[seq].remove(history)
        history.awaited = None
        self._forced.append((history, history.frontier, origin, origin.pending[seq]))
        history.advance(self._ready, force=True)
