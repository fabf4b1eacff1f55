"""Members that keep a journal: nothing is delivered anywhere before all of them hold it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from group_network import SETTINGS, SUSPECT_AFTER, Network
from msgspec import structs

from isthmus.core.endpoint import Outbox
from isthmus.core.message import Batch
from isthmus.core.wire.group import Accept, Ack, PastPart
from isthmus.ordering.group.window import Seat

SUCCESSOR = 1 << 16 | 4


def keeping(*keepers: int) -> Network:
    return Network(3, settings=structs.replace(SETTINGS, keepers=frozenset(keepers)))


@dataclass
class Stored:
    """What one member says that it holds from now on, step by step."""

    network: Network
    member: int
    payloads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        step = self.network.step

        def watched(member: int, *action: object) -> Outbox | None:
            out = step(member, *action)  # type: ignore[arg-type]
            if out is not None and member == self.member:
                self.payloads += [payload.decode() for batch in out.stored for payload in batch.segment.payloads()]
            return out

        self.network.step = watched  # type: ignore[method-assign]


def test_nobody_delivers_what_a_keeper_does_not_hold() -> None:
    network = keeping(3)
    network.broadcast(1, "m")
    network.carry(Batch, to=2)
    network.carry(Ack)
    assert network.delivered(1) == network.delivered(2) == []
    network.carry_all()
    assert network.delivered(1) == network.delivered(2) == network.delivered(3) == ["m"]


def test_without_keepers_a_quorum_is_enough() -> None:
    """The counterpart: it is the keeper that made the difference."""
    network = keeping()
    network.broadcast(1, "m")
    network.carry(Batch, to=2)
    network.carry(Ack)
    assert network.delivered(1) == network.delivered(2) == ["m"]


def test_a_keeper_that_is_gone_holds_up_nobody_while_another_one_is_there() -> None:
    network = keeping(2, 3)
    network.crash(3)
    network.broadcast(1, "m")
    network.carry_all()
    assert network.delivered(1) == []
    network.pass_time(4 * SUSPECT_AFTER)
    assert network.delivered(1) == network.delivered(2) == ["m"]


def without_keepers() -> Network:
    """Three of four go on without the fourth, the only keeper, which died while something was under way to it."""
    seat = Seat(frozenset({4}), frozenset({1, 2, 3}))
    network = Network(4, settings=structs.replace(SETTINGS, keepers=frozenset({4}), seats=(seat,)))
    network.broadcast(1, "kept")
    network.carry_all()
    network.crash(4)
    network.broadcast(1, "under way")
    network.pass_time(4 * SUSPECT_AFTER)
    network.broadcast(2, "sent meanwhile")
    network.pass_time(4 * SUSPECT_AFTER)
    return network


def test_nothing_is_delivered_while_nobody_is_there_to_keep_it() -> None:
    network = without_keepers()
    assert network[1].view.members == (1, 2, 3)
    assert [network.delivered(member) for member in (1, 2, 3)] == [["kept"]] * 3


def test_a_keeper_that_comes_keeps_what_was_sent_before_its_time_before_anybody_delivers_it() -> None:
    network = without_keepers()
    keeper = Stored(network, SUCCESSOR)
    network.join(SUCCESSOR)
    network.broadcast(3, "sent while it comes")

    def nobody_is_ahead_of_the_keeper() -> None:
        for member in (1, 2, 3):
            assert set(network.delivered(member)) <= {"kept", *keeper.payloads}

    network.pass_time(4 * SUSPECT_AFTER, every=nobody_is_ahead_of_the_keeper)
    sent = {"kept", "under way", "sent meanwhile", "sent while it comes"}
    assert [set(network.delivered(member)) for member in (1, 2, 3)] == [sent] * 3
    assert set(keeper.payloads) >= sent - {"kept"}
    assert len(keeper.payloads) == len(set(keeper.payloads))


def test_a_keeper_that_dies_before_it_keeps_anything_has_nothing_delivered() -> None:
    network = without_keepers()
    network.join(SUCCESSOR)

    def never_told() -> None:
        network.lose(PastPart)

    network.pass_time(2 * SUSPECT_AFTER, every=never_told)
    assert network[1].view.members == (1, 2, 3, SUCCESSOR)
    network.crash(SUCCESSOR)
    network.pass_time(4 * SUSPECT_AFTER)
    assert network[1].view.members == (1, 2, 3)
    assert [network.delivered(member) for member in (1, 2, 3)] == [["kept"]] * 3


@pytest.mark.parametrize("sender", [1, 3])
def test_a_keeper_says_what_it_holds_and_others_do_not(sender: int) -> None:
    network = keeping(3)
    keeper, other = Stored(network, 3), Stored(network, 2)
    network.broadcast(sender, "m1", "m2")
    network.carry_all()
    assert keeper.payloads == ["m1", "m2"]
    assert other.payloads == []


def test_a_keeper_holds_each_message_once_and_causes_first() -> None:
    """The order in which a keeper came to hold things is a causal order: no stamp is needed to replay it."""
    network = keeping(3)
    keeper = Stored(network, 3)
    network.broadcast(1, "cause")
    # The answer would overtake its cause on the way to the keeper, if it could be sent by then.
    network.carry(Batch, to=2)
    network.carry(where=lambda each: each.destination != 3)
    assert network.delivered(2) == []
    network.carry_all()
    network.broadcast(2, "effect")
    network.inject(1, 3, *[batch for batch in network.history[1] if isinstance(batch, Batch)])
    network.carry_all()
    assert keeper.payloads == ["cause", "effect"]


def test_a_view_waits_for_what_its_keepers_have_to_hold() -> None:
    """Installing a view delivers what the last one still owed, and that is held by the keepers as well by then."""
    network = Network(4, settings=structs.replace(SETTINGS, keepers=frozenset({3})))
    keeper = Stored(network, 3)
    network.broadcast(4, "last words")
    network.carry(Batch, to=(1, 2))
    network.lose()
    network.crash(4)

    def nobody_is_ahead_of_the_keeper() -> None:
        for member in (1, 2):
            assert set(network.delivered(member)) <= set(keeper.payloads)

    network.pass_time(6 * SUSPECT_AFTER, every=nobody_is_ahead_of_the_keeper)
    assert network.delivered(1) == network.delivered(2) == network.delivered(3) == ["last words"]


def test_a_view_is_not_decided_without_its_keepers() -> None:
    network = Network(5, settings=structs.replace(SETTINGS, keepers=frozenset({5})))
    network.crash(4)
    lost = 0

    def lose_the_keeper_s_word() -> None:
        nonlocal lost
        lost += network.lose(Accept, source=5)

    network.pass_time(3 * SUSPECT_AFTER, every=lose_the_keeper_s_word)
    assert lost
    assert all(network[member].view.number == 1 for member in (1, 2, 3))
    network.pass_time(3 * SUSPECT_AFTER)
    assert {network[member].view.members for member in (1, 2, 3, 5)} == {(1, 2, 3, 5)}
