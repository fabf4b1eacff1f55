"""A joined system holds for its gateways what has not crossed: nothing is stable without one, who comes is told."""

from __future__ import annotations

from isthmus.core.marks import SlotMarks
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.group import AskPast, Crossed, PastPart
from isthmus.ordering.group.past import ASKED_AGAIN, SAID_AGAIN, Past
from isthmus.ordering.group.patience import FRAME_BYTES
from isthmus.ordering.group.stability import Stability
from isthmus.ordering.group.window import Seat

GATEWAY, LATER_GATEWAY = 2, 1 << 16 | 2
SEAT = Seat(frozenset([2]), frozenset([0, 1, 9]))


def batch(sender: int, number: int, origin: int | None = None, size: int = 1) -> Batch:
    return Batch(1, sender, number, [], 0, Segment.of(sender if origin is None else origin, number, [bytes(size)]))


def held(past: Past) -> list[tuple[int, int]]:
    return [(each.sender, each.number) for each in past.held]


def everything_is_stable(batch: Batch) -> bool:
    return True


# Stability


def test_nothing_becomes_stable_while_a_join_has_no_gateway() -> None:
    stability = Stability()
    stability.install(0, (0, 1, GATEWAY), {}, ())
    for member in (0, 1, GATEWAY):
        stability.learn(member, [(0, 3)])
    stability.learn(0, [(0, 7)])
    stability.learn(1, [(0, 7)])
    stability.install(0, (0, 1), {0: 7, 1: 0, GATEWAY: 0}, (), attended=False)
    stability.learn(0, [(0, 9)])
    stability.learn(1, [(0, 9)])
    assert stability.stable(0) == 3, "the gateway had confirmed so much"
    stability.install(0, (0, 1, LATER_GATEWAY), {0: 9, 1: 0}, ())
    assert stability.stable(0) == 3, "and its successor has confirmed nothing yet"
    stability.learn(LATER_GATEWAY, [(0, 9)])
    assert stability.stable(0) == 9


# What is kept


def test_what_was_born_here_is_kept_until_it_is_stable() -> None:
    past = Past([SEAT], complete=True)
    past.delivered([batch(0, 1), batch(1, 1), batch(0, 2)])
    past.forget(lambda each: each.sender == 0)
    assert held(past) == [(1, 1), (0, 2)], "without a gap: the order of what is kept is that of its delivery"
    past.forget(everything_is_stable)
    assert held(past) == []


def test_what_a_gateway_brought_in_is_kept_until_it_has_crossed_to_the_next_system() -> None:
    past = Past([SEAT], complete=True)
    past.delivered([batch(GATEWAY, 1, origin=9)])
    past.forget(everything_is_stable)
    assert held(past) == [(GATEWAY, 1)]
    past.learn_crossed(Crossed(1, 0, [(9, 1)]))
    past.forget(everything_is_stable)
    assert held(past) == []


def test_a_gateway_says_several_times_what_has_crossed_and_again_in_a_new_view() -> None:
    past = Past([SEAT], complete=True)
    words = [past.news_of_crossing(1, 0, SlotMarks([(9, 1)])) for _ in range(SAID_AGAIN + 1)]
    assert words == [Crossed(1, 0, [(9, 1)])] * SAID_AGAIN + [None]
    past.enter_view()
    assert past.news_of_crossing(2, 0, SlotMarks([(9, 1)])) == Crossed(2, 0, [(9, 1)])


# Who comes


def told(knows: Past, comes: Past, base: dict[int, int], cut: dict[int, int] | None = None) -> int:
    """One tells another everything; returns in how many parts."""
    parts = 0
    teller, ask = comes.ask(3, [7], {})
    while not comes.complete:
        parts += 1
        comes.hear(teller, knows.tell(ask, cut or {}), base)
        ask = comes.ask_on(3, {})
    return parts


def test_who_comes_is_told_what_is_held_and_how_far_everything_has_come() -> None:
    knows, comes = Past([SEAT], complete=True), Past([SEAT], complete=False)
    knows.delivered([batch(0, 1), batch(1, 1), batch(0, 2)])
    knows.enter_view()
    comes.enter_view()
    knows.delivered([batch(0, 3)])
    comes.delivered([batch(0, 3)])
    assert told(knows, comes, {0: 2, 1: 1}, {0: 2, 1: 1}) == 1
    assert held(comes) == held(knows)
    assert [(each.sender, each.number) for each in comes.inherited] == [(0, 1), (1, 1), (0, 2)]
    assert dict(comes.marks_before) == {0: 2, 1: 1}
    assert comes.marks.items() == [(0, 3), (1, 1)]


def test_a_long_past_comes_in_parts() -> None:
    knows, comes = Past([SEAT], complete=True), Past([SEAT], complete=False)
    knows.delivered([batch(0, number, size=FRAME_BYTES // 2) for number in range(1, 6)])
    knows.enter_view()
    assert told(knows, comes, {0: 5}) == 3
    assert held(comes) == held(knows)


def test_parts_of_two_that_know_are_never_mixed() -> None:
    """They have delivered in different orders."""
    comes = Past([SEAT], complete=False)
    assert comes.ask(3, [7, 8], {}) == (8, AskPast(3, 0))
    comes.hear(8, PastPart(3, 0, 2, [(0, 1), (1, 1)], [batch(0, 1)]), {})
    assert not comes.hear(7, PastPart(3, 1, 2, [], [batch(0, 1)]), {}), "nobody asked this one"
    for _ in range(ASKED_AGAIN):
        assert comes.ask(3, [7, 8], {}) == (8, AskPast(3, 1)), "it has answered before: go on with it"
    assert comes.ask(3, [7, 8], {}) == (7, AskPast(3, 0)), "it is gone: another one, from the beginning"
    assert comes.hear(7, PastPart(3, 0, 2, [(0, 1), (1, 1)], [batch(1, 1), batch(0, 1)]), {})
    assert held(comes) == [(1, 1), (0, 1)]


def test_the_first_part_is_taken_from_anybody() -> None:
    comes = Past([SEAT], complete=False)
    asked = [comes.ask(3, [7, 8], {})[0] for _ in range(3)]
    assert asked == [8, 7, 8]
    assert comes.hear(7, PastPart(3, 0, 2, [(0, 1)], [batch(0, 1)]), {}), "its answer took longer than others to ask"
    assert comes.ask_on(3, {7: 4}) == AskPast(3, 1, 4)
    assert not comes.hear(8, PastPart(3, 1, 2, [], [batch(0, 1)]), {}), "it has another order"


def test_what_was_told_in_one_view_is_void_in_the_next() -> None:
    comes = Past([SEAT], complete=False)
    assert comes.ask(3, [7], {}) == (7, AskPast(3, 0))
    comes.hear(7, PastPart(3, 0, 2, [(0, 1)], [batch(0, 1)]), {})
    comes.enter_view()
    assert comes.ask_on(4, {}) == AskPast(4, 0)


def test_who_has_been_told_tells_others() -> None:
    knows, comes, third = (Past([SEAT], complete=known) for known in (True, False, False))
    knows.delivered([batch(0, 1)])
    knows.enter_view()
    told(knows, comes, {0: 1})
    told(comes, third, {0: 1})
    assert (held(third), dict(third.marks_before)) == ([(0, 1)], {0: 1})


# Later lives of a system that keeps a journal: what former ones were done with only those know who read it


def founder(later: bool = True) -> Past:
    past = Past([SEAT], complete=True, later=later)
    past.enter_view()
    return past


def test_a_founder_of_a_later_life_asks_for_what_former_ones_were_done_with() -> None:
    keeper, process = founder(), founder()
    assert (keeper.awaits_former, process.awaits_former) == (True, True)
    assert process.ask(1, [GATEWAY], {}) == (GATEWAY, AskPast(1, 0, whole=True))
    keeper.former_are_over({0: 5, 1: 7})
    process.delivered([batch(0, 8, origin=1 << 16)])
    assert process.hear(GATEWAY, keeper.tell(AskPast(1, 0, whole=True), {}), {})
    assert not process.awaits_former
    assert process.marks.counted() == [(0, 5), (1, 7), (1 << 16, 8)]


def test_who_keeps_no_journal_tells_what_this_life_delivered_when_no_keeper_is_left() -> None:
    process, comes = founder(), Past([SEAT], complete=False, later=True)
    process.delivered([batch(GATEWAY, 1, origin=0), batch(GATEWAY, 2, origin=1 << 16)])
    process.enter_view()
    comes.enter_view()
    assert told(process, comes, {GATEWAY: 2}) == 1
    assert held(comes) == held(process)
    assert comes.counted_before({0: 1}) == [(0, 1), (1 << 16, 2)], "what it has read counts, and what it was told"
    comes.former_are_over({0: 1})
    assert comes.marks.counted() == [(0, 1), (1 << 16, 2)]
    assert process.hear(GATEWAY, comes.tell(AskPast(1, 0, whole=True), {}), {}), "and others have it from there"
    assert process.marks.counted() == comes.marks.counted()


def test_who_comes_to_a_later_life_and_reads_no_journal_counts_with_those_that_were_there() -> None:
    process, comes, keeper = founder(), Past([SEAT], complete=False, later=True), founder()
    for each in (process, keeper):
        each.delivered([batch(GATEWAY, 3, origin=0)])
        each.enter_view()
    comes.enter_view()
    told(process, comes, {GATEWAY: 3})
    assert comes.awaits_former
    keeper.former_are_over({0: 2})
    assert comes.hear(GATEWAY, keeper.tell(AskPast(1, 0, whole=True), {}), {})
    assert comes.marks.counted() == [(0, 3)]


def test_a_first_life_awaits_nothing() -> None:
    assert not founder(later=False).awaits_former
