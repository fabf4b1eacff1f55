"""The tests themselves: one that fails shows its failure, and limits are stretched once for all workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import patience
import pytest

ROOT = Path(__file__).resolve().parent.parent

FAIL = """
import gc, time

def test_deep_inside():
    def descend(depth):
        if depth == 0:
            raise TimeoutError("out of patience")
        descend(depth - 1)

    descend(900)

def test_without_end():
    def descend(depth):
        return 1 + descend(depth + 1)

    descend(0)

class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        if time.monotonic() < over:
            Garbage()
        raise ValueError((1 + 2) * [3][0])

def test_beside_garbage():
    global over
    over = time.monotonic() + 1
    Garbage()
    gc.set_threshold(50, 1, 1)
    assert {"a": 1}["the key that is missing"]
"""

HANGS = """
import threading

def waits_for_nobody():
    threading.Event().wait()

def test_something():
    waits_for_nobody()
"""


def run_pytest(tests: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests as `make test` does: with the settings and the plugin of this repository."""
    file = directory / "test_it.py"
    file.write_text(tests, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "failures"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, file],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=patience.seconds(60),
        check=False,
    )


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_failure_is_shown(workers: str, tmp_path: Path) -> None:
    ended = run_pytest(FAIL, tmp_path, workers)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "INTERNALERROR" not in ended.stdout
    assert "TimeoutError: out of patience" in ended.stdout
    assert "RecursionError: maximum recursion depth exceeded" in ended.stdout
    assert "KeyError: 'the key that is missing'" in ended.stdout


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_test_that_hangs_shows_where(workers: str, tmp_path: Path) -> None:
    ended = run_pytest(HANGS, tmp_path, workers, "--timeout=2")
    assert ended.returncode == 1
    assert "waits_for_nobody" in ended.stdout + ended.stderr


def test_patience_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(patience.VARIABLE, "2.5")
    patience.measure(workers=1)
    assert patience.seconds(20) == 50


def test_patience_is_measured_where_the_environment_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(patience.VARIABLE)
    patience.measure(workers=1)
    assert 1 <= float(os.environ[patience.VARIABLE]) <= patience.MOST
    monkeypatch.setattr(patience, "QUICK", 1e-6)
    monkeypatch.delenv(patience.VARIABLE)
    patience.measure(workers=1)
    assert patience.seconds(1) == patience.MOST, "a machine that is far slower has the most patience there is"
