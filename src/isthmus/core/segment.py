"""Segments: messages in columns, which nobody between two applications has to open (docs/design/segments.md).

A **run** is a stretch of messages of one origin with consecutive numbers. A segment is a table of runs, the lengths of
the payloads where they differ, and all payloads back to back in one buffer. Protocols count its messages and bytes,
read its marks (of each origin, the last number in it), cut it and join it; only an application that iterates over it
makes an object per message.

One run is three numbers. Several are columns: little-endian integers in bytes, each column as narrow as its largest
number allows. In memory they are what they are on the wire. To join is to concatenate and to cut is to slice: no offset
has to be moved, and no table can be out of order.
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
from typing import Annotated, Literal, Self, TypeAlias, cast

from msgspec import Meta, Struct, msgpack

from isthmus.core.ids import ProcessId

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("isthmus reads the columns of its wire format in place, which takes a little-endian machine")

MAX_PAYLOAD = 1 << 20
"""Bytes of one payload. A larger one is refused at `send`."""

MAX_ENVELOPE = 128 << 10
"""What a protocol may put around a payload: addresses, and where it comes from. More is a malformed frame."""

MAX_CARRIED = MAX_PAYLOAD + (96 << 10)
"""Bytes of a payload between systems: what a broker has around a body of its own travels as one payload with it. The
rest of an envelope is for the system where it arrives."""

MAX_SEGMENT_MESSAGES = 4096
_MAX_LENGTH = MAX_PAYLOAD + MAX_ENVELOPE
_MAX_NUMBER = 1 << 62

Run: TypeAlias = tuple[ProcessId, int, int]
"""(origin, first sequence number, how many)."""

Opened: TypeAlias = tuple[ProcessId, int, bytes]
"""One message: origin, sequence number, payload."""

Marks: TypeAlias = Mapping[ProcessId, int]
"""Of each origin, everything up to this number."""

Column: TypeAlias = int | bytes
"""The number of a single run; or a number of each run, in as many bytes each."""

_Numbers = Annotated[int, Meta(ge=0, le=_MAX_NUMBER)] | Annotated[bytes, Meta(max_length=8 * MAX_SEGMENT_MESSAGES)]
_Counts = (
    Annotated[int, Meta(ge=1, le=MAX_SEGMENT_MESSAGES)] | Annotated[bytes, Meta(max_length=2 * MAX_SEGMENT_MESSAGES)]
)
_Lengths = Annotated[bytes, Meta(max_length=4 * MAX_SEGMENT_MESSAGES)]
_Table: TypeAlias = tuple[Column, Column, Column]
_FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Of integers, by their width in bytes."""

_SINGLE = (1).to_bytes(2, "little") * MAX_SEGMENT_MESSAGES
_inc = (1).__add__
_encoder = msgpack.Encoder()


def _numbers(column: bytes, runs: int) -> memoryview[int]:
    """The numbers in a column of so many runs, which are there."""
    return memoryview(column).cast(_FORMATS[len(column) // runs])


def _counts(column: bytes) -> memoryview[int]:
    return memoryview(column).cast("H")


def _lengths(column: bytes) -> memoryview[int]:
    return memoryview(column).cast("I")


def _in_bounds(column: bytes, runs: int) -> bool:
    """Whether a column has a number for each run and none is too large. Nearly always the highest byte of each is 0."""
    width, rest = divmod(len(column), runs)
    if rest or width not in _FORMATS:
        raise ValueError("the columns of a segment's runs differ in length")
    return width < 8 or column[7::8].count(0) == runs or max(_numbers(column, runs)) <= _MAX_NUMBER


class Segment(Struct, frozen=True, array_like=True, dict=True, forbid_unknown_fields=True):
    """Messages in the order in which they are sent, delivered or carried.

    Run r is `counts[r]` messages of `origins[r]`, the last of which has the number `lasts[r]`. Counts have two bytes
    each, and so they say how many runs there are. Every payload has `size` bytes, unless there are `lengths`, of four
    bytes each. `data` is bytes, or a view of the bytes of a segment that this one was cut from.
    """

    origins: _Numbers
    lasts: _Numbers
    counts: _Counts
    size: Annotated[int, Meta(ge=0, le=_MAX_LENGTH)]
    lengths: _Lengths
    data: bytes

    def __post_init__(self) -> None:
        """Refuse columns that do not fit each other: what comes off a wire is hostile, and we make mistakes too."""
        origins, lasts, counts, lengths = self.origins, self.lasts, self.counts, self.lengths
        if isinstance(origins, int) and isinstance(lasts, int) and isinstance(counts, int):
            # One run, as an application sends it.
            messages = counts
            sound = 0 < messages <= lasts + 1 and 0 <= origins <= _MAX_NUMBER and lasts <= _MAX_NUMBER
        elif isinstance(origins, int) or isinstance(lasts, int) or isinstance(counts, int):
            raise ValueError("a segment has one run in one column and several in another")
        elif not counts:
            messages = 0
            sound = not origins and not lasts
        else:
            runs = len(counts) // 2
            sound = runs > 1 and len(counts) == 2 * runs and _in_bounds(origins, runs) and _in_bounds(lasts, runs)
            if not sound or counts == _SINGLE[: len(counts)]:
                # Behind a gateway runs of one message are normal: 3 ns per run, where sums and extremes take 100.
                messages = runs
            else:
                last_of, numbers = _numbers(lasts, runs), _counts(counts)
                messages = sum(numbers)
                sound = 0 not in numbers
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
        elif sum(_lengths(lengths)) != len(self.data) or max(_lengths(lengths)) > _MAX_LENGTH:
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
        return cls(origin, first + count - 1, count, 0 if lengths else size, lengths, b"".join(payloads))

    @classmethod
    def run(cls, origin: ProcessId, last: int, count: int, lengths: bytes, data: bytes) -> Segment:
        """One run, up to number `last`, of payloads that are back to back already; of one size without `lengths`."""
        size = 0 if lengths else len(data) // max(1, count)
        if size > _MAX_LENGTH:
            raise ValueError("a payload is out of bounds")
        return cls(origin, last, count, size, lengths, data)

    @classmethod
    def pack(cls, messages: Sequence[Opened]) -> Segment:
        """Messages of whatever origins, in this order, for those who have them one by one."""
        if not messages:
            return EMPTY
        whose, numbers, payloads = zip(*messages, strict=True)
        sizes = set(map(len, payloads))
        lengths = array("I", map(len, payloads)).tobytes() if len(sizes) > 1 else b""
        return cls(
            *_merged(zip(whose, numbers, repeat(1), strict=False)),
            0 if lengths else sizes.pop(),
            lengths,
            b"".join(payloads),
        )

    # Counting

    @cached_property
    def messages(self) -> int:
        return sum(self._columns()[2])

    @cached_property
    def marks(self) -> Marks:
        """Of each origin, the last of its messages in here. Whoever gets it must not change it."""
        origins, lasts = self.origins, self.lasts
        if isinstance(origins, int) and isinstance(lasts, int):
            return {origins: lasts}
        whose, numbers, _ = self._columns()
        return dict(zip(whose, numbers, strict=True))

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return len(self.data)

    @property
    def column_bytes(self) -> int:
        """What it takes on the wire besides payloads."""
        return len(_encoder.encode((self.origins, self.lasts, self.counts, self.size, self.lengths)))

    @property
    def largest(self) -> int:
        """Bytes of the largest payload."""
        return max(_lengths(self.lengths), default=self.size)

    def __len__(self) -> int:
        return self.messages

    def runs(self) -> Iterator[Run]:
        for origin, last, count in zip(*self._columns(), strict=True):
            yield origin, last - count + 1, count

    def _columns(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Origin, last number and count of each run."""
        origins, lasts, counts = self.origins, self.lasts, self.counts
        if isinstance(origins, int) or isinstance(lasts, int) or isinstance(counts, int):
            return (cast(int, origins),), (cast(int, lasts),), (cast(int, counts),)
        runs = len(counts) // 2
        return (_numbers(origins, runs), _numbers(lasts, runs), _counts(counts)) if runs else ((), (), ())

    def sizes(self) -> Iterable[int]:
        """Bytes of each payload."""
        return _lengths(self.lengths) if self.lengths else repeat(self.size, self.messages)

    # Opening it

    def ids(self) -> Iterator[tuple[ProcessId, int]]:
        """Origin and number of each message."""
        for origin, first, count in self.runs():
            yield from zip(repeat(origin, count), range(first, first + count), strict=True)

    def payloads(self) -> Sequence[bytes]:
        """The payload of each message. Of one size that is one call: 14 µs for 1,000 of 100 B."""
        if not self.lengths:
            return _unpacker(self.size, self.messages)(self.data)
        data, ends = b"".join((self.data,)), list(accumulate(_lengths(self.lengths)))
        return [data[start:end] for start, end in zip(chain((0,), ends), ends, strict=False)]

    def __iter__(self) -> Iterator[Opened]:
        origin, last = self.origins, self.lasts
        if isinstance(origin, int) and isinstance(last, int):
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
        for length in _lengths(self.lengths):
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
        for origin, last, count in zip(*self._columns(), strict=True):
            if last - count < marks.get(origin, -1):
                return self._pick(_rest(run, marks.get(run[0], -1)) for run in self.runs())
        return self

    def following(self, marks: Marks) -> Segment:
        """What follows on these marks without a gap, whatever number an origin without a mark begins with."""
        seen: dict[ProcessId, int] = {}
        for origin, last, count in zip(*self._columns(), strict=True):
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
            column = _lengths(self.lengths)
            before = sum(column[:start])
            data = memoryview(self.data)[before : before + sum(column[start:end])]
            lengths = self.lengths[4 * start : 4 * end]
        size, view = self.size, cast(bytes, data)
        return Segment(*self._runs_between(start, end), size, lengths, view)

    def _runs_between(self, start: int, end: int) -> _Table:
        """The runs of the messages from one place to another."""
        origins, lasts, counts = self.origins, self.lasts, self.counts
        if isinstance(origins, int) or isinstance(lasts, int) or isinstance(counts, int):
            return origins, cast(int, lasts) - self.messages + end, end - start
        runs = len(counts) // 2
        if runs == self.messages and end - start > 1:
            return _rows(origins, runs, start, end), _rows(lasts, runs, start, end), counts[2 * start : 2 * end]
        whose, last_of, count_of = _numbers(origins, runs), _numbers(lasts, runs), _counts(counts)
        ends = range(1, runs + 1) if runs == self.messages else list(accumulate(count_of))
        first, final = bisect_right(ends, start), bisect_left(ends, end)
        beyond = ends[final] - end
        if first == final:
            return whose[first], last_of[first] - beyond, end - start
        rows = slice(first, final + 1)
        numbers, sizes = array(last_of.format, last_of[rows].tobytes()), array("H", count_of[rows].tobytes())
        numbers[-1] -= beyond
        sizes[-1] -= beyond
        sizes[0] -= start - (ends[first] - count_of[first])
        return _rows(origins, runs, first, final + 1), _narrowed(numbers.tobytes(), len(sizes)), sizes.tobytes()

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
    segments = [segment for segment in segments if segment.messages]
    if len(segments) <= 1:
        return segments[0] if segments else EMPTY
    counts = [each.counts if isinstance(each.counts, bytes) else each.counts.to_bytes(2, "little") for each in segments]
    if sum(map(len, counts)) <= 2 * FEW_RUNS:
        table = _merged(chain.from_iterable([zip(*segment._columns(), strict=True) for segment in segments]))
    else:
        origins = _concatenated([segment.origins for segment in segments], counts)
        table = origins, _concatenated([segment.lasts for segment in segments], counts), b"".join(counts)
    size, lengths = segments[0].size, b""
    if any(segment.lengths or segment.size != size for segment in segments):
        size, lengths = 0, b"".join([array("I", segment.sizes()).tobytes() for segment in segments])
    return Segment(*table, size, lengths, b"".join([segment.data for segment in segments]))


FEW_RUNS = 64
"""Up to so many runs are looked at one by one, to make one of those that follow on each other: what one process sends
comes as a run for each call of `send`. Behind a gateway there are many, which seldom do."""


def _merged(runs: Iterable[tuple[ProcessId, int, int]]) -> _Table:
    """Runs as (origin, last number, count), those that follow on each other as one."""
    origins: list[int] = []
    lasts: list[int] = []
    counts: list[int] = []
    for origin, last, count in runs:
        if origins and origins[-1] == origin and lasts[-1] + count == last:
            lasts[-1] = last
            counts[-1] += count
        else:
            origins.append(origin)
            lasts.append(last)
            counts.append(count)
    return _table(origins, lasts, counts)


def _table(origins: Sequence[int], lasts: Sequence[int], counts: Sequence[int]) -> _Table:
    """Runs as a segment has them."""
    if len(counts) == 1:
        return origins[0], lasts[0], counts[0]
    return _packed(origins), _packed(lasts), _packed(counts, 2)


def _packed(numbers: Sequence[int], at_least: int = 1) -> bytes:
    """Numbers as a column, of the narrowest width from `at_least` on."""
    return array(_FORMATS[max(at_least, _width(max(numbers)))], numbers).tobytes()


def _width(number: int) -> int:
    return 1 if number < 1 << 8 else 2 if number < 1 << 16 else 4 if number < 1 << 32 else 8


def _concatenated(columns: Sequence[Column], counts: Sequence[bytes]) -> bytes:
    """The columns of several segments as one, as wide as the widest of them. `counts` are of the same segments."""
    numbers = [column for column in columns if isinstance(column, int)]
    if len(numbers) == len(columns):
        return _packed(numbers)
    widths = [
        0 if isinstance(column, int) else 2 * len(column) // len(count)
        for column, count in zip(columns, counts, strict=True)
    ]
    widest = max(*widths, _width(max(numbers, default=0)))
    return b"".join(
        [
            column.to_bytes(widest, "little") if isinstance(column, int) else _resized(column, width, widest)
            for column, width in zip(columns, widths, strict=True)
        ]
    )


def _rows(column: bytes, runs: int, start: int, end: int) -> bytes:
    """A part of a column of so many runs."""
    width = len(column) // runs
    return _narrowed(column[width * start : width * end], end - start)


def _narrowed(column: bytes, runs: int) -> bytes:
    """A column of so many runs, as narrow as the numbers in it allow."""
    width = narrowest = len(column) // runs
    while narrowest > 1 and all(column[place::width].count(0) == runs for place in range(narrowest // 2, narrowest)):
        narrowest //= 2
    return _resized(column, width, narrowest)


def _resized(column: bytes, width: int, wanted: int) -> bytes:
    """The same numbers in another width, byte by byte: 256 take 1 to 2 µs, where an integer of each would take 10."""
    if width == wanted:
        return column
    resized = bytearray(len(column) // width * wanted)
    for place in range(min(width, wanted)):
        resized[place::wanted] = column[place::width]
    return bytes(resized)


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
