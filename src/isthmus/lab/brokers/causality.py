"""Questions and answers by clients that know of nothing: does any answer overtake its question on the way?

A client appends questions to one broker; another reads them there and appends an answer to each. At the far broker
every question has to stand before its answer. The links between have very unequal delays, so whatever goes by itself
overtakes. Beside it two plain copy scripts, each for every other entry, show how often that happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from isthmus.core.ids import MILLISECOND
from isthmus.lab.brokers.joined import WAIT, Broker, JoinedBrokers
from isthmus.lab.brokers.plain import Away, Client, RedisClient
from isthmus.lab.harness.os_process import Ports
from isthmus.lab.harness.sites import Lines, LinkQuality

NEAR, FAR = "madrid", "oslo"
DELAYS = (1, 40, 5, 120)
"""Milliseconds, one way, of each link."""
_QUESTION, _ANSWER = b"question-", b"answer-"
_BATCH = 47
"""Odd, so that questions and their answers are not always for the same script."""
_COPIED = "copied"


class Causality(Struct, frozen=True):
    """How many answers stood before their questions: as joined, and as copied; None where nobody copied."""

    kinds: tuple[str, str]
    pairs: int
    differences: list[str]
    overtaken: int
    overtaken_copied: int | None


async def questions_and_answers(directory: Path, kinds: tuple[str, str], pairs: int) -> Causality:
    systems = dict(zip((NEAR, FAR), kinds, strict=True))
    line = LinkQuality(MILLISECOND)
    async with JoinedBrokers(directory, systems, links=len(DELAYS), line=line, trace=False) as joined:
        assert joined.lines is not None
        for link, delay in enumerate(DELAYS):
            await joined.lines.order(f"delay {link} {delay}ms")
        await joined.run_gateways()
        copies = isinstance(joined[FAR].client, RedisClient) and isinstance(joined[NEAR].client, RedisClient)
        reader = joined[NEAR].new_client()
        await reader.watch()  # some brokers show only what was written since
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_ask(joined[NEAR], pairs))
            tasks.create_task(_answer(joined[NEAR], reader, pairs))
            copying = tasks.create_task(_copied(directory, joined, pairs)) if copies else None
        await joined.settled(within=2 * WAIT)
        await joined.stop()
        return Causality(
            kinds=kinds,
            pairs=pairs,
            differences=joined.differences(),
            overtaken=_overtaken([each.body for each in joined[FAR].seen]),
            overtaken_copied=_overtaken(copying.result()) if copying else None,
        )


async def _ask(broker: Broker, pairs: int) -> None:
    client = broker.new_client()
    for first in range(0, pairs, _BATCH):
        await client.write([_QUESTION + b"%d" % number for number in range(first, min(pairs, first + _BATCH))])
    await client.close()


async def _answer(broker: Broker, reader: Client, pairs: int) -> None:
    writer = broker.new_client()
    place, answered = None, 0
    while answered < pairs:
        found, place = await reader.read(place, 0.1)
        answers = [_ANSWER + each.body.removeprefix(_QUESTION) for each in found if each.body.startswith(_QUESTION)]
        if answers:
            await writer.write(answers)
            answered += len(answers)
        else:
            await asyncio.sleep(0.01)
    await reader.close()
    await writer.close()


async def _copied(directory: Path, joined: JoinedBrokers, pairs: int) -> list[bytes]:
    """What two scripts make of it that share the entries, over lines as two of the links have."""
    ports = Ports()
    dial = ports.take(2)
    far = joined[FAR].server
    lines = Lines(LinkQuality(MILLISECOND), [(dial, far.port), (dial + 1, far.port)], directory / "copied.wan.log")
    await lines.start()
    try:
        await lines.order(f"delay 1 {max(DELAYS)}ms")
        scripts = [RedisClient(far, "", _COPIED, dial + which) for which in (0, 1)]
        await asyncio.gather(*(_copy(joined[NEAR], script, which, pairs) for which, script in enumerate(scripts)))
    finally:
        await lines.kill()
        ports.release()
    reader = RedisClient(far, "", _COPIED)
    place, bodies = None, list[bytes]()
    while len(bodies) < 2 * pairs:
        found, place = await reader.read(place)
        bodies += [each.body for each in found]
    await reader.close()
    return bodies


async def _copy(source: Broker, there: RedisClient, which: int, pairs: int) -> None:
    reader = source.new_client()
    place, index = None, 0
    while index < 2 * pairs:
        with suppress(Away):
            found, place = await reader.read(place, 0.1)
            mine = [each.body for number, each in enumerate(found, index) if number % 2 == which]
            index += len(found)
            await there.write(mine)
    await reader.close()
    await there.close()


def _overtaken(bodies: Sequence[bytes]) -> int:
    """How many answers stand before their questions, or have none."""
    asked: set[bytes] = set()
    overtaken = 0
    for body in bodies:
        if body.startswith(_QUESTION):
            asked.add(body.removeprefix(_QUESTION))
        elif body.removeprefix(_ANSWER) not in asked:
            overtaken += 1
    return overtaken
