"""One place that starts Spark, or finds the one that the user has: on this machine, on a cluster, or by Spark Connect.

What a library does to its host is kept small: a local Spark listens on the loopback interface alone, there is no web
page, nothing is written but temporary files, and what the Java side has to say goes into a temporary file instead of
the terminal. All of that only where the user has not said otherwise: see `settings`. When Spark cannot be started, the
user gets one line that says why, within half a minute.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.settings import choose_python, our_settings, users_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
PATIENCE = 25.0
"""Seconds that a cluster has to answer, and then to give us an executor. `spark.isthmus.wait` in seconds changes it."""
LOCAL_PATIENCE = 600.0
"""Where Spark runs on this machine: nobody else has to answer, and a busy machine may take its time."""
WAIT = "spark.isthmus.wait"
_OLDEST_JAVA = 17
_OLDEST_SPARK = (4, 2)
_CONNECT_PORT, _MASTER_PORT = 15002, 7077
_MOST_LOG = 1 << 16
_RETRIES, _LONGEST_PAUSE = 6, 5000
"""How often a session asks a server again that does not answer, and the longest pause in milliseconds: some 15 s."""

_told: WeakKeyDictionary[Any, Mapping[str, str]] = WeakKeyDictionary()
"""What sessions of Spark Connect were told here: their servers give no secret back."""
_said: list[IO[bytes]] = []
"""What the Java side has said since it was started by us, if it was."""


def spark_session(
    master: str | None = None,
    *,
    app_name: str = "isthmus",
    driver_memory: str | None = None,
    shuffle_partitions: int | None = None,
    log_level: str = "OFF",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this Python process, made if there is none.

    `master` may be `sc://host:port`. Without it, the one that the user's settings of Spark name, or else all cores of
    this machine. `settings` are Spark's own and win over all others. `log_level` is for whoever looks for a mistake
    in Spark: what is logged goes to standard error.
    """
    require_packages()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    users = users_settings(settings or {})
    wanted = (
        master
        or os.environ.get("ISTHMUS_SPARK_MASTER")
        or os.environ.get("SPARK_REMOTE")
        or users.get("spark.remote")
        or users.get("spark.master")
        or DEFAULT_MASTER
    )
    patience = _seconds(users.get(WAIT))
    if wanted.startswith("sc://"):
        require_connect()
        _reach(wanted, patience)
        chosen = dict(settings or {})
        if shuffle_partitions is not None:
            chosen.setdefault("spark.sql.shuffle.partitions", str(shuffle_partitions))
        session = _connected(wanted, chosen, patience)
        _told[session] = chosen
    else:
        if wanted.startswith("local"):
            require_java()
        elif wanted.startswith("spark://"):
            require_java()
            _reach(wanted, patience)
        choose_python(users)
        level = "ERROR" if log_level == "OFF" else log_level
        ours = our_settings(users, wanted, driver_memory, shuffle_partitions, level)
        session = _started(wanted, {"spark.app.name": app_name} | dict(settings or {}) | ours, log_level, patience)
    if log_level == "OFF":
        # They write the stack trace of every failed query, which the caller gets as an exception anyway.
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "pyspark.sql.connect.client.logging"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return session


def is_connect(spark: SparkSession) -> bool:
    """Does the session speak to a server of Spark Connect?"""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def settings_told(spark: SparkSession) -> Mapping[str, str]:
    """The settings that a session of Spark Connect was begun with, if that was here."""
    return _told.get(spark, {})


def patience_of(spark: SparkSession) -> float:
    """Seconds that this session has to run a first task."""
    given = spark.conf.get(WAIT, None)
    if given is None and not is_connect(spark) and (spark.conf.get("spark.master", None) or "").startswith("local"):
        return LOCAL_PATIENCE
    return _seconds(given)


def _seconds(text: str | None) -> float:
    if text is None:
        return PATIENCE
    found = re.fullmatch(r"\s*(\d{1,6}(?:\.\d+)?)\s*s?\s*", text)
    if found is None:
        raise SparkProblem(f"{WAIT}={text}: not a number of seconds", "give one such as 60")
    return float(found[1])


# A server of Spark Connect --------------------------------------------------------------------------------------------


def _connected(url: str, settings: Mapping[str, str], patience: float) -> SparkSession:
    """A session there. Its client would try for ten minutes, so the server is asked without it first."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.proto import ReleaseSessionRequest, SparkConnectServiceStub, UserContext

    way_out = "check --master, and that its server is running"
    try:
        way = DefaultChannelBuilder(url)
        nobody = ReleaseSessionRequest(session_id=str(uuid4()), user_context=UserContext(user_id=way.userId or ""))
        with way.toChannel() as channel:
            ask: Any = SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
            ask.ReleaseSession(nobody, timeout=patience, wait_for_ready=True, metadata=way.metadata())
        builder = SparkSession.builder.remote(url)
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    except grpc.RpcError as error:
        late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        reason = f"no answer within {patience:g} s" if late else f"{error.code().name}: {error.details()}"
        raise SparkProblem(f"cannot use Spark at {_shown(url)}: {reason}", way_out) from None
    except Exception as error:  # of the address, of the settings, of the way there
        raise SparkProblem(f"cannot use Spark at {_shown(url)}: {first_line(error)}", way_out) from None
    client: Any = session.client
    client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_PAUSE)])
    # At the end it would ask the server to forget its models, and wait for one that is gone. We have none.
    atexit.unregister(client._on_exit)
    return session


def _shown(url: str) -> str:
    """The address without its parameters: one of them can be a secret."""
    return url.partition(";")[0].rstrip("/")


def require_connect() -> None:
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            found = find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise SparkProblem(
                f"Spark Connect needs the package {package}, and it is not installed", "pip install 'isthmus[connect]'"
            )


def _reach(url: str, patience: float) -> None:
    """Refuse an address at which nobody listens. One of several is enough."""
    scheme, _, rest = url.partition("://")
    usual = _CONNECT_PORT if scheme == "sc" else _MASTER_PORT
    reason = ""
    for place in re.split(r"[/;]", rest)[0].split(","):
        found = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", place)
        port = int(found[2] or usual) if found else 0
        if found is None or not 0 < port < 1 << 16:
            raise SparkProblem(f"--master {_shown(url)}: not an address", f"write it as {scheme}://host:{usual}")
        try:
            with socket.create_connection((found[1].strip("[]"), port), timeout=patience):
                return
        except OSError as error:
            reason = error.strerror or str(error)
    raise SparkProblem(f"cannot reach Spark at {_shown(url)}: {reason}", "check --master, and that it is running")


# A Spark that is started here -----------------------------------------------------------------------------------------


def _started(master: str, settings: Mapping[str, str], log_level: str, patience: float) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _standard_error_aside(quiet=log_level == "OFF") as said, _given_up_after(patience, master) as late:
        _said[:] = [said]
        try:
            return builder.getOrCreate()
        except Exception as error:  # what py4j raises when there is no JVM to talk to is not documented
            reason = why_no_executors() or _reason() or first_line(error)
            if late.is_set():
                reason = f"no answer within {patience:g} s" + (f" ({reason})" if reason else "")
            raise SparkProblem(
                f"cannot start Spark on {master}: {reason}", "check --master and the Java installation"
            ) from None


@contextmanager
def _given_up_after(patience: float, master: str) -> Iterator[threading.Event]:
    """A master that does not answer is asked for a minute by Spark; ending its Java side ends that."""
    late = threading.Event()
    from pyspark import SparkContext

    def give_up() -> None:
        late.set()
        process: Any = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
        if process is not None:
            process.kill()

    timer = threading.Timer(patience, give_up)
    timer.daemon = True
    if not master.startswith("local"):  # there nobody has to answer, and a busy machine may take its time
        timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        if late.is_set():  # the next one starts a Java side of its own
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


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
    aside = tempfile.TemporaryFile(prefix="isthmus-spark-")  # noqa: SIM115 - it is read as long as Spark runs
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


# Why it does not work -------------------------------------------------------------------------------------------------

_LOST = (
    r"is now (?:FAILED|EXITED) \((.+)\)",
    r"Application has been killed\. Reason: (.+)",
    r"All masters are unresponsive(.*)",
    r"(Initial job has not accepted any resources.*)",
)
"""In which words Spark logs that a cluster gives it no executors, the best reason first."""


def why_no_executors() -> str:
    """What the Java side that we started has logged about executors that do not start; nothing if it has not."""
    lines = _lines()
    for pattern in _LOST:
        for line in reversed(lines):
            found = re.search(pattern, line)
            if found:
                return found[1].strip() or found[0]
    return ""


def first_line(error: BaseException) -> str:
    """What Spark says in its first line, without the stack that follows."""
    cause = getattr(error, "java_exception", None) or error
    return str(cause).strip().partition("\n")[0]


def _reason() -> str:
    """The line in which Java says what went wrong."""
    lines = _lines()
    for line in lines:
        if re.search(r"exception|error|invalid|could not", line, re.IGNORECASE):
            return line
    return lines[-1] if lines else ""


def _lines() -> list[str]:
    """Its last lines, if it was started by us. Read beside Java, which writes where its own position is."""
    if not _said:
        return []
    file = _said[0].fileno()
    data = os.pread(file, _MOST_LOG, max(0, os.fstat(file).st_size - _MOST_LOG))
    return [line.strip() for line in data.decode(errors="replace").splitlines() if line.strip()]
