"""What the driver keeps beside the checkpoint, so that a restart need not read logs again and offsets stay small.

A **version** is written for every cut, before Spark hears of it, and has the cut's id. It says which logs have ended
and how long they are, up to where every row of a file was committed, and which rows are lost. A version holds what
changed since the one before; every 64th holds everything. A restart reads from the last of these on.

Versions are small files that are written once, whole or not at all, so any store will do. They are true of their own
cut only: a restart takes the one that its offset names, whatever else was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from isthmus.pipeline.source.offset import LogPlace
from isthmus.trace.places import Place, place, write_whole
from isthmus.trace.schema import TraceError

WHOLE_EVERY = 64
MOST_GAPS = 10_000
"""Gaps that are remembered, so that a disk full of damage does not fill the journal."""
_DIRECTORY = "isthmus"


Stamp: TypeAlias = tuple[int, int]
"""The bytes of a file, and when it changed."""


class FileNote(NamedTuple):
    """How far a file was read: bytes of its lines (without compression), or row groups of Parquet."""

    before: int
    """All rows up to here are in the cut before: where to read from when the batch is repeated."""
    after: int
    """All rows up to here are in this cut."""
    stamp: Stamp
    is_whole: bool
    """Nothing will follow what is in this cut."""
    has_more: bool
    """There is something behind what is in this cut."""
    head: str = ""
    """What a file of lines is known by."""
    reason: str = ""
    """Why it is in quarantine."""


class Gap(NamedTuple):
    """Rows of a log that are lost, from index `first` to the one before `stop`."""

    log: str
    first: int
    stop: int
    reason: str


class Losses(NamedTuple):
    """What a query went on without: rows of logs, and files that are damaged, with their reasons."""

    gaps: list[Gap]
    quarantine: dict[str, str]


class Version(Struct, omit_defaults=True):
    """What changed. None: forget it."""

    before: str = ""
    """The version that this one adds to. "": none, it holds everything."""
    older: list[str] = []
    """Versions that nobody needs when the next whole one is written."""
    finished: dict[str, LogPlace] = {}
    files: dict[str, FileNote | None] = {}
    gaps: list[Gap] = []


class Journal:
    """The versions in one directory. Without a directory, nothing is kept."""

    def __init__(self, checkpoint: str | None) -> None:
        self._directory = place(checkpoint) / _DIRECTORY if checkpoint else None
        self.finished: dict[str, LogPlace] = {}
        self.files: dict[str, FileNote] = {}
        self.gaps: list[Gap] = []
        self._cut = ""
        self._since_whole: list[str] = []
        self._older: list[str] = []

    @property
    def is_kept(self) -> bool:
        return self._directory is not None

    # Writing

    def write(self, cut: str, ended: dict[str, LogPlace], files: dict[str, FileNote | None], gaps: list[Gap]) -> None:
        """Make the version of a cut."""
        if self._directory is None:
            return
        gaps = gaps[: max(MOST_GAPS - len(self.gaps), 0)]
        version = Version(self._cut, [], ended, files, gaps)
        self._take(version)
        if not self._cut or len(self._since_whole) >= WHOLE_EVERY:
            version = Version("", self._since_whole, self.finished, dict(self.files), self.gaps)
        path = self._path(cut)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, msgspec.json.encode(version))
            if not version.before:
                for each in self._older:
                    self._path(each).unlink(missing_ok=True)
        except OSError as error:
            raise TraceError(path, f"cannot write: {error.strerror or error}", "free some space there") from error
        if not version.before:
            self._older, self._since_whole = self._since_whole, []
        self._since_whole.append(cut)
        self._cut = cut

    def _take(self, version: Version) -> None:
        self.finished.update(version.finished)
        for path, note in version.files.items():
            if note is None:
                self.files.pop(path, None)
            else:
                self.files[path] = note
        self.gaps.extend(version.gaps)

    # Reading

    def load(self, cut: str) -> None:
        """Go back to the version of a cut."""
        if self._directory is None:
            raise TraceError(
                "checkpoint",
                f"its cut {cut} needs the journal of the source, and the option checkpointLocation is not given",
                "give the source the same checkpointLocation as the query",
            )
        for name, version in reversed(list(self._chain(cut))):
            if not version.before:
                self._older, self._since_whole = version.older, []
            self._since_whole.append(name)
            self._take(version)
        self._cut = cut

    def _chain(self, cut: str) -> Iterator[tuple[str, Version]]:
        at = cut
        for _ in range(2 * WHOLE_EVERY):
            version = self._read(at)
            yield at, version
            at = version.before
            if not at:
                return
        raise self._broken(cut, "its versions go round in a circle")

    def _read(self, cut: str) -> Version:
        try:
            return msgspec.json.decode(self._path(cut).read_bytes(), type=Version)
        except (OSError, ValueError) as error:
            raise self._broken(cut, str(error)) from error

    def newest(self) -> str:
        """The cut that was planned last, as far as files tell. "": none."""
        if self._directory is None or not self._directory.is_dir():
            return ""
        return max((each.stem for each in self._directory.iterdir() if each.suffix == ".json"), default="")

    def _path(self, cut: str) -> Place:
        assert self._directory is not None
        return self._directory / f"{cut}.json"

    def _broken(self, cut: str, reason: str) -> TraceError:
        return TraceError(
            self._path(cut),
            f"the journal of the source does not fit the checkpoint: {reason}",
            "put it back, or start the query with a new checkpoint",
        )


def losses(checkpoint: str | Path) -> Losses:
    """What a query with `failOnDataLoss=false` and this `checkpointLocation` has lost so far."""
    journal = Journal(str(checkpoint))
    newest = journal.newest()
    if newest:
        journal.load(newest)
    return Losses(journal.gaps, {path: note.reason for path, note in journal.files.items() if note.reason})
