"""A streaming query in a process of its own, which tests kill, and what its checkpoint tells of it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import seconds

QUICK = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""It ends before a better compiler of Java would pay."""

PATIENCE = seconds(200)
"""For one thing to happen."""


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """It leads a process group of its own, so that a kill takes Python and Java at once. The block ends with one."""
    process = subprocess.Popen(command, start_new_session=True, env=os.environ | QUICK, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stop_in(process: subprocess.Popen[bytes], condition: Callable[[], bool], what: str) -> None:
    """Freeze a process and its children at a moment when a condition holds, and holds still when nothing moves."""

    def stopped() -> bool:
        if not condition():
            return False
        os.killpg(process.pid, signal.SIGSTOP)
        if condition():
            return True
        os.killpg(process.pid, signal.SIGCONT)
        return False

    wait_until(stopped, what)


def batches_in(log: Path) -> set[int]:
    """The numbers of the batches that one of Spark's logs (`offsets`, `commits`) has."""
    return {int(file.name) for file in log.glob("[0-9]*")} if log.exists() else set()


def wait_until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait for something in another process."""
    tick = threading.Event()
    for _ in range(int(seconds * 200)):
        if condition():
            return
        tick.wait(0.005)
    pytest.fail(f"waited for {seconds} s: {what}")
