"""The story of a message, on one small run in which everything happens that can happen to a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.core.ids import MILLISECOND, Directory, ProcessName
from isthmus.core.segment import EMPTY, Segment, join
from isthmus.trace.reader import Trace, read_trace
from isthmus.trace.schema import TraceError
from isthmus.trace.story import tell
from isthmus.trace.writer import ProcessLog, open_log

NAMES = Directory(
    [
        ProcessName("madrid", "p1"),
        ProcessName("madrid", "p2"),
        ProcessName("madrid", "g1"),
        ProcessName("valencia", "p1"),
        ProcessName("valencia", "p2"),
        ProcessName("valencia", "p3"),
    ]
)
CAUSE = Segment.of(0, 1, [b"cause"])
EFFECT = Segment.of(1, 1, [b"effect"])


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """madrid/p2 answers madrid/p1; valencia/p1 holds the answer back, valencia/p2 does not, valencia/p3 crashes."""
    logs: dict[str, ProcessLog] = {}
    for number, name in enumerate(NAMES.slots):
        role = "gateway" if name.process == "g1" else "app"
        logs[str(name)] = open_log(tmp_path, "jsonl", "r1", *name, role, NAMES)  # type: ignore[arg-type]
        logs[str(name)].event("start", number)
    logs["madrid/p1"].messages("send", 0, CAUSE, 0)
    logs["madrid/p1"].messages("deliver", 0, join([CAUSE, EFFECT]), 8)
    logs["madrid/p2"].messages("deliver", MILLISECOND, CAUSE, 8)
    logs["madrid/p2"].messages("send", MILLISECOND, EFFECT, 0)
    logs["madrid/p2"].messages("deliver", MILLISECOND, EFFECT, 8)
    logs["madrid/g1"].messages("transfer", 2 * MILLISECOND, EFFECT, 12, peer="valencia/g1")
    logs["valencia/p1"].messages("hold", 5 * MILLISECOND, EFFECT, 8, peer="madrid/p1", note="its cause is not here")
    logs["valencia/p1"].messages("deliver", 9 * MILLISECOND, join([CAUSE, EFFECT]), 8)
    logs["valencia/p2"].messages("deliver", 9 * MILLISECOND, join([EFFECT, CAUSE]), 8)
    logs["valencia/p3"].event("crash", 3 * MILLISECOND)
    logs["madrid/p2"].messages("stable", 20 * MILLISECOND, EFFECT, 0)
    for whose, log in logs.items():
        if whose not in ("valencia/p2", "valencia/p3"):
            log.event("end", 30 * MILLISECOND)
        log.close()
    return read_trace(tmp_path)


def test_a_story_reads_like_this(trace: Trace) -> None:
    assert tell(trace, "madrid/p2/1").lines() == [
        "madrid/p2/1 in run r1: 6 bytes of payload, 12 bytes of control, for everyone",
        "direct causes: madrid/p1/1",
        "",
        "since send  process              index  event",
        "-1 ms       madrid/p1            3      deliver",
        "0           madrid/p2            2      send",
        "0           madrid/p2            3      deliver",
        "1 ms        madrid/g1 (gateway)  1      transfer  with valencia/g1",
        "4 ms        valencia/p1          1      hold      waits for madrid/p1; its cause is not here",
        "8 ms        valencia/p1          3      deliver   after it was held for 4 ms",
        "8 ms        valencia/p2          1      deliver",
        "19 ms       madrid/p2            4      stable",
        "",
        "destination  delivered   its log                   direct causes there",
        "madrid/p1    at index 3  complete                  madrid/p1/1 before it, at index 2",
        "madrid/p2    at index 3  complete                  madrid/p1/1 before it, at index 1",
        "valencia/p1  at index 3  complete                  madrid/p1/1 before it, at index 2",
        "valencia/p2  at index 1  breaks off after index 2  madrid/p1/1 AFTER it, at index 2",
        "valencia/p3  never       crashed                   madrid/p1/1 missing",
    ]


def test_a_story_is_data_before_it_is_text(trace: Trace) -> None:
    [chapter] = tell(trace, "madrid/p2/1").chapters
    assert chapter.direct_causes == ["madrid/p1/1"]
    held = [(step.process, step.held_ns) for step in chapter.steps if step.held_ns is not None]
    assert held == [("valencia/p1", 4 * MILLISECOND)]
    wrong = [standing.process for standing in chapter.standings if standing.causes[0].place == "AFTER it"]
    assert wrong == ["valencia/p2"]


def test_an_unknown_message_is_answered_with_those_that_exist(trace: Trace) -> None:
    with pytest.raises(TraceError, match=r"madrid/p1/7: no such message in the trace; try madrid/p1/1$"):
        tell(trace, "madrid/p1/7")
    with pytest.raises(TraceError, match=r"; try madrid/p2/1 or madrid/p1/1$"):
        tell(trace, "madird/p2/1")


@pytest.mark.parametrize("text", ["", "x", "madrid/p1", "madrid//1", "/p1/1", "madrid/p1/x", "madrid/p1/²", "a/b/-1"])
def test_what_is_no_message_id_is_told_how_to_be_one(trace: Trace, text: str) -> None:
    with pytest.raises(TraceError, match="not a message id; write system/process/number"):
        tell(trace, text)


def test_each_run_that_has_the_message_is_a_chapter(tmp_path: Path) -> None:
    for run in ("r1", "r2", "r3"):
        with open_log(tmp_path, "jsonl", run, "madrid", "p1", "app", NAMES) as log:
            log.messages("send", 0, EMPTY if run == "r3" else CAUSE, 0)
            log.event("end", 0)
    story = tell(read_trace(tmp_path), "madrid/p1/1")
    assert [chapter.run for chapter in story.chapters] == ["r1", "r2"]
    assert sum(line.startswith("madrid/p1/1 in run") for line in story.lines()) == 2


def test_a_message_without_its_send_row_still_has_a_story(tmp_path: Path) -> None:
    with open_log(tmp_path, "jsonl", "r1", "madrid", "p2", "app", NAMES) as log:
        log.messages("deliver", 0, CAUSE, 0, destinations=("madrid/p2", "valencia/p9"))
    lines = tell(read_trace(tmp_path), "madrid/p1/1").lines()
    assert lines[1].startswith("no row says that it was sent")
    assert any(line.split() == ["valencia/p9", "never", "not", "in", "the", "trace"] for line in lines)


def test_only_a_gateway_saw_it(tmp_path: Path) -> None:
    with open_log(tmp_path, "jsonl", "r1", "madrid", "g1", "gateway", NAMES) as log:
        log.messages("transfer", 0, CAUSE, 0, peer="valencia/g1")
    assert "madrid/g1 (gateway)" in tell(read_trace(tmp_path), "madrid/p1/1").lines()[-1]
