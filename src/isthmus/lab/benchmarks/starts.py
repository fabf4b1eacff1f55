"""Starts systems of one OS process per member on a busy machine, and counts the members that are excluded at birth.

Founders come when the operating system lets them: seconds apart, under load. Nobody may take that for a crash
(docs/design/group.md). Each start is over when everybody has delivered messages for longer than anybody would bear the
silence of a dead one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from isthmus.lab.harness.os_process import ChildFailed, Ports
from isthmus.lab.harness.sites import ProcessShare, Sites
from isthmus.runtime.transport.address import LOOPBACK
from isthmus.trace.reader import read_trace

SYSTEM = "shop"
RATE = 5.0
"""Messages a second of each process: few, since whoever asks how far they are takes time from those who are asked."""
SECONDS = 2
"""Of messages of everybody, before a start counts as a good one: twice the silence that somebody is suspected after."""


class Start(Struct, frozen=True):
    """`seconds` until it was over; `excluded` are the members of whom somebody had a view without them; `failure` says
    what else went wrong, if anything did."""

    seconds: float
    excluded: tuple[str, ...] = ()
    failure: str = ""

    @property
    def good(self) -> bool:
        return not self.excluded and not self.failure


async def measure(directory: Path, starts: int, members: int, load: int, progress: Callable[[], None]) -> list[Start]:
    """Start a causal group so many times, one after the other, beside `load` processes that never rest."""
    outcomes = []
    with _busy(load):
        for number in range(1, starts + 1):
            place = directory / f"start-{number}"
            place.mkdir()
            outcomes.append(await _start(place, [f"p{each}" for each in range(1, members + 1)]))
            progress()
    return outcomes


async def _start(directory: Path, names: list[str]) -> Start:
    began, failure = time.monotonic(), ""
    trace = directory / "trace"

    def describe(ports: Ports) -> str:
        address = f"{LOOPBACK}:{ports.take(len(names))}"
        return f'[systems.{SYSTEM}]\nkind = "embedded"\norder = "causal"\naddress = "{address}"\nprocesses = {names}\n'

    gone: tuple[str, ...] = ()
    try:
        shares = {name: ProcessShare(SYSTEM, [name]) for name in names}
        async with Sites(directory, "start", describe, shares, trace=trace) as system:
            try:
                await system.load(RATE)
                await system.delivered(int(SECONDS * RATE) * len(names))
            finally:
                # While they still run: those who are killed at the end exclude each other.
                gone = excluded(trace, names)
    except ChildFailed as error:
        failure = str(error)
    return Start(time.monotonic() - began, gone, "" if gone else failure)


def excluded(trace: Path, names: list[str]) -> tuple[str, ...]:
    """Those of whom somebody had a view without them."""
    events = read_trace([trace]).events() if trace.exists() else []
    views = [event.destinations or () for event in events if event.event == "view"]
    return tuple(name for name in names if any(f"{SYSTEM}/{name}" not in view for view in views))


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that take all the time they can get, as long as this one is there."""
    work = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(10_000))"
    loops = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()
