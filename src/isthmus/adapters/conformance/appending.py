"""What an append promises: entries and record in one step, or neither, whatever dies in the middle."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from isthmus.adapters.conformance.room import (
    FAR,
    LIMIT,
    SLOWNESS,
    Broken,
    Room,
    bodies,
    expect,
    expect_once_in_order,
    expect_same,
    foreign,
)
from isthmus.runtime.log.interface import Log, LogSettings, Superseded, Unavailable


async def in_order(room: Room) -> None:
    """What is appended stands in the log in its order, with origin, number, path, and the record that follows."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    done = 0
    for count in (1, 2, 100, 1, 1000, 37):
        await room.append(log, foreign(done + 1, done + count), b"%d" % (done + count), b"%d" % done if done else b"")
        done += count
        expect((await log.state()).record == b"%d" % done, "the record is not what was appended with the entries")
    seen = await room.trial.contents(settings)
    expect_once_in_order(seen, done)
    found, _ = await room.read(await room.open(settings), done)
    expect_once_in_order(found, done)
    expect(all(entry.path == "far" for entry in found), "the path was lost")
    expect_same("what a reader sees", bodies(found), [b"%d" % seq for seq in range(1, done + 1)])


async def expected_record(room: Room) -> None:
    """An append that expects another record is refused, and leaves nothing."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    await log.append(foreign(1, 2), b"2", b"")
    for expected in (b"", b"1", b"3", b"22"):
        try:
            await log.append(foreign(3, 4), b"4", expected)
        except Superseded:
            continue
        raise Broken(f"the record was b'2', and an append that expected {expected!r} was taken")
    expect((await log.state()).record == b"2", "a refused append changed the record")
    expect_once_in_order(await room.trial.contents(settings), 2)
    await log.append(foreign(3, 4), b"4", b"2")
    expect_once_in_order(await room.trial.contents(settings), 4)


async def any_record(room: Room) -> None:
    """A record is any bytes, as long as many origins make it, and an append may have a record and no entry."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    before = b""
    for record in (b"\0\xff\r\n", bytes(range(256)) * 200, b" ", b"0"):
        await log.append(foreign(1, 1), record, before)
        expect((await log.state()).record == record, f"a record of {len(record):,} bytes came back as something else")
        before = record
    await log.append([], b"no entry", before)
    expect((await log.state()).record == b"no entry", "an append without entries did not set the record")


async def many_at_once(room: Room) -> None:
    """As much as the driver ever appends at once: 4,096 small entries, and 1 MiB of larger ones."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    await room.append(log, foreign(1, 4096), b"1", b"")
    await log.append(foreign(4097, 4112, 65_000), b"2", b"1")
    expect_once_in_order(await room.trial.contents(settings), 4112)


async def local_clients(room: Room) -> None:
    """Clients of the broker write in between; each one's entries stay in order, and so do ours."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)

    async def plain(client: int) -> None:
        for number in range(0, 40, 2):
            await room.write(settings, b"%d/%d" % (client, number), b"%d/%d" % (client, number + 1))

    async def ours() -> None:
        for batch in range(60):
            await log.append(
                foreign(batch * 3 + 1, batch * 3 + 3), b"%d" % (batch + 1), b"%d" % batch if batch else b""
            )

    await asyncio.gather(ours(), *(plain(client) for client in range(4)))
    seen = await room.trial.contents(settings)
    expect_once_in_order(seen, 180)
    for client in range(4):
        mine = [body for body in bodies(seen) if body.startswith(b"%d/" % client)]
        expect_same(f"client {client}", mine, [b"%d/%d" % (client, number) for number in range(40)])


async def holder_dies(room: Room) -> None:
    """A holder that dies in the middle of an append leaves entries and record, or neither."""
    settings = await room.fresh()
    rounds = 40
    # No lease to speak of: the claim is the last one's who asked, which is all that safety rests on.
    log, _ = await room.hold(settings, 0.01)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await log.append(foreign(1, 20), b"20", b"")
    lasts = loop.time() - begun
    done = 20
    for number in room.random.sample(range(rounds), rounds):
        if loop.time() > begun + LIMIT / 4:
            break  # A broker where a take-over takes long has had some of them.
        append = asyncio.create_task(log.append(foreign(done + 1, done + 20), b"%d" % (done + 20), b"%d" % done))
        # From before it begins to when it is over.
        await asyncio.sleep(1.5 * lasts * number / rounds)
        append.cancel()
        with suppress(asyncio.CancelledError, Unavailable):
            await append
        await room.insist(log.close)
        log, found = await room.hold(settings, 0.01)
        state = int(found.record)
        expect(state in (done, done + 20), f"the record is {state} behind an append from {done} to {done + 20}")
        done = state
        there = sum(entry.origin == FAR for entry in await room.trial.contents(settings))
        expect(there == done, f"the record says {done:,} entries, and {there:,} are in the log")
    expect_once_in_order(await room.trial.contents(settings), done)


async def broker_dies(room: Room) -> None:
    """When the broker is killed in the middle of appends, what became of the last one is found out, and all goes on."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    done = 0

    async def bring_in(last: int) -> None:
        """Up to `last`, looking up what became of appends whose outcome is not known."""
        nonlocal done
        while done < last:
            try:
                await log.append(foreign(done + 1, done + 10), b"%d" % (done + 10), b"%d" % done if done else b"")
                done += 10
            except Unavailable:
                record = int((await room.insist(log.state)).record or 0)
                # Less than was done is a loss of what nobody waited to be durable, of entries and record alike.
                expect(record <= done + 10, f"the record is {record} behind an append of 10 behind {done}")
                done = record
            except Superseded:
                # The broker lost the claim, too.
                done = int((await room.claim(log)).record or 0)

    for number in range(3):
        work = asyncio.create_task(bring_in((number + 1) * 1500))
        await asyncio.sleep(room.random.uniform(0.0, 0.3))
        await room.kill()
        await room.restart()
        await work
    expect_once_in_order(await room.trial.contents(settings), done)
    found, _ = await room.read(await room.open(settings), done)
    expect_once_in_order(found, done)


async def broker_stalls(room: Room) -> None:
    """An append into a broker that stalls ends in `Unavailable`; later the record tells, and nothing comes twice."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    await log.append(foreign(1, 5), b"5", b"")
    await room.pause()
    done = 5
    try:
        await log.append(foreign(6, 10), b"10", b"5")
        done = 10
    except Unavailable:
        pass
    await room.go_on()
    if done == 5:
        # What the broker had already taken it may still do; a claim of ours comes behind that, or shuts it out.
        await room.insist(log.release)
        state = await room.claim(log)
        expect(state.record in (b"5", b"10"), f"the record is {state.record!r}")
        done = int(state.record)
    await log.append(foreign(done + 1, 15), b"15", b"%d" % done)
    expect_once_in_order(await room.trial.contents(settings), 15)


async def durable(room: Room) -> None:
    """What was durable is there after kill -9: entries, record, checkpoint and claim."""
    settings = await room.fresh()
    log, before = await room.hold(settings)
    for number in range(3):
        await room.insist(
            log.append,
            foreign(number * 50 + 1, number * 50 + 50),
            b"%d" % number,
            b"%d" % (number - 1) if number else b"",
        )
        await room.insist(log.note, b"checkpoint %d" % number)
        await room.insist(log.durable)
        await room.kill()
        await room.restart()
        expect_once_in_order(await room.trial.contents(settings), number * 50 + 50)
        state = await room.insist(log.state)
        expect(state.record == b"%d" % number, f"the record is {state.record!r} instead of {number}")
        expect(state.checkpoint == b"checkpoint %d" % number, f"the checkpoint is {state.checkpoint!r}")
        expect(state.token == before.token, f"token {before.token} became {state.token}")


async def rivals(room: Room) -> None:
    """Two hosts fight for the claim, stall and die, while the broker is killed: everything once and in order."""
    settings = await room.fresh()
    last, lease = 2000, 0.3 * SLOWNESS
    terms: list[int] = []

    async def bring_in(log: Log, done: int) -> bool:
        """Whether this host brought in the rest, and lost the claim to nobody on the way."""
        while done < last:
            count = min(room.random.randint(1, 40), last - done)
            fate = room.random.random()
            if fate < 0.04:
                await asyncio.sleep(1.5 * lease)  # A stall, in which the other takes over.
            entries, record = foreign(done + 1, done + count), b"%d" % (done + count)
            try:
                # Or a death, before, in, or behind an append.
                async with asyncio.timeout(room.random.uniform(0, 0.005) if fate > 0.94 else None):
                    await log.append(entries, record, b"%d" % done if done else b"")
            except (Superseded, TimeoutError, Unavailable):
                return False
            done += count
        await room.insist(log.release)
        return True

    async def host(name: int) -> None:
        while True:
            log = await room.open(settings)
            state = await room.claim(log, lease)
            terms.append(state.token)
            if await bring_in(log, int(state.record or 0)):
                return
            await room.insist(log.close)

    async def plain() -> None:
        for number in range(100):
            with suppress(Exception):  # A plain client may lose what it writes while the broker is away.
                await asyncio.wait_for(room.write(settings, b"local %d" % number), 1)
            await asyncio.sleep(0.01)

    async def trouble() -> None:
        for _ in range(2):
            await asyncio.sleep(room.random.uniform(0.2, 0.8))
            await room.kill()
            await room.restart()

    await asyncio.gather(host(1), host(2), plain(), trouble())
    expect_once_in_order(await room.trial.contents(settings), last)
    expect(len(terms) == len(set(terms)), f"a token was given out twice: {sorted(terms)}")


async def beside_each_other(room: Room) -> None:
    """Reading, waiting for durability and appending go on beside each other, and none holds up another for long."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    appended = asyncio.Event()

    async def append() -> None:
        for number in range(40):
            await log.append(foreign(number * 5 + 1, number * 5 + 5), b"%d" % (number + 1), _record(number))
            await log.note(b"%d" % number)
        appended.set()

    async def settle() -> None:
        while not appended.is_set():
            await room.insist(log.durable)
            await asyncio.sleep(0)

    (found, _), _, _ = await asyncio.gather(room.read(log, 200, entries=7), append(), settle())
    expect_once_in_order(found, 200)


def _record(number: int) -> bytes:
    return b"%d" % number if number else b""


async def leaves_others_alone(room: Room) -> None:
    """Two logs of one broker have nothing to do with each other."""
    one, other = await room.fresh(), await room.fresh()
    for settings in (one, other):
        await _bring_in(room, settings, 10)
    for settings in (one, other):
        expect_once_in_order(await room.trial.contents(settings), 10)


async def _bring_in(room: Room, settings: LogSettings, count: int) -> None:
    log, _ = await room.hold(settings)
    await log.append(foreign(1, count), b"%d" % count, b"")


CHECKS = (
    in_order,
    expected_record,
    any_record,
    many_at_once,
    local_clients,
    holder_dies,
    broker_dies,
    broker_stalls,
    durable,
    rivals,
    beside_each_other,
    leaves_others_alone,
)
