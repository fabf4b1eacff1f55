"""Which files a trace is made of, and how they are opened: the one place that knows where files are.

Only Parquet files are opened elsewhere, by `trace.parquet.open_parquet` and, where Spark reads them itself, by Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from isthmus.trace.schema import TraceError
from isthmus.trace.shiviz.log import Expressions

SUFFIXES = (".jsonl", ".parquet")
SHIVIZ_SUFFIX = ".shiviz"
LOG_SUFFIX = ".log"
"""Logs of any program end like this: in a directory they are traces only where the user says how to read them."""


_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""How an address of some store begins, also after `Path` has made one slash of several."""


def local_path(given: str | Path) -> Path:
    """The path of a file or directory here. An address such as `s3://bucket/traces` or `file:///traces` is refused.

    Taken for a path it would be one that is not there, and a trace that may still come: nothing, without an error.
    """
    address = _ADDRESS.match(str(given))
    if address:
        way_out = "give the path of a file or directory on this machine"
        if address[1].lower() == "file":
            raise TraceError(given, "an address, and only paths are read here", f"{way_out}, without file://")
        reason = f"an address ({address[1]}), and only files that this machine sees are read"
        raise TraceError(given, reason, f"mount or copy it, and {way_out}")
    return Path(given)


class Traces(list[Path]):
    """Paths of traces, and how to read those of them that are ShiViz logs and do not say it themselves."""

    def __init__(self, paths: Iterable[str | Path], expressions: Expressions | None = None) -> None:
        super().__init__(map(local_path, paths))
        self.expressions = expressions or Expressions()


def find_files_and_logs(paths: Iterable[str | Path]) -> list[Path]:
    """Like `find_files`, and ShiViz logs as well."""
    has_parser = isinstance(paths, Traces) and bool(paths.expressions.parser)
    suffixes = (*SUFFIXES, SHIVIZ_SUFFIX, LOG_SUFFIX) if has_parser else (*SUFFIXES, SHIVIZ_SUFFIX)
    return find_files(paths, suffixes, by_name=(LOG_SUFFIX,))


def find_files(
    paths: Iterable[str | Path], suffixes: tuple[str, ...] = SUFFIXES, by_name: tuple[str, ...] = ()
) -> list[Path]:
    """Every trace file that is named, or lies below a directory that is named, once.

    Files that end with one of `by_name` count where they are named themselves.
    """
    found: dict[str, Path] = {}
    for given in map(local_path, paths):
        try:
            for file in _files_of(given, suffixes, by_name):
                if not file.is_file():
                    raise TraceError(file, "not a regular file", "remove it, or give the trace files one by one")
                # A file that is named twice, or is in a directory that is named too, is still one file.
                found.setdefault(os.path.realpath(file), file)
        except (OSError, ValueError) as error:
            raise TraceError(given, f"cannot read: {error}", "check the path and its permissions") from error
    if not found:
        raise TraceError("trace", "no files given", "give a directory of *.jsonl or *.parquet files")
    return list(found.values())


def _files_of(given: Path, suffixes: tuple[str, ...], by_name: tuple[str, ...]) -> list[Path]:
    if given.is_dir():
        files = sorted(files_below(given, _unreadable, suffixes))
        if not files:
            raise TraceError(
                given, "no trace files in this directory", "give one that holds *.jsonl or *.parquet files"
            )
        return files
    if not given.exists():
        raise TraceError(given, "no such file or directory", "give a directory of *.jsonl or *.parquet files")
    if given.suffix not in (*suffixes, *by_name):
        raise TraceError(given, "not a trace file", "give *.jsonl or *.parquet files, or a directory of them")
    return [given]


def files_below(
    directory: Path, on_error: Callable[[OSError], None] | None = None, suffixes: tuple[str, ...] = SUFFIXES
) -> Iterator[Path]:
    """Like Spark, skip what starts with `_` or `.`: those are files of somebody's housekeeping."""
    for folder, subfolders, names in os.walk(directory, onerror=on_error):
        subfolders[:] = [name for name in subfolders if not name.startswith(("_", "."))]
        for name in names:
            if name.endswith(suffixes) and not name.startswith(("_", ".")):
                yield Path(folder, name)


def _unreadable(error: OSError) -> None:
    raise TraceError(error.filename, f"cannot read: {error.strerror}", "check its permissions") from error


# Files that may still grow --------------------------------------------------------------------------------------------


def log_files(paths: Iterable[str]) -> Iterator[str]:
    """All trace files at or below some paths. What is not there yet may come: a site that has not started."""
    for path in map(local_path, paths):
        if path.is_dir():
            yield from sorted(map(str, files_below(Path(os.path.realpath(path)))))
        elif path.is_file():
            yield os.path.realpath(path)


def size_of(path: str | Path) -> int | None:
    """How many bytes a file has now; None if it is not there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_read(path, error) from error


@contextmanager
def open_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to read; whatever goes wrong with it, also while it is read, is a `TraceError`."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise _cannot_read(path, error) from error


def _cannot_read(path: str | Path, error: OSError) -> TraceError:
    return TraceError(path, f"cannot read: {error.strerror or error}", "check the file and its permissions")
