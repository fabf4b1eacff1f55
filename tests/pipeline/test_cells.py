"""Every command of the pipeline, on every kind of Spark, with its files in every kind of place; and with wrong ones.

`make test` runs one cell, `make test-real` one of each command, `make cluster` all of them, and prints the table. The
parts are started here, on loopback: a standalone cluster whose workers do not see the disk of the driver, nor each
other's, a server of Spark Connect, and an object store. Executors of both have no isthmus of their own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_support import Finished, spawn
from object_store import ObjectStore
from patience import seconds
from spark_servers import S3A, connect_server, other_python, private_disk, standalone
from trace_files import all_rows, rounds, write_jsonl

TOPOLOGY = Path(__file__).parents[2] / "examples/joins/two-sites.toml"
COMMANDS = ("audit", "measure", "report", "campaign", "follow", "source")
WAYS = ("local", "cluster", "connect")
PLACES = ("path", "file", "s3a")
WRONG = ("path", "key", "away")
DELIVERIES = 3 * 3 * 20

QUICK = {("audit", "cluster", "path")}
REAL = {
    ("audit", "connect", "path"), ("measure", "cluster", "s3a"), ("report", "connect", "s3a"),
    ("campaign", "cluster", "s3a"), ("follow", "connect", "s3a"), ("source", "cluster", "s3a"),
}  # fmt: skip
"""Each command once, on a way in that asks much of it."""

pytestmark = pytest.mark.timeout(3600)  # the first test of a kind pays for the start of its parts


def cell(*names: str) -> Any:
    marks = [pytest.mark.real] if names in REAL else [] if names in QUICK else [pytest.mark.cluster]
    return pytest.param(*names, marks=marks, id="-".join(names))


CELLS = [cell(command, way, place) for command in COMMANDS for way in WAYS for place in PLACES]


# The parts ------------------------------------------------------------------------------------------------------------


class Parts:
    """What is needed is started when it is needed, and lives as long as the tests."""

    def __init__(self, room: ExitStack, directory: Path, request: pytest.FixtureRequest) -> None:
        self._room, self._directory, self._request = room, directory, request
        self.hidden = directory / "hidden"
        """What only the driver sees: the trace, what is kept, and temporary files."""
        (self.hidden / "tmp").mkdir(parents=True)
        (self.hidden / "trace").mkdir()
        for name in ("r", "s"):
            logs = rounds(name, processes=3, messages=20)
            write_jsonl(self.hidden / "trace" / f"{name}.jsonl", all_rows(logs))

    @cached_property
    def store(self) -> ObjectStore:
        found: ObjectStore = self._request.getfixturevalue("object_store")
        for name in ("r", "s"):
            found.put(f"cells/trace/{name}.jsonl", (self.hidden / "trace" / f"{name}.jsonl").read_bytes())
        return found

    @cached_property
    def jars(self) -> dict[str, str]:
        assert list(S3A.glob("hadoop-aws-*.jar")), f"nothing in {S3A}: scripts/setup real fetches it"
        return {"spark.driver.extraClassPath": f"{S3A}/*", "spark.executor.extraClassPath": f"{S3A}/*"}

    @cached_property
    def bare_python(self) -> Path:
        """A Python that has all packages but isthmus."""
        return other_python(self._directory / "bare")

    @cached_property
    def cluster(self) -> str:
        able = subprocess.run([*private_disk(self.hidden), "true"], capture_output=True, check=False)
        if able.returncode:
            pytest.skip(f"this machine lets nobody have disks of his own: {able.stderr.decode().strip()}")
        return self._room.enter_context(standalone(self._directory / "standalone", hidden=self.hidden)).master

    @cached_property
    def connect(self) -> str:
        more = self.store.settings | self.jars
        return self._room.enter_context(connect_server(self._directory / "connect", self.bare_python, more=more))

    def way(self, way: str, place: str) -> tuple[list[str], dict[str, str]]:
        """Options and environment."""
        settings = {"spark.isthmus.wait": f"{seconds(60):.0f}"}
        environment = {"TMPDIR": str(self.hidden / "tmp")}
        if place == "s3a":  # a server of Spark Connect keeps its keys to itself
            settings |= self.store.settings | (self.jars if way != "connect" else {})
        if way == "cluster":
            settings |= {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
            environment["PYSPARK_PYTHON"] = str(self.bare_python)
        master = "local[2]" if way == "local" else getattr(self, way)
        return ["--master", master, *(f"--conf={key}={value}" for key, value in settings.items())], environment

    def place(self, place: str) -> str:
        """Where the trace is, and where rooms are made."""
        return {"path": f"{self.hidden}", "file": f"file://{self.hidden}", "s3a": f"{self.store.address}/cells"}[place]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Parts]:
    with ExitStack() as room:
        yield Parts(room, tmp_path_factory.mktemp("cells"), request)


Told = Callable[[str, str, str, str], None]


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    """Keeps what every cell has done, and prints the table in the end, where there is one."""
    cells: dict[tuple[str, str], dict[str, str]] = {}

    def tell(row: str, way: str, place: str, words: str) -> None:
        cells.setdefault((row, way), {})[place] = words

    yield tell
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    if terminal is None or len(cells) < len(COMMANDS):
        return
    places = list(dict.fromkeys(place for cell in cells.values() for place in cell))
    rows = [("", "", *places), *((*names, *(cell.get(place, "") for place in places)) for names, cell in cells.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    terminal.ensure_newline()
    for row in rows:
        terminal.write_line("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())


# What works, and what cannot ------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A command in a place, with the options of a way to Spark."""

    trace: str
    room: str
    options: list[str]
    environment: dict[str, str]

    def run(self, *words: object) -> Finished:
        return spawn(*words, *self.options, patience=seconds(300), **self.environment)


@pytest.mark.parametrize(("command", "way", "place"), CELLS)
def test_a_command_works_there_or_is_refused_in_one_line(
    command: str, way: str, place: str, parts: Parts, told: Told
) -> None:
    """A disk that workers do not share is refused; everything else works."""
    options, environment = parts.way(way, place)
    base = parts.place(place)
    began = time.monotonic()
    ended = RUN[command](Job(f"{base}/trace", f"{base}/{command}-{way}-{place}", options, environment))
    took = f"{time.monotonic() - began:.0f} s"
    if way == "cluster" and place != "s3a":
        assert refused(command, ended, str(parts.hidden)), ended
        told(command, way, place, f"refused, {took}")
        return
    CHECKS[command](ended)
    told(command, way, place, f"works, {took}")


def refused(command: str, ended: Finished, *words: str) -> bool:
    """In one line, by exit code 2; a program of somebody's own hears it in a line of what Spark says."""
    if command != "source":
        return ended.is_refusal(*words)
    said = any(all(word in line for word in words) for line in ended.err.splitlines())
    return ended.code != 0 and not ended.out and said


def run_audit(job: Job) -> Finished:
    return job.run("audit", job.trace, "--run", "s", "--keep", f"{job.room}/table", "-o", "json")


def check_audit(ended: Finished) -> None:
    assert (ended.code, ended.err) == (0, ""), ended
    verdicts = {each["property"]: each["verdict"] for each in ended.json["verdicts"]}
    assert (ended.json["runs"], verdicts["causal"], verdicts["total"]) == (1, "holds", "violated")


def run_measure(job: Job) -> Finished:
    words = ["measure", job.trace, "--to", f"{job.room}/figures", "--scratch", f"{job.room}/scratch", "-o", "json"]
    return job.run(*words)


def check_measure(ended: Finished) -> None:
    assert ended.code == 0, ended
    assert [each["deliveries"] for each in ended.json["pairs"]] == [DELIVERIES, DELIVERIES]


def run_report(job: Job) -> Finished:
    return job.run("report", job.trace, "--to", f"{job.room}-page.html", "--scratch", f"{job.room}/scratch")


def check_report(ended: Finished) -> None:
    assert ended.code == 0, ended
    assert "total: violated" in ended.out


def run_campaign(job: Job) -> Finished:
    return job.run("campaign", TOPOLOGY, "--seeds", "1..4", "--trace", f"{job.room}/kept", "-o", "json")


def check_campaign(ended: Finished) -> None:
    assert ended.code == 0, ended
    assert ended.json["runs"] == 4


def run_follow(job: Job) -> Finished:
    words = ["audit", "--follow", job.trace, "--once", "--checkpoint", f"{job.room}/checkpoint", "-o", "json"]
    first = job.run(*words)
    if first.code == 0:
        again = job.run(*words)
        assert [json.loads(line)["kind"] for line in again.out.splitlines()] == ["summary"], again
    return first


def check_follow(ended: Finished) -> None:
    assert ended.code == 0, ended
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert {each["property"] for each in lines if each["kind"] == "violation"} == {"total"}
    assert [each["run"] for each in lines if each["kind"] == "finished"] == ["r", "s"]


SOURCE = """
import sys
from isthmus.pipeline import register
from isthmus.pipeline.session import spark_session
from isthmus.pipeline.settings import settings_of

path, room, _, master, *settings = sys.argv[1:]
spark = spark_session(master, settings=settings_of(each.removeprefix("--conf=") for each in settings))
register(spark)
count = spark.read.format("isthmus").option("path", path).load().count()
rows = spark.readStream.format("isthmus").option("path", path).option("checkpointLocation", f"{room}/checkpoint").load()
query = rows.writeStream.format("parquet").option("checkpointLocation", f"{room}/checkpoint").trigger(availableNow=True)
query.start(f"{room}/sink").awaitTermination()
print(count, spark.read.parquet(f"{room}/sink").select("id").distinct().count())
"""


def run_source(job: Job) -> Finished:
    ended = subprocess.run(
        [sys.executable, "-c", SOURCE, job.trace, job.room, *job.options],
        env=os.environ | job.environment, capture_output=True, text=True, check=False, timeout=seconds(300),
    )  # fmt: skip
    return Finished(ended.returncode, ended.stdout, ended.stderr)


def check_source(ended: Finished) -> None:
    assert ended.out.split() == [str(2 * DELIVERIES)] * 2, ended


RUN = {
    "audit": run_audit,
    "measure": run_measure,
    "report": run_report,
    "campaign": run_campaign,
    "follow": run_follow,
    "source": run_source,
}
CHECKS = {
    "audit": check_audit,
    "measure": check_measure,
    "report": check_report,
    "campaign": check_campaign,
    "follow": check_follow,
    "source": check_source,
}


# What is wrong --------------------------------------------------------------------------------------------------------

MISTAKES = [(command, way, wrong) for command in COMMANDS for way in WAYS for wrong in WRONG]
DRAWN = random.Random(16).sample(MISTAKES, 4)
SAID = {"path": "no such", "key": "the store refuses the keys", "away": "the store does not answer"}


@pytest.mark.parametrize(
    ("command", "way", "wrong"),
    [
        pytest.param(*each, marks=pytest.mark.real if each in DRAWN else pytest.mark.cluster, id="-".join(each))
        for each in MISTAKES
    ],
)
def test_a_wrong_address_is_one_clear_line_in_time_and_never_an_empty_result(
    command: str, way: str, wrong: str, parts: Parts, told: Told, away: str
) -> None:
    options, environment = parts.way(way, "s3a")
    bucket = parts.place("s3a")
    trace, room = f"{bucket}/trace", f"{bucket}/wrong-{command}-{way}-{wrong}"
    if wrong == "path":
        trace, room = f"{bucket}/nowhere", room if command != "campaign" else "s3a://no-such-bucket/kept"
    elif wrong == "key":
        options.append("--conf=spark.hadoop.fs.s3a.secret.key=a-guess")
    else:
        options.append(f"--conf=spark.hadoop.fs.s3a.endpoint={away}")
    began = time.monotonic()
    ended = RUN[command](Job(trace, room, options, environment))
    took = time.monotonic() - began
    assert refused(command, ended, SAID[wrong]), ended
    assert "a-guess" not in ended.err
    assert parts.store.secret not in ended.err
    assert took < seconds(30), took
    told(f"{command}, wrong", way, wrong, f"refused, {took:.0f} s")
