"""A Kafka server, as `scripts/kafka` brings it, and the trial of the adapter on it, with plain confluent-kafka."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import isthmus
from isthmus.adapters.kafka import KafkaLog
from isthmus.lab.brokers.server import NoServer, Server
from isthmus.lab.harness.os_process import PATIENCE
from isthmus.runtime.log.content import HEADER_ORIGIN, HEADER_PATH, HEADER_SEQ, OUR_HEADERS, Content
from isthmus.runtime.log.interface import Entry, Log, LogSettings
from isthmus.runtime.log.trial import NotPossible
from isthmus.runtime.transport.address import LOOPBACK

JARS = Path(isthmus.__file__).parents[2] / "build" / "kafka"
"""Where `scripts/kafka` brings them, in a clone of the repository."""
FLUSHED = {"log.flush.interval.messages": "1"}
_STARTED = b"Kafka Server started"
_ALONE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Whoever comes back before this is over is not let in.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "100",
    # Entries with a time of long ago, as tests write them, would be removed at once.
    "log.retention.ms": "-1",
}
_JAVA = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


class KafkaServer(Server):
    """One broker that is its own controller. `settings` are lines of its configuration.

    `users`, names with their passwords, makes it ask for SASL/PLAIN; `keystore`, a PEM file with key and certificates,
    has it speak TLS.
    """

    kind: ClassVar[str] = "kafka"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        users: Mapping[str, str] | None = None,
        keystore: Path | None = None,
    ) -> None:
        super().__init__(directory, ports=2)
        self.settings = dict(settings or {})
        self.users = dict(users or {})
        self.keystore = keystore
        self._log_from = 0

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'kafkas' if self.keystore else 'kafka'}://{self.address}"

    def prepare(self) -> None:
        if shutil.which("java") is None:
            raise NoServer("there is no java here, and Kafka needs one, 17 or newer: `scripts/setup java` says how")
        if not list(JARS.glob("kafka_*.jar")):
            raise NoServer("there is no Kafka server in build/kafka: `scripts/kafka` brings it")
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in self._lines().items()))
        # The id of a cluster is 16 bytes; any will do.
        format_ = ("kafka.tools.StorageTool", "format", "-t", "aXN0aG11cy1pc3RobXVzLQ", "-c", str(self._configuration))
        done = subprocess.run(self._java(*format_), capture_output=True, check=False, cwd=self.directory)
        if done.returncode:
            raise NoServer(f"Kafka cannot format {self.directory}: {(done.stderr or done.stdout).decode()[-500:]}")

    def command(self) -> Sequence[str]:
        return self._java("kafka.Kafka", str(self._configuration))

    def start(self) -> Self:
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        return super().start()

    def answers(self) -> bool:
        """It listens before it can serve; when it can, it says so."""
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            return _STARTED in log.read()

    @property
    def _configuration(self) -> Path:
        return self.directory / "server.properties"

    def _java(self, *words: str) -> list[str]:
        return ["java", *_JAVA, "-cp", f"{JARS}/*", *words]

    def _lines(self) -> dict[str, str]:
        controller = f"{LOOPBACK}:{self.port + 1}"
        protocol = ("SASL_" if self.users else "") + ("SSL" if self.keystore else "PLAINTEXT")
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CLIENTS://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"CLIENTS://{self.address}",
            "listener.security.protocol.map": f"CLIENTS:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "log.dirs": str(self.directory / "data"),
            **_ALONE,
        }
        if self.users:
            # The broker is a client of itself, too.
            users = {"broker": "broker"} | self.users
            known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
            lines["listener.name.clients.sasl.enabled.mechanisms"] = "PLAIN"
            lines["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
            lines["listener.name.clients.plain.sasl.jaas.config"] = (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="broker" password="broker" {known};'
            )
        if self.keystore:
            for store in ("keystore", "truststore"):
                lines[f"listener.name.clients.ssl.{store}.type"] = "PEM"
                lines[f"listener.name.clients.ssl.{store}.location"] = str(self.keystore)
        return lines | self.settings


class KafkaTrial:
    """A server as most people run it, one topic of one partition per log."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="isthmus-kafka-"))
        self.server = KafkaServer(self._directory)
        self._topics = 0

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def stop(self) -> None:
        if self.server.alive:
            self.server.go_on()
        await asyncio.to_thread(self.server.stop)
        shutil.rmtree(self._directory, ignore_errors=True)

    async def fresh(self) -> LogSettings:
        self._topics += 1
        topic = f"orders-{self._topics}"
        await asyncio.to_thread(create, self.server, topic)
        return LogSettings(
            system="tried", provider="kafka", url=self.server.url, streams=(topic,), state=f"tried-{self._topics}"
        )

    def make(self, settings: LogSettings) -> Log:
        return KafkaLog(settings)

    async def write(self, settings: LogSettings, contents: Sequence[Content]) -> None:
        await asyncio.to_thread(produce, self.server, settings.streams[0], contents)

    async def contents(self, settings: LogSettings) -> Sequence[Entry]:
        return await asyncio.to_thread(consume, self.server, settings.streams[0])

    async def trim(self, settings: LogSettings, keep: int) -> None:
        def work() -> None:
            topic = settings.streams[0]
            entries = consume_messages(self.server, topic)
            before = entries[-keep].offset() if keep else -1
            operator = admin(self.server)
            _done(operator.delete_records([TopicPartition(topic, 0, before)]))

        await asyncio.to_thread(work)

    async def recreate(self, settings: LogSettings) -> None:
        def work() -> None:
            topic = settings.streams[0]
            operator = admin(self.server)
            _done(operator.delete_topics([topic], operation_timeout=PATIENCE))
            create(self.server, topic)

        await asyncio.to_thread(work)

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def pause(self) -> None:
        self.server.pause()

    async def go_on(self) -> None:
        self.server.go_on()


# What operators and plain clients do ----------------------------------------------------------------------------------


def admin(server: KafkaServer) -> Any:
    """Whoever uses it has to hold it until its calls are over."""
    return AdminClient({"bootstrap.servers": server.address, "log_level": 0})


def create(server: KafkaServer, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic, waiting for one of that name to be gone."""
    config = {name.replace("_", "."): value for name, value in config.items()}
    operator = admin(server)
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            _done(operator.create_topics([NewTopic(topic, partitions, 1, config=config)]))
            break
        except KafkaException:
            # The one before is still being deleted, or a broker that has just begun does not count itself yet.
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
    while topic not in operator.list_topics(timeout=PATIENCE).topics and time.monotonic() < give_up:
        time.sleep(0.02)


def produce(server: KafkaServer, topic: str, contents: Sequence[Content], partition: int = 0) -> None:
    producer = Producer(
        {"bootstrap.servers": server.address, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    failed: list[KafkaError] = []
    for content in contents:
        try:
            headers = [(name.decode(), value) for name, value in content.headers]
        except UnicodeDecodeError:
            raise NotPossible("names of headers are UTF-8 in Kafka") from None
        more = {"timestamp": content.time} if content.time else {}
        producer.produce(
            topic,
            content.body if content.place >= 0 else None,
            content.key,
            partition,
            headers=headers,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            **more,
        )
    left = producer.flush(PATIENCE)
    if failed:
        raise KafkaException(failed[0])
    if left:
        raise TimeoutError(f"{left} messages were not taken in {PATIENCE:.0f} s")


def consume(server: KafkaServer, topic: str, partition: int = 0) -> Sequence[Entry]:
    return [_seen(message) for message in consume_messages(server, topic, partition)]


def consume_messages(server: KafkaServer, topic: str, partition: int = 0) -> list[Any]:
    """Everything committed that is there, when no transaction is under way."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "plain",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found: list[Any] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            for message in consumer.consume(1, PATIENCE) + consumer.consume(1000, 0):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    raise TimeoutError(f"{topic} could not be read to its end in {PATIENCE:.0f} s")


def _seen(message: Any) -> Entry:
    """A message as whoever looks at it would describe it."""
    pairs = message.headers() or []
    ours = {name: value.decode(errors="replace") for name, value in reversed(pairs) if name in OUR_HEADERS}
    rest = [(name.encode(), value) for name, value in pairs if name not in OUR_HEADERS]
    value = message.value()
    content = Content(
        value or b"", rest, message.topic(), message.key(), message.timestamp()[1], 0 if value is not None else -1
    )
    seq = ours.get(HEADER_SEQ, "0")
    number = int(seq) if seq.isascii() and seq.isdigit() else 0
    return Entry(content, ours.get(HEADER_ORIGIN, ""), number, ours.get(HEADER_PATH, ""))


def _done(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(PATIENCE)
