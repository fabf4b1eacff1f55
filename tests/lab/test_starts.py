"""`isthmus bench starts`: what it calls a good start, and that a member excluded at birth is seen."""

from __future__ import annotations

from pathlib import Path

from patience import seconds
from runtime_support import run_with_children

from isthmus.lab.benchmarks.starts import excluded, measure
from isthmus.trace.schema import Event
from isthmus.trace.writer import JsonlSink

NAMES = ["p1", "p2", "p3"]


def test_everybody_is_there_after_a_start(tmp_path: Path) -> None:
    (start,) = run_with_children(measure(tmp_path, 1, len(NAMES), 1, lambda: None), within=seconds(60))
    assert start.good, start


def test_a_member_that_somebody_went_on_without_is_named(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "start.shop.p1.jsonl")
    views = (("shop/p1", "shop/p2", "shop/p3"), ("shop/p1", "shop/p3"))
    for number, members in enumerate(views, 1):
        row = Event(
            run="start",
            system="shop",
            process="p1",
            role="app",
            index=number,
            event="view",
            time_ns=number,
            destinations=members,
            peer=str(number),
        )
        sink.write([row])
    sink.close()
    assert excluded(tmp_path, NAMES) == ("p2",)
