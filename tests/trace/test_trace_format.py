"""The page about the trace format, the class of a row and the schemas of files say what the table of columns says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from isthmus.trace.columns import TRACE_COLUMNS, TRACE_EVENTS, Column
from isthmus.trace.parquet import arrow_schema
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.schema import Event, EventName, Role

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trace-format.md"


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of the page, cell by cell."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def values(column: Column) -> str:
    """What a column may hold, in the words of the page."""
    if column.name == "event":
        return "see below"
    if column.values:
        return ", ".join(f"`{value}`" for value in column.values)
    if column.least is None:
        return ""
    return "not empty" if column.type == "string" else f"≥ {column.least}"


def test_the_page_has_the_columns_of_the_table() -> None:
    assert table("Columns") == [
        [f"`{each.name}`", each.type, "yes" if each.nullable else "no", values(each), each.meaning]
        for each in TRACE_COLUMNS
    ]


def test_the_page_has_the_events_of_the_table() -> None:
    assert table("Events") == [
        [f"`{each.name}`", each.message, "yes" if each.last else "no", each.meaning] for each in TRACE_EVENTS
    ]


def test_the_page_explains_every_property() -> None:
    assert [name for name, _ in table("What the properties mean")] == list(PROPERTIES)


def test_the_class_of_a_row_has_the_columns_of_the_table() -> None:
    info = msgspec.inspect.type_info(Event)
    assert isinstance(info, msgspec.inspect.StructType)
    assert [_column(field) for field in info.fields] == [
        (each.name, each.type, each.nullable, each.least, set(each.values)) for each in TRACE_COLUMNS
    ]


def _column(field: msgspec.inspect.Field) -> tuple[str, str, bool, int | None, set[Any]]:
    kinds = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else (field.type,)
    [kind] = [each for each in kinds if not isinstance(each, msgspec.inspect.NoneType)]
    match kind:
        case msgspec.inspect.IntType(ge=least):
            described: tuple[str, int | None, set[Any]] = ("int64", None if least == -(1 << 63) else least, set())
        case msgspec.inspect.StrType(min_length=least):
            described = ("string", least, set())
        case msgspec.inspect.LiteralType(values=allowed):
            described = ("string", None, set(allowed))
        case _:
            described = ("array of string", None, set())
    return field.encode_name, described[0], len(kinds) > 1, described[1], described[2]


def test_the_names_that_mypy_knows_are_those_of_the_table() -> None:
    assert get_args(EventName) == tuple(each.name for each in TRACE_EVENTS)
    assert [get_args(Role)] == [each.values for each in TRACE_COLUMNS if each.name == "role"]


def test_parquet_has_the_columns_of_the_table() -> None:
    pytest.importorskip("pyarrow")
    kinds = {each.name: re.sub(r"^list<.*", "array of string", str(each.type)) for each in arrow_schema(strict=True)}
    assert kinds == {each.name: each.type for each in TRACE_COLUMNS}
    assert {each.name for each in arrow_schema(strict=True) if each.nullable} == {
        each.name for each in TRACE_COLUMNS if each.nullable
    }
