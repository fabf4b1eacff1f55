"""What servers agree on in a flush, what a process keeps for it, and words that make no sense."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from isthmus.core.codec import body_of, decode_body
from isthmus.core.endpoint import Outbox
from isthmus.core.ids import MessageId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import Opened, Segment
from isthmus.core.wire.daisy import DaisyFrame, SeatReport, SeatState, Settled, Unsettled
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.flush import agree, by_clock
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.pieces import Told, cut
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.record import GroupRecord, pack, pack_runs, unpack
from isthmus.hierarchy.daisy.servers import SeatPdu, ServersGroup
from isthmus.hierarchy.daisy.tree import NONE, tree_of
from isthmus.ordering.group.patience import FRAME_BYTES
from isthmus.ordering.group.window import GroupSettings

SEATS = 3
SENDERS = 2 * SEATS + 2
"""Two below each seat of a group, and two above it."""


def seat_of(origin: int) -> int:
    return origin // 2 if origin < 2 * SEATS else NONE


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Clocked, set[MessageId]]]:
    """Messages in the order in which they were sent, each with all of its causes; each origin has had some of them."""
    had: list[set[MessageId]] = [set() for _ in range(SENDERS)]
    clocks, counts = [0] * SENDERS, [0] * SENDERS
    history: list[tuple[Clocked, set[MessageId]]] = []
    for _ in range(draw(st.integers(0, 12))):
        origin = draw(st.integers(0, SENDERS - 1))
        for message, causes in draw(st.lists(st.sampled_from(history), max_size=3)) if history else ():
            clocks[origin] = max(clocks[origin], message.clock)
            had[origin] |= causes | {message.id}
        clocks[origin] += 1
        counts[origin] += 1
        message = Clocked(origin, counts[origin], b"", (0,), clocks[origin])
        history.append((message, set(had[origin])))
        had[origin].add(message.id)
    return history


@given(histories(), st.data())
def test_causes_come_first_and_the_seat_of_a_message_says_whether_it_is_settled(
    history: list[tuple[Clocked, set[MessageId]]], data: st.DataObject
) -> None:
    everything = [message for message, _ in history]
    lists = [data.draw(st.permutations(everything)) for _ in range(SEATS)]
    lists = [each[: data.draw(st.integers(0, len(each)))] for each in lists]
    above = [message for message in everything if seat_of(message.origin) == NONE and data.draw(st.booleans())]
    agreed, settled = agree(lists, above, seat_of)

    believed = [*lists, above]  # NONE, which is -1, is the last
    unsettled = {each.id for each in everything if each in believed[seat_of(each.origin)]}
    somebody_tells = {each.id for each in (*above, *(each for seat in lists for each in seat))}
    assert {each.id for each in agreed} == unsettled
    assert {each.id for each in settled} == somebody_tells - unsettled

    places = {each.id: place for place, each in enumerate(agreed)}
    for message, causes in history:
        if message.id in places:
            assert all(places[cause] < places[message.id] for cause in causes & places.keys())
    assert agree([sorted(seat, key=lambda each: each.id) for seat in lists], above[::-1], seat_of) == (agreed, settled)


@given(histories(), st.data())
def test_a_record_hands_on_each_message_once_and_forgets_what_is_settled(
    history: list[tuple[Clocked, set[MessageId]]], data: st.DataObject
) -> None:
    record, handed_on, gone = GroupRecord(), set[MessageId](), set[MessageId]()
    messages = [message for message, _ in history]
    for message in messages:
        for _ in range(data.draw(st.integers(0, 2))):
            assert record.add(message) == (message.id not in handed_on)
            handed_on.add(message.id)
        if record.kept and data.draw(st.booleans()):
            chosen = data.draw(st.sampled_from(sorted(record.kept)))
            assert record.settle([chosen, chosen]) == [chosen]
            gone.add(chosen)
    # A flush tells again what is not settled, and whatever else of the same origins nobody has had by then.
    latest = {origin: max(each.seq for each in handed_on if each.origin == origin) for origin, _ in handed_on}
    new = [each for each in messages if each.last > latest.get(each.origin, 0)]
    kept = list(record.kept.values())
    agreed, rest = sorted([*kept, *new], key=by_clock), [each for each in messages if each.id in gone]
    assert record.begin(agreed, rest) == sorted(new, key=by_clock)
    assert record.kept.keys() == {each.id for each in agreed}
    assert all(record.is_settled(each) for each in gone)
    record.invariants()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 1 << 62), st.binary(max_size=9), st.integers(0, 1 << 62))))
def test_a_message_travels_with_its_destinations_and_its_clock(found: list[tuple[int, int, bytes, int]]) -> None:
    runs = [Clocked(origin, seq, payload, (1, 2), clock) for origin, seq, payload, clock in found]
    assert [run for segment in pack_runs(runs) for run in unpack(segment)] == runs


@pytest.mark.parametrize(
    "payload", [b"", b"\x93\xff\x90\xc4\x00", b"\x93\x01\x91\xff\xc4\x00", b"\x92\x90\xc4\x00", b"\x91" * 5000]
)
def test_an_envelope_that_makes_no_sense_is_nobodys(payload: bytes) -> None:
    assert not list(unpack(Segment.pack([(0, 1, payload)])))


# Words from the network. Two groups of one: each process holds a seat of the servers' group.

TREE = tree_of(
    DaisyTable(parts=(DaisyTable(name="a", processes=("a1",)), DaisyTable(name="b", processes=("b1",)))),
    ("a1", "b1").index,
)
SOUND = Clocked(1, 1, b"", (0,), 1)
STRANGER = Clocked(77, 1, b"", (0,), 1)
TO_STRANGERS = Clocked(1, 1, b"", (0, 77), 1)
Word: TypeAlias = Batch | SeatState | SeatReport | Settled | Unsettled


def hear(process: DaisyProcess, pdus: list[Pdu]) -> Outbox:
    """As it comes off the wire."""
    out = Outbox()
    process.receive(1, [decode_body(body_of(pdu)) for pdu in pdus], 0, out)
    process.invariants()
    return out


def at_seat(process: DaisyProcess) -> ServersGroup:
    (_, above) = process.levels
    assert isinstance(above, ServersGroup)
    return above


@pytest.mark.parametrize(
    "word",
    [
        SeatState([], True, [], None, True),
        SeatState([(1, 0)], True, [], None, True),
        SeatState([(1, 0), (2, 1), (3, 1)], True, [], None, True),
        SeatState([(9, 77), (9, 1)], True, [], None, True),
        SeatState([(1, 0), (2, 1)], True, [STRANGER], None, True),
        SeatState([(1, 0), (2, 1)], True, [], [TO_STRANGERS], True),
        SeatReport(1, []),
        SeatReport(1, [5]),
        SeatReport(7, [9, 9, 9]),
        Batch(1, 0, 1, [0, 1], 0, Segment.pack([pack(SOUND)])),
        Batch(1, 1, 1, [], 0, Segment.pack([pack(SOUND)])),
        Batch(1, 1, 1, [0, 1, 0], 0, Segment.pack([pack(SOUND)])),
        Batch(8, 1, 1, [0, 1], 0, Segment.pack([pack(SOUND)])),
        Unsettled([(77, 1), (0, 1 << 60)]),
        Settled([(77, 1), (0, 1 << 60)]),
    ],
)
def test_words_that_make_no_sense_are_passed_over(word: Word) -> None:
    process, other = DaisyProcess(0, TREE), DaisyProcess(1, TREE)
    assert not hear(process, [DaisyFrame(0, 0, word), DaisyFrame(99, 0, word), DaisyFrame(2, 0, word)]).addressed
    assert at_seat(process).installed
    sent = Outbox()
    other.send((0,), [b"sound"], 0, sent)
    delivered = hear(process, [pdu for _, pdu in sent.sends]).addressed
    assert [payload for each in delivered for payload in each.run.segment.payloads()] == [b"sound"]


@pytest.mark.parametrize("packed", [pack(STRANGER), pack(TO_STRANGERS), (1, 1, b"?")])
def test_messages_of_or_to_strangers_are_nobodys(packed: list[Opened]) -> None:
    process, other = DaisyProcess(0, TREE), DaisyProcess(1, TREE)
    sent = Outbox()
    other.send((0,), [b"sound"], 0, sent)
    (frame,) = (pdu for _, pdu in sent.sends if isinstance(pdu, DaisyFrame) and isinstance(pdu.pdu, Batch))
    assert isinstance(frame.pdu, Batch)
    word = structs.replace(frame, pdu=structs.replace(frame.pdu, segment=Segment.pack([packed])))
    assert not hear(process, [word]).addressed
    assert not at_seat(process).record.kept


def test_words_of_another_generation_are_passed_over() -> None:
    process, other = DaisyProcess(0, TREE), DaisyProcess(1, TREE)
    sent = Outbox()
    other.send((0,), [b"of old"], 0, sent)
    frames = [structs.replace(pdu, generation=1) for _, pdu in sent.sends if isinstance(pdu, DaisyFrame)]
    assert frames
    assert not hear(process, list(frames)).addressed


# Two groups of two, whose servers 0 and 2 are dead: each has just answered the server after the other.

PAIRS = tree_of(
    DaisyTable(parts=(DaisyTable(name="a", processes=("a1", "a2")), DaisyTable(name="b", processes=("b1", "b2")))),
    ("a1", "a2", "b1", "b2").index,
)


def test_two_servers_that_are_new_at_once_find_each_other() -> None:
    settings = GroupSettings()
    first, second = (
        ServersGroup(process, PAIRS, PAIRS.groups[0], seat, 2, (), settings, 0) for seat, process in ((0, 1), (1, 3))
    )
    for group in (first, second):
        group.vouched(0)
    first.receive(2, SeatState([(2, 1), (1, 2)], True, [], None, False), 0)
    second.receive(0, SeatState([(1, 0), (2, 3)], True, [], None, False), 0)
    assert (first.installed, second.installed) == (True, True)
    assert (first.others(), second.others()) == ((2,), (0,))
    for group in (first, second):
        group.sends.clear()  # what each told everybody at first was lost
    for now in range(settings.heartbeat, 3 * settings.suspect_after, settings.heartbeat):
        for group, other in ((first, second), (second, first)):
            group.wake(now)
            words = [word for destinations, word in group.sends if other.id in destinations]
            group.sends.clear()
            for word in words:
                other.receive(group.id, word, now)
            if other.unvouched:
                other.vouched(now)
        if now < settings.suspect_after:
            assert first.others() == (2,), "silence is no news before it has lasted for a while"
    assert (first.others(), second.others()) == ((3,), (1,))
    assert (first.installed, second.installed) == (True, True)


@given(st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_a_state_comes_in_pieces_and_is_known_with_the_last(entries: int, above: int, knows_above: bool) -> None:
    large = [Clocked(1, seq, bytes(FRAME_BYTES // 2 + 1), (0,), seq) for seq in range(1, entries + above + 1)]
    state = SeatState([(2, 0), (1, 1)], True, large[:entries], large[entries:] if knows_above else None, False)
    pieces = cut(state)
    told = Told()
    for number, piece in enumerate(pieces):
        assert not (told.has_entries and told.has_above)
        assert piece.piece == told.pieces == number
        assert len(body_of(DaisyFrame(0, 0, piece))) <= 2 * FRAME_BYTES
        told.add(piece)
        assert told.has_entries is (number + 1 >= pieces[0].pieces)
    assert (told.entries, told.above) == (state.entries, state.above or [])
    assert told.has_above is knows_above


def test_servers_ask_each_other_for_one_piece_after_the_other() -> None:
    """So there is one of them on a line at a time, and however long it takes few of them are there twice."""
    settings = GroupSettings()
    kept = [Clocked(0, seq, bytes(FRAME_BYTES), (0, 1, 2, 3), seq) for seq in range(1, 6)]
    tells, asks = (
        ServersGroup(process, PAIRS, PAIRS.groups[0], seat, 2, entries, settings, 0)
        for seat, process, entries in ((0, 1, kept), (1, 3, ()))
    )
    pieces = 0
    way = 10 * settings.heartbeat
    line: deque[tuple[int, ServersGroup, ServersGroup, SeatPdu]] = deque()
    for now in range(0, 100 * way, settings.heartbeat):
        while line and line[0][0] <= now:
            _, group, other, word = line.popleft()
            other.receive(group.id, word, now)
        for group, other in ((tells, asks), (asks, tells)):
            group.wake(now)
            if group.unvouched:
                group.vouched(now)
            words = [word for destinations, word in group.sends if other.id in destinations]
            pieces += sum(isinstance(word, SeatState) and bool(word.entries) for word in words)
            line.extend((now + way, group, other, word) for word in words)
            group.sends.clear()
        if tells.installed and asks.installed:
            break
    assert (tells.installed, asks.installed) == (True, True)
    assert asks.record.kept.keys() == {run.id for run in kept}
    assert pieces <= len(kept) + 8
