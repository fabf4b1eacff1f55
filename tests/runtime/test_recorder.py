"""From a driver's words to rows of a trace; a diary that cannot be written any more stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from runtime_support import run_test, until

from isthmus.core.codec import body_of
from isthmus.core.endpoint import Hold, Staged, View
from isthmus.core.ids import Directory, ProcessName
from isthmus.core.message import Batch, Message
from isthmus.runtime.driver.recorder import TraceRecorder
from isthmus.trace.schema import Event, TraceError, problem
from isthmus.trace.writer import MemorySink, ProcessLog, Sink

NAMES = Directory([ProcessName("madrid", "p1"), ProcessName("madrid", "p2")])
BATCH = Batch(1, 1, 3, [4, 2], 2, [Message(1, 7, b"seven"), Message(1, 8, b"eight")])


def recorder(sink: Sink, *, joining: bool = False) -> TraceRecorder:
    return TraceRecorder(0, ProcessLog(sink, "run", "madrid", "p1", "app", NAMES), NAMES, joining=joining)


def test_everything_that_is_told_becomes_rows_that_make_sense() -> None:
    async def scenario() -> list[Event]:
        sink = MemorySink()
        told = recorder(sink)
        told.view(View(1, (0, 1)))
        told.sent(5, [b"a", b"bc"])
        told.held([Hold(BATCH, "delivered", 0, 4)])
        told.staged([Staged("receive", BATCH)])
        told.delivered(BATCH)
        told.stable(BATCH)
        told.ended("leave", "left")
        return sink.events

    rows = run_test(scenario())
    assert [row.event for row in rows] == [
        *(
            "start",
            "view",
            "send",
            "send",
            "hold",
            "hold",
            "receive",
            "receive",
            "deliver",
            "deliver",
            "stable",
            "stable",
            "leave",
        )
    ]
    assert [row.index for row in rows] == list(range(len(rows)))
    assert all(problem(row) is None for row in rows)
    assert (rows[1].peer, rows[1].destinations) == ("1", ("madrid/p1", "madrid/p2"))
    assert [(row.origin_process, row.origin_seq, row.payload_bytes) for row in rows[2:4]] == [
        ("p1", 5, 1),
        ("p1", 6, 2),
    ]
    assert (rows[4].peer, rows[4].note) == ("madrid/p1", "waits until batch 4 of madrid/p1 is delivered")
    assert rows[6].control_bytes == rows[8].control_bytes == (len(body_of(BATCH)) - 10) // 2
    assert rows[-1].note == "left"


def test_a_process_that_comes_later_says_join() -> None:
    async def scenario() -> str:
        sink = MemorySink()
        recorder(sink, joining=True).ended("crash", "excluded")
        return " ".join(row.event for row in sink.events)

    assert run_test(scenario()) == "join crash"


def test_the_last_rows_of_a_quiet_process_do_not_wait_for_its_end() -> None:
    async def scenario() -> None:
        sink = MemorySink()
        told = recorder(sink)
        told.delivered(BATCH)
        assert sink.events == []
        await until(lambda: len(sink.events) == 3)
        told.ended("end", "")

    run_test(scenario())


class FullDisk:
    def write(self, events: Sequence[Event]) -> None:
        raise TraceError("disk", "cannot write: no space left", "free some space")

    def close(self) -> None: ...


def test_a_full_disk_costs_one_log_line_and_the_trace_but_not_the_process(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        told = recorder(FullDisk())
        for number in range(20_000):
            told.sent(number + 1, [b"x"])
            if number % 1000 == 0:
                await asyncio.sleep(0)
        told.ended("end", "")

    run_test(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("isthmus")]
    assert "the trace of madrid/p1 is incomplete from here on" in line
