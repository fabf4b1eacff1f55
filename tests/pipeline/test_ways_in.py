"""Every command on a Spark that is elsewhere; and what is said, within bounds, where a Spark does not work.

Commands run in processes of their own: sessions of two kinds cannot share one. All others run on a local Spark in the
tests beside this one.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from patience import seconds
from spark_servers import Standalone, connect_server, other_python, standalone, wait_until
from trace_files import all_rows, rounds, write_jsonl

from isthmus.pipeline.session import PATIENCE

TOPOLOGY = str(Path(__file__).parents[2] / "examples" / "joins" / "two-sites.toml")
pytestmark = pytest.mark.timeout(3600)  # the first test of a kind pays for the start of its cluster


class Ended(NamedTuple):
    code: int
    out: str
    said: str
    """On standard error."""


def run(*words: str, environment: dict[str, str] | None = None, within: float = 300) -> Ended:
    ended = subprocess.run(
        [sys.executable, "-m", "isthmus", *words],
        env=os.environ | (environment or {}), capture_output=True, text=True, check=False, timeout=seconds(within),
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def refusal(ended: Ended) -> str:
    assert ended.code == 2, ended
    [line] = ended.said.splitlines()
    return line


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has all packages but isthmus."""
    return other_python(tmp_path_factory.mktemp("python") / "bare")


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[str]:
    """A server of Spark Connect whose Python has no isthmus."""
    with connect_server(tmp_path_factory.mktemp("connect"), bare_python) as address:
        yield address


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as made:
        yield made


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that keep everything but total order."""
    directory = tmp_path_factory.mktemp("trace")
    for name in ("r", "s"):
        write_jsonl(directory / f"{name}.jsonl", all_rows(rounds(name, processes=3, messages=20)))
    return directory


DELIVERIES = 3 * 3 * 20


def way_to(way: str, request: pytest.FixtureRequest) -> tuple[list[str], dict[str, str]]:
    """Options and environment. Executors of the cluster and of the server have no isthmus of their own."""
    waiting = ["--conf", f"spark.isthmus.wait={seconds(60):.0f}"]
    if way == "connect":
        return ["--master", request.getfixturevalue("connect"), *waiting], {}
    bare = str(request.getfixturevalue("bare_python"))
    more = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
    return ["--master", request.getfixturevalue("cluster").master, *waiting, *more], {"PYSPARK_PYTHON": bare}


# A session of the user's own ------------------------------------------------------------------------------------------

OWN = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).config("spark.sql.shuffle.partitions", "3").getOrCreate()
from isthmus.pipeline.audit import audit
from isthmus.pipeline.ingest import ingest
from isthmus.pipeline.measure import measured
from isthmus.pipeline.progress import watched_by

stages = []
with watched_by(stages.append):
    table = ingest(spark, [sys.argv[2]], sys.argv[3])
    report = audit(spark, table, rows_per_task=0)
with measured(spark, table.rows(spark)) as tables:
    pairs = len(tables.figures().pairs)
told = {stage.name.partition(":")[0] for stage in stages}
print(json.dumps([report.verdict("causal"), pairs, spark.conf.get("spark.sql.shuffle.partitions"), sorted(told)]))
"""


@pytest.mark.real
def test_a_users_own_connect_session_is_enough_and_stays_as_it_is(connect: str, trace: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", OWN, connect, str(trace), str(tmp_path / "table")],
        capture_output=True, text=True, check=False, timeout=seconds(300),
    )  # fmt: skip
    assert json.loads(ended.stdout or "null") == ["holds", 2, "3", ["asking workers", "judging", "reading"]], ended


# What is lost ---------------------------------------------------------------------------------------------------------

LOSS = """
import sys
import msgspec, psutil
from isthmus.pipeline.audit import audit
from isthmus.pipeline.ingest import ingest
from isthmus.pipeline.progress import watched_by
from isthmus.pipeline.session import spark_session
from isthmus.pipeline.settings import settings_of

master, path, table, workers, *settings = sys.argv[1:]
spark = spark_session(master, settings=settings_of(settings))
made = ingest(spark, [path], table, block_rows=16)
before = audit(spark, made, rows_per_task=0)
killed = []

def kill_one(stage):
    if not killed and 0 < stage.done < stage.of:
        for worker in map(int, workers.split(",")):
            for each in psutil.Process(worker).children(recursive=True):
                if not killed and "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
                    each.kill()
                    killed.append(each.pid)

with watched_by(kill_one):
    after = audit(spark, made, rows_per_task=0)
print(len(killed), msgspec.json.encode(before) == msgspec.json.encode(after), after.verdict("total"), after.events)
"""


@pytest.mark.real
def test_the_loss_of_an_executor_amid_an_audit_changes_no_verdict(
    cluster: Standalone, trace: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options, environment = way_to("standalone", request)
    workers = ",".join(map(str, cluster.workers))
    ended = subprocess.run(
        [sys.executable, "-c", LOSS, cluster.master, str(trace), str(tmp_path / "table"), workers, *options[3::2]],
        env=os.environ | environment, capture_output=True, text=True, check=False, timeout=seconds(600),
    )  # fmt: skip
    assert ended.stdout.split() == ["1", "True", "violated", str(2 * (3 * 2 + 3 * 20 + DELIVERIES))], ended


# What does not work, in one line --------------------------------------------------------------------------------------


def campaign_on(*options: str, **environment: str) -> tuple[str, float]:
    started = time.monotonic()
    line = refusal(run("campaign", TOPOLOGY, "--seeds", "1..2", *options, environment=environment, within=120))
    return line, time.monotonic() - started


@pytest.mark.real
def test_a_master_that_never_answers_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        line, _ = campaign_on("--master", address, "--conf", "spark.isthmus.wait=8")
    assert f"cannot start Spark on {address}: no answer within 8 s" in line


@pytest.mark.real
def test_a_cluster_without_workers_is_given_up_in_time(tmp_path: Path) -> None:
    with standalone(tmp_path / "empty", workers=0) as empty:
        line, took = campaign_on("--master", empty.master, "--conf", "spark.driver.host=127.0.0.1")
    assert "Spark runs no task: Initial job has not accepted any resources" in line
    assert "see the logs of its master and workers; spark.isthmus.wait gives it more seconds" in line
    assert took < seconds(30) + PATIENCE


@pytest.mark.real
def test_executors_that_cannot_start_are_told_with_the_reason_of_the_cluster(cluster: Standalone) -> None:
    line, took = campaign_on(
        "--master", cluster.master,
        "--conf", "spark.driver.host=127.0.0.1",
        "--conf", "spark.executor.memory=512m",
        "--conf", "spark.executor.extraJavaOptions=-javaagent:/no/such.jar",
    )  # fmt: skip
    assert "Spark runs no task: Command exited with code 1; see the logs of its master and workers" in line
    assert took < seconds(30) + PATIENCE


@pytest.mark.real
def test_a_python_that_executors_do_not_have_is_named() -> None:
    line, _ = campaign_on("--master", "local[2]", PYSPARK_PYTHON="/no/such/python")
    assert "executors cannot run /no/such/python: No such file or directory; set PYSPARK_PYTHON to" in line


@pytest.mark.real
def test_packages_that_executors_lack_are_named(tmp_path: Path) -> None:
    python = other_python(tmp_path / "empty", packages=False)
    line, _ = campaign_on("--master", "local[2]", PYSPARK_PYTHON=str(python))
    assert f"the Python of executors ({python}, on " in line
    assert "lacks numpy and pandas and pyarrow and msgspec; install isthmus[spark] there, or set PYSPARK_PYTHON" in line


@pytest.mark.real
def test_a_server_that_goes_away_ends_a_campaign_in_one_line(tmp_path: Path, bare_python: Path) -> None:
    words = [sys.executable, "-m", "isthmus", "campaign", TOPOLOGY, "--seeds", "1..100000", "-o", "json"]
    with connect_server(tmp_path / "server", bare_python) as address:
        process = subprocess.Popen(
            [*words, "--master", address, "--trace", str(tmp_path / "kept")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        kept = tmp_path / "kept"
        wait_until(lambda: any(kept.glob("*.parquet")) or process.poll() is not None, "a first trace", 120)
        assert process.poll() is None
    _, said = process.communicate(timeout=seconds(60))
    assert process.returncode == 2, said
    assert "Spark gave up: " in said.splitlines()[-1]
