"""What does the audit cost? All five properties beside reading and sorting the same table, measured in the same run.

The traces are causal broadcasts in rounds: every process sends, then delivers all of the round in an order of its own.
Two of them are skewed: a single process sends nine messages in ten, or has nine deliveries in ten, because all others
leave early. In another, messages are for half of the processes; in two, rows do not come log by log as Parquet.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

Result = TypeVar("Result")

_EVENTS = ["send", "deliver", "start", "end", "leave"]
PROCESSES = 10
FEW_PROCESSES = 8
MANY_PROCESSES = 64
SETS = 16
"""Sets of destinations in a trace of multicasts."""
FILES = 10
"""Into which rows in any order are dealt."""
SMALLER = 10
"""How much smaller the trace is beside which the cost per delivery is looked at."""


class Case(Struct, frozen=True):
    name: str
    processes: int
    runs: int
    deliveries: int
    burst: int = 1
    """Messages that the first process sends per round; the others send one."""
    alone: float = 0.0
    """The share of all deliveries that the first process has after all others have left."""
    multicast: bool = False
    """Each message is for half of the processes."""
    form: Literal["logs", "any order", "json"] = "logs"
    """One Parquet file per log, in order; or rows in any order; or JSON Lines, log by log."""


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
    worker_mib: float
    """The most memory of one Python worker, during ingest and audit."""
    busy: float
    """Cores that were busy with tasks during the audit."""
    load: float
    """How many processes of this machine wanted a core in the last minute, these included."""
    processor_ratios: tuple[float, float]
    """Of ingest and audit over reading and sorting, in processor time of Java and Python: for a machine that is busy
    with other things."""
    verdicts: dict[str, str]


def cases(deliveries: int) -> list[Case]:
    return [
        Case("one run", PROCESSES, 1, deliveries),
        Case("one run, a tenth", PROCESSES, 1, deliveries // SMALLER),
        Case("20 runs", PROCESSES, 20, deliveries),
        Case("one run, 8 processes", FEW_PROCESSES, 1, deliveries),
        Case("one run, 64 processes", MANY_PROCESSES, 1, deliveries),
        Case("one run, 8 processes, multicast", FEW_PROCESSES, 1, deliveries, multicast=True),
        Case("one run, 64 processes, multicast", MANY_PROCESSES, 1, deliveries, multicast=True),
        Case("one run, one busy sender", PROCESSES, 1, deliveries, burst=9 * (PROCESSES - 1)),
        Case("one run, one long log", PROCESSES, 1, deliveries, alone=0.9),
        Case("one run, rows in any order", PROCESSES, 1, deliveries, form="any order"),
        Case("one run, JSON Lines", PROCESSES, 1, deliveries // SMALLER, form="json"),
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
        _measure(spark, Case("warm", 4, 2, 20_000), Path(scratch, "warm"))
        for number, case in enumerate(chosen_cases(deliveries, only)):
            yield _measure(spark, case, Path(scratch, str(number)))


def _measure(spark: Any, case: Case, directory: Path) -> Figure:
    from isthmus.pipeline.audit import audit
    from isthmus.pipeline.ingest import ingest
    from isthmus.pipeline.yardstick import free_memory, last_stage, read_and_sort, task_seconds_since

    trace = directory / "trace"
    delivered = write_trace(trace, case)
    with PeakMemory() as ingest_peak:
        ingest_seconds, ingest_work, table = _timed(lambda: ingest(spark, [trace], directory / "table"))
    free_memory(spark)
    sort_seconds, sort_work, _ = _timed(lambda: read_and_sort(spark, table))
    free_memory(spark)
    before = last_stage(spark)
    with PeakMemory() as peak:
        audit_seconds, audit_work, report = _timed(lambda: audit(spark, table))
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
        worker_mib=max(ingest_peak.worker_mib, peak.worker_mib),
        busy=task_seconds_since(spark, before) / audit_seconds,
        load=os.getloadavg()[0],
        processor_ratios=(ingest_work / sort_work, audit_work / sort_work),
        verdicts={each.property: report.verdict(each.property) for each in report.verdicts},
    )


def _timed(work: Callable[[], Result]) -> tuple[float, float, Result]:
    """Seconds, and seconds of processor time of this process and all its children."""
    started, worked = time.perf_counter(), sum(map(_processor_seconds, _descendants(os.getpid())))
    result = work()
    worked = sum(map(_processor_seconds, _descendants(os.getpid()))) - worked
    return time.perf_counter() - started, worked, result


# Traces ---------------------------------------------------------------------------------------------------------------


def write_trace(directory: Path, case: Case) -> int:
    """The logs of all runs, in the form of the case; returns how many deliveries there are."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    slots = case.processes - 1 + case.burst
    together = int(case.deliveries * (1 - case.alone)) // case.runs * (2 if case.multicast else 1)
    rounds = max(1, together // (slots * case.processes))
    alone = int(case.deliveries * case.alone) // case.runs
    delivered = 0
    kept = []
    for run in range(case.runs):
        for process in range(case.processes):
            mine = 0 if process else alone
            log = _log(case, f"r{run:02}", process, rounds, mine, seed=run * 1000 + process)
            delivered += pc.sum(pc.equal(log.column("event"), "deliver")).as_py()
            name = f"r{run:02}.site.p{process}-00000"
            if case.form == "logs":
                pq.write_table(log, directory / f"{name}.parquet")
            elif case.form == "json":
                lines = msgspec.json.Encoder().encode_lines(log.to_pylist())
                (directory / f"{name}.jsonl").write_bytes(lines)
            else:
                kept.append(log)
    if kept:
        _deal(directory, kept)
    return delivered


def _deal(directory: Path, logs: list[Any]) -> None:
    """Every file gets rows of all logs from their beginning to their end, and shuffles them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(FILES):
        hand = pa.concat_tables([log.take(pa.array(np.arange(number, log.num_rows, FILES))) for log in logs])
        order = np.random.default_rng(number).permutation(hand.num_rows)
        pq.write_table(hand.take(pa.array(order)), directory / f"rows-{number}.parquet")


def _log(case: Case, run: str, process: int, rounds: int, alone: int, seed: int) -> Any:
    import numpy as np
    import pyarrow as pa

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
    sets, audience = _sets(case.processes), (7 * seqs + 3 * origin) % SETS
    if case.multicast:
        here = (event == 0) | (sets[audience] == process).any(axis=1)
        event, origin, seqs, audience = event[here], origin[here], seqs[here], audience[here]

    def edged(values: Any, start: int, end: int) -> Any:
        return np.concatenate([[start], values, [end]]).astype(values.dtype)

    event = edged(event, 2, 4 if case.alone and process else 3)
    without = event >= 2
    rows = len(event)
    names = [f"p{each}" for each in range(case.processes)]

    def word(text: str) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([text])).cast(pa.string())

    def some(numbers: Any, words: list[str]) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=without), pa.array(words)).cast(pa.string())

    destinations = pa.nulls(rows, pa.list_(pa.string()))
    if case.multicast:
        members = sets[edged(audience, 0, 0)]
        members = members[~without].ravel().astype(np.int32)
        words = pa.DictionaryArray.from_arrays(pa.array(members), pa.array([f"site/{name}" for name in names]))
        sizes = np.where(without, 0, sets.shape[1])
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        destinations = pa.ListArray.from_arrays(pa.array(offsets), words.cast(pa.string()), mask=pa.array(without))
    columns = {
        "run": word(run),
        "system": word("site"),
        "process": word(f"p{process}"),
        "role": word("app"),
        "index": pa.array(np.arange(rows)),
        "event": pa.DictionaryArray.from_arrays(pa.array(event), pa.array(_EVENTS)).cast(pa.string()),
        "origin_system": some(np.zeros(rows, np.int32), ["site"]),
        "origin_process": some(edged(origin, 0, 0), names),
        "origin_seq": pa.array(edged(seqs, 0, 0), mask=without),
        "destinations": destinations,
        "peer": pa.nulls(rows, pa.string()),
        "payload_bytes": pa.array(np.full(rows, 100), mask=without),
        "control_bytes": pa.array(np.full(rows, 24), mask=without),
        "time_ns": pa.array(np.arange(rows) * 1000),
        "note": pa.nulls(rows, pa.string()),
    }
    return pa.table(columns)


def _sets(processes: int) -> Any:
    """Sets of half of the processes, the same for all logs of a trace."""
    import numpy as np

    random = np.random.default_rng(1)
    return np.stack([random.permutation(processes)[: max(1, processes // 2)] for _ in range(SETS)])


# Memory ---------------------------------------------------------------------------------------------------------------


class PeakMemory:
    """The most memory that this process and all its children, Java and its Python workers, have in RAM together.

    `worker_mib` is the most that one worker has. Files that it has mapped count.
    """

    def __init__(self, interval: float = 0.25) -> None:
        self.mib = self.worker_mib = 0.0
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
            resident = {process: _resident_mib(process) for process in _descendants(os.getpid())}
            workers = [size for process, size in resident.items() if process != os.getpid() and _is_python(process)]
            self.mib = max(self.mib, sum(resident.values()))
            self.worker_mib = max(self.worker_mib, *workers, 0.0)
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


def _is_python(process: int) -> bool:
    try:
        return b"python" in Path(f"/proc/{process}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return False


def _resident_mib(process: int) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _processor_seconds(process: int) -> float:
    """Of a process and of children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
