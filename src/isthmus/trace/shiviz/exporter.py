r"""Rows of one run as a log that ShiViz draws. With the mapping `shiviz` it comes back as the very same rows.

The file is made to be uploaded: the parser expression on the first line, nothing on the second, then three lines per
row: host and clock, what people see, and all columns as `name=value`. Values are JSON without white space, so the
expression needs one look at each character. ShiViz shows the columns when one hovers over an event.

The size is rows × (about 300 bytes + one entry of the clock per host that the row has heard of). It is written row by
row, in an order that keeps causes first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from isthmus.trace.schema import COLUMNS, Event, TraceError, printable
from isthmus.trace.shiviz.clocks import message_of, stamped

GROUPS: dict[str, str] = {column: "kind" if column == "event" else column for column in COLUMNS}
"""Column to the name of its group: `event` is ShiViz's own, the text that people see."""

PARSER = r"^(?<host>\S+) (?<clock>\{.*\})\n(?<event>.*)\n" + " ".join(
    rf"{group}=(?<{group}>\S+)" for group in GROUPS.values()
)

_WHITE = re.compile(r"[\s\ufeff]")
_encode = msgspec.json.Encoder().encode


def export_rows(rows: Iterable[Event], captions: Mapping[tuple[str, int], str] | None = None) -> Iterator[str]:
    """The log of these rows of one run, in pieces. `captions` adds words to rows by `system/process` and index."""
    logs: dict[str, list[Event]] = {}
    for row in rows:
        logs.setdefault(f"{row.system}/{row.process}", []).append(row)
    for log in logs.values():
        log.sort(key=lambda row: row.index)
    hosts = sorted(logs)
    words = captions or {}
    names = [host_name(host) for host in hosts]
    keys = [_encode(name).decode() for name in names]
    yield f"{PARSER}\n\n"
    for host, row, clock, circular in stamped({host: logs[host] for host in hosts}):
        entries = ",".join([f"{key}:{time}" for key, time in zip(keys, clock, strict=True) if time])
        caption = words.get((hosts[host], row.index), "")
        text = _description(row, caption, circular)
        columns = " ".join([f"{GROUPS[column]}={_value(getattr(row, column))}" for column in COLUMNS])
        yield f"{names[host]} {{{entries}}}\n{text}\n{columns}\n"


def write_log(path: Path, rows: Iterable[Event], captions: Mapping[tuple[str, int], str] | None = None) -> None:
    """Write the whole log to a file, or leave no file at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(export_rows(rows, captions))
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise TraceError(path, f"cannot write: {error.strerror or error}", "choose another file") from error


def chosen_run(runs: Iterable[str], wanted: str | None) -> str:
    """The run that is asked for, or the one there is."""
    known = sorted(set(runs))
    if wanted is None and len(known) == 1:
        return known[0]
    some = ", ".join(known[:5]) + (", …" if len(known) > 5 else "")
    if not known:
        raise TraceError("trace", "no row of it can be used", "see `isthmus audit` for the reasons")
    if wanted is None:
        raise TraceError("trace", f"holds {len(known):,} runs", f"choose one with --run: {some}")
    if wanted not in known:
        raise TraceError("--run", f"no run '{wanted}' in the trace", f"known are {some}")
    return wanted


def host_name(name: str) -> str:
    """A name without white space and without anything that does not print, as ShiViz's hosts have to be."""
    if name.isprintable() and " " not in name and "%" not in name:
        return name
    return "".join(
        each if each.isprintable() and each not in " %" else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in name
    )


def _value(value: object) -> str:
    return _WHITE.sub(lambda found: f"\\u{ord(found.group()):04x}", _encode(value).decode())


def _description(row: Event, caption: str, circular: bool) -> str:
    message = message_of(row)
    words: list[str] = [row.event]
    if message is not None:
        words.append("/".join(map(str, message)))
    if row.peer is not None:
        words.append(f"({row.peer})")
    if circular:
        words.append("[before its send: a circle]")
    if caption:
        words.append(f"[{caption}]")
    return printable(" ".join(words))
