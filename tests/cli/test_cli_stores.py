"""Commands at addresses: traces, tables, pages and checkpoints in an object store, and what goes wrong with it.

The keys come from the environment here, and Spark has no package for s3a: with a local master none of this needs one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from cli_support import Finished, call, write
from object_store import ObjectStore
from patience import seconds
from test_cli_audit import row, trace

from isthmus.pipeline.ingest import ingest
from isthmus.pipeline.places import SCRATCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "joins" / "two-sites.toml"


class Isthmus(Protocol):
    def __call__(self, *arguments: object) -> Finished: ...


@pytest.fixture
def isthmus(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, object_store: ObjectStore
) -> Isthmus:
    """The command, with the keys of the store in its environment, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.fixture
def swapped(object_store: ObjectStore, tmp_path: Path) -> Iterator[str]:
    """The address of a trace with a violation and a line of nonsense."""
    rows = trace(tmp_path / "here", swapped=True) / "rows.jsonl"
    yield object_store.put(f"{tmp_path.name}/there/rows.jsonl", rows.read_bytes()).rpartition("/")[0]
    object_store.remove(tmp_path.name)


def test_the_verdict_is_the_same_wherever_trace_and_table_are(
    spark: SparkSession, isthmus: Isthmus, swapped: str, object_store: ObjectStore, tmp_path: Path
) -> None:
    here = isthmus("audit", "here", "-o", "json")  # a relative path
    assert here.code == 1
    table = f"{swapped}-table"
    for again in (
        isthmus("audit", f"file://{tmp_path}/here", "-o", "json"),
        isthmus("audit", swapped, "-o", "json"),
        isthmus("audit", swapped, "--keep", table, "-o", "json"),
        isthmus("audit", table, "-o", "json"),
        isthmus("audit", swapped, "--scratch", f"{swapped}-scratch", "-o", "json"),
    ):
        assert (again.code, again.json) == (here.code, here.json)
    spark.conf.unset(SCRATCH)  # other commands have sessions of their own
    assert f"{tmp_path.name}/there-table/table.json" in object_store.names(tmp_path.name)
    left = [name for name in object_store.names(tmp_path.name) if "scratch" in name and not name.endswith("/")]
    assert not left
    assert isthmus("audit", swapped, "--keep", table).is_refusal(table, "is there already and not empty")


@pytest.mark.usefixtures("spark")
def test_late_traces_are_added_to_a_table_in_a_store(
    isthmus: Isthmus, swapped: str, object_store: ObjectStore, tmp_path: Path
) -> None:
    table = f"{swapped}-grown"
    late = write(tmp_path / "late.jsonl", row("p1", 1, "send", ("p1", 1)) + "\n" + row("p3", 0, "start") + "\n")
    assert isthmus("audit", swapped, "--keep", table).code == 1
    for _ in range(2):  # the second time there is nothing new
        grown = isthmus("audit", late, "--keep", table, "--append", "-o", "json")
        assert (grown.code, grown.json["events"], grown.json["quarantined"]) == (1, 11, 2)
    names = object_store.names(f"{tmp_path.name}/there-grown/rows")
    assert {"late-0002" in name for name in names} == {False, True}, "what was replaced stays until the next time"


@pytest.mark.usefixtures("spark")
def test_traces_in_a_store_are_followed_and_told(isthmus: Isthmus, swapped: str) -> None:
    followed = isthmus("audit", "--follow", swapped, "--once")
    assert followed.code == 1
    assert "fifo" in followed.out
    story = isthmus("story", swapped, "a/p1/1")
    assert story.code == 0
    assert "a/p2" in story.out


@pytest.mark.usefixtures("spark")
def test_a_page_is_written_to_a_store(
    isthmus: Isthmus, swapped: str, object_store: ObjectStore, tmp_path: Path
) -> None:
    page = f"{swapped}/page.html"
    assert isthmus("report", swapped, "--to", page).code == 1
    body = object_store.client().get_object(Bucket=object_store.bucket, Key=f"{tmp_path.name}/there/page.html")["Body"]
    assert body.read().rstrip().endswith(b"</html>")


@pytest.mark.usefixtures("spark")
def test_traces_of_a_campaign_go_to_a_store(isthmus: Isthmus, swapped: str) -> None:
    target = f"{swapped}-campaign"
    assert isthmus("campaign", EXAMPLE, "--seeds", "1..2", "--trace", target).code == 0
    assert isthmus("campaign", EXAMPLE, "--seeds", "1..2", "--trace", target).is_refusal(target, "not empty")
    audited = isthmus("audit", target, "-o", "json")
    assert (audited.code, audited.json["runs"]) == (0, 2)


@pytest.mark.usefixtures("spark")
def test_a_damaged_file_in_a_store_is_quarantined(isthmus: Isthmus, swapped: str, object_store: ObjectStore) -> None:
    directory = swapped.removeprefix(f"{object_store.address}/")
    object_store.put(f"{directory}/bad.parquet", b"PAR1 nothing PAR1")
    audited = isthmus("audit", swapped, "-o", "json")
    assert (audited.code, audited.json["quarantined"]) == (1, 2)
    object_store.put(f"{directory}-nonsense/rows.jsonl", b"nonsense\n")
    nothing = isthmus("audit", f"{swapped}-nonsense")
    assert nothing.is_refusal("no row of the trace can be used", f"{swapped}-nonsense/rows.jsonl")


# What goes wrong ------------------------------------------------------------------------------------------------------

COMMANDS = ["audit {}", "audit --follow --once {}", "measure {}", "report {}", "story {} a/p1/1"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_path_is_refused(isthmus: Isthmus, swapped: str, command: str) -> None:
    refused = isthmus(*command.format(f"{swapped}-nowhere").split())
    assert refused.is_refusal(f"{swapped}-nowhere", "no such file or directory"), refused


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "command", [*COMMANDS, "audit here --keep {}", f"campaign {EXAMPLE} --seeds 1..1 --trace {{}}"]
)
def test_a_wrong_key_is_refused(
    isthmus: Isthmus, swapped: str, command: str, monkeypatch: pytest.MonkeyPatch, object_store: ObjectStore
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-guess")
    refused = isthmus(*command.format(swapped).split())
    assert refused.is_refusal(swapped, "the store refuses the keys"), refused
    assert "a-guess" not in refused.err
    assert object_store.secret not in refused.err


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", ["audit {}", "audit --follow --once {}", "report here --to {}/page.html"])
def test_a_store_that_is_away_is_refused_in_time(
    isthmus: Isthmus, swapped: str, command: str, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", away)
    started = time.monotonic()
    refused = isthmus(*command.format(swapped).split())
    assert time.monotonic() - started < seconds(30)
    assert refused.is_refusal(swapped, "the store does not answer", away), refused


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("audit s3://bucket/traces", "write s3a://"),
        ("audit gs://bucket/traces", "there are s3a, hdfs, abfss, file"),
        ("audit s3a://key:hush@bucket/traces", "an address with keys in it"),
        ("audit here --keep s3://bucket/table", "write s3a://"),
        ("report here --to s3://bucket/page.html", "write s3a://"),
        ("audit file:///nowhere/at/all", "no such file or directory"),
        (f"check s3a://bucket/{EXAMPLE.name}", "an address"),
    ],
)
def test_what_is_no_place_of_ours_is_refused_before_spark_starts(
    isthmus: Isthmus, tmp_path: Path, command: str, said: str
) -> None:
    trace(tmp_path / "here", swapped=False)
    refused = isthmus(*command.split())
    assert refused.is_refusal(said), refused
    assert "hush" not in refused.err


@pytest.mark.usefixtures("spark")
def test_spark_without_a_package_for_the_store_says_which(isthmus: Isthmus, swapped: str) -> None:
    """Spark itself reads the rows of a table for figures and writes their tables; the audit needs none of that."""
    table = f"{swapped}-table"
    assert isthmus("audit", swapped, "--keep", table).code == 1
    assert isthmus("measure", table).is_refusal("Spark itself cannot read", "hadoop-aws")
    assert isthmus("measure", swapped, "--to", f"{swapped}-figures").is_refusal("Spark itself cannot", "hadoop-aws")


@pytest.mark.usefixtures("isthmus")
def test_long_files_of_a_store_are_read_by_ranges_with_their_lines(
    spark: SparkSession, swapped: str, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With pieces of 200 bytes, nearly every line begins in another one than the line before."""
    monkeypatch.setattr("isthmus.pipeline.ingest.files.PIECE_BYTES", 200)
    lines = [row("p9", 0, "start"), *(row("p9", n, "send", ("p9", n)) for n in range(1, 40)), "nonsense"]
    name = f"{swapped.removeprefix(object_store.address + '/')}-long/rows.jsonl"
    object_store.put(name, "\n".join([*lines, ""]).encode())
    table = ingest(spark, [f"{swapped}-long"], tmp_path / "table")
    assert [(bad.file, bad.line) for bad in table.worst(spark)] == [(f"{swapped}-long/rows.jsonl", len(lines))]
    assert table.rows(spark).count() == len(lines) - 1
