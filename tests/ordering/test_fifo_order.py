"""FIFO order delivers of every stream exactly what has arrived and is known to be safe."""

from __future__ import annotations

from hypothesis import given
from order_model import Execution, Process, delivered_only_what_is_safe, holds_are_true, in_fifo_order, play, steps

from isthmus.ordering.orders.fifo import FifoOrder

SIZE = 3


@given(steps(SIZE))
def test_of_each_stream_the_safe_part_that_has_arrived_is_delivered_at_once(script: list[tuple[str, int, int]]) -> None:
    execution = Execution(SIZE, FifoOrder)

    def exactly_that(process: Process) -> None:
        in_fifo_order(process)
        delivered_only_what_is_safe(execution, process)
        holds_are_true(execution, process)
        counts = [sum(sender == rank for sender, _ in process.history) for rank in range(SIZE)]
        assert counts == [min(process.arrived[rank], process.told_safe[rank]) for rank in range(SIZE)]

    play(execution, script, exactly_that)


@given(steps(SIZE))
def test_the_end_of_a_view_brings_out_the_rest(script: list[tuple[str, int, int]]) -> None:
    execution = Execution(SIZE, FifoOrder)
    play(execution, script, lambda process: None)
    cut = execution.end_view()
    for process in execution.processes:
        in_fifo_order(process)
        assert len(process.history) == sum(cut)
        assert list(process.order.waiting()) == []


def test_a_stamp_says_nothing() -> None:
    order = FifoOrder()
    order.install([1, 2], 0, [0, 0])
    assert order.stamp(1) == []
    assert not order.has_news()


def test_a_new_view_begins_behind_the_cut() -> None:
    execution = Execution(2, FifoOrder)
    execution.send(0)
    process = execution.processes[1]
    execution.arrive(1, 0)
    process.order.install([0, 1], 1, [7, 0])
    assert list(process.order.waiting()) == [], "what the old view left has no place in the new one"


def test_old_word_of_what_is_safe_takes_nothing_back() -> None:
    execution = Execution(2, FifoOrder)
    execution.send(0)
    process = execution.processes[1]
    process.order.safe(0, 1, [])
    process.order.safe(0, 0, [])
    execution.arrive(1, 0)
    assert process.history == [(0, 1)]
