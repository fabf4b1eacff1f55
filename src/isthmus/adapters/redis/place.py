"""A place in a stream, and what proves that the stream is still the one that the place is in.

An id alone proves nothing: a server that lost its tail gives newer ids to other entries, and an entry that was trimmed
looks like one that never was. So a place has, beside the id of the last entry that was read, a digest of that entry,
and how many entries had been added to the stream up to there (`entries-added` counts them, through trimming, restarts
and renaming). As long as nobody removes unread entries, what was added since is what stands behind the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha1
from typing import Any, NamedTuple, TypeAlias

import msgspec

from isthmus.runtime.log.interface import LogProblem, Position, Recreated, Trimmed

NOWHERE = "0-0"
UNKNOWN = -1

_Id: TypeAlias = tuple[int, int]


class Place(NamedTuple):
    """Behind the entry `id`, the nth that was ever added (-1: not known yet).

    `digest` is that entry's, empty where it was gone already. `removed` is the newest entry that had been deleted when
    the place was made, if that is behind the place: readers from here never knew it.
    """

    id: str = NOWHERE
    nth: int = 0
    digest: str = ""
    removed: str = NOWHERE


class Facts(NamedTuple):
    """What the server says of a stream. One that is not there is empty."""

    length: int = 0
    last: str = NOWHERE
    removed: str = NOWHERE
    added: int = 0
    first: str = NOWHERE
    digest: str = ""


def facts_of(reply: list[Any]) -> Facts:
    """From the reply of the script `LOOK`."""
    if not reply:
        return Facts()
    length, last, removed, added, first, digest = reply
    return Facts(length, last.decode(), removed.decode(), added, first.decode(), digest.decode())


def number(id: str) -> _Id:
    """An id as numbers, which compare as ids do."""
    milliseconds, _, sequence = id.partition("-")
    return int(milliseconds), int(sequence or 0)


def digest_of(fields: list[bytes]) -> str:
    """What `LOOK` makes of an entry, too."""
    return sha1(b"\0".join(fields), usedforsecurity=False).hexdigest()


def start_of(stream: Facts) -> Place:
    """Before the first entry that is there."""
    return Place(NOWHERE, stream.added - stream.length, "", stream.removed)


def end_of(stream: Facts, digest: str) -> Place:
    """Behind the last entry; `digest` is its own."""
    return Place(stream.last, stream.added, digest, stream.removed)


def verify(name: str, place: Place, stream: Facts) -> None:
    """Raise `Trimmed` or `Recreated` if what stands behind this place is not what followed it."""
    id = number(place.id)
    known = place.nth != UNKNOWN
    if number(stream.last) < id or (known and stream.added < place.nth):
        what = "was deleted" if stream.last == NOWHERE else f"ends at {stream.last}"
        raise Recreated(
            f"stream {name}: entry {place.id} was read, but the stream {what}. It was deleted, or the server lost its "
            "latest entries"
        )
    held = bool(stream.length) and number(stream.first) <= id
    if place.digest and stream.digest != place.digest:
        if stream.digest:
            raise Recreated(f"stream {name}: entry {place.id} is not what it was. The stream was made anew")
        if held and number(stream.removed) < id:
            raise Recreated(
                f"stream {name}: entry {place.id} was read and is not there, though nobody deleted it. The server "
                "lost its latest entries, and has given out newer ids since"
            )
    if not held and known:
        gone = stream.added - place.nth - stream.length
        if gone < 0:
            raise Recreated(f"stream {name}: entry {place.id} was in another stream of this name")
        if gone > 0:
            raise _trimmed(name, place, gone)
    elif not held and stream.added != stream.length and place.id != NOWHERE:
        raise _trimmed(name, place, 0)
    if stream.removed not in (NOWHERE, place.removed) and number(stream.removed) > id:
        raise Trimmed(f"stream {name}: entry {stream.removed} was deleted (XDEL) before it was read")


def verify_end(name: str, place: Place, stream: Facts) -> Place:
    """This place is behind the last entry. Raise `Trimmed` if fewer were read than have been added."""
    if place.nth not in (UNKNOWN, stream.added):
        raise _trimmed(name, place, stream.added - place.nth)
    return place._replace(nth=stream.added)


def _trimmed(name: str, place: Place, gone: int) -> Trimmed:
    what = f"{gone:,} entries were" if gone > 1 else "entries may have been" if gone < 1 else "an entry was"
    return Trimmed(f"stream {name}: {what} trimmed or deleted behind {place.id} before anybody read them")


_decoder = msgspec.json.Decoder(dict[str, Place])


def position_of(places: Mapping[str, Place]) -> Position:
    return msgspec.json.encode(places).decode()


def places_of(position: Position) -> dict[str, Place]:
    """The place in each stream. What we did not write raises `LogProblem`."""
    try:
        places = _decoder.decode(position)
        for place in places.values():
            number(place.id), number(place.removed)
    except ValueError:
        raise LogProblem(f"{position[:200]!r} is no position in streams of Redis") from None
    return places
