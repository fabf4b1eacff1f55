"""Settings of Spark: what the user has said anywhere, and ours for what the user has not.

A user speaks by `--conf`, by `PYSPARK_SUBMIT_ARGS`, by `spark-defaults.conf`, and by Spark's environment variables. All
of it stays as it is. Of a session that is running already nothing is changed.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from isthmus.pipeline.problems import SparkProblem

DRIVER_MEMORY = "2g"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_FILE = "log4j2.configurationFile"


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """What `--conf KEY=VALUE` says."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise SparkProblem(
                f"--conf {pair}: not a setting of Spark", "write it as spark.executor.memory=4g, one per --conf"
            )
        settings[key.strip()] = value.strip()
    return settings


def users_settings(given: Mapping[str, str]) -> dict[str, str]:
    """All that the user has set; what comes later wins: Spark's defaults, the arguments of spark-submit, `given`."""
    submitted = _submitted(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    file = submitted.pop("", None)
    return _defaults_file(Path(file) if file else _configuration() / "spark-defaults.conf") | submitted | dict(given)


def our_settings(
    users: Mapping[str, str], master: str, memory: str | None, shuffle_partitions: int | None, log_level: str
) -> dict[str, str]:
    """What we set in a Spark that we start, but for what the user has set. Java's options are added to the user's."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        # Nobody reads them here, and the text of a large plan can take more memory than its data.
        "spark.sql.maxPlanStringLength": "16384",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "isthmus-warehouse")),
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": DRIVER_MEMORY,
            # Adaptive execution merges small ones, but each of Spark's default 200 costs a few milliseconds first.
            "spark.sql.shuffle.partitions": str(max(8, 4 * (os.cpu_count() or 1))),
        }
    settings = {key: value for key, value in settings.items() if key not in users}
    if memory is not None:
        settings["spark.driver.memory"] = memory
    if shuffle_partitions is not None:
        settings["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    theirs = users.get(_JAVA_OPTIONS, "")
    if _LOG_FILE not in theirs:
        ours = f"-D{_LOG_FILE}={_LOGGING.as_uri()} -Disthmus.log={log_level}"
        settings[_JAVA_OPTIONS] = f"{ours} {theirs}".strip()
    return settings


def choose_python(users: Mapping[str, str]) -> None:
    """Workers run the interpreter that the user names, or else this one: both sides check that versions agree."""
    os.environ.setdefault("PYSPARK_PYTHON", users.get("spark.pyspark.python") or sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", users.get("spark.pyspark.driver.python") or sys.executable)


def _configuration() -> Path:
    """The directory of Spark's own settings."""
    named = os.environ.get("SPARK_CONF_DIR")
    if named:
        return Path(named)
    home = os.environ.get("SPARK_HOME")
    if not home:
        found = find_spec("pyspark")
        home = str(Path(found.origin).parent) if found and found.origin else "."
    return Path(home, "conf")


def _defaults_file(path: Path) -> dict[str, str]:
    """Lines of a key and a value, with blanks, `=` or `:` between them, as Java reads properties."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = (re.fullmatch(r"(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*)", line.strip()) for line in lines)
    return {each[1]: each[2].strip() for each in found if each is not None}


def _submitted(arguments: str) -> dict[str, str]:
    """The settings among arguments for spark-submit; under an empty key, the file that is read instead of defaults."""
    names = {
        "--master": "spark.master",
        "--remote": "spark.remote",
        "--driver-memory": "spark.driver.memory",
        "--driver-java-options": _JAVA_OPTIONS,
        "--properties-file": "",
    }
    try:
        words = shlex.split(arguments)
    except ValueError:
        return {}  # Spark will say what is wrong with it
    settings = {}
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and place + 1 < len(words):
            value = words[place + 1]
        if name in ("--conf", "-c"):
            key, _, value = value.partition("=")
            settings[key] = value
        elif name in names:
            settings[names[name]] = value
    return settings
