"""A process that is killed in the middle of writing loses its unflushed tail and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

# It stops by itself after a million rows, should nobody kill it.
WRITER = """
import sys
from isthmus.core.ids import Directory, ProcessName
from isthmus.core.segment import Segment
from isthmus.trace.writer import open_log

names = Directory([ProcessName("madrid", "p1")])
log = open_log(sys.argv[1], sys.argv[2], "r1", "madrid", "p1", "app", names, flush_rows=int(sys.argv[3]))
log.event("start", 0)
for batch in range(20_000):
    segment = Segment.of(0, batch * 25 + 1, [b"payload"] * 25)
    log.messages("send", batch, segment, 0)
    log.messages("deliver", batch, segment, 0)
    if batch % 100 == 0:
        log.flush()
        print(log.next_index, flush=True)
"""


@pytest.mark.parametrize(("trace_format", "flush_rows"), [("jsonl", 7), ("jsonl", 1_000), ("parquet", 200)])
def test_kill_minus_nine_costs_the_unflushed_tail_only(tmp_path: Path, trace_format: str, flush_rows: int) -> None:
    source = Path(isthmus.__file__).resolve().parent.parent
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), trace_format, str(flush_rows)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    with writer:
        assert writer.stdout is not None
        promised = [int(writer.stdout.readline()) for _ in range(3)][-1]
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL

    trace = read_trace(tmp_path)
    log = trace.logs["r1", "madrid", "p1"]
    assert [event.index for event in log.events] == list(range(len(log.events)))
    assert len(log.events) >= promised
    assert trace.quarantined == []
    assert log.gaps == []
    assert not log.complete

    # What is left is a true beginning of the history. Its end is open, and the verdicts say so.
    report = judge(trace.events(), ["integrity", "fifo", "causal", "agreement"])
    assert {each.property for each in report.violated} == set()
