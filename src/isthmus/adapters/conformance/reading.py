"""What readers are promised: one order, nothing skipped, places that stay what they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime

from isthmus.adapters.conformance.room import (
    LIMIT,
    MANY,
    MUCH,
    SLOWNESS,
    Broken,
    Room,
    bodies,
    expect,
    expect_once_in_order,
    expect_same,
    foreign,
)
from isthmus.runtime.log.interface import BEGINNING, Entry, Log, LogProblem, Position, Recreated, Trimmed, Unavailable
from isthmus.runtime.log.trial import NotPossible


async def one_order(room: Room) -> None:
    """All readers see the same entries in the same order, by whatever slices they read."""
    settings = await room.fresh()
    written = [b"%d" % number for number in range(400)]
    await room.write(settings, *written)
    seen = bodies(await room.trial.contents(settings))
    expect_same("what the plain client wrote, and sees", seen, written)
    for _ in range(3):
        log = await room.open(settings)
        found: list[Entry] = []
        after = BEGINNING
        while len(found) < len(written):
            entries, size = room.random.randint(1, 60), room.random.choice((100, 1000, MUCH))
            some, after = await room.read(log, 1, after, entries, size)
            found += some
        expect_same("a reader", bodies(found), written)


async def places_last(room: Room) -> None:
    """A place means the same to every reader, for ever: whoever reads from it goes on where it was."""
    settings = await room.fresh()
    await room.write(settings, *(b"%d" % number for number in range(60)))
    log = await room.open(settings)
    places: list[tuple[Position, int]] = []
    after, count = BEGINNING, 0
    while count < 60:
        some, after = await room.read(log, 1, after, room.random.randint(1, 9))
        count += len(some)
        places.append((after, count))
    await room.write(settings, *(b"%d" % number for number in range(60, 80)))
    other = await room.open(settings)
    room.random.shuffle(places)
    for place, count in places:
        found, _ = await room.read(other, 80 - count, place)
        expect_same(f"behind entry {count}", bodies(found), [b"%d" % number for number in range(count, 80)])


async def nothing_skipped(room: Room) -> None:
    """A reader that follows while many write at once skips nothing and sees nothing twice."""
    settings = await room.fresh()
    reader = await room.open(settings)
    writer, _ = await room.hold(settings)
    clients, each, batches = 6, 25, 40

    async def plain(client: int) -> None:
        for number in range(each):
            await room.write(settings, b"%d/%d" % (client, number))

    async def ours() -> None:
        for batch in range(batches):
            await writer.append(
                foreign(batch * 5 + 1, batch * 5 + 5), b"%d" % (batch + 1), b"%d" % batch if batch else b""
            )

    async def follow() -> list[Entry]:
        return (await room.read(reader, clients * each + batches * 5, entries=room.random.randint(3, 20)))[0]

    following = asyncio.create_task(follow())
    await asyncio.gather(ours(), *(plain(client) for client in range(clients)))
    found = await following
    there = await room.trial.contents(settings)
    expect_same("a reader that followed, beside what is there", bodies(found), bodies(there))
    expect_once_in_order(found, batches * 5)
    for client in range(clients):
        mine = [body for body in bodies(found) if body.startswith(b"%d/" % client)]
        expect_same(f"what client {client} wrote", mine, [b"%d/%d" % (client, number) for number in range(each)])


async def slices_bounded(room: Room) -> None:
    """A slice has about as many entries and bytes as asked for at most, and at least one entry, however large."""
    settings = await room.fresh()
    sizes = [10] * 100 + [60_000] * 30 + [10] * 20 + [300_000] * 4
    await room.write(settings, *(b"." * size for size in sizes))
    log = await room.open(settings)
    found: list[Entry] = []
    after = BEGINNING
    while len(found) < len(sizes):
        some, after = await room.read(log, 1, after, 16, 200_000)
        expect(len(some) <= 32, f"16 entries were asked for, and {len(some)} came")
        size = sum(len(entry.content.body) for entry in some)
        expect(
            size <= 400_000 or len(some) == 1, f"200,000 bytes were asked for, and {len(some)} entries of {size:,} came"
        )
        found += some
    expect([len(entry.content.body) for entry in found] == sizes, "the slices together are not what was written")


async def waits_for_entries(room: Room) -> None:
    """Where nothing is new a read waits for about a second, and no longer; what comes meanwhile it brings at once."""
    settings = await room.fresh()
    log = await room.open(settings)
    begun = time.monotonic()
    some, place = await room.insist(log.read, BEGINNING, MANY, MUCH)
    lasted = time.monotonic() - begun
    expect(not some, "an empty log has entries")
    expect(lasted < 5 * SLOWNESS, f"a read of an empty log took {lasted:.1f} s")
    await room.write(settings, b"one")
    found, place = await room.read(log, 1, place)
    begun = time.monotonic()
    reads = 0
    while time.monotonic() < begun + 0.5:
        await room.insist(log.read, place, MANY, MUCH)
        reads += 1
    expect(reads < 20, f"a reader with nothing to read read {reads} times in half a second: it does not wait")
    waiting = asyncio.create_task(room.read(log, 1, place))
    await asyncio.sleep(0.1)
    await room.write(settings, b"two")
    found += (await waiting)[0]
    expect_same("two entries that were waited for", bodies(found), [b"one", b"two"])


async def found_places(room: Room) -> None:
    """`find` knows the start, now, and a time; what it does not understand it refuses in words."""
    settings = await room.fresh()
    log = await room.open(settings)
    await room.write(settings, b"1", b"2")
    start, now = await log.find("start"), await log.find("now")
    await asyncio.sleep(1.1)
    noon = datetime.now(UTC).isoformat()
    await asyncio.sleep(1.1)
    await room.write(settings, b"3", b"4")
    expect_same("from the start", bodies((await room.read(log, 4, start))[0]), [b"1", b"2", b"3", b"4"])
    expect_same("from now", bodies((await room.read(log, 2, now))[0]), [b"3", b"4"])
    timed = await log.find(noon)
    found = bodies((await room.read(log, 2, timed))[0])
    expect(found[-2:] == [b"3", b"4"], f"from a time before 3: {found}")
    expect(found == [b"3", b"4"], f"from a time behind 2: {found}")
    early = await log.find("2001-01-01T00:00:00+00:00")
    expect_same("from 2001", bodies((await room.read(log, 4, early))[0]), [b"1", b"2", b"3", b"4"])
    try:
        await log.find("by the pricking of my thumbs")
    except LogProblem:
        return
    raise Broken("a place that nobody can understand was found")


async def places_survive_restarts(room: Room) -> None:
    """A place is good after a restart of the broker, and a reader goes on by itself."""
    settings = await room.fresh()
    writer, _ = await room.hold(settings)
    reader = await room.open(settings)
    await writer.append(foreign(1, 20), b"20", b"")
    await room.insist(writer.durable)
    found, place = await room.read(reader, 1, entries=7)
    await room.kill()
    await room.restart()
    rest, _ = await room.read(reader, 20 - len(found), place)
    expect_once_in_order([*found, *rest], 20)
    other = await room.open(settings)
    again, _ = await room.read(other, 20 - len(found), place)
    expect_same("another reader, from the same place", bodies(again), bodies(rest))


async def _must_raise(room: Room, log: Log, place: Position, problem: type[LogProblem], words: str) -> None:
    """Reading from this place ends in such a problem, before anything comes from behind the gap."""
    try:
        some, _ = await room.insist(log.read, place, MANY, MUCH)
        if not some:
            some, _ = await room.insist(log.read, place, MANY, MUCH)
    except problem:
        return
    except LogProblem as other:
        raise Broken(f"{words}: {type(other).__name__} instead of {problem.__name__} ({other})") from other
    raise Broken(f"{words}: no {problem.__name__}, but {len(some)} entries {bodies(some)[:3]}")


async def trimmed_unread(room: Room) -> None:
    """Whoever was not so far when entries were trimmed gets `Trimmed`, and not the entries behind the gap."""
    settings = await room.fresh()
    await room.write(settings, *(b"%d" % number for number in range(50)))
    log = await room.open(settings)
    _, early = await room.read(log, 1, entries=1)
    _, middle = await room.read(log, 20, entries=20)
    _, end = await room.read(log, 50)
    await room.trial.trim(settings, 10)
    await _must_raise(room, log, early, Trimmed, "50 entries trimmed to 10, 1 read")
    await _must_raise(room, await room.open(settings), middle, Trimmed, "50 entries trimmed to 10, 20 read")
    await room.write(settings, b"new")
    found, _ = await room.read(log, 1, end)
    expect_same("for whoever was at the end before", bodies(found), [b"new"])
    first, _ = await room.read(await room.open(settings), 1)
    expect(bodies(first)[0] != b"0", "what was trimmed is still there")


async def trimmed_after_reading(room: Room) -> None:
    """Whoever has read what is trimmed goes on as if nothing had been."""
    settings = await room.fresh()
    log = await room.open(settings)
    await room.write(settings, *(b"%d" % number for number in range(50)))
    found, place = await room.read(log, 50)
    await room.trial.trim(settings, 0)
    await room.write(settings, b"50", b"51")
    other = await room.open(settings)
    for reader in (log, other):
        some, behind = await room.read(reader, 2, place)
        expect_same("behind what was trimmed", bodies(some), [b"50", b"51"])
    await room.trial.trim(settings, 1)
    await room.write(settings, b"52")
    some, _ = await room.read(log, 1, behind)
    expect_same("behind what was trimmed the second time", bodies(some), [b"52"])
    expect(len(found) == 50, f"{len(found)} entries instead of 50")


async def recreated(room: Room) -> None:
    """A log that was deleted and made anew is not taken for the old one, whether it is shorter, as long, or longer."""
    for count in (0, 3, 5, 9):
        settings = await room.fresh()
        await room.write(settings, *(b"%d" % number for number in range(5)))
        log = await room.open(settings)
        _, middle = await room.read(log, 1, entries=3)
        _, end = await room.read(log, 5)
        await room.trial.recreate(settings)
        if count:
            await room.write(settings, *(b"new %d" % number for number in range(count)))
        for place, where in ((end, "at its end"), (middle, "in it")):
            words = f"a log of 5 with a place {where}, made anew with {count} entries"
            await _must_raise(room, log, place, Recreated, words)
            await _must_raise(room, await room.open(settings), place, Recreated, words)


async def lost_tail(room: Room) -> None:
    """A broker that lost entries in a crash that were read already is not read on as if nothing had been."""
    settings = await room.fresh()
    log = await room.open(settings)
    await room.write(settings, *(b"%d" % number for number in range(20)))
    found, place = await room.read(log, 20)
    await room.kill()
    await room.restart()
    kept = bodies(await room.trial.contents(settings))
    if kept == bodies(found):
        await room.write(settings, b"new")
        some, _ = await room.read(log, 1, place)
        expect_same("behind the place", bodies(some), [b"new"])
        raise NotPossible("this broker, as it is set up here, lost nothing by kill -9")
    await _must_raise(room, log, place, Recreated, f"20 entries were read, {len(kept)} are left")
    await room.write(settings, *(b"new %d" % number for number in range(40)))
    await _must_raise(room, log, place, Recreated, f"20 entries were read, {len(kept)} were left, and 40 came")


async def broker_away(room: Room) -> None:
    """While the broker answers nothing, calls end in `Unavailable` in bounded time; afterwards they go on."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    await room.write(settings, b"1")
    _, place = await room.read(log, 1)
    await room.pause()

    async def must_end(what: str, call: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(LIMIT / 4):
                await call
        except Unavailable:
            return
        except TimeoutError:
            raise Broken(f"{what} has no end while the broker is silent") from None
        expect(what == "read", f"{what} was answered by a broker that is stopped")

    await asyncio.gather(must_end("read", log.read(place, MANY, MUCH)), must_end("state", log.state()))
    await room.go_on()
    await room.write(settings, b"2")
    found, _ = await room.read(log, 1, place)
    expect_same("when the broker is back", bodies(found), [b"2"])


async def slow_reader(room: Room) -> None:
    """A reader that is far behind reads everything by small slices while others go on writing."""
    settings = await room.fresh()
    writer, _ = await room.hold(settings)
    await room.append(writer, foreign(1, 2000, 200), b"2000", b"")
    log = await room.open(settings)
    found: list[Entry] = []
    after = BEGINNING
    written = 2000
    while len(found) < written:
        some, after = await room.read(log, 1, after, 150, 20_000)
        expect(len(some) <= 300, f"150 entries were asked for, and {len(some)} came")
        found += some
        if written < 2500:
            await writer.append(foreign(written + 1, written + 50), b"%d" % (written + 50), b"%d" % written)
            written += 50
    expect_once_in_order(found, written)


CHECKS = (
    one_order,
    places_last,
    nothing_skipped,
    slices_bounded,
    waits_for_entries,
    found_places,
    places_survive_restarts,
    trimmed_unread,
    trimmed_after_reading,
    recreated,
    lost_tail,
    broker_away,
    slow_reader,
)
