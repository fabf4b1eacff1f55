"""What is looked at, and made, before a log is used: its topics, their settings, and the topics of ours.

What weakens the promises is said, one line each; what takes them away is refused, with what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from isthmus.adapters.kafka import parked
from isthmus.adapters.kafka.connection import PATIENCE, Connection, first_result
from isthmus.adapters.kafka.places import Part
from isthmus.adapters.kafka.reader import Offsets
from isthmus.adapters.kafka.state import MOST_BYTES
from isthmus.adapters.kafka.writer import Layout
from isthmus.runtime.log.interface import LogProblem

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id that a broker gives that knows of none."""
_DEFAULT_LIMIT = 1_048_588
_STATE = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(MOST_BYTES),
}
"""What topics of ours are like. An entry may have been put aside because it was larger than what the log takes."""
_FOR_EVER = "-1"


def look_at(connection: Connection, offsets: Offsets, parts: Sequence[Part]) -> tuple[Layout, list[str]]:
    """What writing needs to know, and what weakens the promises. Makes the topics of ours."""
    topics = {part.topic: offsets.described(part.topic) for part in parts}
    listed: dict[str, set[int]] = {topic: set() for topic in topics}
    for part in parts:
        count = len(topics[part.topic].partitions)
        if part.partition >= count or (count > 1 and not part.named):
            names = ", ".join(f'"{part.topic}[{number}]"' for number in range(count))
            raise LogProblem(
                f"{part.topic} at {connection.where} has {count} partitions, each in an order of its own: "
                f"write streams = [{names}], or those of them that are meant"
            )
        listed[part.topic].add(part.partition)
    warnings: list[str] = []
    limits: dict[str, int] = {}
    replicas, in_sync = 1, "1"
    for topic, described in topics.items():
        if str(described.topic_id) == _NO_ID:
            raise LogProblem(f"{connection.where} gives its topics no ids: isthmus needs Kafka 2.8 or newer")
        count = len(described.partitions)
        replicas = len(described.partitions[0].replicas)
        settings = _settings(connection, offsets.admin, topic)
        in_sync = settings.get("min.insync.replicas", in_sync)
        limits[topic] = int(settings.get("max.message.bytes", _DEFAULT_LIMIT))
        if not settings:
            warnings.append(f"the settings of {topic} cannot be looked at: this user may not describe them")
        warnings += _weaknesses(topic, settings, replicas)
        if left := sorted(set(range(count)) - listed[topic]):
            warnings.append(f"of {topic} the partitions {', '.join(map(str, left))} are not joined")
    for ours in (connection.name, parked.topic_of(connection)):
        if _make(connection, offsets.admin, ours, replicas, in_sync):
            continue
        policy = _settings(connection, offsets.admin, ours).get("cleanup.policy", "compact")
        if policy != "compact":
            raise LogProblem(
                f"{ours} at {connection.where} has cleanup.policy={policy}, and would lose what isthmus keeps there: "
                f"kafka-configs.sh --alter --topic {ours} --add-config cleanup.policy=compact"
            )
    return Layout(parts, limits, parked.topic_of(connection)), warnings


def _weaknesses(topic: str, settings: Mapping[str, str], replicas: int) -> Iterator[str]:
    if replicas == 1:
        if settings.get("flush.messages") != "1":
            yield (
                f"{topic} has one replica, which does not flush at once: when its machine stops, the last entries may "
                "be lost; use three replicas with min.insync.replicas=2, or flush.messages=1"
            )
    elif settings.get("min.insync.replicas") == "1":
        yield (
            f"{topic} has min.insync.replicas=1: what one broker alone has counts as written, and may be lost with it; "
            "set 2"
        )
    if settings.get("unclean.leader.election.enable") == "true":
        yield f"{topic} has unclean.leader.election.enable=true: a replica that lags behind may lead and lose entries"
    policy = settings.get("cleanup.policy", "delete")
    if "compact" in policy:
        yield f"{topic} is compacted: of entries with the same key older ones may be gone before they are read"
    if "delete" in policy:
        limits = [
            f"{name}={settings[name]}"
            for name in ("retention.ms", "retention.bytes")
            if settings.get(name, _FOR_EVER) != _FOR_EVER
        ]
        if limits:
            yield f"{topic} has {' and '.join(limits)}: entries go then, read or not; a join that finds none stops"
    if settings.get("message.timestamp.type") == "LogAppendTime":
        yield f"{topic} has message.timestamp.type=LogAppendTime: entries lose the time of where they come from"


def _settings(connection: Connection, admin: Any, topic: str) -> dict[str, str]:
    """The settings of a topic; nothing where we may not see them."""
    asked = [ConfigResource(ResourceType.TOPIC, topic)]
    try:
        found = first_result(admin.describe_configs(asked, request_timeout=PATIENCE)).result(PATIENCE + 1)
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, KafkaException) and error.args[0].code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            return {}
        raise connection.trouble(error) from None
    return {name: entry.value for name, entry in found.items() if entry.value is not None}


def _make(connection: Connection, admin: Any, topic: str, replicas: int, in_sync: str) -> bool:
    """Make a topic of ours, as safe as the log. False: it is there already."""
    config = _STATE | {"min.insync.replicas": in_sync}
    futures = admin.create_topics([NewTopic(topic, 1, replicas, config=config)], operation_timeout=PATIENCE)
    try:
        first_result(futures).result(PATIENCE + 1)
    except (KafkaException, TimeoutError) as error:
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            if topic in admin.list_topics(timeout=PATIENCE).topics:
                return False
            words = " ".join(f"--config {name}={value}" for name, value in config.items())
            raise LogProblem(
                f"isthmus keeps its state in the topic {topic} at {connection.where}, and may not create it: "
                f"kafka-topics.sh --create --topic {topic} --partitions 1 --replication-factor {replicas} {words}"
            ) from None
        raise connection.trouble(error) from None
    return True
