"""Keys that systems of several kinds have: addresses, TLS, who is on standby, how long a silence may last."""

from __future__ import annotations

from isthmus.topology.model import BaseAddress, System, TlsFiles
from isthmus.topology.problem import listing, quote
from isthmus.topology.read.table import Table


def read_address(table: Table, key: str, ports: int) -> BaseAddress | None:
    text = table.text(key)
    return None if text is None else _address(table, key, text, ports)


def read_addresses(table: Table, key: str) -> tuple[BaseAddress, ...]:
    """One address, or an array of them: of all hosts of which one at a time listens."""
    if not isinstance(table.entries.get(key), list):
        one = read_address(table, key, 1)
        return () if one is None else (one,)
    texts = table.names(key, is_name=str.isprintable, form='write "host:port"') or ()
    found = [_address(table, key, text, 1) for text in texts]
    return tuple(each for each in found if each is not None)


def _address(table: Table, key: str, text: str, ports: int) -> BaseAddress | None:
    host, separator, digits = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else 0
    if not separator or not host or not 1 <= port <= 65535:
        table.refuse(key, f"{quote(text)} is not host:port", f'write {key} = "127.0.0.1:7400"')
        return None
    if port + ports > 65536:
        table.refuse(key, f"{ports} ports from {port} on go beyond 65535", "choose a lower port")
    return BaseAddress(host, port)


def read_tls(table: Table) -> TlsFiles | None:
    if "tls" not in table.entries:
        return None
    inner = table.table("tls")
    files: dict[str, str] = {}
    for key in ("certificate", "key", "authority"):
        text = inner.text(key)
        if key not in inner.entries:
            inner.missing(key, "TLS needs three PEM files", f'write {key} = "certs/{{gateway}}.pem"')
        files[key] = text or ""
    inner.close()
    return TlsFiles(**files)


def read_standby(table: Table, system: System) -> tuple[str, ...]:
    """The members that are not there at the start."""
    standby = table.names("standby", empty=True) or ()
    for place, name in enumerate(standby):
        if name not in system.members:
            reason = f"{quote(name)} is no process or gateway of this system"
            table.refuse_element("standby", place, reason, f"name some of {listing(system.members)}")
    if system.members and not set(system.members) - set(standby):
        table.refuse("standby", "nobody is left to begin with", "leave out at least one")
    return standby


def check_patience(table: Table, system: System) -> None:
    """Refuse a silence that every process would be suspected for."""
    if system.suspect_after <= system.heartbeat:
        reason = "not longer than the heartbeat: every process would be suspected all the time"
        table.refuse("suspect-after", reason, "make it several heartbeats long")
