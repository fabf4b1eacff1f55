"""How a Kafka message becomes an `Entry`, and how any `Entry` becomes a message.

Value, key, headers and timestamp travel as they are; the topic is the subject. A tombstone, a message without a value,
has no place for a body. What we bring in has `isthmus-origin`, `isthmus-seq` and `isthmus-path` behind its own headers.
"""

from __future__ import annotations

from typing import Any

from isthmus.runtime.log.content import HEADER_ORIGIN, HEADER_PATH, HEADER_SEQ, MAX_NAME, OUR_HEADERS, Content
from isthmus.runtime.log.interface import Entry

_LONGEST_NUMBER = 18
_NO_HEADERS: list[tuple[bytes, bytes]] = []
_FIELDS = 64
"""Bytes of a batch and a message around key, value and headers, rounded up; and of a header around name and value."""
_FIELDS_OF_HEADER = 10


def entry_of(message: Any, part: int) -> Entry:
    """What a message of confluent-kafka says."""
    value = message.value()
    kind, time = message.timestamp()
    ours: dict[str, bytes] = {}
    headers = _NO_HEADERS
    if found := message.headers():
        headers = []
        for name, text in found:
            if name in OUR_HEADERS:
                ours.setdefault(name, text or b"")
            else:
                headers.append((name.encode(errors="surrogateescape"), text or b""))
    place = 0
    if value is None:
        value, place = b"", -1
    content = Content(value, headers, message.topic(), message.key(), time if kind else 0, place)
    if not ours:
        return Entry(content, part=part)
    return Entry(
        content, _text(ours.get(HEADER_ORIGIN)), _number(ours.get(HEADER_SEQ, b"")), _text(ours.get(HEADER_PATH)), part
    )


def headers_of(entry: Entry) -> list[tuple[str, bytes]]:
    """The headers of an entry that we bring in. A name that is no UTF-8 raises `UnicodeDecodeError`: Kafka has none."""
    headers = [(name.decode(), value) for name, value in entry.content.headers]
    if any(name in OUR_HEADERS for name, _ in headers):
        headers = [(name, value) for name, value in headers if name not in OUR_HEADERS]
    if entry.origin:
        headers += ((HEADER_ORIGIN, entry.origin.encode()), (HEADER_SEQ, b"%d" % entry.seq))
        if entry.path:
            headers.append((HEADER_PATH, entry.path.encode()))
    return headers


def size_of(value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]) -> int:
    """About how large a batch is that holds this message alone, never less than it is."""
    size = _FIELDS + 32 + len(value or b"") + len(key or b"")
    return size + sum(_FIELDS_OF_HEADER + 3 * len(name) + len(text) for name, text in headers)


def _text(value: bytes | None) -> str:
    return "" if value is None else value[:MAX_NAME].decode(errors="replace")


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) <= _LONGEST_NUMBER else 0
