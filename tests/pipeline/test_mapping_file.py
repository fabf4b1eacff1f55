"""Mapping files: what is wrong with one is said in one line, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import call

from isthmus.pipeline import session
from isthmus.pipeline.mapping.model import load_mapping, parse_mapping, templates
from isthmus.trace.schema import TraceError

SOUND = """
[[input]]
from = "x"
[input.columns]
process = "p"
order = "o"
event = "e"
message = "m"
"""
LINES = """
[[input]]
from = "logs"
pattern = '(?P<verb>sent|got) (?P<id>[0-9]+)'
[input.columns]
process = "name"
event = "verb"
message = "id"
"""


def test_every_template_can_be_used() -> None:
    assert templates() == ["consumers", "kafka", "nats", "redis", "shiviz"]
    for name in templates():
        assert load_mapping(name).inputs


def test_lines_are_in_the_order_of_their_files_unless_it_says_otherwise() -> None:
    assert parse_mapping(LINES, "m").inputs[0].order == ["file", "line"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("complete = ", "not a mapping: Invalid value"),
        ("complete = true", "missing required field `input`"),
        ("input = []", "it has no [[input]]"),
        (SOUND.replace("from =", "form ="), "unknown field `form` - at `$.input[0]`"),
        (SOUND.replace('process = "p"', ""), "no `process` in [input.columns]"),
        (SOUND.replace("message =", "mesage ="), "no such column: `mesage`; there are run, system"),
        (SOUND.replace('message = "m"', ""), "does not say which message"),
        (SOUND + 'origin_seq = "n"', "it has both `message` and `origin_seq`"),
        (SOUND + 'index = "n"', "one of `order`, what sorts the rows of a process, and `index`"),
        (SOUND.replace('"o"', "[]"), "`order` is empty"),
        (SOUND.replace('"e"', '["e", "f"]'), "`event` is a list; only `order` may be one"),
        (SOUND + '[input.events]\nx = "sned"', "'x' is mapped to 'sned'; there are accept, acknowledge"),
        (SOUND.replace("[input.columns]", 'unmatched = "ignore"\n[input.columns]'), "`unmatched` is for text"),
        (LINES.replace("[input.columns]", 'format = "csv"\n[input.columns]'), "both `pattern`, for lines of text, and"),
        (LINES.replace("(?P<id>", "(?P<id"), "its pattern is no regular expression"),
        (LINES.replace("(?P<id>", "(?P<line>"), "a group `line`, which a line has already"),
        (LINES.replace("?P<verb>", "").replace("?P<id>", ""), "its pattern has no named group"),
        (SOUND + SOUND.replace("order =", "index ="), "some inputs have `index` and others `order`"),
    ],
    ids=range(18),
)
def test_a_mapping_that_cannot_be_used_is_refused_in_one_line(
    text: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "spark_session", None)
    (tmp_path / "map.toml").write_text(text)
    refused = call(capsys, monkeypatch, "audit", "--map", tmp_path / "map.toml")
    assert refused.is_refusal("map.toml", words), refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit"], ["Missing argument"]),
        (["audit", "--follow"], ["Missing argument"]),
        (["measure", "--table", "x"], ["--table is for tables that a mapping explains"]),
        (["audit", "--map", "nowhere.toml"], ["cannot read", "a template: consumers, kafka"]),
        (["report", "--map", "consumers"], ["nothing says which table"]),
        (["audit", "--map", "redis", "--table", "x"], ["inputs programs, stream", "write NAME=TABLE"]),
        (["audit", "--map", "redis", "x"], ["several inputs"]),
        (["audit", "--map", "redis", "--table", "stream=x"], ["nothing says which table input 'programs' is"]),
        (["audit", "x", "--follow", "--map", "redis"], ["--map is for an audit of traces that are finished"]),
    ],
    ids=lambda value: " ".join(value) if "-" in value[0] or len(value) > 1 else None,
)
def test_tables_without_a_mapping_and_mappings_without_tables_are_refused(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "spark_session", None)
    assert call(capsys, monkeypatch, *arguments).is_refusal(*words)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="not a mapping"):
        load_mapping(tmp_path / "map.toml")
    with pytest.raises(TraceError, match="cannot read"):
        load_mapping(tmp_path)
