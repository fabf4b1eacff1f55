"""The page of the public API and the code say the same."""

from __future__ import annotations

from pathlib import Path

import isthmus
from isthmus.pipeline import result, sql
from isthmus.trace.schema import COLUMNS

PAGE = (Path(__file__).parents[2] / "docs/pipeline-api.md").read_text()


def test_every_public_name_is_on_the_page_and_there() -> None:
    for name in isthmus.__all__:
        assert f"`isthmus.{name}" in PAGE
        assert hasattr(isthmus, name)


def test_columns_on_the_page_are_those_of_the_code() -> None:
    for name, schema in (
        ("verdicts", result.VERDICTS),
        ("violations", result.VIOLATIONS),
        ("quarantine", result.QUARANTINE),
        ("isthmus_audit", sql.AUDITED),
    ):
        told = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in schema)
        assert f"- `{name}`: {told}\n" in PAGE
    assert result.WITNESSES.names == ["number", "property", *COLUMNS]
    assert "- `witnesses`: number bigint, property string, and the columns of" in PAGE
