"""A log made of one or more JetStream streams.

The token, its holder and the import record are one message in the (first) stream itself, on a subject of ours: it is
the last message of every atomic batch that brings entries in, and it is stored only if the message of ours before it
is still the last. That is claim, record and fence in one. Who may write is not decided by the token alone but by a
name that each claim makes up: a server that loses its tail may give out a token twice. What needs no atomicity is in a
stream of our own (`keeping.py`). docs/brokers.md says why nothing is lost, twice or out of order.

Two connections: one that waits for entries, and one for the rest.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from isthmus.adapters.nats.credentials import Identity
from isthmus.adapters.nats.jetstream import (
    BATCH_TOO_LARGE,
    INCOMPLETE,
    LONG_HEADER,
    NO_ATOMIC,
    TOO_LARGE,
    WRONG_SEQUENCE,
    Account,
    ApiError,
    Config,
    Published,
    StreamInfo,
    answer_of,
    call,
    got,
    info_of,
)
from isthmus.adapters.nats.keeping import Keeping, Lease
from isthmus.adapters.nats.messages import MAX_HEADER, VERSION, header_of, is_subject, takes
from isthmus.adapters.nats.place import Gap, Place, nanoseconds, place_at, places_of, position_of, start_of
from isthmus.adapters.nats.reader import Reader, place_before
from isthmus.adapters.nats.wire import Address, Connection
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    LogProblem,
    LogSettings,
    Parked,
    Position,
    Refused,
    Slice,
    State,
    Superseded,
    TooMany,
    Trimmed,
    Unavailable,
)
from isthmus.runtime.transport.tls import reason_of

_LEVEL = 2
"""Of JetStream's interface: from nats-server 2.12 on there are atomic batches."""
_BATCH = 1000
"""Messages of an atomic batch, as long as the server is not told otherwise (`max_msgs` of `batch` in `limits`)."""
_WAIT = 1.0
_PORT = 4222
_TRIES = 8
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_NUMBER = re.compile(r"\d{1,19}")
_SPARE = 512
"""What the server's own header lines of a message in a batch take at most."""


class _Kept(Struct):
    """What our message in the stream says."""

    token: int
    owner: str
    holder: str
    record: bytes


_kept = msgspec.json.Decoder(_Kept)


class NatsLog:
    """`Log` on streams of one account. What comes in goes to the first of them."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._names = settings.streams
        self._stream = settings.streams[0]
        state = _word(settings.state)
        self._subject = f"isthmus.record.{state}"
        self._keeping = Keeping(state)
        self._default = settings.options.get("default-subject", "")
        self._addresses: list[Address] = []
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._reading: Connection | None = None
        self._config = Config()
        self._created = ""
        self._most = _BATCH - 1
        self._owner = ""
        self._last: tuple[int, _Kept | None] | None = None
        """Our message in the stream as we know it, with its number; None: it has to be looked up."""
        self._arrived = asyncio.Event()
        self._readers = [
            Reader(name, part, self._subject.encode(), self._arrived) for part, name in enumerate(self._names)
        ]

    # Opening

    async def open(self) -> Sequence[str]:
        for name in self._names:
            if not name or _ODD.search(name.replace(" ", "")) or " " in name:
                raise LogProblem(f"{name!r} is no name of a stream of JetStream")
        if self._default and not is_subject(self._default):
            raise LogProblem(
                f"default-subject {self._default!r} is no subject: it has words with dots between, no wildcards"
            )
        async with self._turn:
            connection = await self._connected()
            await self._look_at_level(connection)
            warnings: list[str] = []
            for name in self._names:
                info = await info_of(connection, name)
                warnings += self._weaknesses(info.config)
            await self._inspect(connection)
            await self._keeping.open(connection, self._config.num_replicas)
            return warnings

    async def _look_at_level(self, connection: Connection) -> None:
        """The server that we talk to need not be the one that has the stream; what JetStream can do it says itself."""
        version = connection.info.version
        try:
            level = (await call(connection, "INFO", Account)).api.level
        except ApiError as error:
            raise error.meaning() from None
        except Unavailable:
            if connection.is_open and not connection.info.jetstream:
                raise LogProblem(
                    f"{connection.address} has no JetStream. Set jetstream {{ }} in the server's configuration"
                ) from None
            raise
        if level < _LEVEL:
            raise LogProblem(
                f"{connection.address} runs nats-server {version}, which has no atomic batches. It takes 2.12 or newer"
            )

    async def _inspect(self, connection: Connection) -> None:
        """Look at the stream that we write to. Raises `LogProblem` with what has to be set there."""
        info = await info_of(connection, self._stream)
        config = info.config
        why = ""
        if config.retention != "limits":
            why = f"its retention is {config.retention}: entries go when somebody has consumed them. A log has limits"
        elif config.mirror is not None:
            why = "it is a mirror, which nobody can write to. Name the stream that it mirrors"
        elif config.sealed:
            why = "it is sealed, and nobody can write to it"
        elif config.no_ack:
            why = "it has no_ack, so that nobody knows what was stored"
        elif config.subject_transform is not None:
            why = "it changes subjects (subject_transform), those of isthmus too"
        elif config.allow_msg_counter:
            why = "it is a counter: its messages are numbers to be added up, and no log"
        elif config.supersedes and config.discard_new_per_subject:
            why = "it takes no more messages of a subject that has its number of them (discard_new_per_subject)"
        if why:
            raise LogProblem(f"stream {self._stream} cannot be joined: {why}")
        subjects = list(config.subjects)
        if not takes(subjects, self._subject):
            subjects.append(self._subject)
        if len(subjects) > len(config.subjects) or not config.allow_atomic:
            raise LogProblem(
                f"stream {self._stream} has to allow atomic batches, and to take the subject {self._subject}, where "
                f"isthmus keeps what it has brought in. Both are set, without harm to anybody, by\n"
                f'  nats stream edit {self._stream} --allow-batch --subjects="{",".join(subjects)}"'
            )
        self._config, self._created = config, info.created

    def _weaknesses(self, config: Config) -> list[str]:
        weak: list[str] = []
        name = config.name
        if config.storage == "memory":
            weak.append(f"stream {name} is in memory: a restart of the server loses all of it, and the join stops")
        elif config.num_replicas == 1:
            weak.append(
                f"stream {name} has one replica. Unless its server has sync_interval: always, a crash of its machine "
                "loses what was written in the last sync_interval (two minutes, if nobody set it), confirmed or not"
            )
        if config.supersedes:
            weak.append(
                f"stream {name} keeps {config.max_msgs_per_subject} messages of each subject: what is superseded "
                "before it was read is not carried, and nobody is told"
            )
        if config.allow_msg_ttl:
            weak.append(f"stream {name} lets messages have a time to live: one that ends unread stops the join")
        if config.max_age > 0:
            weak.append(
                f"stream {name} keeps messages for {_duration(config.max_age)}: what a join could not carry for so "
                "long is lost, and without any gateway for half of that its import record may be, too"
            )
        if config.max_msgs > 0 or config.max_bytes > 0:
            bounds = " and ".join(
                text
                for limit, text in (
                    (config.max_msgs, f"{config.max_msgs:,} messages"),
                    (config.max_bytes, f"{config.max_bytes:,} bytes"),
                )
                if limit > 0
            )
            then = (
                "takes nothing when it is full (discard: new), and what comes in waits"
                if config.discard == "new"
                else "drops the oldest when it is full (discard: old), read or unread"
            )
            weak.append(f"stream {name} holds at most {bounds}, and {then}")
        return weak

    # Connections

    def _address(self) -> Address:
        """The next of those in the url."""
        if not self._addresses:
            self._addresses = self._read_url()
        address = self._addresses.pop(0)
        self._addresses.append(address)
        return address

    def _read_url(self) -> list[Address]:
        options = self._settings.options
        scheme, _, rest = self._settings.url.partition("://")
        places: list[tuple[str, int]] = []
        user = ""
        try:
            for place in rest.split(","):
                parts = urlsplit(f"//{place}")
                places.append((parts.hostname or "127.0.0.1", parts.port or _PORT))
                user = user or unquote(parts.username or "")
        except ValueError:
            raise LogProblem(f'{self._settings.system}: write url = "nats://HOST:PORT"') from None
        identity = Identity(options, user)
        return [Address(host, port, identity, scheme == "tls", lambda: _tls(options)) for host, port in places]

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._last = None
            self._connection = await Connection.open(self._address())
        return self._connection

    async def _connected_to_read(self) -> Connection:
        if self._reading is None or not self._reading.is_open:
            self._reading = await Connection.open(self._address())
            self._reading.on_close = self._arrived.set
        return self._reading

    async def close(self) -> None:
        for connection in (self._connection, self._reading):
            if connection is not None:
                connection.close()

    # The claim

    async def claim(self, holder: str, lease: float) -> State | None:
        async with self._turn:
            connection = await self._connected()
            found = await self._keeping.lease(connection)
            for _ in range(_TRIES):
                at, kept = await self._look(connection)
                info = await info_of(connection, self._stream)
                if found and found[0].owner != self._owner and _is_live(*found, kept, info):
                    return None
                record = kept.record if kept else self._record_without(found[0] if found else None, info)
                token = max(kept.token if kept else 0, found[0].token if found else 0) + 1
                mine = _Kept(token, token_hex(8), holder[:200], record)
                if await self._set(connection, at, mine):
                    self._owner, self._created = mine.owner, info.created
                    await self._write_lease(connection, lease)
                    return State(token, record, await self._keeping.checkpoint(connection))
                # Whoever was faster is the holder, at work, or another who claims.
                found = await self._keeping.lease(connection)
            raise Unavailable(f"{connection.address}: others go on claiming {self._stream}")

    def _record_without(self, lease: Lease | None, info: StreamInfo) -> bytes:
        """The record where our message is not in the stream: because it never was, or limits have removed it."""
        if lease is None or lease.created != info.created:
            return b""
        if lease.is_exact:
            return lease.record
        raise Trimmed(
            f"stream {self._stream}: what had been brought in is not known any more: limits or a purge have removed "
            f"the message of isthmus ({self._subject}). What comes in could stand there twice. To go on all the same: "
            f"nats stream rm {self._keeping.stream}"
        )

    async def renew(self, lease: float) -> None:
        async with self._turn:
            connection = await self._connected()
            at, kept = await self._mine(connection)
            if await self._is_in_danger(connection, at):
                await self._set(connection, at, kept)
            await self._write_lease(connection, lease)

    async def _is_in_danger(self, connection: Connection, at: int) -> bool:
        """Whether limits come near our message, so that it is better written anew."""
        if not self._config.is_limited:
            return False
        info = await info_of(connection, self._stream)
        state = info.state
        if (self._config.max_msgs > 0 or self._config.max_bytes > 0) and 2 * at < state.first_seq + state.last_seq:
            return True
        stored = await got(connection, self._stream, seq=at) if self._config.max_age > 0 else None
        return stored is not None and 2 * (nanoseconds(info.ts) - nanoseconds(stored.time)) > self._config.max_age

    async def release(self) -> None:
        async with self._turn:
            connection = await self._connected()
            with suppress(Superseded):
                # What is still under way finds another message than it expects, so this record is the last one.
                for _ in range(_TRIES):
                    at, kept = await self._mine(connection)
                    if await self._set(connection, at, replace(kept, owner="")):
                        await self._write_lease(connection, 0)
                        break
            self._owner = ""

    async def _write_lease(self, connection: Connection, seconds: float) -> None:
        assert self._last is not None and self._last[1] is not None
        kept = self._last[1]
        lease = Lease(kept.owner, kept.holder, kept.token, seconds, self._created, kept.record, is_exact=not seconds)
        await self._keeping.set_lease(connection, lease)

    async def state(self) -> State:
        async with self._turn:
            connection = await self._connected()
            _, kept = await self._look(connection)
            checkpoint = await self._keeping.checkpoint(connection)
            if kept is None:
                found = await self._keeping.lease(connection)
                return State(found[0].token if found else 0, b"", checkpoint)
            return State(kept.token, kept.record, checkpoint)

    async def note(self, checkpoint: bytes, position: Position = BEGINNING) -> None:
        async with self._turn:
            connection = await self._connected()
            await self._mine(connection)
            await self._keeping.set_checkpoint(connection, checkpoint)

    # Our message in the stream

    async def _look(self, connection: Connection) -> tuple[int, _Kept | None]:
        stored = await got(connection, self._stream, last_by_subj=self._subject)
        if stored is None:
            self._last = 0, None
        else:
            try:
                self._last = stored.seq, _kept.decode(stored.body)
            except ValueError:
                raise LogProblem(
                    f"stream {self._stream}: message {stored.seq} on {self._subject} was not written by isthmus. "
                    f"Remove it: nats stream rmm {self._stream} {stored.seq}"
                ) from None
        return self._last

    async def _mine(self, connection: Connection, known: _Kept | None = None) -> tuple[int, _Kept]:
        """Our message as it is now; `Superseded` if the claim is not ours. `known` is what it was for certain."""
        if known is None and self._last is not None:
            known = self._last[1]
        at, kept = await self._look(connection)
        if kept is None and known is not None and known.owner == self._owner:
            at, kept = await self._restore(connection, known)
        if kept is None or not self._owner or kept.owner != self._owner:
            raise Superseded(f"another host holds the claim of {self._settings.system}")
        return at, kept

    async def _restore(self, connection: Connection, kept: _Kept) -> tuple[int, _Kept | None]:
        """Somebody has purged the stream, and our message with it. If we were the last who claimed, we know it."""
        found = await self._keeping.lease(connection)
        info = await info_of(connection, self._stream)
        if found and found[0].owner == self._owner and info.created == self._created:
            await self._set(connection, 0, kept)
        return await self._look(connection)

    async def _set(self, connection: Connection, at: int, kept: _Kept) -> bool:
        """Write our message, if the one at `at` is still the last; says whether it was."""
        return await self._publish(connection, at, kept, [])

    async def _publish(
        self, connection: Connection, at: int, kept: _Kept, messages: Sequence[tuple[bytes, bytes, bytes]]
    ) -> bool:
        """These (subject, header lines, body) and our message in one step, if the one at `at` is still the last."""
        self._last = None
        # Ours is the last message of the batch, and commits it; alone it needs no batch.
        fence = b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % at
        body = msgspec.json.encode(kept)
        if len(body) + _SPARE > connection.info.max_payload:
            raise LogProblem(
                f"{connection.address} takes messages of {connection.info.max_payload:,} bytes, and the import record "
                f"of {self._settings.system} has {len(body):,}: raise max_payload in the server's configuration"
            )
        out: list[bytes] = []
        add = out.append
        if messages:
            batch = token_hex(8).encode()
            for number, (subject, lines, content) in enumerate(messages, 1):
                head = b"%bNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n%b\r\n" % (VERSION, batch, number, lines)
                add(b"HPUB %b %d %d\r\n" % (subject, len(head), len(head) + len(content)))
                add(head)
                add(content)
                add(b"\r\n")
            fence += b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\nNats-Batch-Commit: 1\r\n" % (
                batch,
                len(messages) + 1,
            )
        head = b"%b%b\r\n" % (VERSION, fence)
        reply, future = connection.expect()
        add(b"HPUB %b %b %d %d\r\n" % (self._subject.encode(), reply, len(head), len(head) + len(body)))
        add(head)
        add(body)
        add(b"\r\n")
        connection.write(b"".join(out))
        answer = await connection.answer(future)
        try:
            if not answer.body:
                # Nobody takes our subject: it was removed from the stream, or the stream has no leader.
                await self._inspect(connection)
            published = answer_of(answer, Published, f"{connection.address}, {self._stream}")
        except ApiError as error:
            if error.code in WRONG_SEQUENCE:
                return False
            if error.code == BATCH_TOO_LARGE:
                self._most = min(self._most, max(1, len(messages) // 2))
                raise TooMany(self._most) from None
            if error.code in (TOO_LARGE, LONG_HEADER, NO_ATOMIC, INCOMPLETE):
                await self._inspect(connection)
            raise error.meaning() from None
        self._last = published.seq, kept
        return True

    # Appending

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        if len(entries) > self._most:
            raise TooMany(self._most)
        async with self._turn:
            connection = await self._connected()
            at, kept = await self._expected(connection, expected)
            while True:
                messages = self._messages(connection, entries)
                settings = self._config
                try:
                    if await self._publish(connection, at, replace(kept, record=record), messages):
                        return
                    break
                except LogProblem:
                    # The settings may have been changed meanwhile: then an entry is refused by its index.
                    if settings == self._config:
                        raise
            await self._find_out(connection, kept)

    async def park(self, entry: Entry, reason: str, record: bytes, expected: bytes) -> None:
        async with self._turn:
            connection = await self._connected()
            self._last = None
            at, kept = await self._expected(connection, expected)
            await self._keeping.park(connection, entry, reason)
            if not await self._set(connection, at, replace(kept, record=record)):
                await self._find_out(connection, kept)

    async def parked(self, limit: int) -> Sequence[Parked]:
        async with self._turn:
            return await self._keeping.parked(await self._connected(), limit)

    async def unpark(self, id: str) -> None:
        async with self._turn:
            await self._keeping.unpark(await self._connected(), id)

    async def _expected(self, connection: Connection, expected: bytes) -> tuple[int, _Kept]:
        """Our message, which has to be ours and to have this record."""
        at, kept = self._last or (0, None)
        if kept is None or kept.owner != self._owner or kept.record != expected:
            at, kept = await self._mine(connection)
        if kept.record != expected:
            raise Superseded(f"the import record of {self._settings.system} is not what was expected")
        return at, kept

    async def _find_out(self, connection: Connection, kept: _Kept) -> None:
        """`kept` was not the last any more. If the claim is ours, that was an append of ours whose outcome we did not
        know, or a purge."""
        await self._mine(connection, kept)
        raise Unavailable(
            f"{connection.address}: an earlier append into {self._stream} came through late, or it was purged"
        )

    def _messages(self, connection: Connection, entries: Sequence[Entry]) -> list[tuple[bytes, bytes, bytes]]:
        """Subject, header lines and body of each. Raises `Refused` for what the server or the stream never takes."""
        payload = connection.info.max_payload
        most = self._config.max_msg_size if self._config.max_msg_size > 0 else payload
        most = min(most, payload) - _SPARE
        subjects: dict[str, bytes] = {}
        messages: list[tuple[bytes, bytes, bytes]] = []
        for index, entry in enumerate(entries):
            wanted = entry.content.subject
            subject = subjects.get(wanted)
            if subject is None:
                subject = subjects[wanted] = self._subject_for(wanted, index)
            try:
                lines = header_of(entry)
            except ValueError as reason:
                raise Refused(index, str(reason)) from None
            body = entry.content.body
            if len(lines) > MAX_HEADER - _SPARE:
                raise Refused(index, f"its headers of {len(lines):,} bytes are more than the 64 KiB that NATS takes")
            if len(lines) + len(body) > most:
                raise Refused(
                    index,
                    f"its {len(lines) + len(body):,} bytes are more than the {most:,} that fit into a message of "
                    f"stream {self._stream} (max_payload of the server, max_msg_size of the stream)",
                )
            messages.append((subject, lines, body))
        return messages

    def _subject_for(self, wanted: str, index: int) -> bytes:
        """Its own subject, if it is one of the stream's; else the default."""
        for subject in (wanted, self._default):
            if subject != self._subject and is_subject(subject) and takes(self._config.subjects, subject):
                return subject.encode()
        raise Refused(
            index,
            f"stream {self._stream} takes no subject {wanted[:100]!r}, and "
            + (f"not default-subject {self._default} either" if self._default else "there is no default-subject"),
        )

    async def durable(self) -> None:
        """An append that was acknowledged has been written, by a majority of the replicas; there is no way to ask for
        more. When it is on a disk is `sync_interval` of the server."""

    # Reading

    async def find(self, start: str) -> Position:
        async with self._turn:
            connection = await self._connected()
            places = dict[str, Place]()
            for name in self._names:
                places[name] = await self._find(connection, name, start)
            return position_of(places)

    async def _find(self, connection: Connection, name: str, start: str) -> Place:
        info = await info_of(connection, name)
        if start == "start":
            return start_of(info)
        if start == "now":
            seq = info.state.last_seq
        elif start.startswith("{"):
            place = places_of(start).get(name)
            if place is None:
                raise LogProblem(f"{start[:200]!r} says nothing of stream {name}")
            return place
        elif _NUMBER.fullmatch(start):
            seq = int(start)
            if seq > info.state.last_seq:
                raise LogProblem(f"stream {name} ends at message {info.state.last_seq}, and has no message {start}")
            if seq + 1 < info.state.first_seq and not info.config.supersedes:
                raise Trimmed(
                    f"stream {name}: what stood behind message {start} is gone; it begins now at {info.state.first_seq}"
                )
        else:
            seq = await place_before(connection, name, _time(start))
        # A place before the first message has no message of its own to know it by.
        at = await got(connection, name, seq=seq) if seq >= max(1, info.state.first_seq) else None
        return place_at(info, seq, nanoseconds(at.time) if at else 0)

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        connection = await self._connected_to_read()
        places = places_of(after) if after else {}
        for name, reader in zip(self._names, self._readers, strict=True):
            if not reader.stands(connection, places.get(name)):
                await self._begin(reader, connection, places.get(name), places)
        loop = asyncio.get_running_loop()
        end = loop.time() + _WAIT
        parts = len(self._readers)
        taken: list[Entry] = []
        while not taken:
            self._arrived.clear()
            try:
                for reader in self._readers:
                    taken += await reader.take(max(1, entries // parts), size // parts)
            except Gap as gap:
                raise self._with_rest(gap, places) from None
            if taken or (left := end - loop.time()) <= 0:
                break
            for reader in self._readers:
                reader.check()
                if reader.is_lost:
                    await self._begin(reader, connection, reader.place, places)
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            if not connection.is_open:
                raise Unavailable(f"{connection.address}: the connection was lost")
        behind = {name: reader.place for name, reader in zip(self._names, self._readers, strict=True)}
        return Slice(taken, position_of({name: place for name, place in behind.items() if place}))

    async def _begin(
        self, reader: Reader, connection: Connection, place: Place | None, places: Mapping[str, Place]
    ) -> None:
        try:
            await reader.begin(connection, place)
        except Gap as gap:
            raise self._with_rest(gap, places) from None

    def _with_rest(self, gap: Gap, places: Mapping[str, Place]) -> Gap:
        """With where reading can go on, in all streams."""
        gap.after = position_of({**places, gap.stream: gap.place})
        return gap


def _is_live(lease: Lease, written: int, kept: _Kept | None, info: StreamInfo) -> bool:
    """Whether this lease is that of the holder, and not over yet, by the server's clock."""
    is_holder = lease.owner == kept.owner if kept else lease.created == info.created
    return is_holder and written + lease.seconds * 1e9 > nanoseconds(info.ts)


def _word(text: str) -> str:
    """As one word of a subject, and of the name of a stream; different texts give different words."""
    return _ODD.sub(lambda odd: "".join(f"={byte:02x}" for byte in odd[0].encode()), text)


def _time(start: str) -> str:
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        raise LogProblem(
            f'{start[:200]!r} is no place in a stream: write "start", "now", a time as in "2026-11-18T12:00:00Z", or '
            "the number of a message, to begin behind it"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z")


def _duration(nanoseconds: int) -> str:
    seconds = nanoseconds / 1e9
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} seconds"


def _tls(options: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ca-file"))
        if "certificate-file" in options:
            context.load_cert_chain(options["certificate-file"], options.get("key-file"), password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        reason = f"TLS cannot be set up: {reason_of(error)}"
        raise LogProblem(f"{reason}. Look at ca-file, certificate-file and key-file, which are PEM files") from None
    return context
