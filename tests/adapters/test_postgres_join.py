"""Two PostgreSQL servers joined for real: gateways with standbys, plain clients, everything killed now and then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from patience import seconds

from isthmus.adapters.table import make_log
from isthmus.lab.brokers.postgres import PostgresServer
from isthmus.lab.harness.os_process import Ports
from isthmus.runtime.log.driver import Options
from isthmus.runtime.log.settings import settings_of
from isthmus.runtime.log.site import LogSite
from isthmus.topology.file import parse
from isthmus.topology.model import Topology

pytestmark = pytest.mark.real

COLUMNS = "id bigserial PRIMARY KEY, body text, isthmus_origin text, isthmus_seq bigint, isthmus_path text"
FILE = """
[systems.madrid]
kind = "postgres"
url = "{madrid}"
streams = ["orders", "returns"]
link-address = ["127.0.0.1:{first}", "127.0.0.1:{second}"]
gateways = 1

[systems.valencia]
kind = "postgres"
url = "{valencia}"
stream = "inbox"
link-address = ["127.0.0.1:{third}", "127.0.0.1:{fourth}"]
gateways = 1

[[joins]]
between = ["madrid", "valencia"]
order = "causal"
links = 2
"""


class Hosts:
    """Gateways and their standbys, in this process."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.running: dict[str, list[asyncio.Task[None]]] = {"madrid": [], "valencia": []}

    def start(self, name: str) -> None:
        system = self._topology.system(name)
        log = make_log(settings_of(self._topology, system, "run"))
        site = LogSite(self._topology, system, log, "run", Options(lease=1.0))
        self.running[name].append(asyncio.ensure_future(site.run(asyncio.Event())))

    async def replace(self, name: str) -> None:
        """As a crash of the oldest host: nothing is released, nothing is said."""
        oldest = self.running[name].pop(0)
        self.start(name)
        oldest.cancel()
        await asyncio.gather(oldest, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(seconds(60)):
            while not condition():
                for host in (*self.running["madrid"], *self.running["valencia"]):
                    if host.done():
                        host.result()
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        everybody = [*self.running["madrid"], *self.running["valencia"]]
        for host in everybody:
            host.cancel()
        await asyncio.gather(*everybody, return_exceptions=True)


@asynccontextmanager
async def joined(madrid: PostgresServer, valencia: PostgresServer) -> AsyncIterator[Hosts]:
    ports = Ports()
    first = ports.take(4)
    names = dict(zip(("first", "second", "third", "fourth"), range(first, first + 4), strict=True))
    hosts = Hosts(parse(FILE.format(madrid=madrid.url, valencia=valencia.url, **names), "two.toml"))
    try:
        yield hosts
    finally:
        await hosts.end()
        ports.release()


def rows(server: PostgresServer, query: str) -> list[Any]:
    with server.connect() as plain:
        return plain.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]


def test_what_is_inserted_here_stands_there_once_and_in_order_through_deaths_of_gateways_and_servers(
    tmp_path: Path,
) -> None:
    with PostgresServer(tmp_path / "madrid") as madrid, PostgresServer(tmp_path / "valencia") as valencia:
        for server, tables in ((madrid, ("orders", "returns")), (valencia, ("inbox",))):
            with server.connect() as plain:
                for table in tables:
                    plain.execute(f"CREATE TABLE {table} ({COLUMNS})")

        def brought_in(server: PostgresServer, table: str) -> int:
            try:
                return int(rows(server, f"SELECT count(*) FROM {table} WHERE isthmus_origin IS NOT NULL")[0][0])
            except psycopg.OperationalError:
                return 0

        async def test() -> None:
            async with joined(madrid, valencia) as hosts:
                for name in ("madrid", "madrid", "valencia", "valencia"):
                    hosts.start(name)
                await hosts.until(lambda: len(rows(madrid, "SELECT 1 FROM pg_replication_slots")) > 0)
                await hosts.until(lambda: len(rows(valencia, "SELECT 1 FROM pg_replication_slots")) > 0)
                count = 0
                for trouble in ("nobody", "madrid", "valencia", "server"):
                    for _ in range(100):
                        count += 1
                        with madrid.connect() as plain:
                            plain.execute(f"INSERT INTO orders (body) VALUES ('order {count}')")
                            plain.execute(f"INSERT INTO returns (body) VALUES ('return {count}')")
                        with valencia.connect() as plain:
                            plain.execute(f"INSERT INTO inbox (body) VALUES ('inbox {count}')")
                        await asyncio.sleep(0)
                    if trouble in hosts.running:
                        await hosts.replace(trouble)
                    elif trouble == "server":
                        for server in (madrid, valencia):
                            server.kill()
                            server.start()
                await hosts.until(lambda: brought_in(valencia, "inbox") >= 2 * count)
                await hosts.until(lambda: brought_in(madrid, "orders") >= count)
            came = rows(valencia, "SELECT body FROM inbox WHERE isthmus_origin IS NOT NULL ORDER BY id")
            wanted = [(f"{word} {n}",) for n in range(1, count + 1) for word in ("order", "return")]
            assert came == wanted, "in the one order of both tables"
            back = rows(madrid, "SELECT body FROM orders WHERE isthmus_origin IS NOT NULL ORDER BY id")
            assert back == [(f"inbox {n}",) for n in range(1, count + 1)]
            ours = rows(valencia, "SELECT DISTINCT isthmus_origin, isthmus_path FROM inbox ORDER BY 1")
            assert ours[:2] == [("madrid/orders", "madrid,valencia"), ("madrid/returns", "madrid,valencia")]

        asyncio.run(test())
