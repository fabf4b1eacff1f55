"""A process of a daisy whose messages are all for everybody, as a member of a broadcast system (daisy-joins.md).

To an application, and to the joins of a gateway, it is what a member of a group is: `broadcast`, `relay`, batches and
views in one sequence, `stable`, `settled`. What a gateway relays it sends as a message of its own, with the message as
it was born in the payload; whoever delivers that hands out what is inside.

Own messages are stable when they are settled in the daisy and every gateway has finished with them. The first is known
here; the second the gateways are asked for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Self

import msgspec
from msgspec.structs import replace

from isthmus.core.endpoint import Carried, Hold, Outbox, View
from isthmus.core.freeze import freeze
from isthmus.core.ids import Nanos, ProcessId, slot_of
from isthmus.core.message import MAX_RUN_BYTES, Batch
from isthmus.core.segment import EMPTY, MAX_SEGMENT_MESSAGES, Segment, portions, segments_of, take, total
from isthmus.core.wire.daisy import Finished, HowFar
from isthmus.core.wire.pdu import Pdu
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.tree import DaisyTree
from isthmus.ordering.group.window import GroupSettings

GROUP_VIEWS = 1_000_000
"""Views of a local group are numbered from so many times its number on, so that those of two groups differ."""

_ALL_BYTES = 1 << 62
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Segment)


def daisy_member(
    process: ProcessId, tree: DaisyTree, gateways: Collection[int], settings: GroupSettings, now: Nanos
) -> DaisyMember:
    """One process of a daisy. How far a gateway has finished it says to those who ask; inside, delivery is enough."""
    if slot_of(process) in gateways:
        settings = replace(settings, auto_confirm=True)
    return DaisyMember(DaisyProcess(process, tree, settings, now), gateways)


def _born(payload: bytes) -> Segment:
    """The messages that a gateway has sent in one of its own; none, where that is nonsense."""
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError:
        return EMPTY


class DaisyMember:
    """One process. `gateways` are the slots of those of the system, if it is joined to others.

    `own` are its messages that are not stable, in order, at a process that is no gateway. `settled_through` is, of each
    origin in the daisy, the number up to which all is settled there. `finished` is how far the application (at a
    gateway, the joins) has finished with the messages of each.
    """

    newcomers: None = None
    """Nobody comes to a daisy that is joined to other systems."""

    def __init__(self, process: DaisyProcess, gateways: Collection[int] = ()) -> None:
        self.process = process
        self.id = process.id
        self.settings = process.settings
        self.stopped = ""
        self.gateways = tuple(sorted(gateways))
        self.is_gateway = slot_of(self.id) in self.gateways
        self.own: deque[Segment] = deque()
        self.settled_through: dict[ProcessId, int] = {}
        self.finished: dict[ProcessId, int] = {}
        self._answers: dict[ProcessId, int] = {}
        self._not_settled: defaultdict[ProcessId, deque[int]] = defaultdict(deque)
        self._settled_early: defaultdict[ProcessId, set[int]] = defaultdict(set)
        self._gateways_in = 0
        self._gateways_left: Collection[ProcessId] = self.gateways
        self._leaving = False
        self._ask_at = 0
        self._inner = Outbox()

    @property
    def below(self) -> DaisyProcess:
        """The group member that this process rests on."""
        return self.process

    @property
    def view(self) -> View:
        return self._named(self.process.current.view())

    def _named(self, view: View) -> View:
        return View(self.process.local.number * GROUP_VIEWS + view.number, view.members)

    # Application side

    def broadcast(self, payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        first = self.process.send((), payloads, now, self._inner)
        self.own.extend(segments_of(self.id, first, payloads))
        self._hand_over(out)
        return first

    def relay(self, segments: Sequence[Segment], now: Nanos, out: Outbox) -> None:
        """Broadcast messages that were born in another system. Only gateways do so."""
        if self.stopped:
            return
        enveloped = [_encoder.encode(segment) for segment in portions(segments, MAX_RUN_BYTES)]
        self.process.send((), enveloped, now, self._inner)
        self._hand_over(out)

    def credit(self) -> int:
        messages, size = total(self.own)
        if self.stopped or self._leaving or size >= self.settings.window_bytes:
            return 0
        return max(0, self.settings.window_messages - messages)

    def confirm(self, sender: ProcessId, number: int, now: Nanos, out: Outbox) -> None:
        """The application, which at a gateway are the joins, has finished with these messages of a process."""
        self.finished[sender] = number
        if not self.settings.auto_confirm and not self.stopped:
            self.process.current.finish(self.finished, now, self._inner)
            self._hand_over(out)

    def leave(self, now: Nanos, out: Outbox) -> None:
        """Stop accepting, see everything accepted through to stability, then go. `stopped` says when."""
        self._leaving = True
        self._go_if_done(now)
        self._hand_over(out)

    def _go_if_done(self, now: Nanos) -> None:
        if self._leaving and not self.own:
            self.process.leave(now, self._inner)

    # Network and time

    def receive(self, source: ProcessId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        if self.stopped:
            return
        frames: list[Pdu] = []
        for pdu in pdus:
            if isinstance(pdu, HowFar):
                self._on_how_far(source, out)
            elif isinstance(pdu, Finished):
                self._on_finished(source, pdu)
            else:
                frames.append(pdu)
        self.process.receive(source, frames, now, self._inner)
        self._hand_over(out)

    def wake(self, now: Nanos, out: Outbox) -> None:
        if self.stopped:
            return
        self.process.wake(now, self._inner)
        if now >= self._ask_at:
            self._ask_at = now + self.settings.heartbeat
            self._ask(out)
            self._go_if_done(now)
        self._hand_over(out)

    def deadline(self) -> Nanos | None:
        """The daisy has something to do with every heartbeat, so questions need no time of their own."""
        return None if self.stopped else self.process.deadline()

    # Beyond the daisy

    def _ask(self, out: Outbox) -> None:
        """Ask the gateways about own messages that are settled here."""
        if self.own and self.gateways and self._first_own <= self.settled_through.get(self.id, 0):
            out.sends.append((self.gateways, HowFar()))

    def _on_how_far(self, source: ProcessId, out: Outbox) -> None:
        if self.is_gateway:
            left = [member for member in self.view.members if slot_of(member) in self.gateways]
            out.sends.append(((source,), Finished(self.view.number, left, self.finished.get(source, 0))))

    def _on_finished(self, source: ProcessId, pdu: Finished) -> None:
        """An answer. Who was taken for dead answers in an earlier view, in which others would have to agree."""
        if source not in pdu.gateways or not set(pdu.gateways).issubset(self.gateways):
            return
        if pdu.view > self._gateways_in:
            self._gateways_in, self._gateways_left = pdu.view, tuple(pdu.gateways)
        self._answers[source] = max(pdu.number, self._answers.get(source, 0))

    @property
    def _first_own(self) -> int:
        """The number of the first own message that is not stable."""
        return self.own[0].marks[self.id] - self.own[0].messages + 1

    @property
    def finished_beyond(self) -> int:
        """The number up to which own messages are finished with in all other systems."""
        last = self.own[-1].marks[self.id] if self.own else 0
        return min((self._answers.get(each, 0) for each in self._gateways_left), default=last)

    # Out

    def _hand_over(self, out: Outbox) -> None:
        """Put what the daisy wants done into the outbox, in the words of a broadcast system."""
        inner = self._inner
        out.deliveries += self._delivered(inner.deliveries)
        for origin, seq in inner.settled:
            self.note_settled(origin, seq, out)
        out.holds += self._opened_holds(inner.holds)
        out.carried += self._opened_carried(inner.carried)
        out.sends += inner.sends
        self.stopped = out.stopped = self.stopped or inner.stopped or out.stopped
        inner.clear()
        self._free_own(out)

    def _delivered(self, items: Sequence[Batch | View]) -> Iterator[Batch | View]:
        """Deliveries as an application knows them, each a run; or one that a gateway had inside one of its own."""
        for item in items:
            if isinstance(item, View):
                yield self._named(item)
            else:
                self.note_delivered(item.sender, item.number)
                segments = list(self._opened(item.segment))
                for number, segment in enumerate(segments, item.number - len(segments) + 1):
                    yield replace(item, number=number, segment=segment)

    def _opened(self, run: Segment) -> Iterator[Segment]:
        """What an application knows of a run: it as it is, or what a gateway had to broadcast, message by message."""
        (origin,) = run.marks
        return map(_born, run.payloads()) if slot_of(origin) in self.gateways else iter((run,))

    def _opened_holds(self, holds: Iterable[Hold]) -> Iterator[Hold]:
        for hold in holds:
            for segment in self._opened(hold.batch.segment):
                yield hold._replace(batch=replace(hold.batch, segment=segment))

    def _opened_carried(self, carried: Iterable[Carried]) -> Iterator[Carried]:
        for each in carried:
            for segment in self._opened(each.segment):
                yield each._replace(segment=segment)

    def note_delivered(self, origin: ProcessId, last: int) -> None:
        """Note a run that is delivered, and settled some day."""
        self._not_settled[origin].append(last)

    def note_settled(self, origin: ProcessId, last: int, out: Outbox) -> None:
        """Note that a run is settled. Such words come one by one, and not always in order."""
        waiting, early = self._not_settled[origin], self._settled_early[origin]
        if last <= self.settled_through.get(origin, 0):
            return
        early.add(last)
        through = 0
        while waiting and waiting[0] in early:
            through = waiting.popleft()
            early.discard(through)
        if through:
            self.settled_through[origin] = through
            out.settled.append((origin, through))

    def _free_own(self, out: Outbox) -> None:
        """Own messages that have become stable in all systems: the window moves."""
        level = min(self.settled_through.get(self.id, 0), self.finished_beyond)
        while self.own and level >= self._first_own:
            messages = min(level - self._first_own + 1, MAX_SEGMENT_MESSAGES)
            stable = take(self.own, messages, _ALL_BYTES, _ALL_BYTES)
            out.stable.append(Batch(0, self.id, stable.marks[self.id], [], 0, stable))

    # The cold path

    def unfinished(self) -> int:
        """Messages accepted here that are not stable yet; of a gateway, those that are not settled in the daisy."""
        return len(self.process.unstable) if self.is_gateway else total(self.own)[0]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing that is known here is on its way."""
        return not self.unfinished() and self.process.is_quiet

    def invariants(self) -> None:
        self.process.invariants()
        if self.own:
            through = min(self.settled_through.get(self.id, 0), self.finished_beyond)
            assert self._first_own > through, f"{self._first_own} is stable up to {through}, and kept"
        for origin, waiting in self._not_settled.items():
            assert not waiting or waiting[0] not in self._settled_early[origin], f"{waiting[0]} of {origin} is settled"

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return self.process.snapshot(), freeze((self.own, self.settled_through, self.finished, self._gateways_left))
