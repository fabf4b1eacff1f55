"""What a broker refused and was put aside: looked at, appended after all, or given up (docs/design/brokers.md).

A retry needs the claim, so that it and the record are one step, and so that nobody else appends meanwhile. It is done
in an order that a crash may interrupt anywhere: entry and record, wait until they are durable, take it out of what was
put aside. What the record says was retried is only taken out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.runtime.log.appending import Appending
from isthmus.runtime.log.interface import Parked, Refused, State, Superseded
from isthmus.runtime.log.ledger import Checkpoint, decode, id_of, numbers_of
from isthmus.runtime.log.outside import Outside
from isthmus.runtime.problems import RuntimeProblem

Became: TypeAlias = Literal["appended", "was appended before", "refused again", "dropped"]

_LEASE = 10.0
_MOST = 1_000_000


class Outcome(Struct, frozen=True):
    """What became of one message that was put aside, with what the broker says where it is refused again."""

    id: str
    origin: str
    seq: int
    became: Became
    reason: str = ""


async def chosen(outside: Outside, ids: Collection[str] | None) -> list[Parked]:
    """What was put aside, oldest first: all of it, or what has these ids."""
    found = [each for each in await outside(outside.log.parked, _MOST) if ids is None or each.id in ids]
    missing = set(ids or ()) - {each.id for each in found}
    if missing:
        raise RuntimeProblem(
            f"{outside.name}: nothing that was put aside has the id {min(missing)}. `isthmus parked list` shows what "
            "there is."
        )
    return found


async def drop(outside: Outside, ids: Collection[str] | None) -> list[Outcome]:
    """Give these up: nobody will see them here."""
    outcomes = []
    for each in await chosen(outside, ids):
        await outside(outside.log.unpark, each.id)
        outcomes.append(Outcome(each.id, each.entry.origin, each.entry.seq, "dropped"))
    return outcomes


async def retry(outside: Outside, ids: Collection[str] | None) -> list[Outcome]:
    """Append these at the end of the log, in the order in which they were put aside."""
    log = outside.log
    parked = await chosen(outside, ids)
    if not parked:
        return []
    state: State | None = await outside(log.claim, f"{socket.gethostname()}:{os.getpid()} (parked retry)", _LEASE)
    if state is None:
        raise RuntimeProblem(
            f"{outside.name}: a gateway holds the claim, and a retry needs it for a moment. Stop `isthmus run` of "
            f"{outside.name} on all hosts, retry, and start it again."
        )
    try:
        appending = Appending(outside.place, log, state, "stop", outside)
        before = set(appending.retried)
        if state.checkpoint:
            checkpoint = decode(state.checkpoint, Checkpoint, outside.name)
            before |= numbers_of(checkpoint.retried, outside.place.names)
        outcomes = []
        for each in parked:
            await outside(log.renew, _LEASE)
            outcomes.append(await _retry(outside, appending, each, before))
        return outcomes
    except Superseded:
        raise RuntimeProblem(
            f"{outside.name}: somebody else took the claim meanwhile. Retry again: what is appended is not repeated."
        ) from None
    finally:
        await outside(log.release)


async def _retry(outside: Outside, appending: Appending, parked: Parked, before: set[tuple[int, int]]) -> Outcome:
    id, entry = parked.id, parked.entry
    origin = id_of(entry.origin, outside.place.names)
    if origin is None or entry.seq > appending.marks.get(origin):
        reason = f"{entry.origin or 'nobody'} is no origin of this topology whose messages came here"
        return Outcome(id, entry.origin, entry.seq, "refused again", reason)
    became: Became = "was appended before"
    if (origin, entry.seq) not in before:
        try:
            await appending.retry(origin, entry)
        except Refused as refused:
            return Outcome(id, entry.origin, entry.seq, "refused again", refused.reason)
        await outside(outside.log.durable)
        before.add((origin, entry.seq))
        became = "appended"
    await outside(outside.log.unpark, id)
    return Outcome(id, entry.origin, entry.seq, became)
