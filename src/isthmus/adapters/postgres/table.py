"""How a row becomes `Content`, and how any `Content` becomes a row.

One column is the body; others may be named to carry key, subject, time, or all headers that have no column of their
own. Every other column is a header of its name, with the value as text; a column that is NULL is no header. The table
is in docs/brokers.md.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import unhexlify
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from isthmus.runtime.log.content import MAX_HEADERS, MAX_NAME, OUR_HEADERS, Content
from isthmus.runtime.log.interface import Entry

ORIGIN, SEQ, PATH = "isthmus_origin", "isthmus_seq", "isthmus_path"
OURS = {ORIGIN: "text", SEQ: "bigint", PATH: "text"}
"""The columns that say what we brought in. Other clients leave them NULL."""

BYTEA = 17
_RESERVED = {name.encode() for name in OUR_HEADERS}
_WORDS = ("body", "key", "subject", "time", "headers")


class Column(NamedTuple):
    """`type` is what a value is converted to, `default` what the server fills in. `own`: the table numbers its rows by
    it, or computes it. `open`: we may fill it."""

    name: str
    oid: int
    type: str
    default: str | None
    own: bool
    open: bool


class Roles(NamedTuple):
    """Which column carries what; empty: none does."""

    body: str = "body"
    key: str = ""
    subject: str = ""
    time: str = ""
    headers: str = ""

    def named(self) -> list[tuple[str, str]]:
        """The option and the column of each that is asked for."""
        return [(f"{word}-column", name) for word, name in zip(_WORDS, self, strict=True) if name]


def roles_of(options: Mapping[str, str]) -> Roles:
    given = {word: options[f"{word}-column"] for word in _WORDS if f"{word}-column" in options}
    return Roles(**given)


class Layout:
    """The columns of rows as they come out of the server, and what each is.

    What the table fills in by itself is a header of rows that were born here: of others it says nothing.
    """

    def __init__(self, columns: Sequence[tuple[str, int]], table: Table, part: int) -> None:
        roles = table.roles
        self._subject = table.stream
        self._part = part
        self._is_bytes = [oid == BYTEA for _, oid in columns]
        self._names = [name.encode() for name, _ in columns]
        names = [name for name, _ in columns]
        special = [*roles, *OURS]
        self._body, self._key, self._subject_at, self._time, self._more, self._origin, self._seq, self._path = (
            names.index(name) if name in names else -1 for name in special
        )
        self._body_is_bytes = self._is_bytes[self._body]
        self._is_plain = max(self._key, self._subject_at, self._time, self._more) < 0
        own = {column.name for column in table.columns.values() if column.own}
        self._born_here = [index for index, name in enumerate(names) if name not in special]
        self._brought_in = [index for index in self._born_here if names[index] not in own]

    def entry(self, values: Sequence[bytes | None], committed: int) -> Entry:
        """The entry that a row is; `values` as text, `committed` in milliseconds since 1970. It runs once per row."""
        origin = values[self._origin]
        headers: list[tuple[bytes, bytes]] = []
        for index in self._born_here if origin is None else self._brought_in:
            value = values[index]
            if value is not None:
                headers.append((self._names[index], unhexlify(value[2:]) if self._is_bytes[index] else value))
        body = values[self._body]
        place = 0
        if body is None:
            body, place = b"", -1
        elif self._body_is_bytes:
            body = unhexlify(body[2:])
        if self._is_plain:
            content = Content(body, headers, self._subject, None, committed, place)
        else:
            content = self._content(body, headers, place, values, committed)
        if origin is None:
            return Entry(content, "", 0, "", self._part)
        seq = int(values[self._seq] or 0)
        return Entry(content, _text(origin), seq if seq > 0 else 0, _text(values[self._path] or b""), self._part)

    def _content(
        self,
        body: bytes,
        headers: list[tuple[bytes, bytes]],
        place: int,
        values: Sequence[bytes | None],
        committed: int,
    ) -> Content:
        if self._more >= 0:
            headers += _headers_in(values[self._more], self._names[self._more], MAX_HEADERS - len(headers))
        subject = self._at(self._subject_at, values)
        time = _time_in(self._at(self._time, values))
        return Content(
            body,
            headers,
            self._subject if subject is None else subject.decode(errors="replace")[:MAX_NAME],
            self._at(self._key, values),
            committed if time is None else time,
            place,
        )

    def _at(self, index: int, values: Sequence[bytes | None]) -> bytes | None:
        value = values[index] if index >= 0 else None
        return unhexlify(value[2:]) if value is not None and self._is_bytes[index] else value


class Table:
    """A table that we insert into. `sql` is its name as statements write it."""

    def __init__(self, stream: str, sql: str, oid: int, columns: Sequence[Column], roles: Roles) -> None:
        self.stream = stream
        self.sql = sql
        self.oid = oid
        self.columns = {column.name: column for column in columns}
        self.roles = roles
        special = {*roles, *OURS}
        self._fillable = {c.name.encode(): c.name for c in columns if c.open and not c.own and c.name not in special}

    def values(self, entry: Entry) -> dict[str, bytes]:
        """What goes into which column. A header that has no column goes to `headers-column`, or nowhere."""
        content, roles = entry.content, self.roles
        row: dict[str, bytes] = {}
        more: list[tuple[bytes, bytes]] = []
        for name, value in content.headers:
            column = self._fillable.get(name)
            if column is None or column in row:
                if name not in _RESERVED:
                    more.append((name, value))
            else:
                row[column] = value
        if content.place >= 0:
            row[roles.body] = content.body
        if roles.headers and more:
            row[roles.headers] = _headers_out(more)
        if roles.key and content.key is not None:
            row[roles.key] = content.key
        if roles.subject and content.subject:
            row[roles.subject] = content.subject.encode()
        if roles.time and content.time:
            row[roles.time] = self._time_out(content.time)
        if entry.origin:
            row[ORIGIN] = entry.origin.encode()
            row[SEQ] = b"%d" % entry.seq
            row[PATH] = entry.path.encode()
        return row

    def _time_out(self, milliseconds: int) -> bytes:
        if self.columns[self.roles.time].type in ("bigint", "numeric"):
            return b"%d" % milliseconds
        try:
            return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().encode()
        except (ValueError, OverflowError, OSError):
            return b"infinity"


@lru_cache(64)
def _text(value: bytes) -> str:
    """Origins and ways repeat from one row to the next."""
    return value[:MAX_NAME].decode(errors="replace")


def _time_in(value: bytes | None) -> int | None:
    if value is None:
        return None
    try:
        if value.isdigit():
            return int(value[:18])
        at = datetime.fromisoformat(value.decode())
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except ValueError:
        return 0


# Headers without a column of their own: a list of [name, value], as people would write it; what is no text that JSON
# can hold is {"base64": …}.


def _headers_out(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    return json.dumps([[_word_out(name), _word_out(value)] for name, value in headers], ensure_ascii=False).encode()


def _word_out(word: bytes) -> str | dict[str, str]:
    try:
        text = word.decode()
    except UnicodeDecodeError:
        text = "\0"
    return {"base64": b64encode(word).decode()} if "\0" in text else text


def _headers_in(value: bytes | None, name: bytes, most: int) -> list[tuple[bytes, bytes]]:
    """Any client may have written it: what is no such list is a header as it stands."""
    if value is None:
        return []
    try:
        pairs = json.loads(value)
        if len(pairs) <= most:
            words = [(_word_in(name), _word_in(value)) for name, value in pairs]
            return [pair for pair in words if pair[0] not in _RESERVED]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        """It is what it is."""
    return [(name, value)]


def _word_in(word: Any) -> bytes:
    return word.encode() if isinstance(word, str) else b64decode(word["base64"], validate=True)
