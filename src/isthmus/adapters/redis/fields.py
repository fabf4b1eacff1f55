"""How an entry of a stream, a list of fields, becomes `Content`, and how any `Content` becomes fields.

The field named `body-field` is the body, every other is a header, and all keep their places. An entry that we bring in
has `isthmus-origin`, `isthmus-seq` and `isthmus-path` behind the others. What comes from other kinds of broker has its
key and its subject in fields `key` and `subject`. The table is in docs/brokers.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.runtime.log.content import HEADER_ORIGIN, HEADER_PATH, HEADER_SEQ, MAX_NAME, Content
from isthmus.runtime.log.interface import Entry

_ORIGIN, _SEQ, _PATH = HEADER_ORIGIN.encode(), HEADER_SEQ.encode(), HEADER_PATH.encode()
_OURS_IN_ORDER = [_ORIGIN, _SEQ, _PATH]
_OURS = frozenset(_OURS_IN_ORDER)
_KEY, _SUBJECT = b"key", b"subject"
_LONGEST_NUMBER = 18


def entry_of(fields: Sequence[bytes], body_field: bytes, time: int, subject: str, part: int) -> Entry:
    """The entry that these fields are: name, value, name, value, …"""
    if len(fields) == 2 and fields[0] == body_field:
        return Entry(Content(fields[1], [], subject, None, time), part=part)
    if len(fields) == 8 and fields[0] == body_field and fields[2::2] == _OURS_IN_ORDER:
        # What we brought in from a log of bodies alone, as most are: a third of the time that it takes below.
        content = Content(fields[1], [], subject, None, time)
        return Entry(content, _text(fields[3]), _number(fields[5]), _text(fields[7]), part)
    headers: list[tuple[bytes, bytes]] = []
    ours: dict[bytes, bytes] = {}
    body, place = b"", -1
    pairs = iter(fields)
    for name, value in zip(pairs, pairs, strict=True):
        if name in _OURS:
            ours.setdefault(name, value)
        elif name == body_field and place < 0:
            body, place = value, len(headers)
        else:
            headers.append((name, value))
    content = Content(body, headers, subject, None, time, place)
    if not ours:
        return Entry(content, part=part)
    return Entry(content, _text(ours.get(_ORIGIN)), _number(ours.get(_SEQ, b"")), _text(ours.get(_PATH)), part)


def fields_of(entry: Entry, body_field: bytes, *, subject: bool) -> list[bytes]:
    """The fields of an entry that we bring in; with its subject, unless that is the stream."""
    content, origin, seq, path, _ = entry
    headers, place = content.headers, content.place
    fields: list[bytes] = []
    if headers:
        if place > 0 and any(name == body_field for name, _ in headers[:place]):
            # Whoever reads takes the first field of that name for the body.
            place = 0
        for index, (name, value) in enumerate(headers):
            if index == place:
                fields += (body_field, content.body)
            if name not in _OURS:
                fields += (name, value)
        if place >= len(headers):
            fields += (body_field, content.body)
    elif place >= 0:
        fields += (body_field, content.body)
    if content.key is not None:
        fields += (_KEY, content.key)
    if subject and content.subject:
        fields += (_SUBJECT, content.subject.encode())
    if origin:
        fields += (_ORIGIN, origin.encode(), _SEQ, b"%d" % seq)
        if path:
            fields += (_PATH, path.encode())
    # An entry has one field at least.
    return fields or [body_field, b""]


def _text(value: bytes | None) -> str:
    return "" if value is None else value[:MAX_NAME].decode(errors="replace")


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) <= _LONGEST_NUMBER else 0
