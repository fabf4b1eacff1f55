"""A PostgreSQL server of the machine's own package, and the trial of its adapter."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import psycopg

from isthmus.adapters.postgres import PostgresLog
from isthmus.adapters.postgres.setup import name_of
from isthmus.lab.brokers.server import NoServer, Server
from isthmus.lab.harness.os_process import PATIENCE
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log, LogSettings
from isthmus.runtime.log.trial import NotPossible
from isthmus.runtime.transport.address import LOOPBACK

SUPERUSER = "postgres"
_PLACES = ("/usr/lib/postgresql", "/usr/local/pgsql", "/usr/pgsql", "/opt/homebrew/opt")
_UNPRIVILEGED = ("postgres", "nobody")


def find_programs() -> Path:
    """The folder of `initdb` and `postgres`, of the newest version that there is."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    for place in _PLACES:
        folders += [path.parent for path in Path(place).glob("**/bin/initdb")]
    if not folders:
        raise NoServer("there is no PostgreSQL here; on Debian or Ubuntu: apt-get install postgresql")
    return max(folders, key=lambda folder: [int(word) for word in folder.parent.name.split(".") if word.isdigit()])


class PostgresServer(Server):
    """One cluster. With a password it asks everybody for it (SCRAM); with `certificate` and `key` it speaks TLS, too.

    It does not run as root, and nobody else may look into the folders that root's tests make: so where root runs it,
    its data lie in a temporary folder of their own.
    """

    kind: ClassVar[str] = "postgres"

    def __init__(
        self,
        directory: Path,
        *,
        fsync: bool = True,
        password: str = "",
        certificate: Path | None = None,
        key: Path | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        super().__init__(directory)
        self._settings = [f"fsync={'on' if fsync else 'off'}", *settings]
        self._password = password
        self._tls = (certificate, key)
        self._user = next(filter(_is_user, _UNPRIVILEGED), "") if os.geteuid() == 0 else ""
        self.data = directory / "data"
        if self._user:
            self.data = Path(tempfile.mkdtemp(prefix="isthmus-postgres-"))
            shutil.chown(self.data, self._user)
            weakref.finalize(self, shutil.rmtree, self.data, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"postgres://{SUPERUSER}@{LOOPBACK}:{self.port}/postgres"

    def prepare(self) -> None:
        self._programs = find_programs()
        words = [str(self._programs / "initdb"), "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=trust"]
        words += [f"--username={SUPERUSER}", f"--pgdata={self.data}"]
        made = subprocess.run(
            self._as_user(words), check=False, capture_output=True, text=True, timeout=PATIENCE, cwd="/"
        )
        if made.returncode:
            raise NoServer(f"initdb failed: {made.stderr.strip()}")
        how = "scram-sha-256" if self._password else "trust"
        rules = f"local all all trust\nhost all all {LOOPBACK}/32 {how}\nhost replication all {LOOPBACK}/32 {how}\n"
        (self.data / "pg_hba.conf").write_text(rules)
        certificate, key = self._tls
        if certificate and key:
            for name, source in (("server.crt", certificate), ("server.key", key)):
                shutil.copyfile(source, self.data / name)
                (self.data / name).chmod(0o600)
                if self._user:
                    shutil.chown(self.data / name, self._user)
            self._settings.append("ssl=on")

    def command(self) -> Sequence[str]:
        settings = [
            f"port={self.port}",
            f"listen_addresses={LOOPBACK}",
            f"unix_socket_directories={self.data}",
            "wal_level=logical",
            "max_replication_slots=500",
            "max_wal_senders=50",
            *self._settings,
        ]
        words = [str(self._programs / "postgres"), "-D", str(self.data)]
        return self._as_user([*words, *(word for setting in settings for word in ("-c", setting))])

    def _as_user(self, words: list[str]) -> list[str]:
        if not self._user:
            return words
        return ["setpriv", f"--reuid={self._user}", f"--regid={_group_of(self._user)}", "--clear-groups", *words]

    def answers(self) -> bool:
        with suppress(psycopg.Error), self.connect():
            return True
        return False

    def connect(self) -> psycopg.Connection:
        """A superuser's connection, past passwords."""
        return psycopg.connect(
            host=str(self.data), port=self.port, user=SUPERUSER, dbname="postgres", autocommit=True, connect_timeout=5
        )

    def start(self) -> PostgresServer:
        again = self._process is not None
        super().start()
        if self._password and not again:
            with self.connect() as connection:
                connection.execute(
                    psycopg.sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                        psycopg.sql.Identifier(SUPERUSER), psycopg.sql.Literal(self._password)
                    )
                )
        return self

    def stop(self) -> None:
        """End it, whoever is connected: SIGINT is what PostgreSQL calls a fast shutdown."""
        if self.alive:
            os.kill(self.pid, signal.SIGINT)
        super().stop()

    def kill(self) -> None:
        """SIGKILL of the server and of every process of it, as when a machine loses power."""
        family = list(self._family()) if self.alive else []
        super().kill()
        _tell(family, signal.SIGKILL)
        for pid in family:
            _wait_for_end(pid)

    def pause(self) -> None:
        super().pause()
        _tell(self._family(), signal.SIGSTOP)

    def go_on(self) -> None:
        _tell(self._family(), signal.SIGCONT)
        super().go_on()

    def _family(self) -> Iterator[int]:
        """Every connection and every worker is a process of its own."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[1]) == self.pid:
                    yield int(stat.parent.name)


def _is_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


def _group_of(user: str) -> int:
    return pwd.getpwnam(user).pw_gid


def _tell(pids: Iterable[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _wait_for_end(pid: int) -> None:
    """A process that is left holds memory without which the next server does not start."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            select.select([handle], [], [], PATIENCE)
        finally:
            os.close(handle)


_COLUMNS = """id bigserial PRIMARY KEY, body bytea, headers jsonb, message_key bytea, subject text, written timestamptz,
    isthmus_origin text, isthmus_seq bigint, isthmus_path text"""
_OURS = {b"isthmus-origin": "isthmus_origin", b"isthmus-seq": "isthmus_seq", b"isthmus-path": "isthmus_path"}
_ID = re.compile(r"INSERT: id\[bigint\]:(\d+)")


class PostgresTrial:
    """A server, and one table per log, with a column for everything.

    A second slot by another plugin (`test_decoding`) tells in which order rows were committed.
    """

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="isthmus-postgres-"))
        self.server = PostgresServer(self._directory)
        self._tables = 0

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def stop(self) -> None:
        if self.server.alive:
            self.server.go_on()
        await asyncio.to_thread(self.server.stop)
        shutil.rmtree(self._directory, ignore_errors=True)

    async def fresh(self) -> LogSettings:
        self._tables += 1
        settings = LogSettings(
            system="tried",
            provider="postgres",
            url=self.server.url,
            streams=(f"public.orders_{self._tables}",),
            state=f"tried_{self._tables}",
            options={
                "key-column": "message_key",
                "subject-column": "subject",
                "time-column": "written",
                "headers-column": "headers",
            },
        )
        async with self.client() as client:
            await self._make(client, settings)
            # Whoever wants the log to begin before isthmus comes makes its slot himself: docs/brokers.md.
            name = name_of(settings.state)
            await client.execute(
                f"CREATE PUBLICATION {name} FOR TABLE {settings.streams[0]} "
                "WITH (publish = 'insert', publish_via_partition_root = true)"
            )
            await client.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
        return settings

    async def _make(self, client: Client, settings: LogSettings) -> None:
        await client.execute(f"CREATE TABLE {settings.streams[0]} ({_COLUMNS})")
        await client.execute(f"SELECT pg_create_logical_replication_slot('{_observer(settings)}', 'test_decoding')")

    def make(self, settings: LogSettings) -> Log:
        return PostgresLog(settings)

    def client(self) -> AbstractAsyncContextManager[Client]:
        """A plain client of the broker."""
        return _connected(self.server.url)

    async def write(self, settings: LogSettings, contents: Sequence[Content]) -> None:
        async with self.client() as client:
            for content in contents:
                values: dict[str, Any] = {"body": content.body if content.place >= 0 else None}
                more = []
                for name, value in content.headers:
                    if name in _OURS:
                        values[_OURS[name]] = _text(value)
                    else:
                        more.append([_text(name), _text(value)])
                values["headers"] = json.dumps(more, ensure_ascii=False) if more else None
                columns, places = ", ".join(values), ", ".join(["%s"] * len(values))
                try:
                    await client.execute(
                        f"INSERT INTO {settings.streams[0]} ({columns}) VALUES ({places})", list(values.values())
                    )
                except psycopg.DataError as error:
                    raise NotPossible(str(error)) from None

    async def contents(self, settings: LogSettings) -> Sequence[Entry]:
        async with self.client() as client:
            cursor = await client.execute(
                f"SELECT id, body, headers::text, isthmus_origin, isthmus_seq, isthmus_path FROM {settings.streams[0]}"
            )
            rows = {row[0]: row for row in await cursor.fetchall()}
            cursor = await client.execute(
                "SELECT data FROM pg_logical_slot_peek_changes(%s, NULL, NULL) WHERE data LIKE %s",
                [_observer(settings), f"table {settings.streams[0]}: INSERT: %"],
            )
            order = [int(found[1]) for (data,) in await cursor.fetchall() if (found := _ID.search(data))]
        return [_seen(rows[id]) for id in order if id in rows]

    async def trim(self, settings: LogSettings, keep: int) -> None:
        """As isthmus does it itself behind a checkpoint. A slot stands before a transaction, so one is left."""
        async with self.client() as client:
            cursor = await client.execute(
                "SELECT lsn FROM pg_logical_slot_peek_changes(%s, NULL, NULL) WHERE data LIKE 'COMMIT%%'",
                [_observer(settings)],
            )
            ends = [end for (end,) in await cursor.fetchall()]
            kept = max(keep, 1)
            name = name_of(settings.state)
            await client.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [name, ends[-kept - 1]])
            await client.execute(
                f"DELETE FROM {settings.streams[0]} WHERE id NOT IN "
                f"(SELECT id FROM {settings.streams[0]} ORDER BY id DESC LIMIT {keep})"
            )

    async def recreate(self, settings: LogSettings) -> None:
        async with self.client() as client:
            await client.execute(f"DROP TABLE {settings.streams[0]}")
            await client.execute(f"SELECT pg_drop_replication_slot('{_observer(settings)}')")
            await self._make(client, settings)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def pause(self) -> None:
        self.server.pause()

    async def go_on(self) -> None:
        self.server.go_on()


Client: TypeAlias = psycopg.AsyncConnection[Any]


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Client]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5) as client:
        yield client


def _observer(settings: LogSettings) -> str:
    return f"observer_{settings.state}"


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise NotPossible("text of PostgreSQL is UTF-8") from None


def _seen(row: Sequence[Any]) -> Entry:
    """An entry as whoever looks at the table would describe it."""
    id, body, headers, origin, seq, path = row
    pairs = [] if origin else [(b"id", str(id).encode())]
    for name, value in json.loads(headers or "[]"):
        pairs.append((_bytes(name), _bytes(value)))
    return Entry(Content(body or b"", pairs, place=-1 if body is None else 0), origin or "", seq or 0, path or "")


def _bytes(word: Any) -> bytes:
    return word.encode() if isinstance(word, str) else base64.b64decode(word["base64"])
