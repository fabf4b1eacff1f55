"""A log: a stream of a broker, which all its readers see in one order. Its clients need not be listed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from isthmus.topology.kinds.kind import Kind
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems, quote
from isthmus.topology.read.table import Table

_SCHEMES = {"redis": ("redis", "rediss"), "nats": ("nats", "tls"), "rabbitmq": ("amqp", "amqps")}


class LogTable(Struct, frozen=True, kw_only=True):
    """Where the broker is, and which of its streams is the system."""

    url: str | None
    stream: str | None


def _read(table: Table, system: System) -> System:
    return replace(
        system, table=LogTable(url=_url(table, system.provider), stream=_stream(table)), lists_everybody=False
    )


def _url(table: Table, provider: str) -> str | None:
    url = table.text("url")
    schemes = _SCHEMES[provider]
    example = f'write url = "{schemes[0]}://127.0.0.1"'
    if url is None:
        if "url" not in table.entries:
            table.missing("url", "where the broker is", example)
        return None
    scheme, separator, rest = url.partition("://")
    if not separator or not rest or scheme not in schemes:
        table.refuse("url", f"{quote(url)} is no address of a {provider} broker", example)
    return url


def _stream(table: Table) -> str | None:
    stream = table.text("stream")
    if "stream" not in table.entries:
        table.missing("stream", "which stream of the broker is the system", 'write stream = "orders"')
    return stream


def _check(report: Problems, topology: Topology, systems: Sequence[System]) -> None:
    for system in systems:
        reason = f"nothing runs {system.provider} yet, so nothing could be kept of what this file promises"
        report.refuse(f"systems.{system.name}.kind", reason, 'write kind = "embedded", with its processes')


LOG = Kind(providers=tuple(_SCHEMES), keys=("url", "stream"), read=_read, check=_check)
