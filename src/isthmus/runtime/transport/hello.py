"""The hello: how the two ends of a connection introduce themselves, before the first frame.

    4 bytes   ISTH
    1 byte    version of what follows on this connection
    3 bytes   zero
    8 bytes   group tag: which system of which run this is
    8 bytes   process id of whoever sends it

Its size is fixed, so a stranger can make us keep at most 24 bytes. The group tag keeps apart what only chance (a
reused port, a process left over from an earlier run) has brought together. It is no secret and proves nothing.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

from isthmus.core.ids import ProcessId

_FORMAT = struct.Struct(">4sB3sQQ")
_MAGIC = b"ISTH"
_VERSION = 1
_PADDING = bytes(3)
_MAX_PROCESS = 1 << 62

SIZE = _FORMAT.size


class HelloError(ValueError):
    """These bytes do not introduce a process of ours."""


class Hello(NamedTuple):
    group: int
    process: ProcessId


def group_tag(name: str) -> int:
    """The tag of a group, from the name of its run and system."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def encode_hello(hello: Hello) -> bytes:
    return _FORMAT.pack(_MAGIC, _VERSION, _PADDING, hello.group, hello.process)


def decode_hello(data: bytes) -> Hello:
    """The hello in exactly `SIZE` bytes, or `HelloError`."""
    magic, version, padding, group, process = _FORMAT.unpack(data)
    if magic != _MAGIC:
        raise HelloError("it does not begin with a hello")
    if version != _VERSION or padding != _PADDING:
        raise HelloError(f"version {version} of the connection is not understood (this is {_VERSION})")
    if process > _MAX_PROCESS:
        raise HelloError("its process id is out of bounds")
    return Hello(group, process)
