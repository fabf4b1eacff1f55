"""An entry as a message of a stream, and back.

Headers keep their order and may repeat. `Nats-*` belong to the server: from outside they would be orders to it, so they
do not come in; of what plain clients wrote, those stay that are the client's own (an id of the message, say).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from isthmus.runtime.log.content import HEADER_ORIGIN, HEADER_PATH, HEADER_SEQ, OUR_HEADERS, Content
from isthmus.runtime.log.interface import Entry

VERSION = b"NATS/1.0\r\n"
MAX_HEADER = (64 << 10) - 1
"""The server keeps the length of a header in 16 bits."""

ORIGIN, SEQ, PATH = HEADER_ORIGIN.encode(), HEADER_SEQ.encode(), HEADER_PATH.encode()
_OURS = frozenset(name.encode() for name in OUR_HEADERS)
_BROUGHT_IN = re.compile(
    rb"NATS/1\.0\r\n(?:Nats-Batch-[^\r\n]*\r\n)*+((?:[^\r\n]*\r\n)*?)"
    rb"isthmus-origin: ([^\r\n]*)\r\nisthmus-seq: (\d{1,19})\r\n(?:isthmus-path: ([^\r\n]*)\r\n)?\r\n"
)
"""A header as we write it: costs about half of going line by line."""
_ORDERS = (b"nats-batch-", b"nats-expected-")
"""What only told the server how to store a message."""
_SUBJECT = re.compile(r"[^\s\x00-\x1f\x7f.*>]+(\.[^\s\x00-\x1f\x7f.*>]+)*")
_MOST_DIGITS = 19


@lru_cache(64)
def _text(value: bytes) -> str:
    """Origins and ways repeat from one message to the next."""
    return value.decode(errors="replace")


def entry_of(subject: bytes, header: bytes, body: bytes, milliseconds: int, part: int) -> Entry:
    """This runs once per message."""
    origin = path = ""
    seq = 0
    headers: list[tuple[bytes, bytes]] = []
    if header:
        ours = _BROUGHT_IN.fullmatch(header)
        if ours is not None:
            header, _origin, _seq, _path = ours.groups(b"")
            origin, seq, path = _text(_origin), int(_seq), _text(_path)
        if header:
            for name, value in _pairs(header):
                if name.lower() in _OURS:
                    if ours is not None:
                        continue
                    if name == ORIGIN:
                        origin = _text(value)
                    elif name == PATH:
                        path = _text(value)
                    elif name == SEQ:
                        seq = int(value) if value.isdigit() and len(value) <= _MOST_DIGITS else 0
                elif not name[:14].lower().startswith(_ORDERS):
                    headers.append((name, value))
    return Entry(Content(body, headers, _text(subject), None, milliseconds), origin, seq, path, part)


def _pairs(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values. Nearly all clients write a space behind the colon; it is no part of the value."""
    for line in lines.removeprefix(VERSION).split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            yield name, value.removeprefix(b" ")


def header_of(entry: Entry) -> bytes:
    """Its header lines, without those that tell the server how to store it. `ValueError` says what cannot be one."""
    lines = [
        b"%b: %b\r\n" % (name, value)
        for name, value in entry.content.headers
        if not (name[:5].lower() == b"nats-" or name.lower() in _OURS)
    ]
    count = len(lines)
    if entry.origin:
        lines.append(b"%b: %b\r\n%b: %d\r\n" % (ORIGIN, entry.origin.encode(), SEQ, entry.seq))
        count += 2
        if entry.path:
            lines.append(b"%b: %b\r\n" % (PATH, entry.path.encode()))
            count += 1
    block = b"".join(lines)
    if block.count(b"\n") != count or block.count(b"\r") != count:
        raise ValueError("a header of it has a line break, which headers of NATS cannot have")
    for name, _ in entry.content.headers:
        if not name or b":" in name or b" " in name:
            raise ValueError(f"{name[:100]!r} is no name of a header of NATS")
    return block


def is_subject(text: str) -> bool:
    """Whether a message may be published there: words with dots between them, and no wildcards."""
    return bool(_SUBJECT.fullmatch(text))


def takes(patterns: Sequence[str], subject: str) -> bool:
    """Whether a stream with these subjects takes messages on this one."""
    return any(_matches(pattern.split("."), subject.split(".")) for pattern in patterns)


def _matches(pattern: list[str], words: list[str]) -> bool:
    if pattern[-1] == ">":
        return len(words) >= len(pattern) and _matches(pattern[:-1], words[: len(pattern) - 1])
    return len(pattern) == len(words) and all(one in ("*", word) for one, word in zip(pattern, words, strict=True))
