"""What is asked of JetStream, and what its answers mean.

Every question is a message to a subject of `$JS.API`, and every answer one JSON object. An object with `error` in it
has a number of its own for each kind of trouble.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from isthmus.adapters.nats.wire import Connection, Reply
from isthmus.runtime.log.interface import LogProblem, Unavailable

NO_MESSAGE, NO_STREAM, WRONG_SEQUENCE = 10037, 10059, (10071, 10164)
TOO_LARGE, LONG_HEADER, BATCH_TOO_LARGE = 10054, 10097, 10199
DISABLED, NO_ATOMIC, INCOMPLETE, OTHER_SETTINGS = (10039, 10076), 10174, 10176, 10058

T = TypeVar("T", bound=Struct)


class Config(Struct):
    """The settings of a stream that matter here. Numbers below 1 mean that there is no limit."""

    name: str = ""
    subjects: list[str] = []
    retention: str = "limits"
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard: str = "old"
    discard_new_per_subject: bool = False
    storage: str = "file"
    num_replicas: int = 1
    no_ack: bool = False
    sealed: bool = False
    allow_atomic: bool = False
    allow_msg_ttl: bool = False
    allow_msg_counter: bool = False
    mirror: Any = None
    subject_transform: Any = None

    @property
    def supersedes(self) -> bool:
        """Whether a message goes when newer ones of its subject come."""
        return self.max_msgs_per_subject > 0

    @property
    def is_limited(self) -> bool:
        return self.max_msgs > 0 or self.max_bytes > 0 or self.max_age > 0


class StreamState(Struct):
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamInfo(Struct):
    """`created` and `ts`, the server's time now, are as it writes them."""

    config: Config
    state: StreamState
    created: str
    ts: str = ""


class Stored(Struct):
    """A message as a stream keeps it."""

    subject: str
    seq: int
    time: str
    data: str = ""
    hdrs: str = ""

    @property
    def body(self) -> bytes:
        return b64decode(self.data)


class Names(Struct):
    streams: list[str] | None = None


class Level(Struct):
    level: int = 0


class Account(Struct):
    api: Level


class Delivered(Struct):
    stream_seq: int = 0


class Consumer(Struct):
    name: str
    delivered: Delivered


class Published(Struct):
    seq: int


class _Got(Struct):
    message: Stored


class _Done(Struct):
    success: bool = True


class _Fault(Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _MaybeFault(Struct):
    error: _Fault | None = None


class ApiError(Exception):
    """JetStream says no. `code` is its own number for why."""

    def __init__(self, where: str, fault: _Fault) -> None:
        super().__init__(f"{where}: {fault.description[:300]} ({fault.err_code})")
        self.where = where
        self.code = fault.err_code
        self.status = fault.code

    def meaning(self) -> Exception:
        """What the caller of the adapter should hear: most that is 5xx passes."""
        if self.code in DISABLED:
            return LogProblem(f"{self}. Set jetstream {{ }} in the server's configuration, or name another server")
        return Unavailable(str(self)) if self.status >= 500 else LogProblem(str(self))


_faults = msgspec.json.Decoder(_MaybeFault)


def answer_of(reply: Reply, kind: type[T], where: str) -> T:
    """Its answer as an object. Raises `ApiError`, and `Unavailable` where nobody listens."""
    if not reply.body:
        status = reply.header[9:12].decode(errors="replace")
        if status == "503":
            raise Unavailable(f"{where}: nobody answers; JetStream is off, or has no leader")
        raise Unavailable(f"{where}: an empty answer ({status})")
    try:
        fault = _faults.decode(reply.body).error
        if fault is not None:
            raise ApiError(where, fault)
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{where}: the answer is none of JetStream ({error})") from None


async def call(connection: Connection, subject: str, kind: type[T], **what: Any) -> T:
    body = msgspec.json.encode(what) if what else b""
    return answer_of(await connection.request(f"$JS.API.{subject}", body), kind, f"{connection.address}, {subject}")


async def info_of(connection: Connection, stream: str) -> StreamInfo:
    """Settings and state. A stream that is not there raises `LogProblem` that names those that are."""
    try:
        return await call(connection, f"STREAM.INFO.{stream}", StreamInfo)
    except ApiError as error:
        if error.code != NO_STREAM:
            raise error.meaning() from None
    names = (await call(connection, "STREAM.NAMES", Names)).streams or []
    there = f"there are {', '.join(names[:20])}{' …' if names[20:] else ''}" if names else "there is none at all"
    raise LogProblem(f"{connection.address} has no stream {stream}; {there}. JetStream's names are case-sensitive")


async def got(connection: Connection, stream: str, **which: Any) -> Stored | None:
    """One message: `seq`, `last_by_subj`, or `next_by_subj` with `seq`."""
    try:
        return (await call(connection, f"STREAM.MSG.GET.{stream}", _Got, **which)).message
    except ApiError as error:
        if error.code == NO_MESSAGE:
            return None
        raise error.meaning() from None


async def purge(connection: Connection, stream: str, subject: str) -> None:
    try:
        await call(connection, f"STREAM.PURGE.{stream}", _Done, filter=subject)
    except ApiError as error:
        raise error.meaning() from None
