"""What the holder of the claim is promised, and everybody else about it."""

from __future__ import annotations

import asyncio
import time

from isthmus.adapters.conformance.room import SLOWNESS, Broken, Room, bodies, expect, expect_same, foreign
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log, Superseded
from isthmus.runtime.log.trial import NotPossible

_SHORT = min(SLOWNESS, 4)
"""Seconds of a lease that a check waits for."""


async def one_holder(room: Room) -> None:
    """One holds the claim while its lease lasts; once it is released the next gets it at once, with a higher token."""
    settings = await room.fresh()
    first, state = await room.hold(settings)
    expect(state.token > 0, f"the first token is {state.token}")
    expect(not state.record and not state.checkpoint, "a log that nobody ever claimed has a record")
    second = await room.open(settings)
    expect(await second.claim("second", 5.0) is None, "two hold the claim at the same time")
    begun = time.monotonic()
    await first.release()
    after = await second.claim("second", 60.0)
    expect(after is not None, "the claim was released, and the next does not get it")
    expect(time.monotonic() - begun < 10 * SLOWNESS, "a released claim was a long time coming")
    assert after is not None
    expect(after.token > state.token, f"token {state.token} was followed by {after.token}")


async def lease_ends(room: Room) -> None:
    """A holder that does not renew loses the claim when its lease is over, and not before."""
    settings = await room.fresh()
    await room.hold(settings, _SHORT)
    begun = time.monotonic()
    second = await room.open(settings)
    await room.claim(second)
    lasted = time.monotonic() - begun
    expect(lasted > _SHORT / 3, f"a lease of {_SHORT:.1f} s was over after {lasted:.1f} s")
    expect(lasted < _SHORT + 10 * SLOWNESS, f"a lease of {_SHORT:.1f} s was over after {lasted:.1f} s")


async def renewed(room: Room) -> None:
    """A holder that renews keeps the claim for longer than a lease."""
    settings = await room.fresh()
    first, _ = await room.hold(settings, _SHORT)
    second = await room.open(settings)
    end = time.monotonic() + 2 * _SHORT
    while time.monotonic() < end:
        await first.renew(_SHORT)
        expect(await second.claim("second", _SHORT) is None, "the claim was given away although it was renewed")
        await asyncio.sleep(_SHORT / 6)
    await first.append(foreign(1, 1), b"1", b"")


async def _refused(what: str, call: object) -> None:
    try:
        await call  # type: ignore[misc]
    except Superseded:
        return
    raise Broken(f"{what} by somebody who does not hold the claim was accepted")


async def _all_refused(log: Log, record: bytes) -> None:
    await _refused("an append", log.append(foreign(900, 901), b"stolen", record))
    await _refused("a checkpoint", log.note(b"stolen"))
    await _refused("a renewal", log.renew(60.0))


async def old_holder(room: Room) -> None:
    """Whoever lost the claim can write nothing any more: no entry, no record, no checkpoint, no renewal."""
    settings = await room.fresh()
    zombie, _ = await room.hold(settings, _SHORT)
    await zombie.append(foreign(1, 3), b"3", b"")
    holder = await room.open(settings)
    state = await room.claim(holder)
    expect(state.record == b"3", f"the successor finds the record {state.record!r} instead of b'3'")
    await _all_refused(zombie, b"3")
    await _refused("what was put aside", zombie.park(foreign(4, 4)[0], "no", b"4", b"3"))
    await zombie.release()
    third = await room.open(settings)
    expect(await third.claim("third", 5.0) is None, "a former holder released a claim that was not its own")
    await holder.append(foreign(4, 5), b"5", b"3")
    await _all_refused(zombie, b"5")
    seen = await room.trial.contents(settings)
    expect_same("what the log holds", bodies(seen), [b"1", b"2", b"3", b"4", b"5"])
    expect((await holder.state()).record == b"5", "the record is not the holder's")
    expect(not (await holder.state()).checkpoint, "a former holder wrote a checkpoint")


async def stalled_holder(room: Room) -> None:
    """A holder that stalls behind its lease and goes on later, with an append that nobody expects, writes nothing."""
    settings = await room.fresh()
    zombie, _ = await room.hold(settings, _SHORT)
    holder = await room.open(settings)
    await room.claim(holder)
    # The successor has done nothing yet: the record is still what the old one expects, and the token alone can tell.
    await _refused("an append with the right record", zombie.append(foreign(1, 2), b"2", b""))
    expect(not await room.trial.contents(settings), "what it wrote is in the log")
    await holder.append(foreign(1, 2), b"2", b"")


async def never_held(room: Room) -> None:
    """Without a claim nothing can be written."""
    settings = await room.fresh()
    log = await room.open(settings)
    await _all_refused(log, b"")
    await log.release()
    expect(not await room.trial.contents(settings), "something was written")


async def tokens_rise(room: Room) -> None:
    """Tokens rise with every claim, also by the same host, and over restarts of the broker."""
    settings = await room.fresh()
    tokens: list[int] = []
    for number in range(5):
        log, state = await room.hold(settings)
        tokens.append(state.token)
        if number == 2:
            await room.kill()
            await room.restart()
        await room.insist(log.release)
    expect(tokens == sorted(set(tokens)), f"tokens in the order in which they were given: {tokens}")


async def checkpoint(room: Room) -> None:
    """A checkpoint is kept as it is, for whoever comes next; it needs the claim, and leaves the record alone."""
    settings = await room.fresh()
    first, _ = await room.hold(settings)
    kept = bytes(range(256)) * 40
    await first.append(foreign(1, 1), b"1", b"")
    await first.note(b"older")
    await first.note(kept)
    other = await room.open(settings)
    for state in (await first.state(), await other.state()):
        expect(state.checkpoint == kept and state.record == b"1", f"the state is {state}"[:200])
    await first.release()
    state = await room.claim(other)
    expect(state.checkpoint == kept, "the next holder finds another checkpoint")


async def parked(room: Room) -> None:
    """What is put aside has its reason, is whole, takes its place in the record in one step, and can be taken out."""
    settings = await room.fresh()
    log, _ = await room.hold(settings)
    content = Content(bytes(range(256)), [(b"a", b"1"), (b"a", b"\xff\0")], "some.subject", b"key", 5, 1)
    entry = Entry(content, "far/clients", 7, "far,further")
    try:
        await log.park(entry, "the broker said no: ünfit", b"7", b"")
    except NotImplementedError as error:
        raise NotPossible(f"this adapter puts nothing aside ({error})") from None
    await log.park(entry._replace(seq=8), "again", b"8", b"7")
    await _refused("what was put aside with another record", log.park(entry, "late", b"9", b"7"))
    state = await log.state()
    expect(state.record == b"8", f"the record is {state.record!r} instead of b'8'")
    expect(not await room.trial.contents(settings), "what was put aside is in the log")
    other = await room.open(settings)
    there = await other.parked(10)
    expect([each.reason for each in there] == ["the broker said no: ünfit", "again"], f"it lists {there}"[:300])
    expect(there[0].entry == entry, f"it was not kept whole: {there[0].entry}"[:300])
    expect(len(await other.parked(1)) == 1, "more is listed than was asked for")
    await other.unpark(there[0].id)
    await other.unpark(there[0].id)
    expect([each.entry.seq for each in await log.parked(10)] == [8], "what was taken out is not what was meant")


CHECKS = (
    one_holder,
    lease_ends,
    renewed,
    old_holder,
    stalled_holder,
    never_held,
    tokens_rise,
    checkpoint,
    parked,
)
