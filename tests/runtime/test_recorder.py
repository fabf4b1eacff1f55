"""Rows of a running process reach its log in time; a log that cannot be written any more stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from runtime_support import run_test, until

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Directory, ProcessName
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.trace.schema import Event, TraceError
from isthmus.trace.writer import MemorySink, ProcessLog, Sink

NAMES = Directory([ProcessName("madrid", "p1"), ProcessName("madrid", "p2")])
BATCH = Batch(1, 1, 3, [4, 2], 2, Segment.of(1, 7, [b"seven", b"eight"]))


def recorder(sink: Sink, **options: Any) -> LiveRecorder:
    return LiveRecorder(0, ProcessLog(sink, "run", "madrid", "p1", "app", NAMES), **options)


def delivery() -> Outbox:
    out = Outbox()
    out.deliveries.append(BATCH)
    return out


def test_a_history_has_all_its_rows_when_it_has_ended() -> None:
    async def scenario() -> list[str]:
        sink = MemorySink()
        live = recorder(sink, how="join")
        live.sent(5, [b"a"])
        live.step(delivery())
        live.ended("crash", "excluded")
        return [row.event for row in sink.events]

    assert run_test(scenario()) == ["join", "send", "deliver", "deliver", "crash"]


def test_the_last_rows_of_a_quiet_process_do_not_wait_for_its_end() -> None:
    async def scenario() -> None:
        sink = MemorySink()
        live = recorder(sink)
        live.step(delivery())
        assert sink.events == []
        await until(lambda: len(sink.events) == 3)
        live.ended("end", "")

    run_test(scenario())


def test_in_step_with_the_disk_every_row_is_written_at_once() -> None:
    async def scenario() -> None:
        sink = MemorySink()
        live = recorder(sink, sync=True)
        live.step(delivery())
        assert [row.event for row in sink.events] == ["start", "deliver", "deliver"]
        live.ended("end", "")

    run_test(scenario())


class FullDisk:
    def write(self, events: Sequence[Event]) -> None:
        raise TraceError("disk", "cannot write: no space left", "free some space")

    def close(self) -> None: ...


def test_a_full_disk_costs_one_log_line_and_the_trace_but_not_the_process(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        live = recorder(FullDisk())
        for number in range(20_000):
            live.sent(number + 1, [b"x"])
            if number % 1000 == 0:
                await asyncio.sleep(0)
        live.ended("end", "")

    run_test(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("isthmus")]
    assert "the trace of madrid/p1 is incomplete from here on" in line
