"""What this code is to carry, row by row, and what it carries on this machine; beside an old commit, if asked.

Every measurement of a row is a run of `targets_child.py` by its path, with the sources to be measured on PYTHONPATH. So
this code and an old commit are measured by one script, in turn.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

import isthmus
from isthmus.lab.benchmarks import targets_child

LIMIT = 180.0
"""Seconds that a measurement may take beyond those that are measured: with a pump, two starts, each waited for."""
SOURCES = Path(isthmus.__file__).parents[1]


class Row(Struct, frozen=True):
    """`wanted` is per second, or a share of a plain pump. A message passes `hops` members, its sender included.

    `settings` are arguments of the function of `targets_child` named `how`; `load` is what a sender does.
    """

    name: str
    what: str
    wanted: float
    hops: int
    how: Literal["joined", "group", "bare", "simulated"]
    settings: dict[str, Any] = {}
    load: dict[str, Any] = {}

    @property
    def counts_deliveries(self) -> bool:
        """Whether every member's deliveries count, and not the messages that arrive at one."""
        return self.how != "joined"


KIB = {"size": 1024}
CORE = {"at_once": 32, "pause": 0.0}
QUIET = {"senders": 1}
"""One process sends; of the others there are heartbeats and acknowledgements."""
LINES = {"links": 8, "gateways": (4, 2), "rate": 100_000_000}
FOUR_LINKS = {"links": 4, "gateways": (2, 2)}
IN_TWO = {"members": 128, "os_processes": 2}
ROWS = (
    Row("loopback-100", "a process and a gateway per site, 100 B", 2_000_000, 4, "joined"),
    Row("loopback-1k", "a process and a gateway per site, 1 KiB", 500_000, 4, "joined", load=KIB),
    Row("apart-1k", "the same, every member an OS process", 350_000, 4, "joined", {"apart": True}, KIB),
    Row("members-100", "three members per site, 100 B", 1_500_000, 6, "joined", {"processes": 2}),
    Row("members-1k", "three members per site, 1 KiB", 300_000, 6, "joined", {"processes": 2}, KIB),
    Row("links-100", "4 links, 2 × 2 gateways, 100 B", 1_200_000, 6, "joined", FOUR_LINKS),
    Row("links-1k", "4 links, 2 × 2 gateways, 1 KiB", 250_000, 6, "joined", FOUR_LINKS, KIB),
    Row("origins", "256 origins, runs of one message, 100 B", 700_000, 4, "joined", {"origins": 256}),
    Row("lines", "8 × 100 Mbit/s, 1 KiB, of a plain pump", 0.95, 8, "joined", LINES, KIB),
    Row("core-tcp", "a group of 8 over TCP", 1_500_000, 8, "group", {"members": 8}, CORE),
    Row("core-bare", "the frames of such a group, without a protocol", 1_500_000, 8, "bare", {"members": 8}, CORE),
    Row("core-simulated", "a group of 8, simulated", 4_000_000, 8, "simulated", {"members": 8}, CORE),
    Row("quiet-tcp", "a quiet group of 128 over TCP", 100_000, 128, "group", IN_TWO | QUIET, CORE),
    Row(
        "quiet-simulated", "a quiet group of 128, simulated", 100_000, 128, "simulated", {"members": 128} | QUIET, CORE
    ),
)


class Measurement(Struct, frozen=True):
    """One run of one row. `cores` are what each OS process took; `pumped` is what the lines carry without isthmus."""

    rate: float
    cores: dict[str, float]
    profiles: dict[str, str]
    load: float
    pumped: float | None = None

    @property
    def reached(self) -> float:
        return self.rate / self.pumped if self.pumped else self.rate


class Figure(Struct, frozen=True):
    """A row as measured: the median run of this code, and that of the old commit. `failure` says why one is missing."""

    row: Row
    new: Measurement | None
    old: Measurement | None
    failure: str = ""

    @property
    def good(self) -> bool:
        return self.new is not None and self.new.reached >= self.row.wanted

    @property
    def microseconds(self) -> float | None:
        """Processor time of all members for one message."""
        if self.new is None or not self.new.rate:
            return None
        deliveries = self.row.hops if self.row.counts_deliveries else 1
        return 1e6 * sum(self.new.cores.values()) / self.new.rate * deliveries


class CannotMeasure(Exception):
    """There is no such row or commit, or a measurement has failed; the text says why."""


def chosen_rows(names: str) -> list[Row]:
    """Rows by their names, with commas between them; all of them if there is none."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in [row.name for row in ROWS]:
            every = ", ".join(row.name for row in ROWS)
            raise CannotMeasure(f"--rows {name}: there is no such row; there are {every}")
    return [row for row in ROWS if not wanted or row.name in wanted]


def measure(
    rows: Sequence[Row], seconds: float, repeats: int = 1, *, profile: bool = False, beside: str | None = None
) -> Iterator[Figure]:
    """Row by row; with an old commit, it and this code in turn."""
    with _sources_of(beside) as old_sources:
        for row in rows:
            runs: dict[Path, list[Measurement]] = {}
            failures: dict[Path, str] = {}
            for _ in range(repeats):
                for sources in filter(None, (old_sources, SOURCES)):
                    try:
                        runs.setdefault(sources, []).append(_measurement(row, sources, seconds, profile))
                    except CannotMeasure as failure:
                        failures[sources] = f"{beside if sources == old_sources else 'this code'}: {failure}"
            new, old = _median(runs.get(SOURCES)), _median(runs.get(old_sources) if old_sources else None)
            yield Figure(row, new, old, "; ".join(failures.values()))


def _median(runs: list[Measurement] | None) -> Measurement | None:
    return sorted(runs, key=lambda each: each.reached)[len(runs) // 2] if runs else None


def _measurement(row: Row, sources: Path, seconds: float, profile: bool) -> Measurement:
    order = {"seconds": seconds, "profile": profile, "settings": row.settings, "load": row.load}
    child = subprocess.Popen(
        [sys.executable, "-P", targets_child.__file__, row.how, msgspec.json.encode(order).decode()],
        env=os.environ | {"PYTHONPATH": str(sources)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer, words = child.communicate(timeout=2 * seconds + LIMIT)
    except subprocess.TimeoutExpired:
        raise CannotMeasure(f"not done after {2 * seconds + LIMIT:g} s") from None
    finally:
        # It has OS processes of its own; whatever went wrong, none of them stays.
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    if child.returncode:
        raise CannotMeasure(words.decode(errors="replace").strip().rpartition("\n")[2] or f"exit {child.returncode}")
    return msgspec.json.decode(answer, type=Measurement)


@contextmanager
def _sources_of(revision: str | None) -> Iterator[Path | None]:
    """The sources of a commit, in a directory that is gone afterwards."""
    if revision is None:
        yield None
        return
    git = subprocess.run(
        ["git", "-C", str(SOURCES.parent), "archive", "--format=tar", revision, "src"], capture_output=True, check=False
    )
    if git.returncode:
        raise CannotMeasure(f"--beside {revision}: {git.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory(prefix="isthmus-beside-") as directory:
        subprocess.run(["tar", "-x", "-C", directory], input=git.stdout, check=True)
        yield Path(directory) / "src"
