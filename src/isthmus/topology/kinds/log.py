"""A log: a stream of a broker, which all its readers see in one order. Its clients need not be listed.

To the joins the log itself is the one origin of all that is written in it, a process named after its stream; with
several streams each is one. One gateway acts at a time, whoever holds the claim (docs/design/brokers.md): `g1`, on
whatever number of hosts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from isthmus.topology.kinds.kind import Kind
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems, quote
from isthmus.topology.read.keys import read_addresses, read_tls
from isthmus.topology.read.table import Table

OnRefusal: TypeAlias = Literal["stop", "park"]
Carry: TypeAlias = Literal["durable", "at-once"]
"""When an entry is carried to other systems: when it is on disk, or as soon as it can be read."""

_SCHEMES = {
    "redis": ("redis", "rediss"),
    "nats": ("nats", "tls"),
    "kafka": ("kafka", "kafkas"),
    "postgres": ("postgres", "postgresql"),
}
_CARRIES: tuple[Carry, ...] = ("durable", "at-once")
_REFUSALS: tuple[OnRefusal, ...] = ("stop", "park")
_SECRETS = ("username", "password-file", "password-env", "token-file", "token-env", "credentials-file")
_FILES = ("ca-file", "certificate-file", "key-file")
_COLUMNS = ("body-column", "key-column", "subject-column", "time-column", "headers-column")
_OWN = {"body-field": "redis", "sasl-mechanism": "kafka", **dict.fromkeys(_COLUMNS, "postgres")}
"""Keys that only one kind of broker has a use for."""
_OPTIONS = ("default-subject", *_SECRETS, *_FILES, *_OWN)
_KEYS = ("url", "stream", "streams", "link-address", "tls", "on-refusal", "carry", *_OPTIONS)
_ONE_ORDER = ("postgres",)
"""Brokers that keep one order over all streams of a log."""
_ODD = re.compile(r"[^A-Za-z0-9_.:-]")
MOST_STREAMS = 64


class LogTable(Struct, frozen=True, kw_only=True):
    """Where the broker is, and which of its streams are the system. `options` are the adapter's, by their own names."""

    url: str
    streams: tuple[str, ...]
    on_refusal: OnRefusal = "stop"
    carry: Carry = "durable"
    options: dict[str, str] = {}


def _read(table: Table, system: System) -> System:
    if system.processes:
        reason = "its clients are whoever uses the broker, and the log is the one process of the system"
        table.refuse("processes", reason, "remove it")
    streams = _streams(table)
    names = tuple(dict.fromkeys(_ODD.sub("_", stream) for stream in streams))
    if len(names) < len(streams):
        table.refuse("streams", "two of them have the same name but for odd characters", "use one system for each")
    own = LogTable(
        url=_url(table, system.provider) or "",
        streams=streams,
        on_refusal=table.choice("on-refusal", _REFUSALS, "stop"),
        carry=table.choice("carry", _CARRIES, "durable"),
        options=_options(table, system.provider),
    )
    order = system.order
    addresses = read_addresses(table, "link-address")
    apart = len(streams) > 1 and system.provider not in _ONE_ORDER
    if apart and order != "fifo" and "order" in table.entries:
        reason = "each of several streams has an order of its own, and none is kept between them"
        table.refuse("order", reason, 'write order = "fifo", or use one stream')
    return replace(
        system,
        table=own,
        order="fifo" if apart else order,
        processes=names,
        gateways=system.gateways and ("g1",),
        acts_alone=True,
        link_address=addresses[0] if addresses else None,
        other_link_addresses=addresses[1:],
        tls=read_tls(table),
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
        table.refuse("url", f"{quote(_without_secret(url))} is no address of a {provider} broker", example)
    elif ":" in rest.rpartition("@")[0]:
        reason = "has a password in it, and the file is for everybody to read"
        table.refuse("url", reason, 'write username = "…" and password-file = "…", or password-env = "NAME"')
    return url


def _without_secret(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else url.rpartition("@")[2]


def _streams(table: Table) -> tuple[str, ...]:
    many = table.names("streams", is_name=str.isprintable, form="write the names of streams")
    one = table.text("stream")
    if one is not None and many is not None:
        table.refuse("streams", "there is a stream, too", "keep one of the two")
    if many is not None and len(many) > MOST_STREAMS:
        table.refuse("streams", f"{len(many)} streams are more than {MOST_STREAMS}", "use several systems")
    if one is None and many is None and not {"stream", "streams"} & table.entries.keys():
        table.missing("stream", "which stream of the broker is the system", 'write stream = "orders"')
    return many or ((one,) if one else ("stream",))


def _options(table: Table, provider: str) -> dict[str, str]:
    options = {key: table.text(key) for key in _OPTIONS}
    for key, owner in _OWN.items():
        if key in table.entries and provider != owner:
            table.refuse(key, f"only {owner} has such a thing, and this is {provider}", "remove it")
    for secret in ("password", "token"):
        if options[f"{secret}-file"] and options[f"{secret}-env"]:
            table.refuse(f"{secret}-env", f"there is a {secret}-file, too", "keep one of the two")
    return {key: text for key, text in options.items() if text is not None}


def _check(report: Problems, topology: Topology, systems: Sequence[System]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for system in systems:
        table = system.own(LogTable)
        for stream in table.streams:
            before = seen.setdefault((table.url, stream), system.name)
            if before != system.name:
                reason = f"{before} is the same stream of the same broker: one log cannot be two systems"
                report.refuse(f"systems.{system.name}.url", reason, "name another stream, or remove one of the two")
    _check_flows(report, topology)
    paths = [index for index, join in enumerate(topology.joins) if join.assign == "paths"]
    for index in paths:
        names = [name for name in topology.joins[index].between if name in {system.name for system in systems}]
        if names:
            reason = f"{names[0]} is a log, which one gateway serves at a time: it has no paths to choose from"
            report.refuse(f"joins[{index}].assign", reason, "remove [[paths]], or join it in a forest")


def _check_flows(report: Problems, topology: Topology) -> None:
    """What `[joins.of.SYSTEM]` says has to be about a log, and the same for all joins that read it."""
    starts: dict[str, tuple[str, str]] = {}
    for index, join in enumerate(topology.joins):
        for name, flow in join.flows:
            key = f"joins[{index}].of.{name}"
            if name not in join.between:
                report.refuse(key, "is none of the two systems of this join", f"name {join.between[0]}")
            elif not topology.system(name).acts_alone:
                reason = "is no broker: its messages have no subject or key, and begin with the first"
                report.refuse(key, reason, "remove it")
            elif flow.filters and not all(topology.system(end).acts_alone for end in join.between):
                reason = "the other system is embedded, and would see an empty message in place of each"
                report.refuse(key, reason, "remove allow and deny, and filter in the application")
    for name in [system.name for system in topology.systems if system.acts_alone]:
        for index, join in enumerate(topology.joins):
            if name in join.between:
                start, key = join.flow(name).start, f"joins[{index}].of.{name}.from"
                other = starts.setdefault(name, (start, key))
                if other[0] != start:
                    reason = f"{other[1]} is {quote(other[0])}, and a log is read once for all joins"
                    report.refuse(key, reason, "write the same for both")


LOG = Kind(providers=tuple(_SCHEMES), keys=_KEYS, read=_read, check=_check)
