"""Random executions of one view, seen by the orders alone: no network, no acknowledgements, no view changes.

Streams arrive in order and without gaps, as the group layer sees to; everything else is as wild as the contract of
`Order` allows: any interleaving of arrivals, any truthful word on what is safe, as late as anybody likes.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from isthmus.core.endpoint import Hold
from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY
from isthmus.ordering.orders.order import Order

Id = tuple[int, int]
"""A batch: (rank of its sender, number)."""


class Process:
    def __init__(self, rank: int, size: int, order: Order) -> None:
        self.rank = rank
        self.order = order
        order.install(range(size), rank, [0] * size)
        self.arrived = [0] * size
        self.told_safe = [0] * size
        self.history: list[Id] = []
        self.past: set[Id] = set()
        """Everything that happened before the next batch of this process."""

    def take(self, ready: list[Batch], past: dict[Id, frozenset[Id]]) -> None:
        for batch in ready:
            self.history.append((batch.sender, batch.number))
            self.past |= past[batch.sender, batch.number] | {(batch.sender, batch.number)}


class Execution:
    """All processes of a view and every batch that they sent, with its causal past written down at birth.

    Members are called by their ranks. `safe` is the truth about quorums, which processes learn late or never; only
    what one of the `survivors` holds can be safe, since every quorum has a survivor in it.
    """

    def __init__(self, size: int, make_order: Callable[[], Order], survivors: set[int] | None = None) -> None:
        self.size = size
        self.processes = [Process(rank, size, make_order()) for rank in range(size)]
        self.survivors = survivors or set(range(size))
        self.streams: list[list[Batch]] = [[] for _ in range(size)]
        self.past: dict[Id, frozenset[Id]] = {}
        self.safe = [0] * size

    def send(self, rank: int) -> None:
        process = self.processes[rank]
        number = len(self.streams[rank]) + 1
        batch = Batch(1, rank, number, process.order.stamp(number), 0, EMPTY)
        self.streams[rank].append(batch)
        self.past[rank, number] = frozenset(process.past)
        process.past.add((rank, number))
        process.arrived[rank] = number
        self._hand_over(process, batch)

    def arrive(self, rank: int, sender: int) -> None:
        """The next batch of `sender` gets to the process of this rank, if there is one."""
        process = self.processes[rank]
        position = process.arrived[sender]
        if sender != rank and position < len(self.streams[sender]):
            process.arrived[sender] += 1
            self._hand_over(process, self.streams[sender][position])

    def _hand_over(self, process: Process, batch: Batch) -> None:
        ready: list[Batch] = []
        holds: list[Hold] = []
        assert process.order.well_formed(batch.sender, batch)
        process.order.arrived(batch.sender, batch, ready, holds)
        process.take(ready, self.past)
        # A hold is reported for a batch that stays, and for no other.
        held = (batch.sender, batch.number) not in process.history
        assert [hold.batch for hold in holds] == [batch] * held

    def become_safe(self, sender: int) -> None:
        """One more batch of a stream is held by a quorum."""
        if self.safe[sender] < max(self.processes[rank].arrived[sender] for rank in self.survivors):
            self.safe[sender] += 1

    def tell_safe(self, rank: int, sender: int) -> None:
        process = self.processes[rank]
        process.told_safe[sender] = self.safe[sender]
        ready: list[Batch] = []
        process.order.safe(sender, self.safe[sender], ready)
        process.take(ready, self.past)

    def everything_arrives_and_is_safe(self) -> None:
        """The end of every fair execution. Sequencers place what is new as they would: with an empty batch."""
        while True:
            for rank in range(self.size):
                if self.processes[rank].order.has_news():
                    self.send(rank)
            before = [process.arrived.copy() for process in self.processes], self.safe.copy()
            for rank in range(self.size):
                for sender in range(self.size):
                    self.arrive(rank, sender)
            for sender in range(self.size):
                self.become_safe(sender)
                for rank in range(self.size):
                    self.tell_safe(rank, sender)
            if before == ([process.arrived for process in self.processes], self.safe):
                return

    def end_view(self) -> list[int]:
        """What the survivors hold together is all there is; they exchange it and finish. Returns the cut."""
        cut = [max(self.processes[rank].arrived[sender] for rank in self.survivors) for sender in range(self.size)]
        for rank in self.survivors:
            process = self.processes[rank]
            ready: list[Batch] = []
            for sender in range(self.size):
                for batch in self.streams[sender][process.arrived[sender] : cut[sender]]:
                    process.order.arrived(sender, batch, ready, [])
            process.order.finish(ready)
            process.take(ready, self.past)
        return cut


def steps(size: int) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    ranks = st.integers(0, size - 1)
    return st.lists(
        st.tuples(
            st.sampled_from(["send", "send", "arrive", "arrive", "arrive", "safe", "tell", "tell"]), ranks, ranks
        ),
        min_size=10,
        max_size=60,
    )


def play(execution: Execution, script: list[tuple[str, int, int]], check: Callable[[Process], None]) -> None:
    """Do what the script says, and look at every process after each of its steps."""
    for deed, rank, other in script:
        if deed == "send":
            execution.send(rank)
        elif deed == "arrive":
            execution.arrive(rank, other)
        elif deed == "safe":
            execution.become_safe(other)
        else:
            execution.tell_safe(rank, other)
        check(execution.processes[rank])


# What every order promises


def delivered_once(execution: Execution, process: Process) -> None:
    assert len(set(process.history)) == len(process.history)
    assert all(number <= len(execution.streams[sender]) for sender, number in process.history)


def delivered_only_what_is_safe(execution: Execution, process: Process) -> None:
    assert all(number <= execution.safe[sender] for sender, number in process.history)


def in_fifo_order(process: Process) -> None:
    for sender in {sender for sender, _ in process.history}:
        numbers = [number for each, number in process.history if each == sender]
        assert numbers == list(range(1, len(numbers) + 1))


def in_causal_order(execution: Execution, process: Process) -> None:
    """By definition: everything that happened before a batch was delivered before it."""
    before: set[Id] = set()
    for batch in process.history:
        assert execution.past[batch] <= before, f"{batch} came before {execution.past[batch] - before}"
        before.add(batch)


def holds_are_true(execution: Execution, process: Process) -> None:
    """Whatever is held has arrived, is not delivered, and waits for something that is not so yet."""
    held = list(process.order.waiting())
    ids = {(hold.batch.sender, hold.batch.number) for hold in held}
    arrived = {(sender, number) for sender, count in enumerate(process.arrived) for number in range(1, count + 1)}
    assert len(ids) == len(held)
    assert ids == arrived - set(process.history)
    for hold in held:
        if hold.reason == "safe":
            assert hold.number > process.told_safe[hold.awaited]
        elif hold.reason == "delivered":
            assert (hold.awaited, hold.number) not in process.history
            assert (hold.awaited, hold.number) != (hold.batch.sender, hold.batch.number)
        else:
            assert hold.number == process.arrived[hold.awaited] + 1
