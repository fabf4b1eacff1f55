"""What an entry of a broker consists of, whatever the broker, and how it travels: as one payload that nobody opens.

Brokers differ in what an entry has. `Content` has all of it; `docs/brokers.md` says what each kind keeps of it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from isthmus.core.segment import MAX_CARRIED

MAX_HEADERS = 4096
MAX_NAME = 64 << 10
MAX_ENCODED = MAX_CARRIED
"""Bytes of one entry with all that belongs to it: a body of 1 MiB, which many brokers allow, and its headers."""

HEADER_ORIGIN, HEADER_SEQ, HEADER_PATH = "isthmus-origin", "isthmus-seq", "isthmus-path"
OUR_HEADERS = frozenset((HEADER_ORIGIN, HEADER_SEQ, HEADER_PATH))
"""What isthmus adds to an entry that it brings in, and all of it."""

_Name = Annotated[bytes, Meta(max_length=MAX_NAME)]
_Value = Annotated[bytes, Meta(max_length=MAX_ENCODED)]


class Content(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The body of an entry and what came with it.

    `headers` keep their order and may repeat. `subject` is what the broker routes by (subject, topic or stream), `key`
    what it partitions or compacts by, `time` when it was written, in milliseconds since 1970, 0 where nobody knows.
    Where headers and body are fields of one list, `place` is the place of the body among them; -1 says that there is
    no body at all (a tombstone, or fields none of which is the body).
    """

    body: _Value
    headers: Annotated[list[tuple[_Name, _Value]], Meta(max_length=MAX_HEADERS)] = []
    subject: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    key: _Value | None = None
    time: int = 0
    place: int = 0


NOTHING = Content(body=b"", place=-1)
"""In place of a message that is not to go on: it keeps its number, and nobody appends it."""


class TooLarge(ValueError):
    """An entry does not fit what isthmus carries as one message."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Content)


def encode(content: Content) -> bytes:
    """The payload that carries this; `TooLarge` beyond what one message may have."""
    payload = _encoder.encode(content)
    if len(payload) > MAX_ENCODED:
        raise TooLarge(f"an entry of {len(payload):,} bytes is larger than the {MAX_ENCODED:,} that a message may have")
    if len(payload) > MAX_HEADERS:
        # Whoever decodes it holds these bounds, too. A shorter entry keeps all of them.
        if len(content.headers) > MAX_HEADERS:
            raise TooLarge(f"an entry with {len(content.headers):,} headers has more than {MAX_HEADERS:,}")
        longest = max((len(name) for name, _ in content.headers), default=0)
        if max(longest, len(content.subject.encode())) > MAX_NAME:
            raise TooLarge(f"a name in an entry is longer than {MAX_NAME:,} bytes")
    return payload


def decode(payload: bytes) -> Content:
    """What a payload carries that was born in a log. Anything else raises `ValueError`."""
    try:
        return _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise ValueError(f"this is no entry of a broker: {error}") from error
