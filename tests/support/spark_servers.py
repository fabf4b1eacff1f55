"""Kinds of Spark that tests start themselves, on loopback and free ports: a Connect server, and a standalone cluster.

Both are processes of the test, ended by their id. What they log stays beside them for whoever looks for a reason.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark
from patience import seconds

HOME = Path(pyspark.__file__).parent
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_until(is_so: Callable[[], bool], what: str, within: float = 60) -> None:
    """Wait for something in another process."""
    tick = threading.Event()
    until = time.monotonic() + seconds(within)
    while not is_so():
        assert time.monotonic() < until, f"not within {seconds(within):.0f} s: {what}"
        tick.wait(0.05)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


S3A = Path(sys.prefix, "jars", "s3a")
"""What Spark needs for s3a, as `scripts/setup real` fetches it."""


def private_disk(hidden: Path) -> list[str]:
    """What goes before a command whose process, and all that it starts, see an empty directory there."""
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    return [*alone, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]


@contextmanager
def java(
    log: Path, words: list[str], environment: dict[str, str], before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A class of Spark in a process of its own. Whatever it started is ended with it."""
    settings = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_JAVA}
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [*before, str(HOME / "bin" / "spark-class"), *words],
            stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=os.environ | settings | environment,
        )  # fmt: skip
    try:
        yield process
    finally:
        try:
            started = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            started = []
        process.kill()
        for each in started:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                pass
        process.wait()


@contextmanager
def connect_server(
    directory: Path,
    python: Path | str = sys.executable,
    master: str = "local[2]",
    more: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The address of a server of Spark Connect, whose workers run that Python."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    } | dict(more or {})
    words = ["org.apache.spark.deploy.SparkSubmit", "--master", master]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    environment = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    with java(directory / "connect.log", [*words, "spark-internal"], environment) as process:
        wait_until(lambda: is_open(port) or process.poll() is not None, "a Connect server", 120)
        assert process.poll() is None, (directory / "connect.log").read_text()[-2000:]
        yield f"sc://127.0.0.1:{port}"


class Standalone(NamedTuple):
    master: str
    workers: list[int]
    """Ids of their processes."""

    def executors(self) -> list[psutil.Process]:
        found = []
        for worker in self.workers:
            found += [
                each
                for each in psutil.Process(worker).children(recursive=True)
                if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())
            ]
        return found


@contextmanager
def standalone(directory: Path, workers: int = 2, hidden: Path | None = None) -> Iterator[Standalone]:
    """A standalone cluster of Spark: a master, and workers of one core each, who do not see what is `hidden`."""
    before = private_disk(hidden) if hidden is not None else []
    directory.mkdir(parents=True, exist_ok=True)
    port, page = free_port(), free_port()
    with ExitStack() as stack:
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        stack.enter_context(java(directory / "master.log", ["org.apache.spark.deploy.master.Master", *where], {}))
        master = f"spark://127.0.0.1:{port}"
        wait_until(lambda: is_open(port), "a master", 120)
        ids = []
        for number in range(workers):
            words = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
            words += ["--webui-port", str(free_port()), "--work-dir", str(directory / f"work-{number}"), master]
            process = stack.enter_context(java(directory / f"worker-{number}.log", words, {}, before))
            ids.append(process.pid)
        wait_until(lambda: _alive(page) == workers, f"{workers} workers", 120)
        yield Standalone(master, ids)


def _alive(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=seconds(10)) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (urllib.error.URLError, OSError, ValueError):
        return -1


def other_python(directory: Path, packages: bool = True) -> Path:
    """A Python of its own that has all packages of this one but isthmus, or none of them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True, timeout=seconds(60))
    if packages:
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        # A path file that is reached by a path file is not read, so what is installed in place stays out of sight.
        where = directory / "lib" / version / "site-packages" / "packages.pth"
        where.write_text(sysconfig.get_path("purelib") + "\n")
    return directory / "bin" / "python"
