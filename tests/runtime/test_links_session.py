"""The session without sockets: whatever the cuts, and wherever they fall, frames arrive once and in order.

Words and blocks are in order each. The session does not look into frames, so here both are words of progress, and the
epoch tells which was given as what.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.core.codec import encode
from isthmus.core.wire.join import Epoch, Progress, first_epoch
from isthmus.runtime.link.session import LinkOverflow, LinkSession
from isthmus.runtime.link.wire import LinkError, LinkHello, LinkReader, encode_report

LIMIT = 1 << 20


AS_BLOCK = Epoch(1, 2, 0)


def frame(number: int, word: bool = False) -> bytes:
    return encode(Progress(first_epoch() if word else AS_BLOCK, number))


class End:
    """One end, with the bytes that are on their way to it."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.session: LinkSession | None = None
        self.reader = LinkReader()
        self.wire: deque[bytes] = deque()
        self.sent = {True: 0, False: 0}
        self.got: dict[bool, list[int]] = {True: [], False: []}

    def has_all_of(self, sender: End) -> bool:
        return all(self.got[word] == list(range(1, sender.sent[word] + 1)) for word in (True, False))

    def hello(self) -> LinkHello:
        known, received = (self.session.life, self.session.received) if self.session else (0, 0)
        return LinkHello(1, 1, self.life, self.life, known, received)

    def meet(self, hello: LinkHello) -> None:
        if self.session is None:
            self.session = LinkSession(1, hello.process, hello.life, LIMIT)
        self.session.resume(self.session.check(hello, self.life))
        self.reader = LinkReader(self.session.received)
        self.wire.clear()


class Sessions(RuleBasedStateMachine):
    """Two ends; the connection between them is cut at any moment, also between the two hellos."""

    def __init__(self) -> None:
        super().__init__()
        self.dialler, self.listener = End(1), End(2)
        self.connected = False

    def ends(self, dialler: bool) -> tuple[End, End]:
        return (self.dialler, self.listener) if dialler else (self.listener, self.dialler)

    @precondition(lambda self: not self.connected)
    @rule(answer_arrives=st.booleans())
    def call(self, answer_arrives: bool) -> None:
        self.listener.meet(self.dialler.hello())
        if answer_arrives:
            self.dialler.meet(self.listener.hello())
            self.connected = True

    @rule()
    def cut(self) -> None:
        self.connected = False

    @rule(dialler=st.booleans(), word=st.booleans())
    def send(self, dialler: bool, word: bool) -> None:
        end, _ = self.ends(dialler)
        if end.session is not None:
            end.sent[word] += 1
            end.session.add(frame(end.sent[word], word), word=word)

    @precondition(lambda self: self.connected)
    @rule(dialler=st.booleans(), size=st.integers(1, 200))
    def write(self, dialler: bool, size: int) -> None:
        end, other = self.ends(dialler)
        assert end.session is not None
        buffers, _, _ = end.session.take(size)
        other.wire.extend(buffers)

    @precondition(lambda self: self.connected)
    @rule(dialler=st.booleans())
    def report(self, dialler: bool) -> None:
        end, other = self.ends(dialler)
        assert end.session is not None
        other.wire.append(encode_report(end.session.received, 0, 0))

    @precondition(lambda self: self.connected)
    @rule(dialler=st.booleans(), buffers=st.integers(1, 10))
    def arrive(self, dialler: bool, buffers: int) -> None:
        end, _ = self.ends(dialler)
        assert end.session is not None
        for _ in range(min(buffers, len(end.wire))):
            arrivals = end.reader.feed(end.wire.popleft())
            assert arrivals.failure is None
            end.session.received += len(arrivals.pdus)
            for pdu in arrivals.pdus:
                assert isinstance(pdu, Progress)
                end.got[pdu.epoch != AS_BLOCK].append(pdu.received)
            if arrivals.report is not None:
                end.session.acknowledge(arrivals.report[0])

    @invariant()
    def in_order_and_once(self) -> None:
        for sender, receiver in (self.ends(True), self.ends(False)):
            for word, got in receiver.got.items():
                assert got == list(range(1, len(got) + 1))
                assert len(got) <= sender.sent[word]
            if sender.session is not None:
                assert sender.session.acknowledged <= sum(map(len, receiver.got.values()))
                assert sender.session.acknowledged + sender.session.kept == sum(sender.sent.values())
                assert (sender.session.kept_bytes == 0) == (sender.session.kept == 0)

    def teardown(self) -> None:
        """One connection that lasts brings everything."""
        self.cut()
        self.call(answer_arrives=True)
        for dialler in (True, False):
            self.write(dialler, 1 << 30)
            self.arrive(not dialler, 1 << 30)
        assert self.listener.has_all_of(self.dialler)
        assert self.dialler.has_all_of(self.listener)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=80, stateful_step_count=40)


def session_with(sent: int, written: int) -> LinkSession:
    session = LinkSession(1, 8, 77, LIMIT)
    for number in range(1, sent + 1):
        session.add(frame(number), word=False)
    while written:
        session.take(1)
        written -= 1
    return session


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    session = session_with(sent=5, written=3)
    session.acknowledge(2)
    for received in (1, 4):
        with pytest.raises(LinkError, match=f"received {received} frames, but 2 were acknowledged and 3 sent"):
            session.acknowledge(received)
        with pytest.raises(LinkError, match="claims to have received"):
            session.check(LinkHello(1, 1, 8, 77, 99, received), 99)
    with pytest.raises(LinkError, match="received 0 frames"):
        session.check(LinkHello(1, 1, 8, 77, 5, 3), 99)
    assert (session.acknowledged, session.kept, session.unwritten) == (2, 3, 2)


def test_only_so_much_is_kept() -> None:
    session = LinkSession(1, 8, 77, limit=100)
    size = session.add(bytes(60), word=False)
    assert size == session.kept_bytes == 76
    with pytest.raises(LinkOverflow, match="may not keep more") as problem:
        session.add(bytes(9), word=False)
    assert problem.value.link == 1
    session.add(bytes(8), word=True)
    assert session.kept_bytes == 100


def test_a_word_goes_before_all_blocks_but_behind_what_has_a_number() -> None:
    session = session_with(sent=3, written=1)
    session.add(frame(1, word=True), word=True)
    assert session.take(1)[0][1] == frame(1, word=True)
    session.resume(0)
    session.add(frame(2, word=True), word=True)
    again = [session.take(1)[0][1] for _ in range(5)]
    assert again == [frame(1), frame(1, word=True), frame(2, word=True), frame(2), frame(3)]


def test_how_many_frames_are_written_again_is_known() -> None:
    session = session_with(sent=5, written=4)
    assert session.resume(1) == 3
    buffers, frames, size = session.take(1 << 20)
    assert frames == 4
    assert size == sum(map(len, buffers))
    assert [int.from_bytes(header[8:], "big") for header in buffers[::2]] == [2, 3, 4, 5]


def test_a_claim_is_measured_by_what_was_ever_sent() -> None:
    """Three frames arrived. A call that was made before brings everything back; the next one knows better."""
    session = session_with(sent=3, written=3)
    session.resume(session.check(LinkHello(1, 1, 8, 77, 99, 0), 99))
    assert session.unwritten == 3
    session.resume(session.check(LinkHello(1, 1, 8, 77, 99, 3), 99))
    assert session.kept == 0
