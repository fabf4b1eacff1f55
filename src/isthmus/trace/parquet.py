"""Traces as Parquet files: the columns of the schema, and nothing that depends on the time or place of writing.

pyarrow is an optional dependency, so it is imported by the functions that need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from isthmus.trace.schema import COLUMNS, NULLABLE, Event, TraceError

_BATCH_ROWS = 1 << 14


def load_pyarrow(path: Path) -> ModuleType:
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise TraceError(
            path, "Parquet needs pyarrow, which is not installed", "pip install 'isthmus[parquet]'"
        ) from None


def _schema(pyarrow: ModuleType) -> Any:
    special = {"destinations": pyarrow.list_(pyarrow.string())}
    special |= dict.fromkeys(("index", "origin_seq", "payload_bytes", "control_bytes", "time_ns"), pyarrow.int64())
    return pyarrow.schema(
        [pyarrow.field(name, special.get(name, pyarrow.string()), nullable=name in NULLABLE) for name in COLUMNS]
    )


def write_part(path: Path, events: Sequence[Event], *, fsync: bool = False) -> None:
    """Write one file that is either whole or not there: it gets its name only after its last byte."""
    pyarrow = load_pyarrow(path)
    schema = _schema(pyarrow)
    columns = zip(*map(msgspec.structs.astuple, events), strict=True)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), file)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise TraceError(
            path, f"cannot write: {error.strerror or error}", "free some space or choose another directory"
        ) from error


def read_part(path: Path) -> Iterator[list[Mapping[str, Any]]]:
    """The rows of a file, a bounded number at a time, as values by column. Content is the caller's to check."""
    pyarrow = load_pyarrow(path)
    # What pyarrow raises for damaged files is not documented; these are the classes that it uses.
    unreadable = (pyarrow.ArrowException, OSError, ValueError, LookupError, MemoryError, OverflowError)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            wanted = _columns_to_read(pyarrow, path, file.schema_arrow)
            names = wanted.names
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names):
                columns = [batch.column(field.name).cast(field.type).to_pylist() for field in wanted]
                yield [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    except unreadable as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TraceError(path, f"not a readable Parquet file: {reason}", "remove or replace it") from error


def _columns_to_read(pyarrow: ModuleType, path: Path, found: Any) -> Any:
    """The columns of ours that the file has, with our types. Other integers and other kinds of string will do."""
    types = pyarrow.types
    alike = {"int64": [types.is_integer], "string": [types.is_string, types.is_large_string]}
    way_out = "see the trace format for its columns"
    wanted = []
    for field in _schema(pyarrow):
        if field.name in found.names:
            kind = found.field(field.name).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            accepted = alike.get(str(field.type), [types.is_list, types.is_large_list])
            if not (types.is_null(kind) or any(fits(kind) for fits in accepted)):
                raise TraceError(path, f"not a trace: column `{field.name}` is {kind}, not {field.type}", way_out)
            wanted.append(field)
        elif field.name not in NULLABLE:
            raise TraceError(path, f"not a trace: it has no column `{field.name}`", way_out)
    return pyarrow.schema(wanted)
