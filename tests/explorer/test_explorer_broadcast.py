"""A system in the explorer allows exactly what its definition allows: compared with all histories, by brute force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import pytest

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import Directory, ProcessName
from isthmus.core.segment import Opened
from isthmus.explorer.broadcast import OrderedBroadcast, SystemState
from isthmus.explorer.scenario import Ledger

Place = tuple[str, int, int]
"""("send", sender, number), or ("deliver", sender, number)."""

History = tuple[Place, ...]
"""What one process did, in order."""


def system(order: OrderName, sends: list[int], gateways: int = 0) -> tuple[OrderedBroadcast, Ledger]:
    names = [ProcessName("s", f"p{index}") for index in range(len(sends) + gateways)]
    senders = [sender for sender, count in enumerate(sends) for _ in range(count)]
    ledger = Ledger(senders, "causal", Directory(names))
    return OrderedBroadcast(order, len(sends), gateways, ledger), ledger


def complete_histories(order: OrderName, sends: list[int]) -> set[tuple[History, ...]]:
    """Everything that the rules lead to when all is sent and delivered."""
    rules, ledger = system(order, sends)
    found: set[tuple[History, ...]] = set()
    met: set[tuple[SystemState, tuple[History, ...]]] = set()
    waiting = [(rules.start(), ((),) * len(sends))]
    while waiting:
        state, histories = waiting.pop()
        following = []
        for process, quota in enumerate(sends):
            number = len(state.streams[process]) + 1
            if number <= quota:
                message = ledger.stamp(process, number, 0, 0)
                following.append((rules.broadcast(state, process, (message,)), process, ("send", process, number)))
            for sender in rules.deliverable(state, process):
                number = state.delivered[process][sender] + 1
                following.append((rules.deliver(state, process, sender), process, ("deliver", sender, number)))
        if not following:
            found.add(histories)
        for after, process, place in following:
            longer = list(histories)
            longer[process] = (*histories[process], place)
            if (after, tuple(longer)) not in met:
                met.add((after, tuple(longer)))
                waiting.append((after, tuple(longer)))
    return found


def histories_by_definition(order: OrderName, sends: list[int]) -> set[tuple[History, ...]]:
    """All histories in which everybody sends and delivers everything, cut down by the definition of the order."""
    messages = [(sender, number + 1) for sender, count in enumerate(sends) for number in range(count)]
    single: list[list[History]] = []
    for process in range(len(sends)):
        places: list[Place] = [("send", *each) for each in messages if each[0] == process]
        places += [("deliver", *each) for each in messages]
        in_turn = [each for each in permutations(places) if sends_in_turn(each, process)]
        single.append(in_turn)
    return {each for each in product(*single) if is_possible(each) and keeps(order, each)}


def sends_in_turn(history: History, process: int) -> bool:
    numbers = [number for kind, _, number in history if kind == "send"]
    return numbers == sorted(numbers)


def is_possible(histories: tuple[History, ...]) -> bool:
    """Can this happen at all: is there one order of all events in which nothing is delivered before it is sent?"""
    positions = [0] * len(histories)
    sent: set[tuple[int, int]] = set()
    moved = True
    while moved:
        moved = False
        for process, history in enumerate(histories):
            while positions[process] < len(history):
                kind, sender, number = history[positions[process]]
                if kind == "deliver" and (sender, number) not in sent:
                    break
                if kind == "send":
                    sent.add((sender, number))
                positions[process] += 1
                moved = True
    return all(position == len(history) for position, history in zip(positions, histories, strict=True))


def happens_before(histories: tuple[History, ...]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    """parallel, Sect. 2: sent by one process in this order, or received before the other was sent; or by a chain."""
    pairs = set()
    for history in histories:
        for place, (kind, *second) in enumerate(history):
            if kind == "send":
                pairs |= {((sender, number), tuple(second)) for _, sender, number in history[:place]}
    messages = {message for pair in pairs for message in pair}
    for middle, first, second in product(messages, repeat=3):
        if (first, middle) in pairs and (middle, second) in pairs:
            pairs.add((first, second))
    return {(first, second) for first, second in pairs if first != second}


def keeps(order: OrderName, histories: tuple[History, ...]) -> bool:
    deliveries = [[each[1:] for each in history if each[0] == "deliver"] for history in histories]
    if order == "fifo":
        related = [((s, m), (s, n)) for s, m in deliveries[0] for t, n in deliveries[0] if s == t and m < n]
    else:
        related = list(happens_before(histories))
    if order == "total" and any(each != deliveries[0] for each in deliveries):
        return False
    return all(each.index(first) < each.index(second) for each in deliveries for first, second in related)


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
@pytest.mark.parametrize("sends", [[1, 1], [2, 0], [2, 1]])
def test_a_system_allows_exactly_the_histories_of_its_definition(order: OrderName, sends: list[int]) -> None:
    allowed = complete_histories(order, sends)
    assert allowed == histories_by_definition(order, sends)
    assert allowed


def test_three_processes_allow_what_the_definition_allows() -> None:
    """An effect at a third process: causal order is weaker than total and stronger than FIFO."""
    causal = complete_histories("causal", [1, 1, 0])
    assert causal == histories_by_definition("causal", [1, 1, 0])
    assert complete_histories("total", [1, 1, 0]) < causal < complete_histories("fifo", [1, 1, 0])


# Crashes and views. Members 0 and 1 are processes, 2 and 3 gateways; 3 crashes.


def messages(ledger: Ledger, *numbers: int) -> tuple[Opened, ...]:
    return tuple(ledger.stamp(0, number, 0, 0) for number in numbers)


def after_a_crash(order: OrderName, delivered_to: int | None) -> Iterator[tuple[OrderedBroadcast, SystemState, int]]:
    """Gateway 3 broadcast two batches and crashed, when one member had delivered the first, or nobody anything."""
    rules, ledger = system(order, [2, 0], gateways=2)
    state = rules.broadcast(rules.start(), 3, messages(ledger, 1))
    state = rules.broadcast(state, 3, messages(ledger, 2))
    if delivered_to is not None:
        state = rules.deliver(state, delivered_to, 3)
    for agreed, lost in rules.agreements(rules.crash(state, 3)):
        yield rules, agreed, lost


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_what_nobody_delivered_may_be_lost_from_any_point_on(order: OrderName) -> None:
    assert [lost for _, _, lost in after_a_crash(order, None)] == [2, 1, 0]


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
@pytest.mark.parametrize("member", [0, 2, 3])
def test_what_anybody_delivered_is_never_lost(order: OrderName, member: int) -> None:
    """Even when only the crashed one had it: delivery is uniform."""
    assert [lost for _, _, lost in after_a_crash(order, member)] == [1, 0]


@pytest.mark.parametrize("order", ["fifo", "causal", "total"])
def test_survivors_deliver_the_same_before_the_new_view(order: OrderName) -> None:
    for rules, state, lost in after_a_crash(order, 0):
        new = rules.broadcast(state, 2, ())
        assert new.cuts[-1].members == (0, 1, 2)
        while not rules.can_enter(new, 2):
            (sender,) = rules.deliverable(new, 2)
            assert sender == 3
            new = rules.deliver(new, 2, sender)
        assert new.delivered[2][3] == 2 - lost
        assert list(rules.deliverable(new, 2)) == []
        assert list(rules.deliverable(rules.enter(new, 2), 2)) == [2]


def test_a_process_delivers_the_old_view_before_the_new_one() -> None:
    for rules, state, lost in after_a_crash("fifo", None):
        new = rules.broadcast(state, 2, ())
        if lost < 2:
            assert list(rules.deliverable(new, 0)) == [3]
        assert rules.way_to(new, 0, 2, 1) == [3] * (2 - lost) + [2]
