"""The journal of a site: what its gateways hold, on disk, so that a site that died as a whole can go on.

One directory per site. `life` counts how often the site was started. Every gateway writes volumes of its own,
`g1.2.000007.journal`: gateway, life, number. A volume is a sequence of records:

    4 bytes   length of the body, big-endian
    4 bytes   CRC-32 of the body
    n bytes   MessagePack: a `Head` first, then `Kept` messages and `Done` marks

A process that is killed in the middle of a write leaves half a record at the end of its last volume. It had not
acknowledged what stands there, so nobody misses it. Damage anywhere else is refused: half a journal could put an effect
before its cause.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Annotated, TypeAlias
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from isthmus.core.codec import MAX_FRAME
from isthmus.core.ids import ProcessId
from isthmus.core.marks import SlotMarks
from isthmus.core.message import Batch, Number
from isthmus.core.segment import Segment
from isthmus.join.recovery import Recovered, merge
from isthmus.runtime.problems import RuntimeProblem

log = logging.getLogger(__name__)

VOLUME_BYTES = 8 << 20
VERSION = 4
_RECORD = struct.Struct(">II")
_VOLUME = re.compile(r"(?P<gateway>.+)\.(?P<life>\d{1,9})\.(?P<number>\d{6,12})\.journal")


Marks: TypeAlias = Annotated[list[tuple[Number, Number]], Meta(max_length=1 << 16)]
"""As `SlotMarks.counted` has it."""


class _Entry(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    pass


class Head(_Entry, frozen=True, tag="head"):
    """Whose volume this is. `since` is the view that the gateway came with: it holds nothing from before.

    `former` is what the lives before this one were done with. Whoever comes later has to know it, and of those who were
    there from the beginning nobody may be left.
    """

    version: Number
    run: str
    system: str
    gateway: str
    life: Number
    since: Number
    former: Marks = []


class Kept(_Entry, frozen=True, tag="kept"):
    segment: Segment


class Done(_Entry, frozen=True, tag="done"):
    """Per origin, the last message that this site has nothing more to do with."""

    marks: Marks


Entry: TypeAlias = Head | Kept | Done

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


class JournalUnusable(RuntimeProblem):
    """The directory of a journal, or a file in it, cannot be used."""

    def __init__(self, path: Path, reason: str, way_out: str) -> None:
        super().__init__(f"{path}: {reason}; {way_out}")
        self.path = path


class Journal:
    """The journal of one gateway in one life of its site."""

    def __init__(self, directory: Path, head: Head, done: Mapping[ProcessId, int], *, sync: bool = False) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._head = head
        self._sync = sync
        self._number = 0
        self._size = 0
        self._volumes: dict[Path, dict[ProcessId, int]] = {}
        self._last: dict[ProcessId, int] = {}
        self._file = self._begin_volume(done)

    def store(self, batches: Sequence[Batch]) -> None:
        """Have these on disk when it returns; in the page cache at least, and with `sync` on the disk itself."""
        entries = [Kept(batch.segment) for batch in batches if batch.segment]
        for entry in entries:
            self._last.update(entry.segment.marks)
        if entries:
            self._write(entries)

    def note(self, done: Mapping[ProcessId, int]) -> None:
        """Nothing up to these is needed any more. Volumes that hold nothing else go."""
        if self._size < VOLUME_BYTES:
            self._write([Done(sorted(done.items()))])
        else:
            self._file.close()
            self._file = self._begin_volume(done)
        current = Path(str(self._file.name))
        marks = SlotMarks(done.items())
        for path, last in list(self._volumes.items()):
            if path != current and all(seq <= marks.get(origin) for origin, seq in last.items()):
                path.unlink(missing_ok=True)
                del self._volumes[path]

    def forget_former(self) -> None:
        """Remove what the lives before this one have left: everybody who keeps a journal holds it now."""
        for (_, earlier, _), path in _volumes(self._directory):
            if earlier < self._head.life:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        self._file.close()

    def _begin_volume(self, done: Mapping[ProcessId, int]) -> FileIO:
        self._number += 1
        self._size = 0
        head = self._head
        path = self._directory / f"{head.gateway}.{head.life}.{self._number:06}.journal"
        try:
            self._file = FileIO(path, "x")
        except OSError as error:
            raise JournalUnusable(path, error.strerror or "cannot be written", "name another directory") from None
        self._last = self._volumes[path] = {}
        self._write([head, Done(sorted(done.items()))])
        return self._file

    def _write(self, entries: Sequence[Entry]) -> None:
        records = bytearray()
        for entry in entries:
            body = _encoder.encode(entry)
            records += _RECORD.pack(len(body), crc32(body))
            records += body
        self._size += len(records)
        view = memoryview(records)
        while view:
            view = view[self._file.write(view) :]
        if self._sync:
            os.fdatasync(self._file.fileno())


def begin_life(directory: Path, life: int | None = None) -> int:
    """The number of the life that begins now: one more than the last, or the one that is given.

    Where the processes of a site are started one by one, they are told which life they belong to.
    """
    path = directory / "life"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        former = int(path.read_text()) if path.exists() else -1
        now = former + 1 if life is None else life
        if now < former:
            raise JournalUnusable(path, f"life {now} is over: the site is in life {former}", f"use --life {former + 1}")
        written = directory / f"life.{os.getpid()}"
        written.write_text(str(now))
        written.replace(path)
    except ValueError:
        raise JournalUnusable(path, "does not hold a number", "restore it from a copy") from None
    except OSError as error:
        raise JournalUnusable(path, error.strerror or "cannot be used", "name another directory") from None
    return now


def read_former(directory: Path, life: int, run: str, system: str) -> Recovered:
    """What the lives before this one have left. A life may have died before it had taken over from the one before.

    Who comes later in a life may find that the others have removed all that; then they say what it was done with.
    """
    journals: dict[tuple[int, int, str], tuple[SlotMarks, list[Segment]]] = {}
    former: Marks = []
    for (gateway, earlier, _), path in sorted(_volumes(directory)):
        if earlier > life:
            continue
        entries = _read(path)
        head = next(entries, None)
        if head is None:
            continue
        if not isinstance(head, Head) or head.version != VERSION:
            raise JournalUnusable(path, "is not a journal of this version", "start with an empty directory")
        if (head.run, head.system) != (run, system):
            reason = f"belongs to {head.system} of run {head.run}, not to {system} of {run}"
            raise JournalUnusable(path, reason, "give every site and run a directory of its own")
        if earlier == life:
            former = former or head.former
            continue
        done, segments = journals.setdefault((earlier, head.since, gateway), (SlotMarks(), []))
        for entry in entries:
            if isinstance(entry, Kept):
                segments.append(entry.segment)
            elif isinstance(entry, Done):
                done.merge(entry.marks)
    ordered = [journal for _, journal in sorted(journals.items(), key=lambda item: item[0])]
    return merge([(dict(former), []), *((dict(done.counted()), segments) for done, segments in ordered)])


def _volumes(directory: Path) -> Iterator[tuple[tuple[str, int, int], Path]]:
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _VOLUME.fullmatch(path.name)
        if match is not None:
            yield (match["gateway"], int(match["life"]), int(match["number"])), path


def _read(path: Path) -> Iterator[Entry]:
    """The records of a volume, up to a torn one at its end."""
    try:
        data = memoryview(path.read_bytes())
    except FileNotFoundError:
        return  # Somebody who has taken over from a former life has just removed it.
    except OSError as error:
        raise JournalUnusable(path, error.strerror or "cannot be read", "make it readable") from None
    offset = 0
    while offset < len(data):
        if len(data) - offset < _RECORD.size:
            break
        length, checksum = _RECORD.unpack_from(data, offset)
        end = offset + _RECORD.size + length
        body = data[offset + _RECORD.size : end]
        if end > len(data):
            break
        try:
            if length > MAX_FRAME or crc32(body) != checksum:
                raise ValueError("its checksum does not fit")
            yield _decoder.decode(body)
        except ValueError as error:
            reason = f"is damaged at byte {offset}: {error}"
            raise JournalUnusable(path, reason, "restore it, or move it away and lose what only it holds") from None
        offset = end
    if offset < len(data):
        log.info("%s ends in the middle of a record: its last %d bytes are ignored", path, len(data) - offset)
