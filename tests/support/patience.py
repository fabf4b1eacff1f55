"""How long tests wait before they call something lost: one factor, which grows with a slow or busy machine.

Every limit in the tests is written as `seconds(n)`: n seconds are plenty on a quick machine with nothing else to do.
`measure` finds out once, where a run of tests starts, how far this machine is from that; workers and the processes that
tests start are told by the environment. `ISTHMUS_PATIENCE=10 make test` sets the factor by hand.

Only limits that fail a test are meant. Durations that a test is about are not stretched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

VARIABLE = "ISTHMUS_PATIENCE"

PROBE = "import asyncio, json\nsum(n * n % 7 for n in range(500_000))"
"""What a started command does at least: start an interpreter, import a little, work for a moment."""

QUICK = 0.12
"""Seconds that the probe takes on a quick machine."""

MOST = 20.0
"""A test that hangs has to end, however slow the machine."""


def measure(workers: int) -> None:
    """Set the factor, unless it is set: start one probe per worker at once, and see when the last is through.

    That takes in how fast a core is, how many workers share it, and what else the machine is doing.
    """
    if VARIABLE in os.environ:
        return
    started = time.perf_counter()
    probes = [subprocess.Popen([sys.executable, "-c", PROBE]) for _ in range(max(workers, 1))]
    for probe in probes:
        probe.wait()
    os.environ[VARIABLE] = f"{min(max((time.perf_counter() - started) / QUICK, 1), MOST):.1f}"


def seconds(quick: float) -> float:
    """The time after which to give up on what takes far less than `quick` seconds on a quick machine."""
    return quick * float(os.environ[VARIABLE])
