"""Reads a logical replication slot: rows in the order of commits, from a given place on.

We speak the streaming protocol over psycopg's libpq, with the server's own plugin `pgoutput`, version 1: a transaction
comes when it has been committed, whole, between Begin and Commit. Asking for slices by SQL
(`pg_logical_slot_peek_changes`) begins anew each time with all that the slot still holds.

Every reader works on a temporary copy of the log's slot, which ends with its connection. So anybody may read at any
time, a reader that hangs holds up nobody, and the slot itself moves only when a checkpoint allows it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

import psycopg
from psycopg import pq, sql

from isthmus.adapters.postgres.position import Place, lsn_text
from isthmus.adapters.postgres.session import PATIENCE, connect, meaning_of
from isthmus.adapters.postgres.table import Layout
from isthmus.runtime.log.interface import Entry, LogProblem, Recreated, Trimmed, Unavailable

ANSWER_EVERY = 10.0
"""Seconds between two words of ours; after 60 without any (`wal_sender_timeout`) the server hangs up."""

_HEAD = 25
"""Bytes before every change: `w`, where it is, where the log ends, the server's clock."""
_INT16, _INT32 = Struct(">H"), Struct(">I")
_BEGIN, _KEEPALIVE, _ANSWER = Struct(">qqi"), Struct(">cqqc"), Struct(">cqqqqc")
_WRITE, _ALIVE = ord("w"), ord("k")
_BEGINS, _INSERTS, _COMMITS, _RELATES = b"B"[0], b"I"[0], b"C"[0], b"R"[0]
_TEXT = ord("t")

_MICROSECONDS_TO_2000 = 946_684_800_000_000
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_SHORTLY = 0.1

MakeLayout = Callable[[int, Sequence[tuple[str, int]]], Layout | None]
"""From a table's object id and its columns, with their types; None for a table that is none of ours."""


class Changes:
    """One connection that streams. `place` is behind the last entry that `read` has returned."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        where: str,
        place: Place,
        make_layout: MakeLayout,
    ) -> None:
        self._connection = connection
        self._where = where
        self._make_layout = make_layout
        self._layouts: dict[int, Layout | None] = {}
        self._loop = asyncio.get_running_loop()
        self.place = place
        self.decoded = place.lsn
        """Up to here everything has been read: what is committed from here on is written behind it."""
        self._lsn, self._time, self._row = place.lsn, place.time, 0
        self._milliseconds = 0
        self._to_skip = place.row
        self.rows = 0
        self._expected = bool(place.row)
        self._answered = self._loop.time()

    async def read(self, entries: int, size: int, wait: float) -> list[Entry]:
        """So many entries, or about so many bytes, or what has come after `wait` seconds."""
        give_up = self._loop.time() + wait
        got: list[Entry] = []
        receive = self._connection.pgconn.get_copy_data
        looked = False
        if self._loop.time() - self._answered > ANSWER_EVERY or self._expected:
            self.ask()
        try:
            while len(got) < entries and size > 0:
                length, data = receive(1)
                if length > 0:
                    looked = False
                    change = bytes(data)
                    if length > _HEAD and change[_HEAD] == _INSERTS and change[0] == _WRITE:
                        entry = self._on_insert(change)
                        if entry is not None:
                            got.append(entry)
                            size -= length
                    else:
                        self._on(change)
                elif length < 0:
                    raise await self._ended()
                elif not looked:
                    self._connection.pgconn.consume_input()
                    looked = True
                elif got or not await self._readable(give_up - self._loop.time()):
                    break
                else:
                    looked = False
        except psycopg.Error as error:
            raise problem_of(error, self._where) from None
        if got:
            self.place = self.place._replace(lsn=self._lsn, time=self._time, row=self._row)
        return got

    async def seek(self, time: datetime, end: int) -> Place:
        """Before the first transaction that was committed at this time or later; `end` if there is none before it."""
        microseconds = int((time - _EPOCH) / timedelta(microseconds=1))
        while self.decoded < end:
            self.ask()
            while await self.read(1, 1 << 62, _SHORTLY):
                if self._time >= microseconds:
                    return self.place._replace(lsn=self._lsn, time=0, row=0)
        return self.place._replace(lsn=end, time=0, row=0)

    async def _readable(self, seconds: float) -> bool:
        if seconds <= 0:
            return False
        try:
            async with asyncio.timeout(seconds):
                await _readable(self._connection.pgconn.socket)
        except TimeoutError:
            return False
        return True

    async def _ended(self) -> Exception:
        """Why the server has stopped streaming."""
        result = self._connection.pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return problem_of(psycopg.errors.error_from_result(result), self._where)
        return Unavailable(f"{self._where} has stopped streaming")

    def _on(self, data: bytes) -> None:
        """Anything but a row."""
        kind = data[0]
        if kind == _WRITE:
            change = data[_HEAD]
            if change == _BEGINS:
                self._on_begin(data)
            elif change == _COMMITS:
                self._on_commit()
            elif change == _RELATES:
                self._on_relation(data)
        elif kind == _ALIVE:
            _, self.decoded, _, wanted = _KEEPALIVE.unpack_from(data)
            if self._expected and self.decoded > self.place.lsn:
                raise self._set_back()
            if wanted == b"\1":
                self._answer(b"\0")

    def _on_begin(self, data: bytes) -> None:
        self._lsn, self._time, _ = _BEGIN.unpack_from(data, _HEAD + 1)
        self._milliseconds = (self._time + _MICROSECONDS_TO_2000) // 1000
        self._row = 0
        if self._expected:
            self._expected = False
            if (self._lsn, self._time) != (self.place.lsn, self.place.time):
                raise self._set_back()

    def _on_commit(self) -> None:
        self.decoded = max(self.decoded, self._lsn + 1)
        if self._to_skip:
            raise self._set_back()

    def _set_back(self) -> Recreated:
        return Recreated(
            f"{self._where}: the transaction at {lsn_text(self.place.lsn)}, of which entries were read, is not there. "
            "The server was restored from a backup or lost its latest transactions"
        )

    def _on_relation(self, data: bytes) -> None:
        (oid,) = _INT32.unpack_from(data, _HEAD + 1)
        rest = data.index(0, data.index(0, _HEAD + 5) + 1) + 2
        (count,) = _INT16.unpack_from(data, rest)
        at = rest + 2
        columns: list[tuple[str, int]] = []
        for _ in range(count):
            end = data.index(0, at + 1)
            (kind,) = _INT32.unpack_from(data, end + 1)
            columns.append((data[at + 1 : end].decode(), kind))
            at = end + 9
        self._layouts[oid] = self._make_layout(oid, columns)

    def _on_insert(self, data: bytes) -> Entry | None:
        self._row += 1
        self.rows += 1
        if self._to_skip:
            self._to_skip -= 1
            return None
        layout = self._layouts[_INT32.unpack_from(data, 26)[0]]
        if layout is None:
            return None
        length = _INT32.unpack_from
        at = 33
        values: list[bytes | None] = []
        for _ in range(_INT16.unpack_from(data, 31)[0]):
            if data[at] == _TEXT:
                start = at + 5
                at = start + length(data, at + 1)[0]
                values.append(data[start:at])
            else:
                at += 1
                values.append(None)
        return layout.entry(values, self._milliseconds)

    def ask(self) -> None:
        """Have the server say how far it has read."""
        self._answer(b"\1")

    def _answer(self, wanted: bytes) -> None:
        """Say how far we are, so that the copy of the slot holds back no more than it has to."""
        done = self.decoded
        with suppress(psycopg.Error):
            self._connection.pgconn.put_copy_data(_ANSWER.pack(b"r", done, done, done, 0, wanted))
            self._connection.pgconn.flush()
        self._answered = self._loop.time()

    async def close(self) -> None:
        await self._connection.close()


async def stream(
    address: dict[str, Any], where: str, slot: str, place: Place, make_layout: MakeLayout, is_passed: Any
) -> Changes:
    """Begin to read behind `place`. Raises `Trimmed` if the slot has moved past it, `Recreated` if it is elsewhere.

    `is_passed` says, of the place and of where the slot is, from where to read if nothing of ours is between them.
    """
    connection = await connect(address, where, replication="database")
    try:
        async with asyncio.timeout(PATIENCE):
            copy = f"{slot[:40]}_r{os.urandom(8).hex()}"
            statement = sql.SQL("SELECT lsn - '0/0' FROM pg_copy_logical_replication_slot({}, {}, true)")
            cursor = await connection.execute(statement.format(slot, copy))
            (held,) = await cursor.fetchone() or (0,)
            begin = place
            if place.lsn < held:
                passed = await is_passed(place, int(held))
                if not passed:
                    raise Trimmed(
                        f"{where}: entries behind {lsn_text(place.lsn)} are gone: its slot {slot} begins at "
                        f"{lsn_text(int(held))}. It was dropped, moved, or fell behind max_slot_wal_keep_size"
                    )
                begin = place._replace(lsn=passed, time=0, row=0)
            await _start(connection, where, copy, slot, begin.lsn)
    except BaseException as error:
        await connection.close()
        if isinstance(error, psycopg.Error):
            raise problem_of(error, where) from None
        if isinstance(error, TimeoutError):
            raise Unavailable(f"{where} does not answer") from None
        raise
    changes = Changes(connection, where, begin, make_layout)
    changes.place = place
    return changes


async def _start(connection: psycopg.AsyncConnection[Any], where: str, copy: str, publication: str, lsn: int) -> None:
    pgconn = connection.pgconn
    options = f"proto_version '1', publication_names '\"{publication}\"'"
    pgconn.send_query(f'START_REPLICATION SLOT "{copy}" LOGICAL {lsn_text(lsn)} ({options})'.encode())
    pgconn.flush()
    while pgconn.is_busy():
        await _readable(pgconn.socket)
        pgconn.consume_input()
    result = pgconn.get_result()
    if result is None or result.status != pq.ExecStatus.COPY_BOTH:
        if result is None:
            raise Unavailable(f"{where} does not begin to stream")
        raise psycopg.errors.error_from_result(result)


async def _readable(line: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(line, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(line)


def problem_of(error: psycopg.Error, where: str) -> Exception:
    """What an error of reading means."""
    text = error.diag.message_primary or str(error).strip()
    if error.sqlstate == "42704":
        if "publication" in text:
            return LogProblem(
                f"{where}: {text}. Its publication was removed, or made anew after rows that are not read"
            )
        return Trimmed(f"{where}: {text}. Somebody dropped it, and with it what was not read")
    if error.sqlstate == "55000":
        return Trimmed(f"{where}: {text}. What was not read may be gone")
    if error.sqlstate == "53400":
        return LogProblem(f"{where}: {text}. A log needs two: raise max_replication_slots")
    return meaning_of(error, where)
