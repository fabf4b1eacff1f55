"""Whose settings count, what is said when Spark cannot be had, and the code that travels. No Spark is started."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from patience import seconds

import isthmus
from isthmus.pipeline.artifact import code_of_isthmus
from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.settings import choose_python, our_settings, settings_of, users_settings

JAVA = "spark.driver.extraJavaOptions"


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of Spark's settings, in which there is none yet."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return tmp_path / "spark-defaults.conf"


def test_what_the_user_has_set_anywhere_stays(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured.write_text("# ours\nspark.ui.enabled  true\nspark.driver.memory=7g\nspark.a one two\n\nnot a line\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.a=three --master 'spark://m:7077' pyspark-shell")
    users = users_settings({"spark.b": "4"})
    assert users == {
        "spark.ui.enabled": "true",
        "spark.driver.memory": "7g",
        "spark.a": "three",
        "spark.master": "spark://m:7077",
        "spark.b": "4",
    }
    ours = our_settings(users, "local[2]", None, None, "ERROR")
    assert not users.keys() & ours.keys()
    assert ours["spark.sql.session.timeZone"] == "UTC"
    assert our_settings(users, "local[2]", "1g", 3, "ERROR")["spark.driver.memory"] == "1g"


def test_another_file_of_properties_is_read_instead(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured.write_text("spark.a 1\n")
    other = configured.with_name("other.conf")
    other.write_text("spark.b 2\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {other} pyspark-shell")
    assert users_settings({}) == {"spark.b": "2"}


def test_java_options_are_added_to_those_of_the_user(configured: Path) -> None:
    configured.write_text(f"{JAVA} -Xss8m -Da=b\n")
    added = our_settings(users_settings({}), "local[2]", None, None, "ERROR")[JAVA]
    assert added.endswith(" -Xss8m -Da=b")
    assert "log4j2.configurationFile=" in added
    configured.write_text(f"{JAVA} -Dlog4j2.configurationFile=mine\n")
    assert JAVA not in our_settings(users_settings({}), "local[2]", None, None, "ERROR")


def test_the_python_that_the_user_names_is_that_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    choose_python({"spark.pyspark.python": "/other/python"})
    import os

    assert os.environ["PYSPARK_PYTHON"] == "/their/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize("pair", ["spark.executor.memory", "executor.memory=4g", "=4g", ""])
def test_a_setting_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(SparkProblem, match="not a setting of Spark; write it as spark"):
        settings_of([pair])


def test_settings_may_hold_any_text() -> None:
    assert settings_of(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}


def test_the_code_that_travels_is_this_package_and_works_from_there(tmp_path: Path) -> None:
    made = code_of_isthmus()
    assert made == code_of_isthmus()
    with zipfile.ZipFile(made) as packed:
        names = packed.namelist()
    assert "isthmus/pipeline/engine/run.py" in names
    assert not [name for name in names if not name.startswith("isthmus/") or "__pycache__" in name]
    assert made.stat().st_size < 2_000_000
    code = "import isthmus.pipeline.engine.judges, isthmus.simulator.campaign; print(isthmus.__file__)"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(made)}, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=seconds(60),
    )  # fmt: skip
    assert ended.stdout.strip() == f"{made}/isthmus/__init__.py"
    assert isthmus.__version__ in made.name


def refused(master: str, *more: str) -> str:
    """What an audit says that cannot have that Spark."""
    command = [sys.executable, "-m", "isthmus", "campaign", "examples/joins/two-sites.toml", "--seeds", "1..2"]
    ended = subprocess.run(
        [*command, "--master", master, *more], capture_output=True, text=True, check=False, timeout=seconds(30)
    )
    assert ended.returncode == 2, ended
    [line] = ended.stderr.splitlines()
    return line


@pytest.mark.parametrize("scheme", ["sc", "spark"])
def test_a_cluster_that_is_away_is_named_at_once(scheme: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        line = refused(f"{scheme}://127.0.0.1:{port}")
    assert line.endswith(f"{scheme}://127.0.0.1:{port}: Connection refused; check --master, and that it is running")


def test_a_server_that_never_answers_is_given_up_and_its_token_not_shown() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        started = time.monotonic()
        line = refused(f"sc://127.0.0.1:{port}/;token=secret", "--conf", "spark.isthmus.wait=2")
    assert f"cannot use Spark at sc://127.0.0.1:{port}: no answer within 2 s" in line
    assert "secret" not in line
    assert time.monotonic() - started < seconds(30)
