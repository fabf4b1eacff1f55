"""A PostgreSQL server of the machine's own package. Logical decoding is on; every client of this machine may call."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psycopg

from isthmus.lab.brokers.server import NoServer, Server
from isthmus.lab.harness.os_process import PATIENCE
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
            "max_replication_slots=50",
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


def _tell(pids: Sequence[int] | Iterator[int], what: signal.Signals) -> None:
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
