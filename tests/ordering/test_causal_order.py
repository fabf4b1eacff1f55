"""Causal order against its definition: nothing is delivered before its causes, and nothing waits for anything else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from order_model import (
    Execution,
    Process,
    delivered_once,
    delivered_only_what_is_safe,
    holds_are_true,
    in_causal_order,
    in_fifo_order,
    play,
    steps,
)

from isthmus.core.endpoint import Hold
from isthmus.core.message import Batch
from isthmus.ordering.orders.causal import CausalOrder

SIZE = 4


@given(steps(SIZE))
def test_causes_come_first_and_only_safe_batches_are_delivered(script: list[tuple[str, int, int]]) -> None:
    execution = Execution(SIZE, CausalOrder)

    def promises_hold(process: Process) -> None:
        delivered_once(execution, process)
        delivered_only_what_is_safe(execution, process)
        in_fifo_order(process)
        in_causal_order(execution, process)
        holds_are_true(execution, process)

    play(execution, script, promises_hold)


@given(steps(SIZE))
def test_everything_is_delivered_everywhere_in_the_end(script: list[tuple[str, int, int]]) -> None:
    execution = Execution(SIZE, CausalOrder)
    play(execution, script, lambda process: None)
    execution.everything_arrives_and_is_safe()
    everything = set(execution.past)
    for process in execution.processes:
        assert set(process.history) == everything
        in_causal_order(execution, process)


@given(steps(SIZE), st.sets(st.integers(0, SIZE - 1), min_size=1))
def test_the_end_of_a_view_brings_out_the_rest_in_causal_order(
    script: list[tuple[str, int, int]], survivors: set[int]
) -> None:
    execution = Execution(SIZE, CausalOrder, survivors)
    play(execution, script, lambda process: None)
    cut = execution.end_view()
    for rank in survivors:
        process = execution.processes[rank]
        delivered_once(execution, process)
        in_causal_order(execution, process)
        assert len(process.history) == sum(cut), "a cause that somebody delivered is safe, so some survivor has it"
    for process in execution.processes:
        assert all(number <= cut[sender] for sender, number in process.history), "nobody delivered what is lost"


@given(steps(SIZE), st.sets(st.integers(0, SIZE - 1), min_size=1))
def test_fast_survivors_agree_and_drop_alike_what_lost_its_cause(
    script: list[tuple[str, int, int]], survivors: set[int]
) -> None:
    """With fast delivery everything is safe on arrival, so those who die may have delivered what nobody else has."""

    class Fast(CausalOrder):
        def arrived(self, rank: int, batch: Batch, ready: list[Batch], holds: list[Hold]) -> None:
            self.safe(rank, batch.number, ready)
            super().arrived(rank, batch, ready, holds)

    execution = Execution(SIZE, Fast, survivors)
    script = [step for step in script if step[0] in ("send", "arrive")]
    play(execution, script, lambda process: in_causal_order(execution, process))
    cut = execution.end_view()
    held = {(sender, number) for sender in range(SIZE) for number in range(1, cut[sender] + 1)}
    complete = {batch for batch in held if execution.past[batch] <= held}
    for rank in survivors:
        process = execution.processes[rank]
        delivered_once(execution, process)
        in_causal_order(execution, process)
        assert set(process.history) == complete
        dropped = {(hold.batch.sender, hold.batch.number) for hold in process.order.waiting()}
        assert dropped == held - complete


@given(steps(SIZE))
def test_a_stamp_is_the_vector_of_what_was_delivered(script: list[tuple[str, int, int]]) -> None:
    execution = Execution(SIZE, CausalOrder)
    play(execution, script, lambda process: None)
    for sender, stream in enumerate(execution.streams):
        for batch in stream:
            causes = execution.past[sender, batch.number]
            counts = [sum(each == rank for each, _ in causes) for rank in range(SIZE)]
            assert batch.stamp == counts


def test_concurrent_batches_do_not_wait_for_each_other() -> None:
    execution = Execution(3, CausalOrder)
    execution.send(0)
    execution.send(1)
    execution.arrive(2, 1)
    execution.become_safe(1)
    execution.tell_safe(2, 1)
    assert execution.processes[2].history == [(1, 1)]


def test_a_batch_is_released_by_its_last_cause_through_a_long_chain() -> None:
    """A chain of answers through all processes arrives backwards and comes out forwards, at once."""
    size = 8
    execution = Execution(size, CausalOrder)
    for rank in range(size):
        for sender in range(rank):
            execution.arrive(rank, sender)
            execution.become_safe(sender)
            execution.tell_safe(rank, sender)
        execution.send(rank)
    execution.become_safe(size - 1)
    last = execution.processes[size - 1]
    assert last.history == [(rank, 1) for rank in range(size - 1)]
    other = Process(0, size, CausalOrder())
    ready: list[Batch] = []
    for rank in reversed(range(size)):
        assert ready == []
        other.order.safe(rank, 1, ready)
        other.order.arrived(rank, execution.streams[rank][0], ready, [])
    assert [batch.sender for batch in ready] == list(range(size))


def test_old_word_of_what_is_safe_takes_nothing_back() -> None:
    execution = Execution(2, CausalOrder)
    execution.send(0)
    process = execution.processes[1]
    process.order.safe(0, 1, [])
    process.order.safe(0, 0, [])
    execution.arrive(1, 0)
    assert process.history == [(0, 1)]
