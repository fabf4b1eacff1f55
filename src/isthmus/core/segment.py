"""Segments: messages in columns, which nobody between two applications has to open (docs/design/segments.md).

A **run** is a stretch of messages of one origin with consecutive numbers. A segment is a table of runs, the lengths of
the payloads where they differ, and all payloads back to back in one buffer. Protocols count its messages and bytes,
read its marks (of each origin, the last number in it), cut it and join it; only an application that iterates over it
makes an object per message.

Columns are little-endian integers in bytes, as they stand on the wire. To join is to concatenate and to cut is to
slice: no offset has to be moved, and no table can be out of order.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, repeat
from operator import gt
from typing import Annotated, Self, TypeAlias, cast

from msgspec import Meta, Struct

from isthmus.core.ids import ProcessId

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("isthmus reads the columns of its wire format in place, which takes a little-endian machine")

MAX_PAYLOAD = 1 << 20
"""Bytes of one payload. A larger one is refused at `send`."""

MAX_ENVELOPE = 128 << 10
"""What a protocol may put around a payload: addresses, and where it comes from. More is a malformed frame."""

MAX_SEGMENT_MESSAGES = 4096
_MAX_LENGTH = MAX_PAYLOAD + MAX_ENVELOPE
_MAX_NUMBER = 1 << 62

Run: TypeAlias = tuple[ProcessId, int, int]
"""(origin, first sequence number, how many)."""

Opened: TypeAlias = tuple[ProcessId, int, bytes]
"""One message: origin, sequence number, payload."""

Marks: TypeAlias = Mapping[ProcessId, int]
"""Of each origin, everything up to this number."""

_Wide = Annotated[bytes, Meta(max_length=8 * MAX_SEGMENT_MESSAGES)]
_Narrow = Annotated[bytes, Meta(max_length=4 * MAX_SEGMENT_MESSAGES)]
_RUN = struct.Struct("<Q")
_COUNT = struct.Struct("<I")
_ONE_RUN = struct.Struct("<QQI")
_ONE_MARK = struct.Struct("<QQ")
_SINGLE = _COUNT.pack(1) * MAX_SEGMENT_MESSAGES
_inc = (1).__add__


def _wide(column: bytes) -> memoryview[int]:
    return memoryview(column).cast("Q")


def _narrow(column: bytes) -> memoryview[int]:
    return memoryview(column).cast("I")


def _in_bounds(column: bytes) -> bool:
    """Whether no number of a wide column is too large. Nearly always the highest byte of each is 0."""
    return column[7::8].count(0) * 8 == len(column) or max(_wide(column)) <= _MAX_NUMBER


def _are_single(counts: bytes) -> bool:
    """Whether every run is one message. Nothing at all counts as that, too."""
    return counts == _SINGLE[: len(counts)]


class Segment(Struct, frozen=True, array_like=True, dict=True, forbid_unknown_fields=True):
    """Messages in the order in which they are sent, delivered or carried.

    Run r is `counts[r]` messages of `origins[r]`, the last of which has the number `lasts[r]`. Every payload has `size`
    bytes, unless there are `lengths`. `data` is bytes, or a view of the bytes of a segment that this one was cut from.
    """

    origins: _Wide
    lasts: _Wide
    counts: _Narrow
    size: Annotated[int, Meta(ge=0, le=_MAX_LENGTH)]
    lengths: _Narrow
    data: bytes

    def __post_init__(self) -> None:
        """Refuse columns that do not fit each other: what comes off a wire is hostile, and we make mistakes too."""
        origins, lasts, counts, lengths = self.origins, self.lasts, self.counts, self.lengths
        if len(lasts) != len(origins) or 2 * len(counts) != len(origins) or len(origins) % 8:
            raise ValueError("the columns of a segment's runs differ in length")
        if len(origins) == 8:
            # One run, as an application sends it: 0.9 µs instead of 2.6.
            origin, last, messages = _ONE_RUN.unpack(origins + lasts + counts)
            sound = 0 < messages <= last + 1 and origin <= _MAX_NUMBER and last <= _MAX_NUMBER
        else:
            sound = _in_bounds(origins) and _in_bounds(lasts)
            if _are_single(counts):
                # Behind a gateway runs of one message are normal: 3 ns per run, where sums and extremes take 100.
                messages = len(counts) // 4
            else:
                last_of, numbers = _wide(lasts), _narrow(counts)
                messages = sum(numbers)
                sound = sound and 0 not in numbers
                if min(last_of) + 1 < max(numbers):
                    sound = sound and not any(map(gt, numbers, map(_inc, last_of)))
        self.__dict__["messages"] = messages
        if not sound or messages > MAX_SEGMENT_MESSAGES:
            raise ValueError("a run of a segment is out of bounds")
        if not lengths:
            if self.size * messages != len(self.data):
                raise ValueError(f"{messages} payloads of {self.size} bytes do not make {len(self.data)} bytes")
        elif self.size or len(lengths) != 4 * messages:
            raise ValueError(f"{len(lengths) // 4} lengths of {messages} payloads")
        elif sum(_narrow(lengths)) != len(self.data) or max(_narrow(lengths)) > _MAX_LENGTH:
            raise ValueError("the lengths of payloads are out of bounds")

    # Making one

    @classmethod
    def of(cls, origin: ProcessId, first: int, payloads: Sequence[bytes]) -> Self:
        """Messages of one origin, numbered from `first` on."""
        if not payloads:
            return cast(Self, EMPTY)
        count = len(payloads)
        sizes = set(map(len, payloads))
        size = sizes.pop()
        lengths = array("I", map(len, payloads)).tobytes() if sizes else b""
        return cls(
            _RUN.pack(origin),
            _RUN.pack(first + count - 1),
            _COUNT.pack(count),
            0 if lengths else size,
            lengths,
            b"".join(payloads),
        )

    @classmethod
    def run(cls, origin: ProcessId, last: int, count: int, lengths: bytes, data: bytes) -> Segment:
        """One run, up to number `last`, of payloads that are back to back already; of one size without `lengths`."""
        size = 0 if lengths else len(data) // max(1, count)
        if min(origin, last, count) < 0 or max(origin, last) > _MAX_NUMBER or size > _MAX_LENGTH:
            raise ValueError("a run is out of bounds")
        return cls(_RUN.pack(origin), _RUN.pack(last), _COUNT.pack(count), size, lengths, data)

    @classmethod
    def pack(cls, messages: Sequence[Opened]) -> Segment:
        """Messages of whatever origins, in this order, for those who have them one by one."""
        if not messages:
            return EMPTY
        whose, numbers, payloads = zip(*messages, strict=True)
        count = len(payloads)
        columns = array("Q", whose).tobytes(), array("Q", numbers).tobytes(), array("I", (1,) * count).tobytes()
        sizes = set(map(len, payloads))
        lengths = array("I", map(len, payloads)).tobytes() if len(sizes) > 1 else b""
        return cls(*_merged(*columns), 0 if lengths else sizes.pop(), lengths, b"".join(payloads))

    # Counting

    @cached_property
    def messages(self) -> int:
        return sum(_narrow(self.counts))

    @cached_property
    def marks(self) -> Marks:
        """Of each origin, the last of its messages in here. Whoever gets it must not change it."""
        if len(self.origins) == 8:
            origin, last = _ONE_MARK.unpack(self.origins + self.lasts)
            return {origin: last}
        return dict(zip(_wide(self.origins), _wide(self.lasts), strict=True))

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return len(self.data)

    @property
    def column_bytes(self) -> int:
        """Bytes of all columns: what it takes on the wire besides payloads."""
        return len(self.origins) + len(self.lasts) + len(self.counts) + len(self.lengths)

    @property
    def largest(self) -> int:
        """Bytes of the largest payload."""
        return max(_narrow(self.lengths), default=self.size)

    def __len__(self) -> int:
        return self.messages

    def runs(self) -> Iterator[Run]:
        for origin, last, count in zip(_wide(self.origins), _wide(self.lasts), _narrow(self.counts), strict=True):
            yield origin, last - count + 1, count

    def sizes(self) -> Iterable[int]:
        """Bytes of each payload."""
        return _narrow(self.lengths) if self.lengths else repeat(self.size, self.messages)

    # Opening it

    def ids(self) -> Iterator[tuple[ProcessId, int]]:
        """Origin and number of each message."""
        for origin, first, count in self.runs():
            yield from zip(repeat(origin, count), range(first, first + count), strict=True)

    def payloads(self) -> Sequence[bytes]:
        """The payload of each message. Of one size that is one call: 14 µs for 1,000 of 100 B."""
        if not self.lengths:
            return _unpacker(self.size, self.messages)(self.data)
        data, ends = b"".join((self.data,)), list(accumulate(_narrow(self.lengths)))
        return [data[start:end] for start, end in zip(chain((0,), ends), ends, strict=False)]

    def __iter__(self) -> Iterator[Opened]:
        if len(self.origins) == 8:
            (origin,), (last,) = _RUN.unpack(self.origins), _RUN.unpack(self.lasts)
            return zip(repeat(origin), range(last - self.messages + 1, last + 1), self.payloads(), strict=False)
        return ((origin, seq, payload) for (origin, seq), payload in zip(self.ids(), self.payloads(), strict=True))

    # Cutting it

    def cut(self, messages: int) -> tuple[Segment, Segment]:
        """Cut behind so many messages. Payloads are not copied: both parts keep the whole buffer alive."""
        if messages <= 0:
            return EMPTY, self
        if messages >= self.messages:
            return self, EMPTY
        return self._slice(0, messages), self._slice(messages, self.messages)

    def fitting(self, messages: int, size: int, at_most: int) -> int:
        """How many messages there are from the front until one of these is reached: so many messages, or `size` bytes.

        One that would make it more than `at_most` bytes does not count, except for the first.
        """
        if self.messages <= messages and len(self.data) < size and len(self.data) <= at_most:
            return self.messages
        if messages <= 0 or size <= 0:
            return 0
        if not self.lengths:
            if not self.size:
                return min(messages, self.messages)
            return min(messages, self.messages, -(-size // self.size), max(1, at_most // self.size))
        taken = total = 0
        for length in _narrow(self.lengths):
            if taken == messages or total >= size or (taken and total + length > at_most):
                break
            taken += 1
            total += length
        return taken

    def only(self, wanted: Callable[[ProcessId], bool]) -> Segment:
        """The messages of these origins: nearly always all or none, which takes a look at each origin."""
        chosen = {origin for origin in self.marks if wanted(origin)}
        if len(chosen) == len(self.marks):
            return self
        if not chosen:
            return EMPTY
        return self._pick((origin, first, count) if origin in chosen else None for origin, first, count in self.runs())

    def beyond(self, marks: Marks) -> Segment:
        """What is left without everything up to these marks."""
        for origin, last, count in zip(_wide(self.origins), _wide(self.lasts), _narrow(self.counts), strict=True):
            if last - count < marks.get(origin, -1):
                return self._pick(_rest(run, marks.get(run[0], -1)) for run in self.runs())
        return self

    def following(self, marks: Marks) -> Segment:
        """What follows on these marks without a gap, whatever number an origin without a mark begins with."""
        seen: dict[ProcessId, int] = {}
        for origin, last, count in zip(_wide(self.origins), _wide(self.lasts), _narrow(self.counts), strict=True):
            before = last - count
            if seen.get(origin, marks.get(origin, before)) != before:
                return self._pick(_following(self.runs(), marks))
            seen[origin] = last
        return self

    def stretch(self, origin: ProcessId, first: int, last: int) -> Segment:
        """The messages of one origin with these numbers, as far as they are here."""
        return self._pick(
            (origin, max(first, begin), min(last, begin + count - 1) - max(first, begin) + 1)
            if whose == origin
            else None
            for whose, begin, count in self.runs()
        )

    def along(self, key: Callable[[ProcessId], object]) -> list[Segment]:
        """Cut wherever a message's origin has another key than that of the message before."""
        if len({key(origin) for origin in self.marks}) <= 1:
            return [self] if self else []
        parts, start, end, before = [], 0, 0, None
        for origin, _, count in self.runs():
            if end > start and key(origin) != before:
                parts.append(self._slice(start, end))
                start = end
            before = key(origin)
            end += count
        return [*parts, self._slice(start, end)]

    def _pick(self, wanted: Iterable[Run | None]) -> Segment:
        """Of each run this part, or nothing of it."""
        parts: list[tuple[int, int]] = []
        position = 0
        whole = True
        for (_, begin, length), part in zip(self.runs(), wanted, strict=True):
            if part is None or part[2] <= 0:
                whole = False
            else:
                _, first, count = part
                start = position + first - begin
                whole = whole and count == length
                if parts and parts[-1][1] == start:
                    parts[-1] = (parts[-1][0], start + count)
                else:
                    parts.append((start, start + count))
            position += length
        return self if whole else join([self._slice(*part) for part in parts])

    def _slice(self, start: int, end: int) -> Segment:
        """The messages from one place to another."""
        if not self.lengths:
            data = memoryview(self.data)[start * self.size : end * self.size]
            lengths = b""
        else:
            column = _narrow(self.lengths)
            before = sum(column[:start])
            data = memoryview(self.data)[before : before + sum(column[start:end])]
            lengths = self.lengths[4 * start : 4 * end]
        size, view = self.size, cast(bytes, data)
        if len(self.origins) == 8:
            (last,) = _RUN.unpack(self.lasts)
            last -= self.messages - end
            return Segment(self.origins, _RUN.pack(last), _COUNT.pack(end - start), size, lengths, view)
        if 4 * self.messages == len(self.counts):
            wide, narrow = slice(8 * start, 8 * end), slice(4 * start, 4 * end)
            return Segment(self.origins[wide], self.lasts[wide], self.counts[narrow], size, lengths, view)
        counts = _narrow(self.counts)
        ends = list(accumulate(counts))
        first, final = bisect_right(ends, start), bisect_left(ends, end)
        lasts, numbers = array("Q", _wide(self.lasts)[first : final + 1]), array("I", counts[first : final + 1])
        lasts[-1] -= ends[final] - end
        numbers[-1] -= ends[final] - end
        numbers[0] -= start - (ends[first] - counts[first])
        origins = self.origins[8 * first : 8 * final + 8]
        return Segment(origins, lasts.tobytes(), numbers.tobytes(), size, lengths, view)

    # It never changes, so a copy is itself

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


EMPTY = Segment(b"", b"", b"", 0, b"", b"")


def join(segments: Sequence[Segment]) -> Segment:
    """All messages of these, in this order. Runs that follow on each other become one."""
    if len(segments) <= 1:
        return segments[0] if segments else EMPTY
    segments = [segment for segment in segments if segment]
    if len(segments) <= 1:
        return segments[0] if segments else EMPTY
    origins = b"".join([segment.origins for segment in segments])
    lasts = b"".join([segment.lasts for segment in segments])
    counts = b"".join([segment.counts for segment in segments])
    if len(origins) <= 8 * FEW_RUNS:
        origins, lasts, counts = _merged(origins, lasts, counts)
    size, lengths = segments[0].size, b""
    if any(segment.lengths or segment.size != size for segment in segments):
        size, lengths = 0, b"".join([array("I", segment.sizes()).tobytes() for segment in segments])
    return Segment(origins, lasts, counts, size, lengths, b"".join([segment.data for segment in segments]))


FEW_RUNS = 64
"""Up to so many runs are looked at one by one, to make one of those that follow on each other: what one process sends
comes as a run for each call of `send`. Behind a gateway there are many, which seldom do."""


def _merged(origins: bytes, lasts: bytes, counts: bytes) -> tuple[bytes, bytes, bytes]:
    whose, last, count = array("Q"), array("Q"), array("I")
    for origin, end, length in zip(_wide(origins), _wide(lasts), _narrow(counts), strict=True):
        if whose and whose[-1] == origin and last[-1] + length == end:
            last[-1] = end
            count[-1] += length
        else:
            whose.append(origin)
            last.append(end)
            count.append(length)
    if len(whose) * 8 == len(origins):
        return origins, lasts, counts
    return whose.tobytes(), last.tobytes(), count.tobytes()


def take(waiting: deque[Segment], messages: int, size: int, at_most: int) -> Segment:
    """Take messages from the front of a queue, as many as `Segment.fitting` counts over all of it."""
    taken: list[Segment] = []
    while waiting:
        segment = waiting[0]
        count = segment.fitting(messages, size, at_most)
        if count == 1 and at_most < next(iter(segment.sizes())) and any(taken):
            break
        if count == segment.messages:
            taken.append(waiting.popleft())
        elif count:
            front, waiting[0] = segment.cut(count)
            taken.append(front)
        else:
            break
        messages -= count
        length = taken[-1].payload_bytes
        size -= length
        at_most -= length
    return join(taken)


def segments_of(origin: ProcessId, first: int, payloads: Sequence[bytes]) -> list[Segment]:
    """Messages of one origin, however many, numbered from `first` on."""
    return [
        Segment.of(origin, first + start, payloads[start : start + MAX_SEGMENT_MESSAGES])
        for start in range(0, len(payloads), MAX_SEGMENT_MESSAGES)
    ]


def portions(segments: Iterable[Segment], size: int) -> Iterator[Segment]:
    """The same messages in segments of at most so many bytes, unless one message alone has more."""
    waiting = deque(segments)
    while waiting:
        yield take(waiting, MAX_SEGMENT_MESSAGES, size, size)


def pack_all(messages: Sequence[Opened]) -> list[Segment]:
    """Messages of whatever origins, however many."""
    starts = range(0, len(messages), MAX_SEGMENT_MESSAGES)
    return [Segment.pack(messages[start : start + MAX_SEGMENT_MESSAGES]) for start in starts]


def total(segments: Collection[Segment]) -> tuple[int, int]:
    """How many messages and bytes of payload there are in these."""
    return sum([segment.messages for segment in segments]), sum([len(segment.data) for segment in segments])


def _rest(run: Run, mark: int) -> Run | None:
    """What is left of a run without everything up to a number."""
    origin, first, count = run
    start = max(first, mark + 1)
    return (origin, start, first + count - start) if start < first + count else None


def _following(runs: Iterable[Run], marks: Marks) -> Iterator[Run | None]:
    seen: dict[ProcessId, int] = {}
    for origin, first, count in runs:
        due = seen.get(origin, marks.get(origin, first - 1)) + 1
        if first <= due < first + count:
            seen[origin] = first + count - 1
            yield origin, due, first + count - due
        else:
            seen.setdefault(origin, due - 1)
            yield None


@lru_cache(64)
def _unpacker(size: int, count: int) -> Callable[[bytes], tuple[bytes, ...]]:
    """Cuts a buffer into payloads of one size in one call."""
    return struct.Struct(f"{size}s" * count).unpack
