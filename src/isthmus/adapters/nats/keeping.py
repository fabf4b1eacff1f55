"""What isthmus keeps for a log beside it, in a stream of its own: lease, checkpoint, and what was put aside.

Nothing here needs to be atomic with entries. The lease is for liveness alone. A checkpoint is a place behind what every
join has confirmed: true whoever wrote it, and an older one costs reading again. What was put aside has its origin and
number as its name, so that putting it aside twice is putting it aside once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from isthmus.adapters.nats.jetstream import (
    NO_STREAM,
    OTHER_SETTINGS,
    ApiError,
    Published,
    Stored,
    StreamInfo,
    answer_of,
    call,
    got,
    purge,
)
from isthmus.adapters.nats.place import nanoseconds
from isthmus.adapters.nats.wire import Connection
from isthmus.runtime.log.interface import Entry, LogProblem, Parked

_PIECE = 512 << 10
"""Bytes of one message of what was put aside; a server takes 1 MiB unless it was told less."""
_MOST_PIECES = 64
_ID = re.compile(r"[0-9a-f]{16}-\d{1,20}")


class Lease(Struct):
    """Who holds the claim and for how long from when this was written.

    `token` outlives a server that lost its tail. `record` is what was brought in when this was written, and `is_exact`
    that nothing has been since: it replaces a state that limits or a purge have removed from the log itself.
    """

    owner: str
    holder: str
    token: int
    seconds: float
    created: str
    record: bytes
    is_exact: bool = False


_lease = msgspec.json.Decoder(Lease)
_packed = msgspec.msgpack.Encoder()
_unpacked = msgspec.msgpack.Decoder(tuple[str, Entry])


class Keeping:
    """The stream `isthmus-STATE`, with one message for each of its subjects."""

    def __init__(self, state: str) -> None:
        self.stream = f"isthmus-{state}"
        self._lease = f"isthmus.keep.{state}.lease"
        self._checkpoint = f"isthmus.keep.{state}.checkpoint"
        self._parked = f"isthmus.keep.{state}.parked"
        self._all = f"isthmus.keep.{state}.>"

    async def open(self, connection: Connection, replicas: int) -> None:
        """Make it if it is not there; as many replicas as the log has."""
        try:
            await call(connection, f"STREAM.INFO.{self.stream}", StreamInfo)
            return
        except ApiError as error:
            if error.code != NO_STREAM:
                raise error.meaning() from None
        settings = {
            "name": self.stream,
            "description": "what isthmus keeps beside a log that it joins; see its docs/brokers.md",
            "subjects": [self._all],
            "max_msgs_per_subject": 1,
            "storage": "file",
            "num_replicas": replicas,
        }
        try:
            await call(connection, f"STREAM.CREATE.{self.stream}", StreamInfo, **settings)
        except ApiError as error:
            if error.code != OTHER_SETTINGS:
                raise LogProblem(
                    f"the stream {self.stream}, where isthmus keeps its own, cannot be made: {error}"
                ) from None

    async def lease(self, connection: Connection) -> tuple[Lease, int] | None:
        """And when it was written, in nanoseconds of the server's clock."""
        stored = await self._get(connection, self._lease)
        if stored is None:
            return None
        try:
            return _lease.decode(stored.body), nanoseconds(stored.time)
        except ValueError:
            raise LogProblem(f"what stands in {self._lease} was not written by isthmus: purge it") from None

    async def set_lease(self, connection: Connection, lease: Lease) -> None:
        await self._put(connection, self._lease, msgspec.json.encode(lease))

    async def checkpoint(self, connection: Connection) -> bytes:
        stored = await self._get(connection, self._checkpoint)
        return stored.body if stored else b""

    async def set_checkpoint(self, connection: Connection, checkpoint: bytes) -> None:
        await self._put(connection, self._checkpoint, checkpoint)

    async def park(self, connection: Connection, entry: Entry, reason: str) -> None:
        """The first piece is written last: what is listed is whole."""
        size = min(_PIECE, max(1024, connection.info.max_payload // 2))
        data = _packed.encode((reason, entry))
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        if len(pieces) > _MOST_PIECES:
            raise LogProblem(f"an entry of {len(data):,} bytes cannot be put aside in messages of {size:,} bytes")
        name = f"{sha256(entry.origin.encode()).hexdigest()[:16]}-{entry.seq}"
        for number in range(len(pieces) - 1, 0, -1):
            await self._put(connection, f"{self._parked}.{name}.{number}", pieces[number])
        await self._put(connection, f"{self._parked}.{name}.0", b"%d\n%b" % (len(pieces), pieces[0]))

    async def parked(self, connection: Connection, limit: int) -> Sequence[Parked]:
        found: list[Parked] = []
        seq = 1
        while len(found) < limit:
            first = await got(connection, self.stream, seq=seq, next_by_subj=f"{self._parked}.*.0")
            if first is None:
                break
            seq = first.seq + 1
            name = first.subject.split(".")[-2]
            count, _, data = first.body.partition(b"\n")
            for number in range(1, min(int(count), _MOST_PIECES)):
                piece = await self._get(connection, f"{self._parked}.{name}.{number}")
                data += piece.body if piece else b""
            try:
                reason, entry = _unpacked.decode(data)
            except msgspec.MsgspecError:
                continue  # Taken out while we looked.
            found.append(Parked(name, reason, entry))
        return found

    async def unpark(self, connection: Connection, id: str) -> None:
        if not _ID.fullmatch(id):
            raise LogProblem(f"{id[:100]!r} is no name of what was put aside, which looks like 0123456789abcdef-7")
        # The first piece first: what is listed is whole.
        await purge(connection, self.stream, f"{self._parked}.{id}.0")
        await purge(connection, self.stream, f"{self._parked}.{id}.*")

    async def _get(self, connection: Connection, subject: str) -> Stored | None:
        return await got(connection, self.stream, last_by_subj=subject)

    async def _put(self, connection: Connection, subject: str, body: bytes) -> None:
        try:
            answer_of(await connection.request(subject, body), Published, f"{connection.address}, {subject}")
        except ApiError as error:
            raise error.meaning() from None
