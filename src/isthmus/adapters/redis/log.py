"""A log made of one or more streams of a Redis or Valkey server.

Everything that has to be atomic is one script. State and what was put aside are keys that share the hash tag of the
first stream, so that a cluster keeps them together. Who may write is not decided by the token alone but by a name that
each claim makes up: a server that loses its latest writes may give out a token twice.

Three connections: one that waits for entries, one that waits until they are on disk, and one for the rest.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import ssl
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from isthmus.adapters.redis.fields import entry_of, fields_of
from isthmus.adapters.redis.place import (
    NOWHERE,
    UNKNOWN,
    Facts,
    Place,
    digest_of,
    end_of,
    facts_of,
    number,
    places_of,
    position_of,
    start_of,
    verify,
    verify_end,
)
from isthmus.adapters.redis.scripts import APPEND, CLAIM, LOOK, MOST_WORDS, NOTE, RELEASE, RENEW, RESERVE, Script
from isthmus.adapters.redis.wire import (
    MAX_REPLY,
    PATIENCE,
    Address,
    Command,
    Connection,
    Moved,
    ServerError,
    TooMuch,
    UnknownScript,
    Word,
)
from isthmus.runtime.log.content import Content
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
    Trimmed,
    Unavailable,
)
from isthmus.runtime.transport.tls import reason_of

_OLDEST = (7, 0)
_WAITS = (7, 2)
"""From here on there is WAITAOF."""
_FLUSH = 1.0
"""Seconds between two flushes with `appendfsync everysec`."""
_FIRST_SLICE = 64
_WAIT = 1.0
_LARGEST = 512 << 20
_PARKED_PIECE = 512 << 10
"""Bytes of one field of what is put aside; the least that `proto-max-bulk-len` can be is 1 MiB."""
_ID = re.compile(r"\d+-\d+")
_GLOB = re.compile(r"[*?\[]")

_parked_encoder = msgspec.msgpack.Encoder()
_parked_decoder = msgspec.msgpack.Decoder(Entry)


class RedisLog:
    """`Log` on streams of one server, or of one node of a cluster."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._names = settings.streams
        self._streams = [name.encode() for name in settings.streams]
        self._parts = {name: part for part, name in enumerate(settings.streams)}
        self._body_field = settings.options.get("body-field", "body").encode()
        tag = _hash_tag(settings.streams[0])
        self._state = f"{tag}:isthmus:{settings.state}"
        self._parked = f"{self._state}:parked"
        self._owner = ""
        self._reserved = 0
        self._reserving: asyncio.Task[None] | None = None
        self._connections: dict[str, Connection] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._moved: tuple[str, int] | None = None
        self._slice = _FIRST_SLICE
        self._first = -1
        self._largest = _LARGEST
        self._flush = ""
        self._waits = False
        self._answered: float | None = None

    # Opening

    async def open(self) -> Sequence[str]:
        warnings: list[str] = []
        version = await self._version()
        if version < _OLDEST:
            raise LogProblem(
                f"{self._where()} is version {version[0]}.{version[1]}, which does not count what is added to a "
                f"stream: losses would go unseen. It takes Redis {_OLDEST[0]}.{_OLDEST[1]} or Valkey"
            )
        for name, facts in zip(self._names, (await self._look())[0], strict=True):
            if facts.added < 0:
                raise LogProblem(f"{self._where()} does not say how many entries stream {name} ever had")
            if not facts.length and _GLOB.search(name):
                raise LogProblem(
                    f"{name!r} is no stream, and patterns are not resolved: entries of several streams have no common "
                    "order. Name each stream in streams"
                )
            if await self._call("rest", "PTTL", name) > 0:
                warnings.append(f"stream {name} has a time to live (EXPIRE): all of it goes at once when that is over")
        warnings += await self._weaknesses(version)
        return warnings

    async def _version(self) -> tuple[int, int]:
        """Of Redis, or the version of it that a Valkey says it is like."""
        told = await self._info("server")
        if "valkey_version" in told:
            return 7, 2
        major, _, rest = told.get("redis_version", "0.0").partition(".")
        return int(major), int(rest.partition(".")[0] or 0)

    async def _info(self, section: str, purpose: str = "rest") -> dict[str, str]:
        text = (await self._call(purpose, "INFO", section)).decode(errors="replace")
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    async def _weaknesses(self, version: tuple[int, int]) -> list[str]:
        weak: list[str] = []
        try:
            words = ("appendfsync", "maxmemory", "maxmemory-policy", "proto-max-bulk-len")
            reply = await self._call("rest", "CONFIG", "GET", *words)
            told = {key.decode(): value.decode(errors="replace") for key, value in _pairs(reply)}
        except LogProblem:
            told = {}
            weak.append("CONFIG GET is not allowed: what the server does for durability and memory cannot be seen")
        largest = told.get("proto-max-bulk-len", "")
        self._largest = int(largest) if largest.isdigit() else _LARGEST
        kept = (await self._info("persistence")).get("aof_enabled") == "1"
        flush = told.get("appendfsync", "everysec")
        if not kept:
            weak.append(
                "appendonly is off: a crash of the server loses everything since its last snapshot, and with it "
                "what was confirmed. Set appendonly yes"
            )
        elif flush == "no":
            weak.append(
                "appendfsync is no: a crash of its machine loses what the kernel had not written, about 30 s, and with "
                "it what was confirmed. Set appendfsync everysec or always"
            )
        elif flush == "everysec":
            weak.append(
                "appendfsync is everysec: entries are carried to other systems when they are on disk, which is one to "
                'three seconds after they were written. Set appendfsync always; or write carry = "at-once", where what '
                "a crash of its machine takes back may be mixed up with what comes later"
            )
        self._flush = flush if kept else "no"
        self._waits = version >= _WAITS
        policy = told.get("maxmemory-policy", "noeviction")
        if told.get("maxmemory", "0") != "0" and policy != "noeviction":
            reach = "keys that expire" if policy.startswith("volatile") else "any key, streams and isthmus's own too"
            weak.append(f"maxmemory-policy is {policy}: when memory is full the server deletes {reach}. Set noeviction")
        replication = await self._info("replication")
        if replication.get("role") == "slave":
            weak.append("this server is a replica: it takes no writes until it is made the primary")
        elif replication.get("connected_slaves", "0") == "0":
            weak.append("there is no replica: the log is as safe as the disk of this one server")
        else:
            weak.append(
                "replicas follow behind: a failover may lose the latest entries; the join then stops and says so"
            )
        return weak

    # Calling

    def _where(self) -> str:
        parts = urlsplit(self._settings.url)
        return f"{parts.hostname}:{parts.port or 6379}"

    def _address(self) -> Address:
        options = self._settings.options
        try:
            parts = urlsplit(self._settings.url)
            database = int(parts.path.strip("/") or 0)
            host, port = self._moved or (parts.hostname or "127.0.0.1", parts.port or 6379)
        except ValueError:
            raise LogProblem(f'{self._settings.system}: write url = "redis://HOST:PORT/DATABASE"') from None
        username = options.get("username") or unquote(parts.username or "")
        tls = _tls(options) if parts.scheme == "rediss" else None
        return Address(host, port, database, username, options.get("password", ""), tls)

    async def _calls(self, purpose: str, commands: Sequence[Command], wait: float = 0) -> list[Any]:
        """One reply for each command. An error among them is raised, but that a script is not known."""
        async with self._turns[purpose]:
            connection = self._connections.get(purpose)
            if connection is None or not connection.is_open:
                if connection is not None:
                    connection.close()
                try:
                    connection = await Connection.open(self._address())
                except Unavailable:
                    self._moved = None
                    raise
                self._connections[purpose] = connection
            replies = await connection.calls(commands, wait)
        last = replies[-1]
        errors = [
            each for each in (*replies, *(last if isinstance(last, list) else ())) if isinstance(each, ServerError)
        ]
        if errors:
            error = next((each for each in errors if each.code != "EXECABORT"), errors[0])
            meaning = connection.meaning_of(error)
            raise self._follow(meaning) if isinstance(meaning, Moved) else meaning
        return replies

    def _follow(self, moved: Moved) -> Unavailable:
        host, _, port = str(moved).rpartition(":")
        self._moved = (host or self._address().host, int(port)) if port.isdigit() else None
        for connection in self._connections.values():
            connection.close()
        return Unavailable(f"{self._where()}: the streams are at {moved} now")

    async def _call(self, purpose: str, *words: Word, wait: float = 0) -> Any:
        return (await self._calls(purpose, [words], wait))[-1]

    async def _run(self, script: Script, keys: Sequence[Word], *words: Word) -> Any:
        """Run a script as a command of its own. A server that was started anew has to be told it again."""
        try:
            return await self._call("rest", "EVALSHA", script.digest, len(keys), *keys, *words)
        except UnknownScript:
            return await self._call("rest", "EVAL", script.text, len(keys), *keys, *words)

    # The claim

    async def claim(self, holder: str, lease: float) -> State | None:
        owner = secrets.token_hex(8)
        own_lease, flushing = int(1000 * lease), int(1000 * (lease + 2 * PATIENCE))
        words = (self._owner or "-", owner, holder[:1000], flushing, self._reserved, own_lease)
        reply = await self._run(CLAIM, [self._state], *words)
        if isinstance(reply, int):
            self._reserve_beyond(reply)
            return None
        self._owner = owner
        state = _state(reply)
        reserved, self._reserved = self._reserved, 0
        if state.token == reserved:
            return state
        await self._flushed()
        return state if await self._run(RENEW, [self._state], owner, own_lease) else None

    def _reserve_beyond(self, token: int) -> None:
        """Have a token on disk before it is needed: a standby then takes over without waiting for a flush."""
        if self._reserved <= token and (self._reserving is None or self._reserving.done()):
            self._reserving = asyncio.create_task(self._reserve())

    async def _reserve(self) -> None:
        with suppress(Unavailable, LogProblem):
            token = int(await self._run(RESERVE, [self._state]))
            await self._flushed()
            self._reserved = token

    async def _flushed(self) -> None:
        """No token is ever given out twice: it has to be on disk before anybody hears of it."""
        await self.durable()
        if self._answered is not None:
            # Whether this server's WAITAOF can be believed shows the second time.
            await self.durable()

    async def renew(self, lease: float) -> None:
        self._held(await self._run(RENEW, [self._state], self._owner, int(lease * 1000)))

    async def release(self) -> None:
        if self._owner:
            await self._run(RELEASE, [self._state], self._owner)
        self._owner = ""

    async def state(self) -> State:
        return _state(await self._call("rest", "HMGET", self._state, "token", "record", "checkpoint"))

    async def note(self, checkpoint: bytes, position: Position = BEGINNING) -> None:
        self._held(await self._run(NOTE, [self._state], self._owner, checkpoint))

    def _held(self, reply: int) -> None:
        if not reply:
            raise Superseded(f"another host holds the claim of {self._settings.system}")

    # Reading

    async def find(self, start: str) -> Position:
        if start == "start":
            facts, _ = await self._look()
            return position_of(dict(zip(self._names, map(start_of, facts), strict=True)))
        if start == "now":
            facts, _ = await self._look()
            return position_of({name: end_of(each, each.digest) for name, each in zip(self._names, facts, strict=True)})
        bound = start if _ID.fullmatch(start) else f"({_milliseconds(start)}-0"
        facts, found = await self._look(*(("XREVRANGE", name, bound, "-", "COUNT", 1) for name in self._names))
        places: dict[str, Place] = {}
        for name, stream, last in zip(self._names, facts, found, strict=True):
            if not last:
                if bound == start and stream.added > stream.length:
                    raise Trimmed(
                        f"stream {name}: entries behind {start} may have been trimmed; it begins at {stream.first} now"
                    )
                places[name] = start_of(stream)
                continue
            ((id, fields),) = last
            end = id.decode() == stream.last
            places[name] = Place(id.decode(), stream.added if end else UNKNOWN, digest_of(fields), stream.removed)
        return position_of(places)

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        places = places_of(after) if after else {}
        taken, places = await self._take(places, entries, size)
        if not taken:
            waiting = [places[name].id for name in self._names]
            words: Command = ("XREAD", "COUNT", 1, "BLOCK", int(_WAIT * 1000), "STREAMS", *self._streams, *waiting)
            if await self._call("reading", *words, wait=_WAIT):
                taken, places = await self._take(places, entries, size)
        return Slice(taken, position_of(places))

    async def _take(self, places: dict[str, Place], entries: int, size: int) -> tuple[list[Entry], dict[str, Place]]:
        """What is there now behind these places, and the places behind that."""
        most = max(1, min(self._slice, entries) // len(self._names))
        ids = [places[name].id if name in places else NOWHERE for name in self._names]
        ranges = [
            ("XRANGE", stream, b"(" + id.encode(), "+", "COUNT", most)
            for stream, id in zip(self._streams, ids, strict=True)
        ]
        try:
            facts, found = await self._look_at(ids, ranges)
        except TooMuch:
            if most == 1:
                raise LogProblem(
                    f"an entry behind {', '.join(ids)} has more bytes than are read at once ({MAX_REPLY:,})"
                ) from None
            self._slice = max(1, most // 16)
            return await self._take(places, entries, size)
        taken: list[Entry] = []
        behind: dict[str, Place] = {}
        received = self._connections["reading"].received
        room = size if received > size else received
        # Each time another stream comes first, or one that never ends would leave no room for the others.
        self._first += 1
        for turn in range(len(self._names)):
            part = (self._first + turn) % len(self._names)
            name, stream, some = self._names[part], facts[part], found[part]
            place = places.get(name)
            if place is None:
                place = start_of(stream)
            else:
                verify(name, place, stream)
            at_end = len(some) < most
            if received > size:
                fitting, room = _fitting(some, room, bool(taken))
                at_end = at_end and fitting == len(some)
                del some[fitting:]
            if some:
                taken += self._entries(some, part)
                place = self._behind(place, some)
            behind[name] = verify_end(name, place, stream) if at_end else place
        self._learn(len(taken), received, size)
        return taken, behind

    def _entries(self, found: list[Any], part: int) -> list[Entry]:
        body_field = self._body_field
        subject = self._names[part] if len(self._names) > 1 else ""
        return [entry_of(fields, body_field, int(id.partition(b"-")[0]), subject, part) for id, fields in found]

    def _behind(self, place: Place, found: list[Any]) -> Place:
        id, fields = found[-1][0].decode(), found[-1][1]
        nth = UNKNOWN if place.nth == UNKNOWN else place.nth + len(found)
        removed = place.removed if number(place.removed) > number(id) else NOWHERE
        return Place(id, nth, digest_of(fields), removed)

    def _learn(self, taken: int, received: int, size: int) -> None:
        """How many entries to ask for, so that a reply has about the size that is wanted: twice as many at most."""
        if taken:
            self._slice = max(1, min(size * taken // max(received, 1), 2 * max(self._slice, taken)))

    async def _look_at(self, ids: Sequence[str], more: Sequence[Command] = ()) -> tuple[list[Facts], list[Any]]:
        """What the server says of each stream, and the replies to further commands, all of one moment."""
        looks = [("EVALSHA", LOOK.digest, 1, stream, id) for stream, id in zip(self._streams, ids, strict=True)]
        commands: list[Command] = [("MULTI",), *looks, *more, ("EXEC",)]
        try:
            *_, done = await self._calls("reading", commands)
        except UnknownScript:
            *_, done = await self._calls("reading", [("SCRIPT", "LOAD", LOOK.text), *commands])
        return [facts_of(reply) for reply in done[: len(looks)]], done[len(looks) :]

    async def _look(self, *more: Command) -> tuple[list[Facts], list[Any]]:
        """The same, with the digest of the last entry of each stream."""
        return await self._look_at(["$"] * len(self._names), more)

    # Writing

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        words: list[Word] = [self._owner, expected, record]
        several = len(self._names) > 1
        body_field = self._body_field
        for index, entry in enumerate(entries):
            part = entry.part
            if several:
                part = self._parts.get(entry.content.subject, part)
            fields = fields_of(entry, body_field, subject=not several or entry.content.subject not in self._parts)
            if len(fields) > MOST_WORDS:
                raise Refused(index, f"it has {len(fields) // 2:,} fields, and a script can add {MOST_WORDS // 2:,}")
            if sum(map(len, fields)) > self._largest and max(map(len, fields)) > self._largest:
                raise Refused(
                    index, f"a field has {max(map(len, fields)):,} bytes (proto-max-bulk-len: {self._largest:,})"
                )
            words += (part, len(fields), *fields)
        self._held(await self._run(APPEND, [self._state, *self._streams], *words))

    async def park(self, entry: Entry, reason: str, record: bytes, expected: bytes) -> None:
        whole = _parked_encoder.encode(entry)
        fields: list[Word] = ["reason", reason, "origin", entry.origin, "seq", entry.seq]
        for begin in range(0, len(whole), _PARKED_PIECE):
            fields += ("entry", whole[begin : begin + _PARKED_PIECE])
        words = (self._owner, expected, record, 0, len(fields), *fields)
        self._held(await self._run(APPEND, [self._state, self._parked], *words))

    async def parked(self, limit: int) -> Sequence[Parked]:
        found: list[Parked] = []
        start = "-"
        while len(found) < limit:
            # One at a time: each may be as large as any entry.
            some = await self._call("rest", "XRANGE", self._parked, start, "+", "COUNT", 1)
            if not some:
                break
            ((id, fields),) = some
            start = "(" + id.decode()
            values = dict(_pairs(fields))
            whole = b"".join(value for name, value in _pairs(fields) if name == b"entry")
            try:
                entry = _parked_decoder.decode(whole)
            except msgspec.MsgspecError:
                entry = Entry(Content(b"", [(bytes(name), value) for name, value in _pairs(fields)], place=-1))
            found.append(Parked(id.decode(), values.get(b"reason", b"").decode(errors="replace"), entry))
        return found

    async def unpark(self, id: str) -> None:
        if not _ID.fullmatch(id):
            raise LogProblem(f"{id!r} is no id of what was put aside: an id has two numbers, as in 1700000000000-0")
        await self._call("rest", "XDEL", self._parked, id)

    async def durable(self) -> None:
        if self._flush == "no" or (self._flush == "always" and not self._waits):
            return
        if self._waits:
            # It waits for what its own connection wrote last, so that has to write something behind the appends.
            await self._call("flushing", "HSET", self._state, "flushed", 1)
            reply = await self._call("flushing", "WAITAOF", 1, 0, int(PATIENCE * 1000), wait=PATIENCE)
            if not reply[0]:
                raise Unavailable(f"{self._where()} has not flushed its append-only file for {PATIENCE:.0f} s")
            if self._flush == "always":
                return
            # Some Redis 7.4 (redis/redis#13793) and Valkey 9.1.2 answer before they flush. There are
            # no two flushes within a second, so whoever answers twice in that time has not flushed.
            now = asyncio.get_running_loop().time()
            before, self._answered = self._answered, now
            if before is None or now - before > 0.9 * _FLUSH:
                return
            self._waits, self._answered = False, None
        # What was written has begun to be flushed after a second, or after that of the former flush.
        await asyncio.sleep(2 * _FLUSH)
        told = await self._info("persistence", "flushing")
        if told.get("aof_pending_bio_fsync", "0") != "0" or told.get("aof_buffer_length", "0") != "0":
            raise Unavailable(f"{self._where()} is slow to flush its append-only file")

    async def close(self) -> None:
        if self._reserving is not None:
            self._reserving.cancel()
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.closed()


def _hash_tag(stream: str) -> str:
    """What our keys begin with, so that a cluster keeps them where it keeps the stream."""
    _, opening, rest = stream.partition("{")
    tag, closing, _ = rest.partition("}")
    return stream if opening and closing and tag else f"{{{stream}}}"


def _pairs(words: Sequence[Any]) -> list[tuple[Any, Any]]:
    each = iter(words)
    return list(zip(each, each, strict=True))


def _state(reply: list[bytes | None]) -> State:
    token, record, checkpoint = reply
    return State(int(token or 0), record or b"", checkpoint or b"")


def _fitting(found: list[Any], room: int, anything: bool) -> tuple[int, int]:
    """How many of these fit into so many bytes, at least one unless there is anything; and what is left."""
    for index, (_, fields) in enumerate(found):
        size = sum(map(len, fields))
        if size > room and (index or anything):
            return index, 0
        room = max(0, room - size)
    return len(found), room


def _milliseconds(start: str) -> int:
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        raise LogProblem(
            f'{start[:200]!r} is no place in a stream: write "start", "now", a time as in "2026-11-18T12:00:00Z", or '
            'the id of an entry as in "1700000000000-0"'
        ) from None
    return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def _tls(options: Any) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ca-file"))
        if "certificate-file" in options:
            context.load_cert_chain(options["certificate-file"], options.get("key-file"), password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        reason = f"TLS cannot be set up: {reason_of(error)}"
        raise LogProblem(f"{reason}. Look at ca-file, certificate-file and key-file, which are PEM files") from None
    return context
