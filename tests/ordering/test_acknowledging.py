"""TO and PO by hand: the logs of Fig. 1, every condition, losses on either medium, silence, and crashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from medium_hall import HEARTBEAT, Hall
from msgspec.structs import replace

from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY
from isthmus.core.wire.group import Fetch, Install, Places, Prepare, Seek, Status
from isthmus.ordering.acknowledged.member import Protocol
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings

FOLDER = Path(__file__).parent / "log_transcripts"
PROTOCOLS: tuple[Protocol, ...] = ("to", "po")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_logs_of_one_pdu(protocol: Protocol, rewrite: bool) -> None:
    """Fig. 1: "RL_k is APL_k | PPL_k | RPL_k" (Sect. 3). p has data, e are empty; then come sender and number."""
    hall = Hall(protocol, 3)
    hall.broadcast(1, "p")
    lines = ["RL of every entity: length of ARL | PRL | RRL", "E1 broadcasts p", *hall.logs()]
    while any(hall.waiting.values()):
        lines += carried(hall)
    compare(f"{protocol}-logs-of-one-pdu.txt", lines, rewrite)
    assert all(delivered == ["p"] for delivered in hall.delivered.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_logs_of_a_loss(protocol: Protocol, rewrite: bool) -> None:
    """E3 misses x, and has y in its place, where TO is to have it second: the failure point is 1 (Sect. 3)."""
    hall = Hall(protocol, 3, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    lines = ["RL of every entity: length of ARL | PRL | RRL", "E1 broadcasts x, E2 broadcasts y, E3 misses x"]
    hall.broadcast(1, "x")
    hall.broadcast(2, "y")
    lines += carried(hall, lost=(3,))
    while lines[-1] != "silence":
        while any(hall.waiting.values()):
            lines += carried(hall)
        hall.now += HEARTBEAT // 4
        hall.wake()
        if not any(hall.waiting.values()):
            lines.append("silence")
    compare(f"{protocol}-logs-of-a-loss.txt", lines, rewrite)
    assert all(sorted(delivered) == ["x", "y"] for delivered in hall.delivered.values())


def carried(hall: Hall, lost: tuple[int, ...] = ()) -> list[str]:
    """What the medium carries next, and the logs after it. Heartbeats are carried as well, and not told of."""
    channel = next(each for each, queue in sorted(hall.waiting.items()) if queue)
    source, destinations, pdu = hall.waiting[channel][0]
    before = hall.logs()
    hall.carry(channel or None, lost)
    to = f"E{source} to E{destinations[0]}" if len(destinations) == 1 else f"E{source}"
    if isinstance(pdu, Batch):
        text = "".join(payload.decode() for payload in pdu.segment.payloads()) or "an empty PDU"
        again = " again, for E{}".format(*destinations) if len(destinations) == 1 else ""
        said = f"{text} of E{pdu.sender}, SEQ {pdu.number}, A {' '.join(map(str, pdu.stamp[:3]))}{again}"
    elif isinstance(pdu, Fetch):
        said = f"{to}: send me SEQ {pdu.first} to {pdu.last} again"
    elif isinstance(pdu, Seek):
        said = f"{to}: who stands where, from place {pdu.first} on? I lack SEQ {pdu.number} of E{pdu.sender}"
    elif isinstance(pdu, Places):
        said = f"{to}: from place {pdu.first} on {' '.join(f'E{rank + 1}' for rank in pdu.ranks)}"
    else:
        assert isinstance(pdu, Status)
        return []
    after = hall.logs()
    return [f"carried: {said}", *(after if after != before else ())]


def compare(name: str, lines: list[str], rewrite: bool) -> None:
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    if rewrite:
        (FOLDER / name).write_text(text, encoding="utf-8")
    assert text == (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_stages_come_in_their_order_and_the_application_gets_the_last(protocol: Protocol) -> None:
    """ "At (1), (2), and (3), p is said to be received, pre-acknowledged, and acknowledged" (Sect. 2)"""
    hall = Hall(protocol, 4)
    hall.broadcast(2, "p")
    hall.carry_all()
    for entity in hall.members:
        assert hall.stages[entity] == [("receive", "p"), ("pre-acknowledge", "p"), ("acknowledge", "p")]
        assert hall.delivered[entity] == ["p"]


@pytest.mark.parametrize(("act_on", "carried"), [("received", 1), ("pre-acknowledged", 4), ("acknowledged", 8)])
def test_the_application_chooses_what_it_acts_on(act_on: str, carried: int) -> None:
    hall = Hall("po", 4, AcknowledgedSettings(act_on=act_on, answer_after=0))  # type: ignore[arg-type]
    hall.broadcast(1, "p")
    for place in range(1, 9):
        hall.carry()
        everywhere = all(delivered == ["p"] for delivered in hall.delivered.values())
        assert everywhere == (place >= carried)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_the_last_acknowledgement_there_is_silence(protocol: Protocol) -> None:
    hall = Hall(protocol, 4, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    hall.broadcast(1, "p")
    hall.broadcast(3, "q")
    hall.run_heartbeats(12)
    assert all(sorted(delivered) == ["p", "q"] for delivered in hall.delivered.values())
    before = sum(isinstance(pdu, Batch) for pdu in hall.carried)
    hall.run_heartbeats(12)
    assert sum(isinstance(pdu, Batch) for pdu in hall.carried) == before


def test_an_acknowledgement_rides_on_data_and_waits_no_longer_than_it_may() -> None:
    hall = Hall("po", 3, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    hall.wake()
    hall.carry_all()
    hall.broadcast(1, "p")
    hall.carry(1)
    assert not any(hall.waiting.values())
    hall.broadcast(2, "q")
    (only,) = [pdu for _, _, pdu in hall.waiting[2]]
    assert isinstance(only, Batch)
    assert only.stamp[:3] == [2, 1, 1]
    assert hall.members[3].deadline() == HEARTBEAT // 4
    hall.now = HEARTBEAT // 4
    hall.wake(3)
    (empty,) = [pdu for _, _, pdu in hall.waiting[3]]
    assert isinstance(empty, Batch)
    assert (list(empty.segment), empty.stamp[:3]) == ([], [2, 1, 1])


# Losses


def test_po_holds_what_comes_before_what_its_sender_had() -> None:
    """ "(2) … p.A_h ≤ REQ_h" (Sect. 5): on MC that fails on mere delay: nothing is discarded, and nothing asked for."""
    hall = Hall("po", 3, AcknowledgedSettings(act_on="received", answer_after=HEARTBEAT))
    hall.broadcast(1, "p")
    late = hall.carry(1, lost=(3,))
    hall.broadcast(2, "q")
    hall.carry(2)
    assert hall.delivered == {1: ["p", "q"], 2: ["p", "q"], 3: []}
    assert not any(hall.waiting.values())
    hall.receive(3, 1, late)
    assert hall.delivered[3] == ["p", "q"]


def test_po_fetches_exactly_what_is_missing() -> None:
    hall = Hall("po", 3, AcknowledgedSettings(answer_after=HEARTBEAT))
    for text, lost in (("a", ()), ("b", (3,)), ("c", (3,)), ("d", ())):
        hall.broadcast(1, text)
        hall.carry(1, lost=lost)
    (request,) = [pdu for _, _, pdu in hall.waiting[3]]
    assert request == Fetch(1, 1, 2, 3)
    hall.carry(3)
    assert [pdu.number for _, _, pdu in hall.waiting[1] if isinstance(pdu, Batch)] == [2, 3]
    hall.run_heartbeats(6)
    assert all(delivered == ["a", "b", "c", "d"] for delivered in hall.delivered.values())


def test_the_loss_of_the_last_pdu_shows_in_a_heartbeat() -> None:
    hall = Hall("po", 2)
    hall.broadcast(1, "p")
    hall.carry(1, lost=(2,))
    hall.run_heartbeats(6)
    assert hall.delivered == {1: ["p"], 2: ["p"]}


def test_to_goes_back_to_the_failure_point() -> None:
    """E3 misses x and logs y in its place: concurrent PDUs do not name each other. Then it follows who heard both."""
    hall = Hall("to", 3, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    hall.broadcast(1, "x")
    hall.broadcast(2, "y")
    hall.carry(lost=(3,))
    hall.carry()
    assert to_logs(hall) == [[0, 0, 1], [0, 0, 1], [0, 1]]
    hall.run_heartbeats()
    assert all(delivered == ["x", "y"] for delivered in hall.delivered.values())
    assert all(hall.stages[entity][-1] == ("acknowledge", "y") for entity in hall.members)
    # One question and one answer: nobody else stopped, and nothing was broadcast twice.
    assert [pdu for pdu in hall.carried if isinstance(pdu, Seek)] == [Seek(1, 0, 1, 1, 1)]
    assert [pdu.ranks[:2] for pdu in hall.carried if isinstance(pdu, Places)] == [[0, 1]]
    assert not any(isinstance(pdu, Prepare) for pdu in hall.carried)
    assert sum(isinstance(pdu, Batch) and bool(pdu.segment) for pdu in hall.carried) == 3


def test_what_its_sender_sent_without_a_pause_has_its_place_when_it_comes_again() -> None:
    hall = Hall("to", 3, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    for text, lost in (("a", ()), ("b", (3,)), ("c", ())):
        hall.broadcast(1, text)
        hall.carry(lost=lost)
    assert to_logs(hall)[2] == [0, 0]
    hall.run_heartbeats()
    assert all(delivered == ["a", "b", "c"] for delivered in hall.delivered.values())
    assert not any(isinstance(pdu, Seek | Prepare) for pdu in hall.carried)


def test_who_may_have_lost_something_itself_is_no_guide() -> None:
    """E3 lost x, and E2 lost z, which may have come before x. E1, the sender of x, has heard from both since."""
    hall = Hall("to", 3, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    hall.broadcast(3, "z")
    hall.broadcast(1, "x")
    hall.broadcast(2, "y")
    hall.carry(lost=(2,))
    hall.carry(lost=(3,))
    hall.carry()
    assert to_logs(hall) == [[0, 2, 0, 1], [0, 0, 1], [0, 2, 1]]
    assert [member.order.sure() for member in hall.members.values()] == [1, 0, 0]  # type: ignore[attr-defined]
    hall.run_heartbeats()
    assert all(delivered == ["z", "x", "y"] for delivered in hall.delivered.values())


def test_a_place_that_is_certain_may_depend_on_one_that_is_not() -> None:
    """E3 lost c, which stands between b and d of E1; but c names x, and x, lost too, stands before or behind y."""
    hall = Hall("to", 4, AcknowledgedSettings(answer_after=4 * HEARTBEAT))
    for entity, text in ((2, "x"), (4, "y"), (1, "b")):
        hall.broadcast(entity, text)
    for lost in ((3,), (), ()):
        hall.carry(lost=lost)
    for text, lost in (("c", (3,)), ("d", ())):
        hall.broadcast(1, text)
        hall.carry(lost=lost)
    hall.run_heartbeats()
    assert all(delivered == ["x", "y", "b", "c", "d"] for delivered in hall.delivered.values())


def to_logs(hall: Hall) -> list[list[int]]:
    return [member.order.log() for member in hall.members.values()]  # type: ignore[attr-defined]


def test_when_nobody_saw_both_an_order_is_agreed_on_all_the_same() -> None:
    hall = Hall("to", 2, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    hall.broadcast(1, "x")
    hall.broadcast(2, "y")
    hall.carry(lost=(2,))
    hall.carry(lost=(1,))
    hall.run_heartbeats()
    assert hall.delivered[1] == hall.delivered[2]
    assert sorted(hall.delivered[1]) == ["x", "y"]


def begin_the_next_view_without(hall: Hall, late: int) -> Install:
    """All go back together; one of them misses the decision."""
    hall.members[3].go_back(hall.now)  # type: ignore[attr-defined]
    hall.wake()
    while not (hall.waiting[0] and isinstance(hall.waiting[0][0][2], Install)):
        if not hall.waiting[0]:
            hall.now += HEARTBEAT
            hall.wake()
        hall.carry()
    install = hall.carry(lost=(late,))
    assert isinstance(install, Install)
    assert hall.members[late].view.number == 1
    return install


def carry_data(hall: Hall, lost: tuple[int, ...] = ()) -> Batch:
    while not (isinstance(pdu := hall.carry(lost=lost), Batch) and pdu.segment):
        pass
    return pdu


def test_a_pdu_that_comes_ahead_of_its_view_is_kept() -> None:
    hall = Hall("to", 3, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    hall.broadcast(1, "x")
    hall.carry()
    install = begin_the_next_view_without(hall, 2)
    hall.broadcast(1, "z")
    carry_data(hall)
    hall.receive(2, 1, install)
    hall.run_heartbeats()
    assert all(delivered == ["x", "z"] for delivered in hall.delivered.values())
    assert not any(isinstance(pdu, Fetch | Seek) for pdu in hall.carried), "it asked for what it had"


def test_what_comes_along_with_its_view_does_not_pass_what_came_ahead_of_it() -> None:
    hall = Hall("to", 3, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    install = begin_the_next_view_without(hall, 2)
    hall.broadcast(3, "y")
    hall.broadcast(1, "z")
    carry_data(hall)
    z = carry_data(hall, lost=(2,))
    hall.receive(2, 1, install, z)
    hall.wake(2)
    assert to_logs(hall) == [[0, 2, 0]] * 3


# Flow


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_flow_condition_stops_data_and_lets_acknowledgements_pass(protocol: Protocol) -> None:
    """ "minAL_k ≤ SEQ < minAL_k + min(W, minF/(C*n²))" (Sect. 5), counted in PDUs with data."""
    hall = Hall(protocol, 3, AcknowledgedSettings(window=2, answer_after=HEARTBEAT // 4))
    for text in "abcd":
        hall.broadcast(1, text)
    channel = 0 if protocol == "to" else 1
    under_way = [pdu for _, _, pdu in hall.waiting[channel] if isinstance(pdu, Batch) and pdu.segment]
    assert len(under_way) == 2
    hall.run_heartbeats()
    assert all("".join(delivered) == "abcd" for delivered in hall.delivered.values())


def test_buffers_in_use_are_told_and_hold_data_up() -> None:
    hall = Hall("po", 2, AcknowledgedSettings(window=4, answer_after=HEARTBEAT))
    order = hall.members[1].order
    hall.broadcast(2, "p")
    hall.carry(2)
    order.free_buffers[1] = 2 * 2 * 2 - 1
    assert not order.may_send()
    order.free_buffers[1] = 2 * 2 * 2
    assert order.may_send()
    assert order.stamp(1)[2] == order.buffers - 1


# Crashes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_a_crash_acknowledgement_goes_on_among_the_rest(protocol: Protocol) -> None:
    hall = Hall(protocol, 4, AcknowledgedSettings(answer_after=HEARTBEAT // 4))
    hall.broadcast(1, "p")
    del hall.members[4]
    for queue in hall.waiting.values():
        for place, (source, destinations, pdu) in enumerate(queue):
            queue[place] = (source, tuple(each for each in destinations if each != 4), pdu)
    for _ in range(40):
        hall.now += HEARTBEAT
        hall.wake()
        while any(hall.waiting.values()):
            channel = next(each for each, queue in sorted(hall.waiting.items()) if queue)
            source, destinations, pdu = hall.waiting[channel][0]
            hall.waiting[channel][0] = (source, tuple(each for each in destinations if each != 4), pdu)
            hall.carry(None if protocol == "to" else channel)
    hall_of_three = {view.members for view in hall.views.values()}
    assert hall_of_three == {(1, 2, 3)}
    assert [hall.delivered[each] for each in (1, 2, 3)] == [["p"]] * 3


# Whatever is lost


@settings(max_examples=40)
@given(data=st.data(), protocol=st.sampled_from(PROTOCOLS), size=st.integers(2, 4))
def test_whatever_is_lost_all_get_the_same(data: st.DataObject, protocol: Protocol, size: int) -> None:
    """TO in one order everywhere, PO in the order of each sender; and nothing is acknowledged before its time."""
    hall = Hall(protocol, size, replace(AcknowledgedSettings(), window=3, answer_after=HEARTBEAT // 4))
    entities = st.integers(1, size)
    sent: dict[int, list[str]] = {each: [] for each in hall.members}
    for number in range(data.draw(st.integers(1, 6))):
        sender = data.draw(entities)
        sent[sender].append(f"{sender}.{number}")
        hall.broadcast(sender, f"{sender}.{number}")
        for _ in range(data.draw(st.integers(0, 4))):
            if any(hall.waiting.values()):
                hall.carry(lost=tuple(data.draw(st.sets(entities, max_size=size))))
                _check_stages(hall)
    hall.run_heartbeats(30)
    _check_stages(hall)
    everything = sorted(text for texts in sent.values() for text in texts)
    for entity in hall.members:
        assert sorted(hall.delivered[entity]) == everything
        for sender, texts in sent.items():
            assert [text for text in hall.delivered[entity] if text.startswith(f"{sender}.")] == texts
    if protocol == "to":
        assert len({tuple(delivered) for delivered in hall.delivered.values()}) == 1


def _check_stages(hall: Hall) -> None:
    """Acknowledged means that everybody has pre-acknowledged it."""
    done = {entity: set(stages) for entity, stages in hall.stages.items()}
    for stages in done.values():
        for stage, text in stages:
            if stage == "acknowledge":
                assert all(("pre-acknowledge", text) in others for others in done.values())


def test_a_stamp_that_makes_no_sense_counts_as_lost() -> None:
    hall = Hall("po", 3)
    member = hall.members[1]
    for stamp in ([], [1, 1], [1, 1, 1, 1 << 40], [1, 9, 1, 5], [1] * 9):
        hall.receive(1, 2, Batch(1, 2, 1, stamp, 0, EMPTY))
        assert member.order.expected == [1, 1, 1]
    hall.receive(1, 2, Status(1, 0, 0, [0, 0, 0], [], [], 0))
