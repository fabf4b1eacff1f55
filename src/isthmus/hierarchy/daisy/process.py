"""A process of a daisy, through all changes of its tree (docs/design/daisy-changes.md).

In each *generation* of the tree it is in one local group, and perhaps a server: that is
`hierarchy/daisy/generation.py`, the protocol of daisy, Sect. 3. Here is the way from one generation to the next:
`_count` finds out who is there and who is done; the topmost server says halt, and later which groups there will be
(`_consider`); `_begin` is the next one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import NamedTuple, Self

import msgspec
from msgspec import Struct

from isthmus.core.endpoint import Hold, Outbox
from isthmus.core.freeze import freeze
from isthmus.core.ids import MessageId, Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import segments_of
from isthmus.core.wire.daisy import Census, ChangePdu, DaisyFrame, Halt, Knock, Over, Welcome
from isthmus.core.wire.group import Counts
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.census import Poll, fellows
from isthmus.hierarchy.daisy.generation import DaisyGeneration, Level
from isthmus.hierarchy.daisy.local import LocalGroup
from isthmus.hierarchy.daisy.shape import Shape, Sizes, admit, fit, names_given, regroup, traffic_of
from isthmus.hierarchy.daisy.tree import TOP, DaisyTree, grown
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.membership import EXCLUDED
from isthmus.ordering.group.window import GroupSettings

PARTNERS = 8
"""How many of those that it writes to most a process tells."""

REPEAT = 8
"""Heartbeats after which a census that has not changed is told again: the last one may have been lost."""

KNOCKS = 8
"""Processes that one outside knocks at with every heartbeat."""

PATIENCE = 8
"""Times of `suspect_after`: so long does a knock count, and so long may one that was let in take to begin."""

OUTSIDE = -1
"""The generation of a process that is in no tree yet: it is alone, halted, and says nothing in it."""


class Beginning(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the last message of a generation says: the next tree, and the number of everybody's last message."""

    shape: Shape
    marks: Counts


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Beginning)


class Waiting(NamedTuple):
    """Messages that were sent while the tree was changing."""

    destinations: tuple[ProcessId, ...]
    first: int
    payloads: Sequence[bytes]


class DaisyProcess:
    """One process as an Endpoint. One that is not in `tree` asks to be let in.

    `former` is the generation before, as long as somebody may not have its last message. `waiting_to_send` is empty
    except while `halted`. `not_heard` are members of the local group that may not have begun this generation yet, and
    until when that is no reason to suspect them.
    """

    def __init__(
        self, owner: ProcessId, tree: DaisyTree, settings: GroupSettings | None = None, now: Nanos = 0
    ) -> None:
        self.id = owner
        self.settings = settings or GroupSettings()
        self.options = tree.options
        self.sizes = Sizes(tree.options.merge_below, tree.options.split_above)
        self._contacts = deque(tree.groups[TOP].everybody)
        self.halted = not tree.knows((owner,))
        if self.halted:
            tree = grown(Shape(processes=(owner,)), OUTSIDE, tree.options)
        self.current = DaisyGeneration(owner, tree, self.settings, now)
        self.former: DaisyGeneration | None = None
        self.waiting_to_send: deque[Waiting] = deque()
        self.not_heard: dict[ProcessId, Nanos] = {}
        self.sent_to: Counter[ProcessId] = Counter()
        self._last_seq = 0
        self._last_sent = 0
        self._leaving = False
        self._poll = Poll()
        self._last_message = b""
        self._stopped = ""
        self._over = OUTSIDE
        self._knocks: dict[ProcessId, Nanos] = {}
        self._last_census: tuple[ProcessId, Census] | None = None
        self._silent_for = 0
        self._counted = 0
        self._next_poll = now
        self._aside = Outbox()

    # What it is in now

    @property
    def tree(self) -> DaisyTree:
        return self.current.tree

    @property
    def below(self) -> GroupMember:
        """The group layer that all rests on: the member of its local group."""
        return self.local.member

    @property
    def local(self) -> LocalGroup:
        return self.current.local

    @property
    def levels(self) -> list[Level]:
        return self.current.levels

    @property
    def unstable(self) -> dict[MessageId, Clocked]:
        """This process's messages that some destination may not have."""
        return self.current.unstable

    @property
    def is_outside(self) -> bool:
        """Whether this process has not been let into the daisy yet."""
        return self.tree.generation == OUTSIDE

    @property
    def is_changing(self) -> bool:
        return self.halted or self.former is not None

    @property
    def is_quiet(self) -> bool:
        """Whether everything is stable that was sent here, or kept here for others, and the tree is not changing."""
        return not self.waiting_to_send and self.former is None and self.current.is_quiet and not self.halted

    # Application side

    def send(self, destinations: Sequence[ProcessId], payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        """Messages to these processes; to none, if all are for everybody. Returns the sequence number of the first."""
        assert bool(destinations) is (self.options.audience == "some"), "a message for nobody"
        chosen = tuple(sorted(set(destinations)))
        first = self._last_seq + 1
        self._last_seq += len(payloads)
        self.waiting_to_send.append(Waiting(chosen, first, payloads))
        self._send_waiting(now, out)
        return first

    def _send_waiting(self, now: Nanos, out: Outbox) -> None:
        while self.waiting_to_send and not self.halted:
            chosen, first, payloads = self.waiting_to_send.popleft()
            self._last_sent = first + len(payloads) - 1
            # A destination that is in no group is gone, and has no say in what is stable.
            present = tuple(each for each in chosen if self.tree.knows((each,)))
            if present or not chosen:
                self.sent_to.update(dict.fromkeys(present, len(payloads)))
                self.current.send(present, first, payloads, now, out)
            else:
                segments = segments_of(self.id, first, payloads)
                out.stable.extend(Batch(0, self.id, first, [], 0, each) for each in segments)

    def credit(self) -> int:
        """How many more messages fit now: 0 while too many are not stable everywhere, or have not been sent."""
        if self._leaving:
            return 0
        return max(0, self.current.credit() - sum(len(each.payloads) for each in self.waiting_to_send))

    def leave(self, now: Nanos, out: Outbox) -> None:
        """Stop accepting, see everything sent through to stability, then go. `stopped` says when."""
        self._leaving = True
        if self.is_outside and not self.waiting_to_send:
            self.current.leave(now, out)

    # Network and time

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        frames = []
        for pdu in pdus:
            if not isinstance(pdu, DaisyFrame):
                continue
            if isinstance(pdu.pdu, ChangePdu):
                self._on_change(source, pdu, pdu.pdu, now, out)
            elif pdu.generation == self.tree.generation:
                frames.append(pdu)
            elif pdu.generation < self.tree.generation:
                self._of_before(source, pdu, now, out)
        if frames:
            self.not_heard.pop(source, None)
            self.current.receive(source, frames, now, out)
            self._see_whether_it_ended(now, out)
        out.stopped = out.stopped or self._stopped

    def wake(self, now: Nanos, out: Outbox) -> None:
        if self.former is not None:
            self.former.wake(now, self._aside)
            self._carry_former(out)
        if now >= self._next_poll:
            self._next_poll = now + self.settings.heartbeat
            self._wait_for_beginners(now)
            self._ask_whether_it_is_over(out)
            if self._leaving and not self.halted and not self.waiting_to_send:
                self.current.leave(now, out)
            if self.is_outside:
                self._knock(out)
            elif self.options.changes:
                self._count(now, out)
        self.current.wake(now, out)
        self._see_whether_it_ended(now, out)
        out.stopped = out.stopped or self._stopped

    def deadline(self) -> Nanos | None:
        deadlines = [self._next_poll, self.current.deadline()]
        if self.former is not None:
            deadlines.append(self.former.deadline())
        return None if None in deadlines else min(each for each in deadlines if each is not None)

    # Census

    def _count(self, now: Nanos, out: Outbox) -> None:
        """Tell the server of the highest group that we are in about everybody below us; at the top, consider it."""
        partners = sorted(self.sent_to.most_common(PARTNERS))
        ready = self.halted and self.former is None and self.current.is_quiet
        newcomers = sorted(each for each, until in self._knocks.items() if now < until)
        mine = Census(0, self.halted, ready, [(self.id, self._last_sent, partners)], newcomers)
        for level in self.levels:
            if level.server != self.id:
                if level.server is not None:
                    self._tell(level, level.server, mine, out)
                return
            if self.halted and (others := self._poll.not_halted(level)):
                self._say(out, others, level.number, Halt())
            gathered = self._poll.gather(level, mine)
            if gathered is None:
                return
            mine = gathered
        self._consider(mine, now, out)

    def _tell(self, level: Level, server: ProcessId, mine: Census, out: Outbox) -> None:
        mine = msgspec.structs.replace(mine, view=level.view_number)
        self._silent_for += 1
        if self._last_census != (server, mine) or self._silent_for >= REPEAT:
            self._last_census, self._silent_for = (server, mine), 0
            self._say(out, (server,), level.number, mine)

    def _consider(self, census: Census, now: Nanos, out: Outbox) -> None:
        """We are the topmost server, and this is everybody. Halt if groups should be others; end when all are done.

        All of them have begun this generation, and who has not is in no view of it: so the former one is over, and it
        may be that nobody is left in it who could find out in any other way.
        """
        self._over, self.former = self.tree.generation - 1, None
        if self.current.ending:
            return
        present = self.tree.shape().only({process for process, _, _ in census.people})
        wanted = self._wanted(present, census)
        if not self.halted:
            self.halted = not wanted.same_as(present)
        elif census.ready:
            marks = [(process, last) for process, last, _ in census.people]
            named = names_given(wanted, f"g{self.tree.generation + 1}")
            self.current.end(self._last_sent + 1, _encoder.encode(Beginning(named, marks)), now, out)

    def _wanted(self, present: Shape, census: Census) -> Shape:
        traffic = traffic_of({process: partners for process, _, partners in census.people})
        wanted = fit(admit(present, set(census.newcomers) - set(present.everybody())), self.sizes, traffic)
        counted = sum(traffic.values())
        # Who decides may be another than who found that it was time: while all wait, the whole count is looked at.
        before = 0 if self.halted else self._counted
        if self.options.reconsider and counted >= before + self.options.reconsider:
            self._counted = counted
            wanted = regroup(wanted, self.sizes, traffic) or wanted
        return wanted

    # From one generation to the next

    def _see_whether_it_ended(self, now: Nanos, out: Outbox) -> None:
        last = self.current.ended_by
        if last is not None:
            ended = self.current
            self._begin(self.tree.generation + 1, last.segment.data, now, out)
            if self.current is not ended:
                self.former = ended

    def _begin(self, generation: int, last_message: bytes, now: Nanos, out: Outbox) -> None:
        try:
            beginning = _decoder.decode(last_message)
            tree = grown(beginning.shape, generation, self.options)
        except (msgspec.DecodeError, RecursionError):
            return  # no member of this group has made that
        if not tree.knows((self.id,)):
            self._stop(out)
            return
        before = self.tree
        self._last_message = last_message
        self.current = DaisyGeneration(self.id, tree, self.settings, now, self.current.clock, beginning.marks)
        out.deliveries.append(self.current.view())
        patient = now + PATIENCE * self.settings.suspect_after
        others = (each for each in self.local.view.members if each != self.id)
        self.not_heard = {each: now if before.knows((each,)) else patient for each in others}
        self._poll = Poll()
        self._last_census = None
        self._knocks.clear()
        # Old habits count half as much as what is done from now on.
        self.sent_to = Counter({each: count // 2 for each, count in self.sent_to.items() if count > 1})
        self._counted = 0
        self.halted = False
        self._send_waiting(now, out)

    def _wait_for_beginners(self, now: Nanos) -> None:
        """Suspect nobody of not having begun as long as somebody may not have; newcomers may take even longer."""
        for each, until in self.not_heard.items():
            if self.former is not None or now < until:
                self.local.member.detector.heard(each, now)

    def _ask_whether_it_is_over(self, out: Outbox) -> None:
        """Ask whether the former generation is over; also our present groups, as all of the former may be dead."""
        if self.former is not None:
            others = {each for level in self.levels for each in fellows(level)}
            out.sends.append((tuple(sorted(others)), DaisyFrame(TOP, self.former.tree.generation, Halt())))

    def _stop(self, out: Outbox) -> None:
        """Stop this process: the others have gone on without it."""
        self._stopped = out.stopped = EXCLUDED

    def _of_before(self, source: ProcessId, frame: DaisyFrame, now: Nanos, out: Outbox) -> None:
        if self.former is not None and frame.generation == self.former.tree.generation:
            self.former.receive(source, [frame], now, self._aside)
            self._carry_former(out)
        else:
            self._say_whether_it_is_over(source, frame, out)

    def _say_whether_it_is_over(self, source: ProcessId, frame: DaisyFrame, out: Outbox) -> None:
        if frame.generation <= self._over:
            out.sends.append(((source,), DaisyFrame(frame.group, frame.generation, Over())))

    def _carry_former(self, out: Outbox) -> None:
        """Let the former generation go on until everybody has its last message; it does nothing else any more."""
        aside, former = self._aside, self.former
        assert former is not None
        out.addressed += aside.addressed
        out.sends += aside.sends
        out.holds += aside.holds
        out.carried += aside.carried
        if former.is_over:
            self._over, self.former = former.tree.generation, None
        elif aside.stopped:
            # Its group took us for dead, so we shall not hear when it is over; others will tell those who ask.
            self.former = None
        aside.clear()

    def _on_change(self, source: ProcessId, frame: DaisyFrame, pdu: ChangePdu, now: Nanos, out: Outbox) -> None:
        if isinstance(pdu, Knock):
            self._on_knock(source, now, out)
        elif isinstance(pdu, Welcome):
            if self.is_outside:
                self._begin(frame.generation, pdu.last, now, out)
        elif isinstance(pdu, Over):
            if frame.generation < self.tree.generation:
                self._over = max(self._over, frame.generation)
            if self.former is not None and frame.generation == self.former.tree.generation:
                self.former = None
            elif frame.generation == self.tree.generation:
                # Everybody has begun the next one: we were taken for dead.
                self._stop(out)
        elif frame.generation < self.tree.generation:
            self._say_whether_it_is_over(source, frame, out)
        elif frame.generation == self.tree.generation and self.options.changes and self.tree.knows((source,)):
            if isinstance(pdu, Halt):
                self.halted = True
            else:
                self._poll.hear(frame.group, source, pdu)
                self.halted = self.halted or pdu.halted

    # Newcomers

    def _knock(self, out: Outbox) -> None:
        out.sends.append((tuple(islice(self._contacts, KNOCKS)), DaisyFrame(TOP, 0, Knock())))
        self._contacts.rotate(-KNOCKS)

    def _on_knock(self, source: ProcessId, now: Nanos, out: Outbox) -> None:
        if self.is_outside or not self.options.changes:
            return
        if self._last_message and self.tree.knows((source,)):
            out.sends.append(((source,), DaisyFrame(TOP, self.tree.generation, Welcome(self._last_message))))
        else:
            self._knocks[source] = now + PATIENCE * self.settings.suspect_after

    def _say(self, out: Outbox, destinations: tuple[ProcessId, ...], group: int, pdu: ChangePdu) -> None:
        out.sends.append((destinations, DaisyFrame(group, self.tree.generation, pdu)))

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        """What has arrived here and is not delivered, and why."""
        return self.current.waiting()

    def invariants(self) -> None:
        self.current.invariants()
        assert self.halted or not self.waiting_to_send, "a message waits for nothing"
        if self.former is not None:
            assert self.former.tree.generation == self.tree.generation - 1, "generations are left out"

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        former = None if self.former is None else self.former.snapshot()
        return self.current.snapshot(), former, freeze((self.waiting_to_send, self._last_seq, self.halted))
