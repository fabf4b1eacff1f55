"""Joined brokers in the lake: plain clients, gateways and taps that are killed, the streaming source behind them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from cli_support import COMMAND, ENVIRONMENT, call
from patience import seconds

from isthmus.lab.brokers.nats import NatsServer
from isthmus.lab.brokers.redis import ValkeyServer
from isthmus.lab.harness.os_process import Ports
from isthmus.runtime.transport.address import LOOPBACK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIRS = 3000


class RedisSide:
    """A Valkey of its own with a stream, written and read by redis-py."""

    def __init__(self, directory: Path, state: str) -> None:
        import redis

        self.server = ValkeyServer(directory).start()
        self.client = redis.Redis(host=LOOPBACK, port=self.server.port)
        self.keys = f'kind = "redis"\nurl = "{self.server.url}"\nstream = "orders"\n'
        self._read = "0-0"

    def write(self, *bodies: bytes) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd("orders", {"body": body})
        pipeline.execute()

    def new(self) -> list[bytes]:
        """What has come since the last look."""
        found = self.client.xrange("orders", f"({self._read}", count=500)
        if found:
            self._read = found[-1][0].decode()
        return [fields[b"body"] for _, fields in found]

    def everything(self) -> list[bytes]:
        return [fields[b"body"] for _, fields in self.client.xrange("orders")]

    def stop(self) -> None:
        self.server.stop()


class NatsSide:
    """A NATS server of its own with a stream, written and read by nats-py."""

    SUBJECT = "orders.new"

    def __init__(self, directory: Path, state: str) -> None:
        self.server = NatsServer(directory).start()
        self.keys = f'kind = "nats"\nurl = "{self.server.url}"\nstream = "ORDERS"\ndefault-subject = "orders.in"\n'
        self._loop = asyncio.new_event_loop()
        self._do(self._open(f"isthmus.record.{state}"))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    async def _open(self, record: str) -> None:
        import nats

        self._client = await nats.connect(self.server.url)
        settings = {"name": "ORDERS", "subjects": ["orders.>", record], "allow_atomic": True}
        answer = await self._client.request("$JS.API.STREAM.CREATE.ORDERS", json.dumps(settings).encode(), timeout=10)
        assert "error" not in json.loads(answer.data), answer.data
        self._stream = self._client.jetstream(timeout=30)
        self._reader = await self._consumer()

    async def _consumer(self) -> Any:
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=600)
        return await self._stream.pull_subscribe("orders.>", stream="ORDERS", config=config)

    def write(self, *bodies: bytes) -> None:
        async def publish() -> None:
            for body in bodies:
                await self._stream.publish(self.SUBJECT, body)

        self._do(publish())

    async def _fetch(self, reader: Any, within: float) -> list[bytes]:
        import nats.errors

        try:
            return [message.data for message in await reader.fetch(500, timeout=within)]
        except (nats.errors.TimeoutError, TimeoutError):
            return []

    def new(self) -> list[bytes]:
        return list(self._do(self._fetch(self._reader, 0.1)))

    def everything(self) -> list[bytes]:
        async def read() -> list[bytes]:
            reader = await self._consumer()
            found: list[bytes] = []
            while some := await self._fetch(reader, 1):
                found += some
            await reader.unsubscribe()
            return found

        return list(self._do(read()))

    def stop(self) -> None:
        self._do(self._client.close())
        self._loop.close()
        self.server.stop()


class Commands:
    """`isthmus` in processes of its own, which are killed and started again."""

    def __init__(self, topology: Path, directory: Path) -> None:
        self.topology = topology
        self.directory = directory
        self.running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def _words(self, command: str, site: str) -> list[str]:
        trace, kept = self.directory / "trace", self.directory / "kept"
        where = ("--trace", trace) if command == "run" else ("--keep", kept)
        return [*COMMAND, *map(str, (command, self.topology, "--site", site, "--run", "r", *where))]

    def start(self, command: str, site: str) -> None:
        with (self.directory / f"{command}-{site}.log").open("ab") as log:
            self.running[command, site] = subprocess.Popen(
                [*self._words(command, site), *(["--trace-open"] if command == "run" else [])],
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
            )

    def once(self, command: str, site: str, *more: str) -> bytes:
        """Run it to its end; what it printed."""
        words = [*self._words(command, site), *more]
        return subprocess.run(words, check=True, capture_output=True, env=ENVIRONMENT, timeout=seconds(60)).stdout

    def kill(self, command: str, site: str) -> None:
        """SIGKILL, and the same command again."""
        process = self.running[command, site]
        assert process.poll() is None, self.last_words()
        process.kill()
        process.wait()
        self.start(command, site)

    def stop(self, command: str, site: str) -> None:
        process = self.running[command, site]
        process.terminate()
        assert process.wait(seconds(30)) == 0, self.last_words()

    def last_words(self) -> str:
        return "\n".join(each.read_text()[-1000:] for each in self.directory.glob("*.log"))


@contextmanager
def commands(topology: Path, directory: Path) -> Iterator[Commands]:
    made = Commands(topology, directory)
    try:
        yield made
    finally:
        for process in made.running.values():
            process.kill()
            process.wait()


def until(condition: Callable[[], bool], words: Callable[[], str]) -> None:
    give_up = monotonic() + seconds(60)
    waiting = threading.Event()
    while not condition():
        assert monotonic() < give_up, words()
        waiting.wait(0.02)


@pytest.mark.real
@pytest.mark.timeout(seconds(400))
@pytest.mark.parametrize("kinds", [(RedisSide, RedisSide), (RedisSide, NatsSide)], ids=["redis-redis", "redis-nats"])
def test_joined_streams_land_whole_and_in_order_through_kills(
    spark: SparkSession,
    tmp_path: Path,
    kinds: tuple[type[RedisSide | NatsSide], ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from isthmus.pipeline.source import register

    register(spark)
    ports = Ports()
    first = ports.take(2)
    with ExitStack() as stack:
        stack.callback(ports.release)
        sides = {}
        for name, kind in zip(("madrid", "valencia"), kinds, strict=True):
            sides[name] = kind(tmp_path / name, f"r-{name}")
            stack.callback(sides[name].stop)
        topology = tmp_path / "joined.toml"
        topology.write_text(
            "".join(
                f'[systems.{name}]\n{side.keys}gateways = 1\nlink-address = "{LOOPBACK}:{first + place}"\n'
                for place, (name, side) in enumerate(sides.items())
            )
            + '[[joins]]\nbetween = ["madrid", "valencia"]\norder = "causal"\nlinks = 2\n'
        )
        made = stack.enter_context(commands(topology, tmp_path))
        for name in sides:
            made.start("run", name)
        for name in sides:
            made.start("tap", name)
        kept, trace, lake = tmp_path / "kept", tmp_path / "trace", tmp_path / "lake"
        kept.mkdir()
        trace.mkdir()
        query = (
            spark.readStream.format("isthmus")
            .option("path", json.dumps([str(kept), str(trace)]))
            .option("processes", "tap")
            .option("checkpointLocation", str(lake / "checkpoint"))
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(lake / "checkpoint"))
            .trigger(processingTime="1 second")
            .start(str(lake / "rows"))
        )
        stack.callback(query.stop)
        questions = answers = 0
        victims = iter([("run", "madrid"), ("tap", "valencia"), ("run", "valencia"), ("tap", "madrid")])
        kill_at = PAIRS // 5
        give_up = monotonic() + seconds(120)
        while answers < PAIRS:
            assert monotonic() < give_up, made.last_words()
            if questions < PAIRS and questions - answers < 200:
                sides["madrid"].write(*(b"question %d" % number for number in range(questions, questions + 50)))
                questions += 50
            come = [each for each in sides["valencia"].new() if each.startswith(b"question")]
            if come:
                sides["valencia"].write(*(each.replace(b"question", b"answer") for each in come))
                answers += len(come)
            if answers >= kill_at and (victim := next(victims, None)):
                made.kill(*victim)
                if victim == ("tap", "valencia"):
                    # In good order, too: what follows a log sees no end of it.
                    made.stop("run", "madrid")
                    made.start("run", "madrid")
                kill_at += PAIRS // 5
        total = 2 * PAIRS
        until(lambda: len(sides["madrid"].everything()) == total, made.last_words)
        for name in sides:
            until(lambda name=name: _rows(kept / f"r.{name}.tap.jsonl") == total, made.last_words)  # type: ignore[misc]
        for each in list(made.running):
            made.stop(*each)
        for name in sides:
            made.once("run", name, "--duration", "1s")
            ended = made.once("tap", name, "--quiet", "1s", "--end", "-o", "json")
            assert json.loads(ended) == {"site": name, "name": "tap", "delivered": 0}, "every entry was written before"
        query.processAllAvailable()
        rows = spark.read.parquet(str(lake / "rows")).sort("rank", "id").collect()
        contents = {name: side.everything() for name, side in sides.items()}
        compared = call(capsys, monkeypatch, "compare", topology, "--run", "r", "-o", "json")
        assert compared.code == 0, compared
    assert len({row["id"] for row in rows}) == len(rows) == 2 * total
    for name, content in contents.items():
        assert [row["payload"].encode() for row in rows if row["system"] == name] == content
    seen: set[tuple[str, str]] = set()
    for row in rows:
        word, number = row["payload"].split()
        if word == "answer":
            assert (row["system"], f"question {number}") in seen
        seen.add((row["system"], row["payload"]))
    audited = call(capsys, monkeypatch, "audit", trace, kept, "-o", "json")
    verdicts = {each["property"]: each["verdict"] for each in audited.json["verdicts"]}
    assert [verdicts[each] for each in ("integrity", "agreement", "fifo", "causal")] == ["holds"] * 4, audited
    assert audited.code == 0


def _rows(file: Path) -> int:
    return file.read_bytes().count(b'"deliver"') if file.exists() else 0
