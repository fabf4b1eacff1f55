"""A process of a daisy as a member of a broadcast system: what it delivers, calls stable, and does not believe."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, takewhile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from isthmus.core.codec import body_of, decode_body
from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.segment import MAX_PAYLOAD, MAX_SEGMENT_MESSAGES, Opened, Segment
from isthmus.core.wire.daisy import Finished, HowFar
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.member import GROUP_VIEWS, DaisyMember, daisy_member
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.tree import DaisyTree, tree_of
from isthmus.ordering.group.window import GroupSettings

SETTINGS = GroupSettings(window_messages=8, window_bytes=1000)
ELSEWHERE: ProcessId = 77
"""A process of another system."""
DOORS = (4, 5)


def tree_with_doors(star: bool = False) -> DaisyTree:
    """Two groups of two, and one of two gateways."""
    names = [f"p{each}" for each in range(6)]
    parts = tuple(
        DaisyTable(name=name, processes=tuple(names[first : first + 2]))
        for name, first in (("a", 0), ("b", 2), ("c", 4))
    )
    options = DaisyOptions(audience="everybody", star=star)
    return tree_of(DaisyTable(parts=parts, options=options), names.index)


def one_group() -> DaisyTree:
    names = ["p0", "p1", "p2"]
    return tree_of(DaisyTable(processes=tuple(names), options=DaisyOptions(audience="everybody")), names.index)


class Hall:
    """Members that hear each other at once, in order, over the wire format."""

    def __init__(self, tree: DaisyTree, gateways: tuple[int, ...] = (), settings: GroupSettings = SETTINGS) -> None:
        self.now: Nanos = 0
        everybody = tree.groups[0].everybody
        self.members = {each: daisy_member(each, tree, gateways, settings, 0) for each in everybody}
        self.delivered: dict[ProcessId, list[Opened]] = {each: [] for each in everybody}
        self.batches: list[Batch] = []
        self.views: dict[ProcessId, list[View]] = {each: [] for each in everybody}
        self.stable: dict[ProcessId, list[Opened]] = {each: [] for each in everybody}
        self.settled: dict[ProcessId, list[tuple[ProcessId, int]]] = {each: [] for each in everybody}
        self.stopped: dict[ProcessId, str] = {}
        self.asked: list[ProcessId] = []
        self._under_way: list[tuple[ProcessId, ProcessId, Pdu]] = []

    def do(self, owner: ProcessId, action: Callable[[DaisyMember, Outbox], object]) -> None:
        out = Outbox()
        action(self.members[owner], out)
        self._carry_out(owner, out)

    def broadcast(self, owner: ProcessId, *payloads: bytes) -> None:
        self.do(owner, lambda member, out: member.broadcast(payloads, self.now, out))

    def relay(self, owner: ProcessId, *messages: Opened) -> None:
        self.do(owner, lambda member, out: member.relay([Segment.pack(messages)], self.now, out))

    def tell(self, source: ProcessId, target: ProcessId, pdu: Pdu) -> None:
        self.do(target, lambda member, out: member.receive(source, [pdu], self.now, out))

    def pass_time(self, heartbeats: int = 12) -> None:
        for _ in range(heartbeats):
            self.now += SETTINGS.heartbeat
            for each in list(self.members):
                self.do(each, lambda member, out: member.wake(self.now, out))
            while self._under_way:
                source, target, pdu = self._under_way.pop(0)
                if target in self.members:
                    self.tell(source, target, decode_body(body_of(pdu)))

    def _carry_out(self, owner: ProcessId, out: Outbox) -> None:
        for item in out.deliveries:
            if isinstance(item, View):
                self.views[owner].append(item)
            else:
                self.batches.append(item)
                self.delivered[owner] += item.segment
        self.stable[owner] += [message for batch in out.stable for message in batch.segment]
        self.settled[owner] += out.settled
        self.asked += [owner for _, pdu in out.sends if isinstance(pdu, HowFar)]
        self._under_way += [(owner, each, pdu) for destinations, pdu in out.sends for each in destinations]
        if out.stopped:
            self.stopped[owner] = out.stopped
            del self.members[owner]
        else:
            self.members[owner].invariants()


def payloads(messages: list[Opened]) -> list[bytes]:
    return [payload for _, _, payload in messages]


@pytest.mark.parametrize("make", [tree_with_doors, one_group])
def test_a_message_is_for_everybody_and_stable_when_all_have_it(make: Callable[[], DaisyTree]) -> None:
    hall = Hall(make())
    hall.broadcast(1, b"one", b"two")
    hall.pass_time()
    for delivered in hall.delivered.values():
        assert delivered == [(1, 1, b"one"), (1, 2, b"two")]
    assert payloads(hall.stable[1]) == [b"one", b"two"]
    assert not any(hall.stable[each] for each in hall.members if each != 1)
    assert all((1, 2) in settled for settled in hall.settled.values())


def test_what_was_sent_together_is_delivered_together_as_a_batch_of_its_origin() -> None:
    hall = Hall(one_group())
    hall.broadcast(2, b"one", b"two", b"three")
    hall.pass_time()
    assert {(batch.sender, batch.number, len(batch.segment)) for batch in hall.batches} == {(2, 3, 3)}


def test_a_message_carries_no_addresses_and_one_vector_of_its_group() -> None:
    hall = Hall(tree_with_doors())
    hall.broadcast(0, b"one")
    hall.pass_time()
    assert {len(batch.stamp) for batch in hall.batches} == {2}


def test_what_a_gateway_relays_is_handed_out_as_it_was_born() -> None:
    hall = Hall(tree_with_doors(), DOORS)
    born = (ELSEWHERE, 12, bytes(MAX_PAYLOAD))
    hall.relay(DOORS[0], born, (ELSEWHERE, 13, b"next"))
    hall.pass_time()
    for delivered in hall.delivered.values():
        assert delivered == [born, (ELSEWHERE, 13, b"next")]
    assert {batch.sender for batch in hall.batches} == {DOORS[0]}
    assert all((DOORS[0], 2) in hall.settled[each] for each in DOORS)


def test_an_own_message_is_stable_when_every_gateway_has_finished_with_it() -> None:
    hall = Hall(tree_with_doors(), DOORS)
    hall.broadcast(0, b"one", b"two")
    hall.pass_time()
    assert (0, 2) in hall.settled[0]
    assert hall.stable[0] == []
    hall.do(DOORS[0], lambda member, out: member.confirm(0, 2, hall.now, out))
    hall.pass_time()
    assert hall.stable[0] == []
    hall.do(DOORS[1], lambda member, out: member.confirm(0, 1, hall.now, out))
    hall.pass_time()
    assert payloads(hall.stable[0]) == [b"one"]
    hall.do(DOORS[1], lambda member, out: member.confirm(0, 2, hall.now, out))
    hall.pass_time()
    assert payloads(hall.stable[0]) == [b"one", b"two"]
    asked = len(hall.asked)
    hall.pass_time()
    assert len(hall.asked) == asked, "nobody asks about what is stable"


def test_a_message_is_not_settled_before_every_application_has_finished_with_it() -> None:
    """Where applications say so themselves: one that is slow, in whichever group, holds up the window of the origin."""
    hall = Hall(tree_with_doors(), settings=structs.replace(SETTINGS, auto_confirm=False))
    hall.broadcast(0, b"one", b"two")
    hall.pass_time()
    assert all(payloads(delivered) == [b"one", b"two"] for delivered in hall.delivered.values())
    slow = 3
    for each in range(6):
        hall.do(each, lambda member, out, last=1 if each == slow else 2: member.confirm(0, last, hall.now, out))  # type: ignore[misc]
    hall.pass_time()
    assert not any(hall.settled.values())
    assert hall.members[0].credit() == 6
    hall.do(slow, lambda member, out: member.confirm(0, 2, hall.now, out))
    hall.pass_time()
    assert payloads(hall.stable[0]) == [b"one", b"two"]
    assert hall.members[0].credit() == 8
    assert all(member.is_quiet for member in hall.members.values())


def test_the_word_of_gateways_in_the_latest_view_counts() -> None:
    """One that was taken for dead says only what it knew in a view in which the others would have to agree."""
    hall = Hall(tree_with_doors(), DOORS)
    hall.broadcast(0, b"one")
    hall.pass_time()
    first, second = DOORS
    view = 3 * GROUP_VIEWS
    hall.tell(second, 0, Finished(view + 2, [second], 0))
    hall.tell(first, 0, Finished(view + 1, [first, second], 1))
    assert hall.stable[0] == []
    hall.tell(second, 0, Finished(view + 2, [second], 1))
    assert payloads(hall.stable[0]) == [b"one"]


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (2, Finished(1 << 60, [2], 9)),
        (4, Finished(1 << 60, [5], 9)),
        (4, Finished(1 << 60, [], 9)),
        (4, Finished(1 << 60, [4, 99], 9)),
        (ELSEWHERE, Finished(1 << 60, [ELSEWHERE], 9)),
    ],
)
def test_what_no_gateway_can_have_said_is_not_believed(source: ProcessId, word: Finished) -> None:
    hall = Hall(tree_with_doors(), DOORS)
    hall.broadcast(0, b"one")
    hall.pass_time()
    hall.tell(source, 0, word)
    assert hall.stable[0] == []
    hall.tell(4, 0, Finished(1, [4, 5], 1))
    hall.tell(5, 0, Finished(1, [4, 5], 1))
    assert payloads(hall.stable[0]) == [b"one"]


def test_a_word_that_goes_beyond_what_was_sent_frees_only_what_was() -> None:
    hall = Hall(tree_with_doors(), DOORS)
    for door in DOORS:
        hall.tell(door, 0, Finished(1, list(DOORS), 1 << 60))
    hall.broadcast(0, b"one")
    assert hall.stable[0] == []
    hall.pass_time()
    assert payloads(hall.stable[0]) == [b"one"]


def test_nonsense_from_a_gateway_is_delivered_to_nobody_and_ends_nothing() -> None:
    hall = Hall(tree_with_doors(), DOORS)
    for nonsense in (b"", b"\x00", msgspec.msgpack.encode((1, 2)), msgspec.msgpack.encode((-1, 2, b"x"))):
        hall.broadcast(DOORS[0], nonsense)
    hall.relay(DOORS[0], (ELSEWHERE, 1, b"after"))
    hall.pass_time()
    assert all(payloads(delivered) == [b"after"] for delivered in hall.delivered.values())
    assert all((DOORS[0], 5) in hall.settled[each] for each in DOORS)


@given(st.lists(st.integers(0, 11), max_size=40), st.lists(st.integers(1, 3), min_size=12, max_size=12))
def test_word_of_what_is_settled_may_come_in_any_order_and_twice(words: list[int], lengths: list[int]) -> None:
    """Twelve runs. What is told on is the number up to which all is settled, and it only grows."""
    member = daisy_member(0, one_group(), (), SETTINGS, 0)
    lasts = list(accumulate(lengths))
    for last in lasts:
        member.note_delivered(ELSEWHERE, last)
    numbers: list[int] = []
    for place, run in enumerate(words, 1):
        out = Outbox()
        member.note_settled(ELSEWHERE, lasts[run], out)
        numbers += [number for origin, number in out.settled if origin == ELSEWHERE]
        known = {lasts[each] for each in words[:place]}
        settled = [0, *takewhile(known.__contains__, lasts)]
        assert (numbers[-1] if numbers else 0) == settled[-1]
        member.invariants()
    assert numbers == sorted(set(numbers))


def test_the_window_counts_messages_and_bytes_until_they_are_stable() -> None:
    hall = Hall(tree_with_doors(), DOORS)
    member = hall.members[0]
    assert member.credit() == 8
    hall.broadcast(0, b"x", b"y")
    assert member.credit() == 6
    hall.broadcast(0, bytes(1000))
    assert member.credit() == 0
    for door in DOORS:
        hall.do(door, lambda member, out: member.confirm(0, 3, hall.now, out))
    hall.pass_time()
    assert member.credit() == 8
    assert member.unfinished() == 0


def test_any_number_of_messages_can_become_stable_at_once() -> None:
    many = MAX_SEGMENT_MESSAGES + 1
    hall = Hall(one_group(), settings=structs.replace(SETTINGS, window_messages=2 * many, window_bytes=1 << 20))
    hall.broadcast(0, *(b"%d" % each for each in range(many)))
    hall.pass_time()
    assert payloads(hall.stable[0]) == [b"%d" % each for each in range(many)]
    assert hall.members[0].credit() == 2 * many


@pytest.mark.parametrize("star", [False, True])
def test_any_number_of_messages_can_be_delivered_at_once(star: bool) -> None:
    hall = Hall(tree_with_doors(star))
    sent = [b"%d" % number for number in range(5000)]
    hall.broadcast(0, *sent)
    hall.pass_time()
    assert all(payloads(delivered) == sent for delivered in hall.delivered.values())


def test_views_of_two_groups_have_different_numbers() -> None:
    hall = Hall(tree_with_doors(), DOORS)
    assert {each: member.view for each, member in hall.members.items()} == {
        each: View((1 + each // 2) * GROUP_VIEWS + 1, (each // 2 * 2, each // 2 * 2 + 1)) for each in range(6)
    }


def test_a_process_leaves_when_all_that_it_sent_is_stable_everywhere() -> None:
    hall = Hall(tree_with_doors(), DOORS)
    hall.broadcast(1, b"last")
    hall.do(1, lambda member, out: member.leave(hall.now, out))
    assert hall.members[1].credit() == 0
    hall.pass_time(30)
    assert hall.stopped == {}
    for door in DOORS:
        hall.do(door, lambda member, out: member.confirm(1, 1, hall.now, out))
    hall.pass_time(200)
    assert hall.stopped == {1: "left"}
    assert hall.views[0][-1].members == (0,)
