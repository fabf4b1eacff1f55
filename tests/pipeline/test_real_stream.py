"""A real broker's data, audited with a mapping alone: a stream of Valkey, and logs of programs that read it."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cli_support import call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples/pipeline/redis_stream.py"


@pytest.fixture
def example() -> Any:
    spec = spec_from_file_location("redis_stream", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.real
def test_the_logs_of_a_stream_are_judged_with_a_mapping_alone(
    spark: SparkSession,
    example: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = 2 * example.ORDERS
    for careless in (False, True):
        directory = tmp_path / str(careless)
        directory.mkdir()
        example.work(directory, careless)
        options = [
            "--map",
            example.MAPPING,
            *example.tables(directory),
            "--expect",
            "integrity,agreement,fifo,causal,total",
        ]
        ended = call(capsys, monkeypatch, "audit", *options, "-o", "json")
        verdicts = {each["property"]: each for each in ended.json["verdicts"]}
        assert ended.code == int(careless)
        assert ended.json["quarantined"] == 0
        assert {each["checked"] for each in verdicts.values()} == {3 * total}  # billing, shipping, and the stream
        wrong = {name for name, each in verdicts.items() if each["verdict"] == "violated"}
        assert wrong == ({"fifo", "causal", "total"} if careless else set())
        assert {each["verdict"] for name, each in verdicts.items() if name not in wrong} == {"holds"}
        witnesses = {each["process"] for each in ended.json["violations"] if each["property"] != "total"}
        assert witnesses == ({"redis/shipping"} if careless else set())
