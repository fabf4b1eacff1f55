"""What does the audit cost? All five properties beside reading and sorting the same table, measured in the same run.

The traces are causal broadcasts in rounds: every process sends, then delivers all of the round in an order of its own.
Two of them are skewed: a single process sends nine messages in ten, or has nine deliveries in ten, because all others
leave early.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from isthmus.pipeline.yardstick import Stage

Result = TypeVar("Result")

_EVENTS = ["send", "deliver", "start", "end", "leave"]
PROCESSES = 10
MANY_PROCESSES = 64
SMALLER = 10
"""How much smaller the trace is beside which the cost per delivery is looked at."""


class Case(Struct, frozen=True):
    name: str
    processes: int
    runs: int
    deliveries: int
    engine: Literal["numpy", "sql"] | None = None
    burst: int = 1
    """Messages that the first process sends per round; the others send one."""
    alone: float = 0.0
    """The share of all deliveries that the first process has after all others have left."""


class Figure(Struct, frozen=True):
    """One case. `ratio` is the audit over reading and sorting, `ingest_ratio` the making of the table over the same."""

    name: str
    deliveries: int
    ingest_seconds: float
    sort_seconds: float
    audit_seconds: float
    ratio: float
    ingest_ratio: float
    microseconds: float
    peak_mib: float
    largest_share: float
    verdicts: dict[str, str]
    stages: list[Stage]


def cases(deliveries: int) -> list[Case]:
    return [
        Case("one run", PROCESSES, 1, deliveries),
        Case("one run, a tenth", PROCESSES, 1, deliveries // SMALLER),
        Case("20 runs", PROCESSES, 20, deliveries),
        Case("one run in SQL", PROCESSES, 1, deliveries, "sql"),
        Case("one run, one busy sender, in SQL", PROCESSES, 1, deliveries // SMALLER, "sql", burst=9 * (PROCESSES - 1)),
        Case("one run, one long log, in SQL", PROCESSES, 1, deliveries // SMALLER, "sql", alone=0.9),
        Case("one run, 64 processes, in SQL", MANY_PROCESSES, 1, deliveries // SMALLER, "sql"),
    ]


def chosen_cases(deliveries: int, only: str) -> list[Case]:
    """The case of this name; without one, those that have these words in theirs."""
    known = cases(deliveries)
    return [case for case in known if case.name == only] or [case for case in known if only in case.name]


def measure(deliveries: int, master: str | None = None, memory: str = "3g", only: str = "") -> Iterator[Figure]:
    """One figure per case that `only` chooses. The first is preceded by a small one that warms Java up."""
    from isthmus.pipeline.session import spark_session

    spark = spark_session(master, driver_memory=memory)
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as scratch:
        chosen = chosen_cases(deliveries, only)
        for engine in sorted({case.engine or "numpy" for case in chosen}):
            warm = Case("warm", 4, 2, 20_000, engine)
            _measure(spark, warm, Path(scratch, f"warm-{engine}"))
        for number, case in enumerate(chosen):
            yield _measure(spark, case, Path(scratch, str(number)))


def _measure(spark: Any, case: Case, directory: Path) -> Figure:
    from isthmus.pipeline.audit import audit
    from isthmus.pipeline.ingest import ingest
    from isthmus.pipeline.yardstick import free_memory, last_stage, read_and_sort, stages_since

    trace = directory / "trace"
    delivered = write_trace(trace, case)
    ingest_seconds, table = _timed(lambda: ingest(spark, [trace], directory / "table"))
    free_memory(spark)
    sort_seconds, _ = _timed(lambda: read_and_sort(spark, table))
    free_memory(spark)
    before = last_stage(spark)
    with PeakMemory() as peak:
        audit_seconds, report = _timed(lambda: audit(spark, table, engine=case.engine))
    stages = stages_since(spark, before)
    large = [stage for stage in stages if stage.rows > report.events // 2]
    return Figure(
        name=case.name,
        deliveries=delivered,
        ingest_seconds=ingest_seconds,
        sort_seconds=sort_seconds,
        audit_seconds=audit_seconds,
        ratio=audit_seconds / sort_seconds,
        ingest_ratio=ingest_seconds / sort_seconds,
        microseconds=audit_seconds / delivered * 1e6,
        peak_mib=peak.mib,
        largest_share=max((stage.largest_share for stage in large), default=0.0),
        verdicts={each.property: report.verdict(each.property) for each in report.verdicts},
        stages=stages,
    )


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


# Traces ---------------------------------------------------------------------------------------------------------------


def write_trace(directory: Path, case: Case) -> int:
    """One Parquet file per process and run; returns how many deliveries there are."""
    directory.mkdir(parents=True)
    slots = case.processes - 1 + case.burst
    together = int(case.deliveries * (1 - case.alone)) // case.runs
    rounds = max(1, together // (slots * case.processes))
    alone = int(case.deliveries * case.alone) // case.runs
    for run in range(case.runs):
        for process in range(case.processes):
            mine = 0 if process else alone
            _write_log(directory, case, f"r{run:02}", process, rounds, mine, seed=run * 1000 + process)
    return (rounds * slots * case.processes + alone) * case.runs


def _write_log(directory: Path, case: Case, run: str, process: int, rounds: int, alone: int, seed: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(seed)
    senders = np.concatenate([np.zeros(case.burst, np.int32), np.arange(1, case.processes, dtype=np.int32)])
    order = senders[np.argsort(random.random((rounds, len(senders)), np.float32), axis=1)]
    first = order == 0
    number = np.arange(rounds, dtype=np.int64)[:, None]
    seq = np.where(first, number * case.burst + np.cumsum(first, axis=1), number + 1)
    mine = case.burst if process == 0 else 1
    own = number * mine + np.arange(1, mine + 1)
    event = np.concatenate([np.zeros((rounds, mine), np.int8), np.ones(order.shape, np.int8)], axis=1).ravel()
    origin = np.concatenate([np.full((rounds, mine), process, np.int32), order], axis=1).ravel()
    seqs = np.concatenate([own, seq], axis=1).ravel()
    event = np.concatenate([event, np.tile(np.array([0, 1], np.int8), alone)])
    origin = np.concatenate([origin, np.full(2 * alone, process, np.int32)])
    seqs = np.concatenate([seqs, np.repeat(rounds * mine + 1 + np.arange(alone), 2)])

    def edged(values: Any, start: int, end: int) -> Any:
        return np.concatenate([[start], values, [end]]).astype(values.dtype)

    event = edged(event, 2, 4 if case.alone and process else 3)
    without = event >= 2
    rows = len(event)

    def word(text: str) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([text])).cast(pa.string())

    def some(numbers: Any, words: list[str]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=without), pa.array(words)).cast(pa.string())

    columns = {
        "run": word(run),
        "system": word("site"),
        "process": word(f"p{process}"),
        "role": word("app"),
        "index": pa.array(np.arange(rows)),
        "event": pa.DictionaryArray.from_arrays(pa.array(event), pa.array(_EVENTS)).cast(pa.string()),
        "origin_system": some(np.zeros(rows, np.int32), ["site"]),
        "origin_process": some(edged(origin, 0, 0), [f"p{each}" for each in range(case.processes)]),
        "origin_seq": pa.array(edged(seqs, 0, 0), mask=without),
        "destinations": pa.nulls(rows, pa.list_(pa.string())),
        "peer": pa.nulls(rows, pa.string()),
        "payload_bytes": pa.array(np.full(rows, 100), mask=without),
        "control_bytes": pa.array(np.full(rows, 24), mask=without),
        "time_ns": pa.array(np.arange(rows) * 1000),
        "note": pa.nulls(rows, pa.string()),
    }
    pq.write_table(pa.table(columns), directory / f"{run}.site.p{process}-00000.parquet")


# Memory ---------------------------------------------------------------------------------------------------------------


class PeakMemory:
    """The most memory that this process and all its children, Java and its Python workers, have in RAM together."""

    def __init__(self, interval: float = 0.25) -> None:
        self.mib = 0.0
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.mib = max(self.mib, sum(map(_resident_mib, _descendants(os.getpid()))))
            if self._over.wait(self._interval):
                return


def _descendants(process: int) -> Iterator[int]:
    yield process
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _descendants(int(child))
    except OSError:
        return  # it has ended while we looked


def _resident_mib(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
