"""How clients of one Kafka are made from the settings, and what their errors mean."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from isthmus.runtime.log.interface import LogProblem, LogSettings, Unavailable

PATIENCE = 5.0
"""Seconds after which a broker that does not answer is unavailable."""
PORT = 9092
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

FENCED = frozenset(
    (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_TXN_STATE,
    )
)
"""Somebody has begun anew with our transactional id, or the broker has ended our transaction: it took too long."""

_REMEDIES = {
    KafkaError._AUTHENTICATION: "look at username, password-file or password-env, and sasl-mechanism",
    KafkaError.SASL_AUTHENTICATION_FAILED: "look at username, password-file or password-env, and sasl-mechanism",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: f"write sasl-mechanism, one of {', '.join(MECHANISMS)}",
    KafkaError._SSL: "look at ca-file, certificate-file, key-file, and the names in url",
    KafkaError._UNSUPPORTED_FEATURE: "the broker is too old: isthmus needs Kafka 2.8 or newer",
    KafkaError.UNSUPPORTED_VERSION: "the broker is too old: isthmus needs Kafka 2.8 or newer",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to describe, read and write the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow this user to read with the consumer group of that name",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this user to describe and write the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow this user what the docs list for Kafka (docs/brokers.md)",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "let transaction.max.timeout.ms of the broker be 10 s at least",
}
"""What no waiting will mend."""
_PASSING = ("disconnect", "connection closed", "connection reset", "eof")
"""In the words of an error of TLS or SASL: the broker went away in the middle of the greeting."""

_quiet = logging.Logger("isthmus.kafka")
_quiet.addHandler(logging.NullHandler())
"""What librdkafka would say on stderr; all that matters comes as an error, too."""


class Connection:
    """One cluster, as the settings name it. `where` is for people."""

    def __init__(self, settings: LogSettings) -> None:
        scheme, _, rest = settings.url.partition("://")
        user, _, hosts = rest.rpartition("@")
        self.where = f"{scheme}://{hosts}"
        self.name = re.sub(r"[^A-Za-z0-9._-]", "_", settings.state)
        self._lasting: KafkaError | None = None
        brokers = [_with_port(host) for host in hosts.rstrip("/").split(",") if host]
        self._common: dict[str, Any] = {
            "bootstrap.servers": ",".join(brokers),
            "client.id": "isthmus",
            "error_cb": self._on_error,
            "logger": _quiet,
            "log_level": 0,
            "socket.timeout.ms": int(PATIENCE * 1000),
            "socket.connection.setup.timeout.ms": int(PATIENCE * 1000),
            "reconnect.backoff.max.ms": 1000,
            **_security(scheme, unquote(user), settings.options),
        }

    def admin(self) -> Any:
        return self._made(AdminClient, self._common)

    def consumer(self, **more: object) -> Any:
        """One that is told what to read, belongs to no group, and sees what is committed only."""
        settings = {
            "group.id": self.name,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 200,
            "fetch.error.backoff.ms": 50,
            # How long a consumer rests that has fetched far enough ahead. With a second, the default, it read 20,000
            # messages of 1 KiB per second instead of 94,000.
            "fetch.queue.backoff.ms": 5,
        }
        return self._made(Consumer, self._common | settings | _dotted(more))

    def producer(self, **more: object) -> Any:
        settings = {"enable.idempotence": True, "acks": "all"}
        return self._made(Producer, self._common | settings | _dotted(more))

    def _made(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        try:
            return kind(dict(settings))
        except KafkaException as error:
            # Files of TLS are read here.
            raise LogProblem(f"{self.where} cannot be reached with these settings: {error.args[0].str()}") from None

    def _on_error(self, error: KafkaError) -> None:
        """Called from within the calls of a client."""
        if _lasts(error):
            self._lasting = error

    def trouble(self, error: Exception) -> Exception:
        """What an error of confluent-kafka means to whoever runs the gateway."""
        kafka = error.args[0] if isinstance(error, KafkaException) else None
        if not isinstance(kafka, KafkaError):
            return Unavailable(f"{self.where}: {error}")
        if not _lasts(kafka) and self._lasting is not None:
            # A call whose connection is refused only times out; the reason came by itself.
            kafka, self._lasting = self._lasting, None
        if _lasts(kafka):
            return LogProblem(f"{self.where}: {kafka.str()}; {_REMEDIES[kafka.code()]}")
        return Unavailable(f"{self.where}: {kafka.str()}")


def poll(client: Any) -> None:
    """Have a client say what it has to say of its connections."""
    with suppress(KafkaException):
        client.poll(0)


def _lasts(error: KafkaError) -> bool:
    return error.code() in _REMEDIES and not any(word in error.str().lower() for word in _PASSING)


def _security(scheme: str, user: str, options: Mapping[str, str]) -> dict[str, str]:
    username, password = options.get("username") or user, options.get("password", "")
    mechanism = options.get("sasl-mechanism", MECHANISMS[0])
    if mechanism not in MECHANISMS:
        raise LogProblem(f"sasl-mechanism = {mechanism!r} is unknown; write one of {', '.join(MECHANISMS)}")
    tls = scheme == "kafkas"
    files = {
        "ssl.ca.location": "ca-file",
        "ssl.certificate.location": "certificate-file",
        "ssl.key.location": "key-file",
    }
    return {
        "security.protocol": ("SASL_" if username else "") + ("SSL" if tls else "PLAINTEXT"),
        **({"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password} if username else {}),
        **{name: options[key] for name, key in files.items() if tls and key in options},
    }


def _with_port(host: str) -> str:
    return host if re.search(r":\d+$", host) and not host.endswith("]") else f"{host}:{PORT}"


def _dotted(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def first_result(futures: Mapping[Any, Any]) -> Any:
    """The future of an admin call about one thing."""
    return next(iter(futures.values()))
