"""The table of brokers: which module speaks to each, and which extra brings what it needs."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple, cast

from isthmus.runtime.log.interface import Log, LogSettings
from isthmus.runtime.problems import RuntimeProblem


class Adapter(NamedTuple):
    module: str
    name: str


ADAPTERS = {
    "redis": Adapter("isthmus.adapters.redis", "RedisLog"),
    "nats": Adapter("isthmus.adapters.nats", "NatsLog"),
    "kafka": Adapter("isthmus.adapters.kafka", "KafkaLog"),
    "postgres": Adapter("isthmus.adapters.postgres", "PostgresLog"),
}
"""By provider, which is also the name of the extra."""


def make_log(settings: LogSettings) -> Log:
    """The adapter for a log, not open yet. `RuntimeProblem` where its client is not installed."""
    adapter = ADAPTERS[settings.provider]
    try:
        made = getattr(import_module(adapter.module), adapter.name)(settings)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "isthmus":
            raise
        raise RuntimeProblem(
            f"systems.{settings.system} is a {settings.provider} broker, and the package {error.name} is not "
            f"installed: pip install 'isthmus[{settings.provider}]'"
        ) from error
    return cast(Log, made)
