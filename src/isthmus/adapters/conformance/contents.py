"""What happens to entries that are odd, large, or made to deceive."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.adapters.conformance.room import (
    FAR,
    Broken,
    Room,
    bodies,
    expect,
    expect_once_in_order,
    expect_same,
    foreign,
)
from isthmus.core.segment import MAX_PAYLOAD
from isthmus.runtime.log.content import HEADER_ORIGIN, HEADER_PATH, HEADER_SEQ, OUR_HEADERS, Content
from isthmus.runtime.log.interface import Entry, Refused
from isthmus.runtime.log.trial import NotPossible


async def _both_ways(room: Room, contents: Sequence[Content]) -> None:
    """What a plain client writes readers see as it does; what we bring in it sees as we do, unless it was refused."""
    settings = await room.fresh()
    written: list[Content] = []
    impossible: list[str] = []
    for content in contents:
        try:
            await room.trial.write(settings, [content])
            written.append(content)
        except NotPossible as reason:
            impossible.append(str(reason))
    seen = await room.trial.contents(settings)
    expect_same("what the plain client wrote, and sees", bodies(seen), [content.body for content in written])
    found, _ = await room.read(await room.open(settings), len(written))
    for index, (entry, other) in enumerate(zip(found, seen, strict=True)):
        _expect_equal(f"a reader sees entry {index + 1}", entry, other)
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    taken: list[Content] = []
    for content in contents:
        try:
            await log.append([Entry(content, FAR, len(taken) + 1, "far")], b"%d" % (len(taken) + 1), _record(taken))
            taken.append(content)
        except Refused as refused:
            expect(refused.index == 0 and refused.reason, f"the refusal says index {refused.index}, {refused.reason!r}")
            impossible.append(refused.reason)
    seen = await room.trial.contents(settings)
    expect_once_in_order(seen, len(taken))
    for index, (entry, content) in enumerate(zip(seen, taken, strict=True)):
        _expect_equal(f"the plain client sees entry {index + 1} of ours", entry, entry._replace(content=content))
    found, _ = await room.read(log, len(taken))
    for index, (entry, other) in enumerate(zip(found, seen, strict=True)):
        _expect_equal(f"we see entry {index + 1} of ours", entry, other)
    if impossible and not written and not taken:
        raise NotPossible(impossible[0])


def _record(taken: Sequence[object]) -> bytes:
    return b"%d" % len(taken) if taken else b""


def _expect_equal(what: str, one: Entry, other: Entry) -> None:
    for field, left, right in (
        ("body", one.content.body, other.content.body),
        ("headers", _headers(one), _headers(other)),
        ("origin", one.origin, other.origin),
        ("seq", one.seq, other.seq),
        ("path", one.path, other.path),
    ):
        if left != right:
            raise Broken(f"{what}: its {field} is {str(left)[:120]} instead of {str(right)[:120]}")


def _headers(entry: Entry) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in entry.content.headers]


async def odd_bodies(room: Room) -> None:
    """A body is any bytes: none, zeros, line ends, all 256 values, what is no UTF-8."""
    await _both_ways(
        room,
        [
            Content(body)
            for body in (
                b"x",
                b"",
                b"\0",
                b"\r\n",
                bytes(range(256)),
                b"\xff\xfe",
                "ßåø".encode(),
                b"{}",
                b"\\x00",
                b"NULL",
            )
        ],
    )


async def headers(room: Room) -> None:
    """Headers keep names, values and order."""
    await _both_ways(
        room,
        [
            Content(b"one", [(b"a", b"1")]),
            Content(b"order", [(b"z", b"1"), (b"a", b"2"), (b"m", b"3")], place=1),
            Content(b"empty", [(b"empty", b"")]),
            Content(b"", [(b"a", b"no body")]),
        ],
    )


async def repeated_headers(room: Room) -> None:
    """Headers may repeat, and keep their order."""
    await _both_ways(
        room, [Content(b"twice", [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]), Content(b"x", [(b"a", b"1")] * 5)]
    )


async def odd_headers(room: Room) -> None:
    """Headers that are empty, binary, spaced, or no ASCII are kept or refused, and never changed."""
    await _both_ways(
        room,
        [
            Content(b"binary", [(b"a", bytes(range(256)))]),
            Content(b"unicode", [("größe".encode(), "ñandú".encode())]),
            Content(b"spaces", [(b"a", b"  x  ")]),
            Content(b"case", [(b"CaSe", b"1"), (b"case", b"2")]),
            Content(b"line ends", [(b"a", b"1\r\nb: 2")]),
            Content(b"no name", [(b"", b"1")]),
            Content(b"named like a body", [(b"body", b"no"), (b"a", b"1")]),
        ],
    )


async def many_headers(room: Room) -> None:
    """Hundreds of headers, and large ones, are kept or refused."""
    await _both_ways(
        room,
        [
            Content(b"many", [(b"h%d" % number, b"%d" % number) for number in range(500)]),
            Content(b"too many", [(b"h%d" % number, b"%d" % number) for number in range(4090)]),
            Content(b"large", [(b"large", b"." * 100_000)]),
            Content(b"long name", [(b"n" * 60_000, b"1")]),
        ],
    )


async def subjects(room: Room) -> None:
    """Subjects and keys of other kinds of broker, whatever is in them, cost no entry."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    taken: list[Content] = []
    for subject in ("orders.eu", "größe/ñ", "a b", "*.>", "", "." * 300, "\0", "orders.日本"):
        content = Content(b"of " + subject.encode(), [], subject, b"key\xff")
        try:
            await log.append([Entry(content, FAR, len(taken) + 1, "far")], b"%d" % (len(taken) + 1), _record(taken))
            taken.append(content)
        except Refused as refused:
            expect(refused.reason, "a refusal without a reason")
    found, _ = await room.read(log, len(taken))
    expect_same("subjects", bodies(found), [content.body for content in taken])
    expect_once_in_order(found, len(taken))


async def copied_headers(room: Room) -> None:
    """A client that copies the headers of isthmus is heard as it speaks: origin, number and path, but no header."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    await log.append(foreign(1, 1), b"1", b"")
    names = [name.encode() for name in (HEADER_ORIGIN, HEADER_SEQ, HEADER_PATH)]
    seqs = (b"1", b"0", b"-5", b"abc", b"", b"9" * 40, b"\xff", b"1.5", b" 1", "٣".encode())
    copies = [
        Content(b"copy %d" % index, [(names[0], b"far/clients"), (names[1], seq), (names[2], b"far"), (b"own", b"1")])
        for index, seq in enumerate(seqs)
    ]
    copies += [Content(b"lone", [(names[1], b"3"), (b"own", b"1")]), Content(b"odd", [(names[0], b"\xff" * 300)])]
    written: list[Content] = []
    for content in copies:
        try:
            await room.trial.write(settings, [content])
            written.append(content)
        except NotPossible:
            continue
    if not written:
        raise NotPossible("plain clients cannot write such headers")
    found, _ = await room.read(log, len(written) + 1)
    expect_same("what was read", bodies(found)[1:], [content.body for content in written])
    for entry in found:
        left = [name for name, _ in entry.content.headers if name.decode(errors="replace").lower() in OUR_HEADERS]
        expect(not left, f"{left} are among the headers of {entry.content.body!r}")
        expect(entry.seq >= 0, f"{entry.content.body!r} has the number {entry.seq}")
    first = found[1]
    said = (first.origin, first.seq, first.path)
    expect(said == (FAR, 1, "far"), f"a copy says {said}: the driver could not tell it from what it brought in")
    await log.append(foreign(2, 2), b"2", b"1")


async def our_headers_in_contents(room: Room) -> None:
    """Headers of isthmus among the headers of what is brought in do not pass for those that we add."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    content = Content(b"sly", [(b"isthmus-origin", b"other/clients"), (b"isthmus-seq", b"77"), (b"a", b"1")])
    try:
        await log.append([Entry(content, FAR, 1, "far")], b"1", b"")
    except Refused as refused:
        raise NotPossible(f"it is refused: {refused.reason}") from None
    (entry,), _ = await room.read(log, 1)
    said = (entry.origin, entry.seq, entry.path)
    expect(said == (FAR, 1, "far"), f"it says {said}")


async def largest(room: Room) -> None:
    """An entry as large as may travel, and one larger, are kept whole or refused by their index; nothing half."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    record, count = b"", 0
    for size in (MAX_PAYLOAD // 2, MAX_PAYLOAD - 1024, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD):
        body = bytes([size % 251]) * size
        three = [Entry(Content(each), FAR, count + number, "far") for number, each in enumerate((b"a", body, b"c"), 1)]
        try:
            await room.insist(log.append, three, b"%d" % size, record)
            count += 3
            record = b"%d" % size
        except Refused as refused:
            expect(
                refused.index == 1, f"of three entries the one of {size:,} bytes is refused as number {refused.index}"
            )
            expect(refused.reason, "a refusal without a reason")
            expect(size > MAX_PAYLOAD // 2, f"an entry of {size:,} bytes is refused: {refused.reason}")
        state = await room.insist(log.state)
        expect(state.record == record, f"the record is {state.record!r} instead of {record!r} with {size:,} bytes")
        expect_once_in_order(await room.trial.contents(settings), count)
    await log.append(foreign(count + 1, count + 1), b"end", record)
    found, _ = await room.read(log, count + 1)
    expect_once_in_order(found, count + 1)


CHECKS = (
    odd_bodies,
    headers,
    repeated_headers,
    odd_headers,
    many_headers,
    subjects,
    copied_headers,
    our_headers_in_contents,
    largest,
)
