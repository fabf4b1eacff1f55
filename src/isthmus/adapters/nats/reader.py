"""Reads one stream ahead of whoever asks, by a consumer of our own that nobody has to acknowledge to.

The consumer is ephemeral: the server forgets it when we are gone. It is asked for so many messages or bytes at a time,
and asked again before they have all come, so that the server never waits for us and never sends more than we said.
Everything of the stream is read, isthmus's own messages too: only then a gap in the numbers means that something is
gone (`place.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from isthmus.adapters.nats.jetstream import NO_STREAM, ApiError, Consumer, Delivered, call, got, info_of
from isthmus.adapters.nats.messages import entry_of
from isthmus.adapters.nats.place import Gap, Place, nanoseconds, start_of, verify
from isthmus.adapters.nats.wire import PATIENCE, Connection
from isthmus.runtime.log.interface import Entry, Unavailable

_BATCH = 4096
_BYTES = 4 << 20
_FAR_TOO_MANY = 8
"""Times as many as one request is for; requests overlap, but never so far."""
_EXPIRES = 5
"""Seconds after which the server says that it had nothing more; who does not even say that is away."""
_FORGET = 60
"""Seconds after which the server forgets a consumer that nobody asks."""
_ROUTING = 64 << 10
"""What subject, reply subject and header may add to a payload, as the server counts."""

_NANO = 1_000_000_000


class Reader:
    """One stream of a log. `place` is behind what was handed out, and `read` runs behind it."""

    def __init__(self, stream: str, part: int, own: bytes, arrived: asyncio.Event) -> None:
        self.place: Place | None = None
        self._stream = stream
        self._part = part
        self._own = own
        self._arrived = arrived
        self._connection: Connection | None = None
        self._subscription = b""
        self._asking = b""
        self._buffer: deque[tuple[bytes, bytes, bytes, bytes]] = deque()
        self._held = 0
        self._due = 0
        self._asked = 0
        self._size = 0
        self._delivered = 0
        self._heard = 0.0
        self._lost = ""
        self._supersedes = False
        self._excused = 0

    async def begin(self, connection: Connection, place: Place | None) -> None:
        """Read on from here; without a place from the first message that there is. Raises what `verify` raises."""
        self.end()
        info = await info_of(connection, self._stream)
        if place is None:
            place = start_of(info)
        else:
            at = await got(connection, self._stream, seq=place.seq) if place.seq and place.time else None
            verify(place, info, nanoseconds(at.time) if at else 0)
        self._supersedes = info.config.supersedes
        settings = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": place.seq + 1,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _FORGET * _NANO,
        }
        name = (await create(connection, self._stream, settings)).name
        inbox = f"{connection.inbox}-{name}"
        self._subscription = connection.subscribe(f"{inbox}.*", self._on_message)
        self._connection = connection
        self._size = max(_BYTES, connection.info.max_payload + _ROUTING)
        words = msgspec.json.encode({"batch": _BATCH, "max_bytes": self._size, "expires": _EXPIRES * _NANO})
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}"
        self._asking = f"PUB {subject} {inbox}.1 {len(words)}\r\n".encode() + words + b"\r\n"
        self._delivered = self._due = self._excused = 0
        self._lost = ""
        self.place = place
        self._ask()

    def end(self) -> None:
        if self._connection is not None:
            self._connection.unsubscribe(self._subscription)
        self._connection = self.place = None
        self._buffer.clear()
        self._held = 0

    def stands(self, connection: Connection, place: Place | None) -> bool:
        """Whether we read on this connection, from this place, and the consumer is still there."""
        return self._connection is connection and not self._lost and self.place is not None and self.place == place

    @property
    def is_lost(self) -> bool:
        """Whether the server has taken the consumer from us, for our silence or for reasons of its own."""
        return bool(self._lost)

    def check(self) -> None:
        """Raises `Unavailable` if the server has gone silent."""
        if self._due and asyncio.get_running_loop().time() - self._heard > _EXPIRES + PATIENCE:
            assert self._connection is not None
            why = Unavailable(f"{self._connection.address} is silent")
            self._connection.close(why)
            raise why

    def _ask(self) -> None:
        """Keep the server busy, unless too much lies here already."""
        assert self._connection is not None
        if self._due <= _BATCH // 2 and len(self._buffer) <= _BATCH and self._held <= self._size:
            if not self._due:
                self._heard = asyncio.get_running_loop().time()
            self._due += _BATCH
            self._connection.write(self._asking)

    def _on_message(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        """This runs once per message: whatever can wait until it is handed out waits."""
        if reply:
            self._due -= 1
            self._held += len(body) + len(header)
            self._buffer.append((subject, reply, header, body))
            if len(self._buffer) > _FAR_TOO_MANY * _BATCH or self._held > _FAR_TOO_MANY * self._size:
                assert self._connection is not None
                self._connection.close(Unavailable(f"{self._connection.address} sends more than it was asked for"))
        else:
            self._on_status(header)
        self._arrived.set()

    def _on_status(self, header: bytes) -> None:
        """A request is over: it has been served, or its time is up. Anything else ends the consumer for us."""
        self._heard = asyncio.get_running_loop().time()
        status, _, rest = header[9:].partition(b"\r\n")
        if status.startswith(b"100"):
            return
        if status.startswith((b"408", b"404")) or status in (
            b"409 Batch Completed",
            b"409 Message Size Exceeds MaxBytes",
        ):
            _, _, pending = rest.partition(b"Nats-Pending-Messages:")
            unserved = pending.partition(b"\r\n")[0].strip()
            self._due -= min(self._due, int(unserved)) if unserved.isdigit() else self._due
        else:
            self._lost = status[:100].decode(errors="replace")

    async def take(self, entries: int, size: int) -> list[Entry]:
        """What has come, and moves `place` behind it. Raises `Trimmed` where something is gone that was not read."""
        assert self._connection is not None and self.place is not None
        taken: list[Entry] = []
        created, seq, time, known = self.place
        buffer = self._buffer
        while buffer and len(taken) < entries and (size > 0 or not taken):
            subject, reply, header, body = buffer[0]
            words = reply.split(b".")
            at = 5 if len(words) == 9 else 7
            number, delivered, time_now = int(words[at]), int(words[at + 1]), int(words[at + 2])
            if delivered != self._delivered + 1:
                self._lost = "messages were lost on the way"
                break
            if number != seq + 1 and not self._supersedes and number > self._excused:
                if taken:
                    break
                await self._judge(Place(created, seq, time, known), number)
                self._excused = number
            buffer.popleft()
            self._held -= len(body) + len(header)
            self._delivered, seq, time = delivered, number, time_now
            if subject != self._own:
                taken.append(entry_of(subject, header, body, time // 1_000_000, self._part))
                size -= len(body) + len(header)
        self.place = Place(created, seq, time, known)
        self._ask()
        return taken

    async def _judge(self, read: Place, then: int) -> None:
        """There is a gap before message `then`. It is no loss if it was there before anybody wanted to read from here,
        and retention has not come so far that more could have gone with it."""
        assert self._connection is not None
        state = (await info_of(self._connection, self._stream)).state
        if then - 1 > read.known or state.first_seq > read.seq + 1:
            raise Gap(self._stream, read, then, state.last_seq)


async def create(connection: Connection, stream: str, settings: dict[str, object]) -> Consumer:
    try:
        return await call(connection, f"CONSUMER.CREATE.{stream}", Consumer, stream_name=stream, config=settings)
    except ApiError as error:
        if error.code == NO_STREAM:
            await info_of(connection, stream)
        raise error.meaning() from None


async def place_before(connection: Connection, stream: str, time: str) -> int:
    """The number of the last message that was stored before this time (RFC 3339)."""
    settings: dict[str, object] = {
        "deliver_policy": "by_start_time",
        "opt_start_time": time,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _NANO,
    }
    delivered: Delivered = (await create(connection, stream, settings)).delivered
    return delivered.stream_seq
