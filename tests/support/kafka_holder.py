"""A process that holds a log of Kafka and appends to it without end, until somebody else holds it.

`python -m kafka_holder URL TOPIC STATE`: entries 1, 2, 3, … of `far/clients`, ten at a time; the record is the last
number. It says that it has begun, and at the end that it was superseded.
"""

from __future__ import annotations

import asyncio
import sys

from isthmus.adapters.kafka import KafkaLog
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, LogSettings, Superseded, Unavailable


async def hold(url: str, topic: str, state: str) -> None:
    log = KafkaLog(LogSettings(system="far", provider="kafka", url=url, streams=(topic,), state=state))
    await log.open()
    found = None
    while found is None:
        found = await log.claim("child", 0.1)
    done = int(found.record or 0)
    try:
        while True:
            entries = [Entry(Content(b"."), "far/clients", done + number, "far") for number in range(1, 11)]
            try:
                await log.append(entries, b"%d" % (done + 10), b"%d" % done if done else b"")
                done += 10
            except Unavailable:
                done = int((await log.state()).record or 0)
            print(done, flush=True)
    except Superseded:
        print("superseded", flush=True)
    await log.close()


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:4]))
