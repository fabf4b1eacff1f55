"""One place that starts Spark, with settings that suit a single machine and a quiet terminal.

What a library does to its host is kept small: nothing listens beyond the loopback interface, there is no web page,
nothing is written but temporary files, and what the Java side has to say goes into a temporary file instead of the
terminal. When it cannot start, the user gets one line that says why.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import IO, TYPE_CHECKING

from isthmus.pipeline.problems import SparkProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
DRIVER_MEMORY = "2g"
_OLDEST_JAVA = 17
_OLDEST_SPARK = (4, 2)
_LOGGING = Path(__file__).with_name("log4j2.properties")


def spark_session(
    master: str | None = None,
    *,
    app_name: str = "isthmus",
    driver_memory: str = DRIVER_MEMORY,
    shuffle_partitions: int | None = None,
    log_level: str = "OFF",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this Python process, made if there is none.

    Without `master`, all cores of this machine. `settings` are Spark's own and win over ours. `log_level` is for
    whoever looks for a mistake in Spark: what is logged goes to standard error.
    """
    require_packages()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    wanted = master or os.environ.get("ISTHMUS_SPARK_MASTER") or DEFAULT_MASTER
    if wanted.startswith("local"):
        require_java()
    # Workers must run the interpreter that has this package; both sides check that their versions agree.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(wanted).appName(app_name)
    for key, value in (_defaults(wanted, driver_memory, shuffle_partitions, log_level) | dict(settings or {})).items():
        builder = builder.config(key, value)
    with _standard_error_aside(quiet=log_level == "OFF") as said:
        try:
            session = builder.getOrCreate()
        except Exception as error:  # what py4j raises when there is no JVM to talk to is not documented
            reason = _reason(said) or str(error).partition("\n")[0]
            text = f"cannot start Spark on {wanted}: {reason}"
            raise SparkProblem(text, "check --master and the Java installation") from (
                error if isinstance(error, PySparkException) else None
            )
    session.sparkContext.setLogLevel(log_level)
    if log_level == "OFF":
        # It writes the stack trace of every failed query, which the caller gets as an exception anyway.
        logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    return session


def _defaults(master: str, driver_memory: str, shuffle_partitions: int | None, log_level: str) -> dict[str, str]:
    cores = os.cpu_count() or 1
    scratch = tempfile.gettempdir()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        # Nobody reads them here, and the text of a large plan can take more memory than its data.
        "spark.sql.maxPlanStringLength": "16384",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.warehouse.dir": str(Path(scratch, "isthmus-warehouse")),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -Disthmus.log={log_level}",
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": driver_memory,
            # Adaptive execution merges small ones, but each of Spark's default 200 costs a few milliseconds first.
            "spark.sql.shuffle.partitions": str(shuffle_partitions or max(8, 4 * cores)),
        }
    elif shuffle_partitions:
        settings["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    return settings


def require_packages() -> None:
    """Complain in one line where a package of the extra `spark` is missing or too old."""
    way_out = "pip install 'isthmus[spark]'"
    for package in ("pyspark", "pyarrow", "pandas", "numpy"):
        if find_spec(package) is None:
            raise SparkProblem(f"this needs Spark, and the package {package} is not installed", way_out)
    from pyspark import __version__ as version

    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST_SPARK:
        raise SparkProblem(f"this needs Spark 4.2 or newer, and {version} is installed", way_out)


def require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else which("java")
    version = 0
    if java:
        try:
            said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
        except (OSError, subprocess.TimeoutExpired):
            said = ""
        found = re.search(r'version "(\d+)', said)
        version = int(found[1]) if found else 0
    if version < _OLDEST_JAVA:
        raise SparkProblem(
            "no Java 17 or newer, which only Spark needs", "on Debian or Ubuntu: apt-get install default-jre-headless"
        )


@contextmanager
def _standard_error_aside(quiet: bool) -> Iterator[IO[bytes]]:
    """While Java starts, it inherits a file as its standard error, and keeps that for the rest of its life.

    Warnings of the Java machine, and the stack traces of Python workers that die, have no other way to be silenced.
    """
    with tempfile.TemporaryFile(prefix="isthmus-spark-") as aside:
        if not quiet:
            yield aside
            return
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(aside.fileno(), 2)
            yield aside
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _reason(said: IO[bytes]) -> str:
    """The line in which Java says what went wrong."""
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    for line in lines:
        if re.search(r"exception|error|invalid|could not", line, re.IGNORECASE):
            return line
    return lines[-1] if lines else ""
