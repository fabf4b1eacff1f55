"""A place in a stream, and what proves that the stream is still the one that the place is in.

Sequence numbers alone prove nothing: a stream that was made anew counts from 1 again, and a server that lost its tail
gives out the same numbers twice. So a place has the time when the stream was made, and the time, in nanoseconds, of
the message that was read last. Numbers of a stream have no gaps until something is deleted: a gap in what we read is
an entry that nobody has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from isthmus.adapters.nats.jetstream import StreamInfo
from isthmus.runtime.log.interface import LogProblem, Position, Recreated, Trimmed


class Place(NamedTuple):
    """Behind message `seq`, which was stored at `time` (0: nobody knows), in the stream made at `created`.

    `known` was the last message when the place was first looked up: messages up to there may have been deleted before
    anybody wanted to read them from here, and their gaps say nothing.
    """

    created: str
    seq: int
    time: int = 0
    known: int = 0


class Gap(Trimmed):
    """Messages behind a place are gone. `place` is where the stream goes on."""

    def __init__(self, stream: str, read: Place, then: int, known: int) -> None:
        first, last = read.seq + 1, then - 1
        which = f"message {first} is" if first == last else f"messages {first} to {last} are"
        super().__init__(
            f"stream {stream}: {which} gone before anybody read them: limits, a purge or somebody else was faster"
        )
        self.stream = stream
        self.place = Place(read.created, last, 0, max(last, known))


def start_of(info: StreamInfo) -> Place:
    return Place(info.created, max(0, info.state.first_seq - 1), 0, info.state.last_seq)


def place_at(info: StreamInfo, seq: int, time: int) -> Place:
    return Place(info.created, seq, time, info.state.last_seq)


def verify(place: Place, info: StreamInfo, time: int) -> None:
    """Raise what is wrong if `place` is not in this stream any more. `time` is that of the message `place.seq` now,
    0 if there is none."""
    name, state = info.config.name, info.state
    if place.created != info.created:
        raise Recreated(
            f"stream {name} was deleted and made anew, {info.created}; message {place.seq} was of the former"
        )
    if place.seq > state.last_seq:
        raise Recreated(
            f"stream {name} has been set back: message {place.seq} was read, and it ends at {state.last_seq} now. The "
            "server has lost its latest messages"
        )
    if time and place.time and time != place.time:
        raise Recreated(
            f"stream {name} has been set back: message {place.seq} is not the one that was read. The server has lost "
            "its latest messages, and has given out their numbers again"
        )
    if place.seq + 1 < state.first_seq and not info.config.supersedes:
        raise Gap(name, place, state.first_seq, state.last_seq)


_decoder = msgspec.json.Decoder(dict[str, Place])


def position_of(places: Mapping[str, Place]) -> Position:
    return msgspec.json.encode(places).decode()


def places_of(position: Position) -> dict[str, Place]:
    """The place in each stream. What we did not write raises `LogProblem`."""
    try:
        return _decoder.decode(position)
    except ValueError:
        raise LogProblem(f"{position[:200]!r} is no position in streams of NATS") from None


def nanoseconds(text: str) -> int:
    """Of a time as the server writes it: RFC 3339 with up to nine digits behind the point."""
    seconds, _, rest = text.rstrip("Z").partition(".")
    whole = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
    return int(whole.timestamp()) * 1_000_000_000 + int(rest[:9].ljust(9, "0") or 0)
