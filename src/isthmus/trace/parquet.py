"""Traces as Parquet files: the columns of the table, and nothing that depends on the time or place of writing.

pyarrow is an optional dependency, so it is imported by the functions that need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec

from isthmus.trace.columns import TRACE_COLUMNS, Column
from isthmus.trace.places import Address, Place, place
from isthmus.trace.schema import Event, TraceError


def load_pyarrow(path: str | Place = "trace") -> ModuleType:
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise TraceError(
            path, "Parquet needs pyarrow, which is not installed", "pip install 'isthmus[parquet]'"
        ) from None


def arrow_schema(columns: Sequence[Column] = TRACE_COLUMNS, *, strict: bool = False) -> Any:
    """The columns for Arrow. `strict` says which may be null; otherwise all may, and who reads checks it."""
    pyarrow = load_pyarrow()
    types = {
        "string": pyarrow.string(),
        "int64": pyarrow.int64(),
        "array of string": pyarrow.list_(pyarrow.field("element", pyarrow.string())),
    }
    return pyarrow.schema(
        [pyarrow.field(each.name, types[each.type], nullable=each.nullable or not strict) for each in columns]
    )


def write_part(path: Place, events: Sequence[Event], *, fsync: bool = False) -> None:
    """Write one file that is either whole or not there: it gets its name only after its last byte."""
    pyarrow = load_pyarrow(path)
    schema = arrow_schema(strict=True)
    columns = zip(*map(msgspec.structs.astuple, events), strict=True)
    arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    if isinstance(path, Address):
        write_parquet(path, pyarrow.Table.from_arrays(arrays, schema=schema))
        return
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


def write_parquet(path: Place, table: Any, groups: Sequence[tuple[int, int]] = (), **options: Any) -> None:
    """Write a table as one file, with these rows as its row groups, if any are given. `options` are pyarrow's."""
    pyarrow = load_pyarrow(path)
    # What is written to a store by and by is there by halves when the writer fails.
    target: Any = pyarrow.BufferOutputStream() if isinstance(path, Address) else path
    with pyarrow.parquet.ParquetWriter(target, table.schema, **options) as writer:
        for start, stop in groups or [(0, table.num_rows)]:
            writer.write_table(table.slice(start, stop - start), row_group_size=max(1, stop - start))
    if isinstance(path, Address):
        path.write_bytes(target.getvalue())


@contextmanager
def open_parquet(path: str | Place, **options: Any) -> Iterator[Any]:
    """A Parquet file to read; whatever is wrong with it, also while it is read, is a `TraceError`.

    What is wrong with its store is a `StoreProblem`. `options` are those of `pyarrow.parquet.ParquetFile`.
    """
    where = place(path)
    pyarrow = load_pyarrow(path)
    # What pyarrow raises for damaged files is not documented; these are the classes that it uses.
    unreadable = (pyarrow.ArrowException, OSError, ValueError, LookupError, MemoryError, OverflowError)
    try:
        if isinstance(where, Address):
            options = {name: value for name, value in options.items() if name != "memory_map"}
            with where.open() as source, pyarrow.parquet.ParquetFile(source, pre_buffer=True, **options) as file:
                yield file
        else:
            with pyarrow.parquet.ParquetFile(where, **options) as file:
                yield file
    except unreadable as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TraceError(path, f"not a readable Parquet file: {reason}", "remove or replace it") from error


def columns_to_read(path: str | Place, found: Any, columns: Sequence[Column] = TRACE_COLUMNS) -> Any:
    """The columns of ours that a file has, with our types. Other integers and other kinds of string will do."""
    pyarrow = load_pyarrow(path)
    types = pyarrow.types
    alike = {
        "string": (types.is_string, types.is_large_string),
        "int64": (types.is_integer,),
        "array of string": (types.is_list, types.is_large_list),
    }
    way_out = "see the trace format for its columns"
    wanted = []
    for column, field in zip(columns, arrow_schema(columns), strict=True):
        if column.name in found.names:
            kind = found.field(column.name).type
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if not (types.is_null(kind) or any(fits(kind) for fits in alike[column.type])):
                raise TraceError(path, f"not a trace: column `{column.name}` is {kind}, not {field.type}", way_out)
            wanted.append(field)
        elif not column.nullable:
            raise TraceError(path, f"not a trace: it has no column `{column.name}`", way_out)
    return pyarrow.schema(wanted)


def read_group(path: str | Place, group: int, names: Sequence[str], columns: Sequence[Column] = TRACE_COLUMNS) -> Any:
    """One row group as a record batch of the named columns: with our types, and nulls for those that are not there."""
    pyarrow = load_pyarrow(path)
    schema = arrow_schema(columns)
    with open_parquet(path) as file:
        there = set(columns_to_read(path, file.schema_arrow, columns).names)
        table = file.read_row_group(group, columns=[name for name in names if name in there])
        types = {name: schema.field(name).type for name in names}
        arrays = [
            table.column(name).cast(kind).combine_chunks() if name in there else pyarrow.nulls(table.num_rows, kind)
            for name, kind in types.items()
        ]
        return pyarrow.RecordBatch.from_arrays(arrays, list(names))
