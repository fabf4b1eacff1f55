"""Total order: one sequence for everybody, whoever dies and whatever a view leaves unplaced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from order_model import (
    Execution,
    Id,
    Process,
    delivered_once,
    delivered_only_what_is_safe,
    holds_are_true,
    in_causal_order,
    in_fifo_order,
    play,
    steps,
)

from isthmus.core.message import Batch
from isthmus.ordering.orders.total import SEQUENCER, TotalOrder

SIZE = 3


def are_prefixes_of_one_sequence(histories: list[list[Id]]) -> None:
    longest = max(histories, key=len)
    assert all(history == longest[: len(history)] for history in histories)


@given(steps(SIZE))
def test_all_histories_are_prefixes_of_one_sequence_at_all_times(script: list[tuple[str, int, int]]) -> None:
    execution = Execution(SIZE, TotalOrder)

    def promises_hold(process: Process) -> None:
        are_prefixes_of_one_sequence([each.history for each in execution.processes])
        delivered_once(execution, process)
        delivered_only_what_is_safe(execution, process)
        in_fifo_order(process)
        in_causal_order(execution, process)
        holds_are_true(execution, process)

    play(execution, script, promises_hold)


@given(steps(SIZE))
def test_everything_is_delivered_everywhere_in_the_end_and_in_one_order(script: list[tuple[str, int, int]]) -> None:
    execution = Execution(SIZE, TotalOrder)
    play(execution, script, lambda process: None)
    execution.everything_arrives_and_is_safe()
    first = execution.processes[0].history
    assert set(first) == set(execution.past)
    assert all(process.history == first for process in execution.processes)


@given(steps(SIZE), st.sets(st.integers(0, SIZE - 1), min_size=1))
def test_survivors_end_a_view_with_one_sequence_that_contains_that_of_the_dead(
    script: list[tuple[str, int, int]], survivors: set[int]
) -> None:
    execution = Execution(SIZE, TotalOrder, survivors)
    play(execution, script, lambda process: None)
    cut = execution.end_view()
    are_prefixes_of_one_sequence([process.history for process in execution.processes])
    for rank in survivors:
        process = execution.processes[rank]
        assert len(process.history) == sum(cut)
        delivered_once(execution, process)
        in_causal_order(execution, process)
        assert list(process.order.waiting()) == []


def test_a_stamp_places_what_arrived_in_order_of_arrival_and_in_runs() -> None:
    execution = Execution(SIZE, TotalOrder)
    for rank in (1, 1, 2, 1):
        execution.send(rank)
        execution.arrive(SEQUENCER, rank)
    sequencer = execution.processes[SEQUENCER].order
    assert sequencer.has_news()
    assert sequencer.stamp(1) == [1, 2, 2, 1, 1, 1]
    assert not sequencer.has_news()
    assert sequencer.stamp(2) == []


def test_only_the_sequencer_has_news() -> None:
    execution = Execution(SIZE, TotalOrder)
    execution.send(0)
    execution.arrive(1, 0)
    assert not execution.processes[1].order.has_news()


def test_a_place_that_is_not_safe_is_not_used() -> None:
    """The sequencer's word could die with it; then the others would order by rank."""
    execution = Execution(SIZE, TotalOrder)
    execution.send(2)
    execution.send(1)
    for sender in (2, 1):
        execution.arrive(0, sender)
    execution.send(0)
    for sender in (0, 1, 2):
        execution.arrive(1, sender)
    for sender in (1, 2):
        execution.become_safe(sender)
        execution.tell_safe(1, sender)
    assert execution.processes[1].history == []
    execution.become_safe(0)
    execution.tell_safe(1, 0)
    assert execution.processes[1].history == [(2, 1), (1, 1), (0, 1)]


def test_a_new_view_forgets_the_plans_of_the_old_one() -> None:
    execution = Execution(SIZE, TotalOrder)
    execution.send(1)
    execution.arrive(0, 1)
    process = execution.processes[0]
    process.order.install(range(SIZE), 0, [0, 1, 0])
    assert not process.order.has_news()
    ready: list[Batch] = []
    process.order.finish(ready)
    assert ready == []


def test_old_word_of_what_is_safe_takes_nothing_back() -> None:
    execution = Execution(2, TotalOrder)
    execution.send(0)
    process = execution.processes[1]
    process.order.safe(0, 1, [])
    process.order.safe(0, 0, [])
    execution.arrive(1, 0)
    assert process.history == [(0, 1)]
