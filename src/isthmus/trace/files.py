"""Which files a trace is made of, and how they are opened, wherever they are (`trace.places`).

Only Parquet files are opened elsewhere, by `trace.parquet.open_parquet` and, where Spark reads them itself, by Spark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from isthmus.trace.places import Address, Place, place
from isthmus.trace.schema import TraceError

SUFFIXES = (".jsonl", ".parquet")


def local_path(given: str | Place) -> Path:
    """The path of a file or directory of this machine. An address such as `s3a://bucket/traces` is refused.

    Taken for a path it would be one that is not there.
    """
    found = place(given)
    if isinstance(found, Address):
        reason = f"an address ({found.scheme}), and this has to be on this machine"
        raise TraceError(given, reason, "give the path of a file or directory")
    return found


def find_files(paths: Iterable[str | Place]) -> list[Place]:
    """Every trace file that is named, or lies below a directory that is named, once."""
    found: dict[str, Place] = {}
    for given in map(place, paths):
        try:
            for file in _files_of(given):
                if isinstance(file, Path) and not file.is_file():
                    raise TraceError(file, "not a regular file", "remove it, or give the trace files one by one")
                # A file that is named twice, or is in a directory that is named too, is still one file.
                found.setdefault(os.path.realpath(file) if isinstance(file, Path) else str(file), file)
        except (OSError, ValueError) as error:
            raise TraceError(given, f"cannot read: {error}", "check the path and its permissions") from error
    if not found:
        raise TraceError("trace", "no files given", "give a directory of *.jsonl or *.parquet files")
    return list(found.values())


def _files_of(given: Place) -> list[Place]:
    if given.is_dir():
        files = sorted(files_below(given, _unreadable))
        if not files:
            raise TraceError(
                given, "no trace files in this directory", "give one that holds *.jsonl or *.parquet files"
            )
        return files
    if not given.exists():
        raise TraceError(given, "no such file or directory", "give a directory of *.jsonl or *.parquet files")
    if given.suffix not in SUFFIXES:
        raise TraceError(given, "not a trace file", "give *.jsonl or *.parquet files, or a directory of them")
    return [given]


def files_below(
    directory: Place, on_error: Callable[[OSError], None] | None = None, suffixes: tuple[str, ...] = SUFFIXES
) -> Iterator[Place]:
    """Like Spark, skip what starts with `_` or `.`: those are files of somebody's housekeeping."""
    if isinstance(directory, Address):
        yield from (file for file, _ in _found_below(directory, suffixes))
        return
    for folder, subfolders, names in os.walk(directory, onerror=on_error):
        subfolders[:] = [name for name in subfolders if not name.startswith(("_", "."))]
        for name in names:
            if name.endswith(suffixes) and not name.startswith(("_", ".")):
                yield Path(folder, name)


def _found_below(directory: Address, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[tuple[Address, int]]:
    """Trace files with their sizes. Hadoop lets nobody follow a link, so a listing is all there is."""
    for below, size in directory.files():
        if below.endswith(suffixes) and not any(name.startswith(("_", ".")) for name in below.split("/")):
            yield directory / below, size


def _unreadable(error: OSError) -> None:
    raise TraceError(error.filename, f"cannot read: {error.strerror}", "check its permissions") from error


# Files that may still grow --------------------------------------------------------------------------------------------


def log_files(paths: Iterable[str | Place]) -> Iterator[str]:
    """All trace files at or below some places. What is not there yet may come: a site that has not started."""
    yield from log_sizes(paths)


def log_sizes(paths: Iterable[str | Place]) -> dict[str, int]:
    """All trace files at or below some places, and how many bytes each has now. A store is asked once per place."""
    found: dict[str, int | None] = {}
    for given in map(place, paths):
        if isinstance(given, Address):
            size = given.size() if given.suffix in SUFFIXES else None
            files = [(given, size)] if size is not None else _found_below(given)
            found |= {str(file): size for file, size in files}
        elif given.is_dir():
            found |= {path: size_of(path) for path in sorted(map(str, files_below(Path(os.path.realpath(given)))))}
        elif given.is_file():
            path = os.path.realpath(given)
            found[path] = size_of(path)
    return {path: size for path, size in found.items() if size is not None}


def size_of(path: str | Place) -> int | None:
    """How many bytes a file has now; None if it is not there."""
    where = place(path)
    if isinstance(where, Address):
        return where.size()
    try:
        return os.stat(where).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_read(path, error) from error


@contextmanager
def open_file(path: str | Place) -> Iterator[IO[bytes]]:
    """A file to read; whatever goes wrong with it, also while it is read, is a `TraceError`, or a `StoreProblem`."""
    where = place(path)
    try:
        with where.open() if isinstance(where, Address) else open(where, "rb") as file:
            yield file
    except OSError as error:
        raise _cannot_read(path, error) from error


def _cannot_read(path: str | Place, error: OSError) -> TraceError:
    reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
    return TraceError(path, f"cannot read: {reason}", "check the file and its permissions")
