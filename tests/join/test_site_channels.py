"""Words between fellow gateways arrive in order and once, over a network that loses, doubles and reorders frames."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.endpoint import Outbox
from isthmus.core.freeze import freeze
from isthmus.core.ids import MILLISECOND, incarnation_of
from isthmus.core.wire.join import FellowAck, FellowBroken, FellowFrame, FellowPdu
from isthmus.core.wire.pdu import Pdu
from isthmus.join.member import WORDS
from isthmus.ordering.channels import PeerChannels

RETRY_AFTER = 100 * MILLISECOND
A, B, C = 1, 2, 3


def word(number: int) -> FellowPdu:
    return FellowBroken(0, number)


def frames(out: Outbox) -> list[tuple[tuple[int, ...], FellowFrame]]:
    return [(to, pdu) for to, pdu in out.sends if isinstance(pdu, FellowFrame)]


def test_all_that_one_step_has_to_say_to_a_fellow_goes_as_one_frame() -> None:
    out = Outbox()
    PeerChannels(WORDS, RETRY_AFTER).send([(B, word(1)), (C, word(1)), (B, word(2))], 0, out)
    assert out.sends == [((B,), FellowFrame(1, [word(1), word(2)])), ((C,), FellowFrame(1, [word(1)]))]


def test_a_step_without_words_sends_nothing() -> None:
    out = Outbox()
    PeerChannels(WORDS, RETRY_AFTER).send([], 0, out)
    assert out.sends == []


def test_what_came_is_acknowledged_once_with_the_next_step() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    channels.accept(B, FellowFrame(1, [word(1)]))
    channels.accept(B, FellowFrame(3, [word(3)]))
    channels.send([], 0, out)
    assert out.sends == [((B,), FellowAck(1, 3))]
    out.clear()
    channels.send([], 0, out)
    assert out.sends == []


def test_a_frame_that_comes_again_is_acknowledged_again_but_not_heard_again() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    assert channels.accept(B, FellowFrame(1, [word(1)])) == [word(1)]
    channels.send([], 0, out)
    assert channels.accept(B, FellowFrame(1, [word(1)])) == []
    out.clear()
    channels.send([], 0, out)
    assert out.sends == [((B,), FellowAck(1, 1))], "the first acknowledgement may be lost"


def test_a_gap_is_filled_as_soon_as_it_shows() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    for number in (1, 2, 3):
        channels.send([(B, word(number))], 0, out)
    out.clear()
    channels.acknowledge(B, FellowAck(1, 3), RETRY_AFTER // 2, out)
    assert [frame.number for _, frame in frames(out)] == [2]


def test_a_fellow_that_says_nothing_is_told_again_and_only_that_one() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    channels.send([(B, word(1)), (C, word(1))], 0, out)
    channels.acknowledge(C, FellowAck(1, 1), 1, out)
    out.clear()
    channels.wake(RETRY_AFTER - 1, out)
    assert out.sends == []
    channels.wake(RETRY_AFTER, out)
    assert frames(out) == [((B,), FellowFrame(1, [word(1)]))]


def test_who_is_gone_is_not_told_any_more() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    channels.send([(B, word(1)), (C, word(1))], 0, out)
    channels.accept(B, FellowFrame(1, [word(9)]))
    channels.keep_only((A, C))
    out.clear()
    channels.send([], 0, out)
    channels.wake(10 * RETRY_AFTER, out)
    assert [to for to, _ in out.sends] == [(C,)]


def test_a_view_leaves_the_channels_of_those_who_stay_as_they_are() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    channels.send([(B, word(1))], 0, out)
    channels.accept(B, FellowFrame(1, [word(9)]))
    channels.keep_only((A, B))
    out.clear()
    channels.send([(B, word(2))], 0, out)
    assert out.sends == [((B,), FellowFrame(2, [word(2)])), ((B,), FellowAck(1, 1))]
    assert channels.accept(B, FellowFrame(1, [word(9)])) == []


def test_one_that_speaks_before_its_view_has_come_here_is_heard_on_after_the_view_before_that() -> None:
    """It is in view 3, we are in view 1, and both views come one after the other."""
    channels = PeerChannels(WORDS, RETRY_AFTER)
    again = incarnation_of(B, 1)
    assert channels.accept(again, FellowFrame(1, [word(1)])) == [word(1)]
    channels.keep_only((A, B))
    channels.keep_only((A, again))
    assert channels.accept(again, FellowFrame(2, [word(2)])) == [word(2)]


def test_channels_of_those_that_came_back_do_not_pile_up() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    sizes = set()
    for life in range(1, 9):
        again = incarnation_of(B, life)
        channels.keep_only((A, again))
        channels.accept(again, FellowFrame(1, [word(1)]))
        channels.send([(again, word(1))], 0, out)
        channels.keep_only((A,))
        sizes.add(str(freeze(channels)).count("Incoming"))
    assert len(sizes) == 1, sizes


def test_an_acknowledgement_of_a_stranger_is_ignored() -> None:
    channels, out = PeerChannels(WORDS, RETRY_AFTER), Outbox()
    channels.acknowledge(B, FellowAck(5, 5), 0, out)
    assert out.sends == []


steps = st.lists(
    st.tuples(st.sampled_from(["say", "arrive", "lose", "double", "wait"]), st.integers(0, 99)), max_size=60
)


@given(steps)
def test_whatever_the_network_does_words_arrive_in_order_and_once(steps: list[tuple[str, int]]) -> None:
    """Both say things; when the network is fair again, everything said has arrived."""
    ends = {A: PeerChannels(WORDS, RETRY_AFTER), B: PeerChannels(WORDS, RETRY_AFTER)}
    said: dict[int, int] = {A: 0, B: 0}
    heard: dict[int, list[FellowPdu]] = {A: [], B: []}
    under_way: list[tuple[int, int, Pdu]] = []
    now = 0

    def post(source: int, out: Outbox) -> None:
        under_way.extend((source, to, pdu) for destinations, pdu in out.sends for to in destinations)

    def say(source: int, *words: FellowPdu) -> None:
        out = Outbox()
        ends[source].send([(A + B - source, each) for each in words], now, out)
        post(source, out)

    def arrive(source: int, to: int, pdu: Pdu) -> None:
        out = Outbox()
        if isinstance(pdu, FellowFrame):
            heard[to] += ends[to].accept(source, pdu)
        else:
            assert isinstance(pdu, FellowAck)
            ends[to].acknowledge(source, pdu, now, out)
        post(to, out)
        say(to)

    def wait() -> None:
        nonlocal now
        now += RETRY_AFTER
        for source, end in ends.items():
            out = Outbox()
            end.wake(now, out)
            post(source, out)

    for step, luck in steps:
        if step == "say":
            source = (A, B)[luck % 2]
            said[source] += 1
            say(source, word(said[source]))
        elif step == "wait":
            wait()
        elif under_way:
            source, to, pdu = under_way[luck % len(under_way)]
            if step != "double":
                del under_way[luck % len(under_way)]
            if step != "lose":
                arrive(source, to, pdu)
    for _ in range(40):
        wait()
        while under_way:
            arrive(*under_way.pop(0))
    assert heard == {A: [word(n + 1) for n in range(said[B])], B: [word(n + 1) for n in range(said[A])]}
    quiet = Outbox()
    ends[A].wake(now + 1000 * RETRY_AFTER, quiet)
    assert quiet.sends == [], "nothing is sent again that has arrived"
