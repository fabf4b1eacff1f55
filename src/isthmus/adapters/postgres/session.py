"""One connection to the server, and what each error of PostgreSQL means to a log.

A server that does not answer is given up after `PATIENCE`, by cutting the connection: psycopg's own way to give up asks
the server to cancel, and waits for it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import conninfo, sql

from isthmus.adapters.postgres.insertion import register
from isthmus.runtime.log.interface import LogProblem, LogSettings, Unavailable

PATIENCE = 5.0
"""Seconds that a server may take to answer."""

_MOST_WORDS = 500

_SESSION = {
    "search_path": "pg_catalog",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read\\ committed",
    "bytea_output": "hex",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "statement_timeout": "0",
    "lock_timeout": "4s",
    "idle_in_transaction_session_timeout": "10s",
}
"""What rows look like as text must be the same at both ends, and what is appended must be durable, whatever the
database's own settings are."""

_FOR_NOW = (
    "08",  # the connection broke
    "40",  # a deadlock, or another transaction was first
    "53",  # no room on disk, no memory, no more connections
    "57",  # shutting down, starting up, cancelled
    "58",  # the disk cannot be read
    "25006",  # read only: a standby
    "55006",  # a slot is in use
    "XX",  # a bug, or broken data
)
_OF_THE_ROW = (
    "22",  # a value that its type does not take
    "23",  # a constraint
    "44",  # the condition of a view
    "54",  # too large for a row or an index
    "P0",  # a trigger says no
    "42804",  # no conversion between types
    "428C9",  # a column that only the server fills
)
_AT_THE_DOOR = (
    "password",
    "authentication",
    "role",
    "does not exist",
    "pg_hba",
    "certificate",
    "SSL",
    "permission denied",
    "not permitted",
)
"""What a server says, in English, to callers that it will never let in. In other languages we go on asking, and the
line that says that the broker is away quotes it."""

_Result = TypeVar("_Result")
Statement: TypeAlias = tuple[str, Sequence[Any]]


class Locked(Unavailable):
    """Somebody else holds a lock for too long."""


class RefusedRow(Exception):
    """The server will not take some row."""


def address_of(settings: LogSettings) -> dict[str, Any]:
    """The parameters of a connection: the url's, and over them what the file says beside it."""
    options = settings.options
    try:
        words: dict[str, Any] = dict(conninfo.conninfo_to_dict(settings.url))
    except psycopg.Error as error:
        raise LogProblem(f"{settings.system}: url is no address of PostgreSQL: {_first_line(error)}") from None
    words.setdefault("dbname", "postgres")
    for ours, theirs in (
        ("username", "user"),
        ("password", "password"),
        ("ca-file", "sslrootcert"),
        ("certificate-file", "sslcert"),
        ("key-file", "sslkey"),
    ):
        if ours in options:
            words[theirs] = options[ours]
    if "ca-file" in options:
        words.setdefault("sslmode", "verify-full")
    elif "certificate-file" in options:
        words.setdefault("sslmode", "require")
    words["options"] = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    words["client_encoding"] = "UTF8"
    words["connect_timeout"] = str(int(PATIENCE))
    words.setdefault("application_name", "isthmus")
    return words


class Session:
    """A connection that is made when it is needed, and made anew after trouble. Its statements commit by themselves."""

    def __init__(self, address: dict[str, Any], where: str) -> None:
        self._address = address
        self._where = where
        self._connection: psycopg.AsyncConnection[tuple[Any, ...]] | None = None
        self._turn = asyncio.Lock()

    async def rows(
        self, statement: str | sql.Composable, values: Sequence[Any] = (), patience: float = PATIENCE
    ) -> list[tuple[Any, ...]]:
        """The rows that come of one statement, or `RefusedRow`, `Unavailable`, `LogProblem`."""
        async with self._turn:
            connection = await self.connected()
            return await self.guarded(_rows(connection, statement, values), patience)

    async def together(self, first: Statement, then: Sequence[Statement]) -> int:
        """What the first statement counts, and if that is more than 0, the others in the same transaction."""
        async with self._turn:
            connection = await self.connected()
            return await self.guarded(_together(connection, first, then))

    async def try_out(self, statements: Sequence[Statement]) -> None:
        """Do it and undo it: raises what it would raise."""
        async with self._turn:
            connection = await self.connected()
            await self.guarded(_try_out(connection, statements))

    async def sees_rows(self, snapshot: str, tables: Sequence[str]) -> bool:
        """Whether there are rows in these tables, seen as another connection has exported it."""
        async with self._turn:
            connection = await self.connected()
            return await self.guarded(_sees_rows(connection, snapshot, tables))

    async def connected(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._address, self._where)
        return self._connection

    async def guarded(self, work: Awaitable[_Result], patience: float = PATIENCE) -> _Result:
        """Wait for what the connection does; cut it if that takes too long, or if nobody waits any more."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait((task,), timeout=patience)
            if not done:
                raise Unavailable(f"{self._where} does not answer")
            return task.result()
        except psycopg.Error as error:
            raise meaning_of(error, self._where) from None
        finally:
            if not task.done():
                connection, self._connection = self._connection, None
                if connection is not None:
                    cut(connection)
                with suppress(Exception):
                    await task
                if connection is not None:
                    await connection.close()

    async def close(self) -> None:
        async with self._turn:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None


async def connect(address: dict[str, Any], where: str, **more: Any) -> psycopg.AsyncConnection[tuple[Any, ...]]:
    try:
        connection = await psycopg.AsyncConnection.connect(
            **(address | more), autocommit=True, cursor_factory=psycopg.AsyncRawCursor
        )
    except psycopg.Error as error:
        text = _first_line(error)
        if any(words in text for words in _AT_THE_DOOR) and "starting up" not in text:
            raise LogProblem(
                f"{where} does not let us in: {text}. Look at username, password-file or password-env, the database in "
                "url, ca-file, and the server's pg_hba.conf"
            ) from None
        raise Unavailable(f"{where} cannot be reached: {text}") from None
    register(connection.adapters)
    return connection


def meaning_of(error: psycopg.Error, where: str) -> Exception:
    """What an error means to whoever uses the log."""
    code = error.sqlstate or ""
    text = _first_line(error)
    if code == "55P03":
        return Locked(f"{where}: {text}")
    if not code or code.startswith(_FOR_NOW):
        return Unavailable(f"{where}: {text}" if code else f"{where} has gone: {text}")
    if code.startswith(_OF_THE_ROW):
        detail = error.diag.message_detail
        return RefusedRow(f"{text} ({detail[:_MOST_WORDS]})" if detail else text)
    return LogProblem(f"{where} refuses what a join needs: {text} ({code})")


def _first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error).strip().partition("\n")[0]
    return text[:_MOST_WORDS]


async def _rows(
    connection: psycopg.AsyncConnection[tuple[Any, ...]], statement: Any, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(statement, values or None)
    return await cursor.fetchall() if cursor.description else []


async def _together(
    connection: psycopg.AsyncConnection[tuple[Any, ...]], first: Statement, then: Sequence[Statement]
) -> int:
    async with connection.transaction():
        ((count,),) = await _rows(connection, *first)
        if count:
            async with connection.pipeline():
                for statement, values in then:
                    await connection.execute(statement, values)
    return int(count)


async def _try_out(connection: psycopg.AsyncConnection[tuple[Any, ...]], statements: Sequence[Statement]) -> None:
    async with connection.transaction(force_rollback=True):
        for statement, values in statements:
            await connection.execute(statement, values)
        await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")


async def _sees_rows(
    connection: psycopg.AsyncConnection[tuple[Any, ...]], snapshot: str, tables: Sequence[str]
) -> bool:
    held = " OR ".join(f"EXISTS (SELECT FROM {table})" for table in tables)
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
        cursor = await connection.execute(f"SELECT {held}")
        return bool((await cursor.fetchall())[0][0])


def cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """End the conversation below psycopg, which then finds it ended, wherever it is."""
    with suppress(psycopg.Error, OSError):
        line = socket.socket(fileno=os.dup(connection.fileno()))
        with line:
            line.shutdown(socket.SHUT_RDWR)
