"""Which partitions a log consists of, and what a position in them looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from isthmus.runtime.log.interface import LogProblem, Position

_PARTITION = re.compile(r"(?P<topic>.+)\[(?P<partition>\d{1,6})\]")
_PLACE = re.compile(r"(?P<topic_id>[^:,]{1,64}):(?P<offset>\d{1,18}):(?P<epoch>-?\d{1,9}):(?P<passed>\d{1,9})")


class Part(NamedTuple):
    """One partition of a topic. `named` says that the file names the partition, not the topic alone."""

    topic: str
    partition: int
    named: bool


class Place(NamedTuple):
    """A place in a partition: behind everything before `offset`, which an entry of the leader epoch `epoch` precedes.

    `passed` are offsets behind it without entries for us (ends of transactions) that were passed, too: they may go.
    """

    topic_id: str
    offset: int
    epoch: int = -1
    passed: int = 0


Places: TypeAlias = list[Place]
"""One for each part of the log."""


def parts_of(streams: Sequence[str]) -> list[Part]:
    """`orders` is a topic of one partition; `orders[2]` one partition of a topic."""
    parts = []
    for stream in streams:
        match = _PARTITION.fullmatch(stream)
        parts.append(Part(match["topic"], int(match["partition"]), True) if match else Part(stream, 0, False))
    return parts


def written(places: Places) -> Position:
    return ",".join(f"{place.topic_id}:{place.offset}:{place.epoch}:{place.passed}" for place in places)


def read(position: Position, count: int) -> Places:
    """The places that a position names. Raises `LogProblem` if it is none of a log of so many parts."""
    matches = [_PLACE.fullmatch(text) for text in position.split(",")]
    found = [
        Place(match["topic_id"], int(match["offset"]), int(match["epoch"]), int(match["passed"]))
        for match in matches
        if match
    ]
    if len(found) != len(matches) or len(found) != count:
        raise LogProblem(f"{position[:80]!r} is no position in a Kafka log of {count} partitions")
    return found
