"""One gateway: all joins of its system that it takes part in.

It hands each delivery to the joins that carry it on and to the one that it came by, and finishes with a local batch
when every join that the batch went out by has confirmed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Self

from isthmus.core.endpoint import View
from isthmus.core.freeze import freeze
from isthmus.core.gateway import UNKNOWN_LINE, GatewayOutbox
from isthmus.core.ids import MILLISECOND, LinkId, Nanos, ProcessId, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.message import Batch
from isthmus.core.wire.join import (
    Behind,
    Block,
    Confirm,
    FellowAssign,
    FellowBegin,
    FellowBehind,
    FellowBroken,
    FellowCaughtUp,
    FellowConfirm,
    FellowFree,
    FellowFreeze,
    FellowFrozen,
    FellowLink,
    FellowOpen,
    FellowPass,
    FellowPdu,
    FellowProgress,
    FellowResume,
    Line,
    LinkFarewell,
    LinkPdu,
    Open,
    Progress,
    Resume,
)
from isthmus.join.export import Export
from isthmus.join.imports import Import
from isthmus.join.plan import JoinPlan
from isthmus.join.recovery import NOTHING, Recovered, Replay, SettledMarks

RETRY_AFTER: Nanos = 100 * MILLISECOND
MOST_WORDS = 4096
"""Kept of a gateway that is in no view yet. It has a few to say: which of its links work, and that it is caught up."""


class JoinGateway:
    """The join protocols of one gateway. `exports` and `imports` are by join.

    `_unfinished` holds, per local sender, the batches that joins have not confirmed yet. `is_caught_up` is off at a
    gateway that has come and does not know yet what its system holds from before its time; `has_come` says that it is
    in a view. `done_before` is what former lives of the system were done with.
    """

    def __init__(
        self,
        owner: ProcessId,
        members: Sequence[ProcessId],
        plans: Sequence[JoinPlan],
        retry_after: Nanos = RETRY_AFTER,
        *,
        joining: bool = False,
        keeping: bool = False,
        recovered: Recovered = NOTHING,
    ) -> None:
        self.id = owner
        mine = [plan for plan in plans if slot_of(owner) in plan.fellows]
        self.exports = {plan.join: Export(plan, owner, retry_after, late=joining) for plan in mine}
        self.imports = {plan.join: Import(plan, owner, self.exports[plan.join].outstanding) for plan in mine}
        self._join_of: dict[LinkId, int] = {
            end.link: plan.join for plan in mine for end in plan.links if end.near == slot_of(owner)
        }
        self._peers: dict[LinkId, ProcessId] = {}
        self._unfinished: dict[ProcessId, deque[tuple[int, list[tuple[Export, ProcessId, int]]]]] = {}
        self._everybody = {fellow for plan in plans for fellow in plan.fellows}
        self._exported = {plan.join: plan.exported for plan in plans}
        self._confirmed_by = {
            plan.join: self.exports[plan.join].outstanding.confirmed if plan.join in self.exports else SlotMarks()
            for plan in plans
        }
        self.done_before = recovered.done
        self.is_caught_up = not joining
        self.has_come = not joining
        self._base: dict[ProcessId, int] = {}
        self._too_early: dict[ProcessId, list[FellowPdu]] = {}
        for join, export in self.exports.items():
            export.colleagues = _colleagues(self._everybody, members, owner)
            if joining:
                self.imports[join].comes_late()
                continue
            export.start(_fellows(export.plan, members))
            self.imports[join].start(export.fellows)
            export.go_on_from(recovered)
            self.imports[join].go_on_from(recovered)
        self._members = tuple(members)
        self._settled_marks = SettledMarks(recovered.done) if keeping else None
        self._replay = Replay(owner, self._everybody, recovered) if recovered.segments else None

    @property
    def links(self) -> Collection[LinkId]:
        """The links that end here."""
        return self._join_of.keys()

    # The own system

    def delivered(self, batch: Batch, now: Nanos, out: GatewayOutbox) -> None:
        segment = batch.segment
        if self._settled_marks is not None:
            self._settled_marks.delivered(batch.sender, batch.number, segment.marks)
        if self._replay is not None:
            self._replay.delivered(segment.marks)
        for join, export in self.exports.items():
            going = segment.only(export.goes_out)
            imports = self.imports[join]
            if going:
                export.delivered(going, now, out)
                imports.went_out(out)
            coming = segment.only(imports.comes_in)
            if coming:
                export.came_in(coming.marks)
                imports.delivered(batch.sender, batch.number, coming, out)
        self._unfinished.setdefault(batch.sender, deque()).append((batch.number, self._needs(batch)))
        self._finish(batch.sender, out)
        self._end_of_step(out)

    def view(self, view: View, now: Nanos, out: GatewayOutbox) -> None:
        self._members = view.members
        self._forget_departed()
        self._play_on(out)
        for join, export in self.exports.items():
            fellows = _fellows(export.plan, view.members)
            export.colleagues = _colleagues(self._everybody, view.members, self.id)
            if not self.has_come:
                self.imports[join].fellows = export.fellows = fellows
            self.imports[join].view(view.number, fellows, export.links_up, out)
            export.view(view.number, fellows, now, out)
        self.has_come = True
        for source in [source for source in self._too_early if not self._is_to_come(source)]:
            self.from_fellow(source, self._too_early.pop(source), now, out)
        self._end_of_step(out)

    def _forget_departed(self) -> None:
        """Nothing will come of senders that are in no view any more, and are finished with."""
        self._unfinished = {
            sender: queue for sender, queue in self._unfinished.items() if queue or sender in self._members
        }
        if self._settled_marks is not None:
            self._settled_marks.forget_all_but(self._members)

    def begin_behind(self, base: Mapping[ProcessId, int]) -> None:
        """A view begins, and of each sender everything up to `base` lies before it."""
        if not self.has_come:
            self._base = dict(base)

    def take_over(
        self, marks: Mapping[ProcessId, int], batches: Sequence[Batch], now: Nanos, out: GatewayOutbox
    ) -> None:
        """What was delivered before this gateway came, of each origin, and what of it may not have crossed yet."""
        self.is_caught_up = True
        past: dict[ProcessId, deque[tuple[int, list[tuple[Export, ProcessId, int]]]]] = {}
        for batch in batches:
            past.setdefault(batch.sender, deque()).append((batch.number, self._needs(batch)))
        for sender, number in self._base.items():
            if number:
                past.setdefault(sender, deque()).append((number, []))
        for sender, queue in self._unfinished.items():
            past.setdefault(sender, deque()).extend(queue)
        self._unfinished = past
        self._base = {}
        if self._settled_marks is not None:
            self._settled_marks.go_on_from(marks)
        # Before any word of links: who leads is to tell us the epoch before it gives us anything to carry.
        for join in self._exported:
            out.to_fellows.append((_colleagues(self._everybody, self._members, self.id), FellowCaughtUp(join)))
        for join, export in self.exports.items():
            earlier = [going for batch in batches if (going := batch.segment.only(export.goes_out))]
            export.catch_up(marks, earlier, now, out)
            self.imports[join].catch_up(marks, out)
        self._confirmed(True, out)
        self._end_of_step(out)

    def _needs(self, batch: Batch) -> list[tuple[Export, ProcessId, int]]:
        """Which joins have to confirm which message before this system may be done with a batch.

        Only the origin's own stream waits for the far side. What a gateway broadcast waits nowhere: its stream mixes
        messages of all joins, and two systems would wait for each other for ever.
        """
        last = batch.segment.marks.get(batch.sender)
        if last is None:
            return []
        return [(export, batch.sender, last) for export in self.exports.values() if export.goes_out(batch.sender)]

    def _play_on(self, out: GatewayOutbox) -> None:
        """After a restart of the whole site: broadcast what it had not finished before, if that falls to us."""
        if self._replay is not None:
            out.relays.extend(self._replay.due(self._members))

    @property
    def is_replayed(self) -> bool:
        """Whether everything that the site had not finished before its restart has been delivered here."""
        return self._replay is None or self._replay.over

    def done(self) -> dict[ProcessId, int]:
        """Per origin, the last message that everybody here has finished with and every join has confirmed.

        Only a gateway that keeps a journal, and has to know what it need not keep, keeps count of it.
        """
        assert self._settled_marks is not None, "this gateway keeps no journal"
        return self._settled_marks.done(self._onward)

    def confirmed_in_the_lead(self) -> Iterator[tuple[int, SlotMarks]]:
        """Of each join that this gateway leads: its place among those of the system, and what has been confirmed."""
        for place, join in enumerate(self._exported):
            export = self.exports.get(join)
            if export is not None and export.leads:
                yield place, export.outstanding.confirmed

    def _onward(self, origin: ProcessId, besides: int = -1) -> Iterator[SlotMarks]:
        """What has been confirmed by each join that the messages of an origin go out by."""
        for join, confirmed in self._confirmed_by.items():
            if join != besides and slot_of(origin) in self._exported[join]:
                yield confirmed

    def settled(self, sender: ProcessId, number: int, now: Nanos, out: GatewayOutbox) -> None:
        if self._settled_marks is not None:
            self._settled_marks.settled(sender, number)
        for join, imports in self.imports.items():
            self._confirm_upstream(join, imports.settled(sender, number, out), out)

    def all_have_arrived(self, now: Nanos, out: GatewayOutbox) -> None:
        """Every member of the own system has delivered all that lies before its present view."""
        for join, imports in self.imports.items():
            self._confirm_upstream(join, imports.all_have_arrived(out), out)

    def _confirm_upstream(self, join: int, origins: Collection[ProcessId], out: GatewayOutbox) -> None:
        """Confirm over a join what is finished with here and confirmed by every other join that it goes out by."""
        imports = self.imports[join]
        # Of each slot, the least of the marks: it may be that of a process before the one that is there now.
        levels = [
            min([imports.last_finished.of(origin), *(each.of(origin) for each in self._onward(origin, besides=join))])
            for origin in origins
        ]
        imports.confirm(dict(levels), self.exports[join].links_up, out)

    def _finish(self, sender: ProcessId, out: GatewayOutbox) -> None:
        """Tell the own system which batches of a sender are finished with, in their order."""
        if not self.is_caught_up:
            return
        queue = self._unfinished[sender]
        finished = 0
        while queue and all(export.outstanding.is_confirmed(origin, seq) for export, origin, seq in queue[0][1]):
            finished = queue.popleft()[0]
        if finished:
            out.confirms.append((sender, finished))
        if not queue and sender not in self._members:
            del self._unfinished[sender]

    # Links

    def from_link(self, link: LinkId, pdus: Sequence[LinkPdu], now: Nanos, out: GatewayOutbox) -> None:
        join = self._join_of.get(link)
        if join is None:
            return
        export, imports = self.exports[join], self.imports[join]
        for pdu in pdus:
            if isinstance(pdu, Block):
                imports.on_block(link, pdu, out)
            elif isinstance(pdu, Progress):
                export.on_progress(pdu.epoch, pdu.received, now, out, direct=True)
            elif isinstance(pdu, Confirm):
                self._confirmed(export.on_confirm(pdu.marks, out, direct=True), out)
            elif isinstance(pdu, Open):
                imports.on_open(link, pdu.epoch, out)
            elif isinstance(pdu, Resume):
                export.resumed(pdu.epoch, pdu.final, now, out)
            elif isinstance(pdu, LinkFarewell):
                self._lose(link, now, out)
            elif isinstance(pdu, Behind):
                export.on_behind(pdu.epoch, now, out)
            else:
                export.on_broken(pdu.epoch, now, out)
        self._end_of_step(out)

    def leave(self, now: Nanos, out: GatewayOutbox) -> None:
        """This gateway is about to leave its system: have both ends stop using its links, and it."""
        for join, imports in self.imports.items():
            imports.leave(self.exports[join].links_up, out)
        for link, join in self._join_of.items():
            if self.exports[join].links_up[link]:
                out.links.append((link, LinkFarewell()))
                self._lose(link, now, out)

    def link_up(self, link: LinkId, peer: ProcessId, now: Nanos, out: GatewayOutbox) -> None:
        join = self._join_of[link]
        if self._peers.get(link, peer) != peer:
            # A new process is there: what was on its way to the old one is lost.
            self._lose(link, now, out)
        self._peers[link] = peer
        self.exports[join].link_up(link, now, out)
        self.imports[join].link_up(link, out)
        self._end_of_step(out)

    def link_down(self, link: LinkId, now: Nanos, out: GatewayOutbox) -> None:
        self._lose(link, now, out)

    def _lose(self, link: LinkId, now: Nanos, out: GatewayOutbox) -> None:
        join = self._join_of[link]
        self.exports[join].link_down(link, now, out)
        self.imports[join].link_down(self.exports[join].links_up, out)

    def link_ready(self, link: LinkId, now: Nanos, out: GatewayOutbox, line: Line = UNKNOWN_LINE) -> None:
        self.exports[self._join_of[link]].link_ready(link, now, out, line)

    # Fellows

    def _is_to_come(self, source: ProcessId) -> bool:
        """Whether a process speaks of a view that has not begun here: it is in none so far, and nobody after it is."""
        slot = slot_of(source)
        return not any(slot_of(member) == slot and member >= source for member in self._members)

    def from_fellow(self, source: ProcessId, pdus: Sequence[FellowPdu], now: Nanos, out: GatewayOutbox) -> None:
        if self._is_to_come(source):
            kept = self._too_early.setdefault(source, []) if slot_of(source) in self._everybody else []
            kept.extend(pdus[: MOST_WORDS - len(kept)])
            return
        for pdu in pdus:
            export, imports = self.exports.get(pdu.join), self.imports.get(pdu.join)
            if export is not None and imports is not None and isinstance(pdu, FellowCaughtUp):
                export.on_caught_up(source, out)
                imports.on_caught_up(source, out)
                continue
            if export is None and isinstance(pdu, FellowConfirm) and pdu.join in self._confirmed_by:
                # A join of our system that we have no link of; but what came in by ours may have gone out by it.
                self._confirmed(self._confirmed_by[pdu.join].update(dict(pdu.marks)), out)
                continue
            if export is None or imports is None or source not in export.fellows:
                continue
            if isinstance(pdu, FellowAssign):
                export.on_assign(source, pdu, out)
            elif isinstance(pdu, FellowFree):
                export.on_free(pdu, now, out)
            elif isinstance(pdu, FellowProgress):
                export.on_progress(pdu.epoch, pdu.received, now, out, direct=False)
            elif isinstance(pdu, FellowConfirm):
                self._confirmed(export.on_confirm(pdu.marks, out, direct=False), out)
            elif isinstance(pdu, FellowOpen):
                export.opened(pdu, out)
            elif isinstance(pdu, FellowResume):
                export.on_resume(source, pdu, now, out)
            elif isinstance(pdu, FellowLink):
                export.on_link(pdu, now, out)
                if not pdu.up:
                    imports.link_down(export.links_up, out)
            elif isinstance(pdu, FellowBroken):
                export.on_broken(pdu.epoch, now, out)
            elif isinstance(pdu, FellowBehind):
                export.on_behind(pdu.epoch, now, out)
            elif isinstance(pdu, FellowFreeze):
                imports.on_freeze(source, pdu, out)
            elif isinstance(pdu, FellowFrozen):
                imports.on_frozen(source, pdu, out)
            elif isinstance(pdu, FellowBegin):
                imports.on_begin(pdu, out)
            elif isinstance(pdu, FellowPass):
                imports.on_block(None, pdu.block, out)
        self._end_of_step(out)

    def _confirmed(self, news: bool, out: GatewayOutbox) -> None:
        if news:
            for sender in list(self._unfinished):
                self._finish(sender, out)
            for join, imports in self.imports.items():
                waiting = [
                    origin for origin, seq in imports.last_finished.items() if seq > imports.last_confirmed.get(origin)
                ]
                self._confirm_upstream(join, waiting, out)

    def _end_of_step(self, out: GatewayOutbox) -> None:
        for join, imports in self.imports.items():
            imports.report(self.exports[join].links_up, out)

    # Time, and the cold path

    def wake(self, now: Nanos, out: GatewayOutbox) -> None:
        self._play_on(out)
        for export in self.exports.values():
            export.wake(now, out)

    def deadline(self) -> Nanos | None:
        return min((due for export in self.exports.values() if (due := export.deadline()) is not None), default=None)

    def unfinished(self) -> int:
        """Messages that some far side has not confirmed."""
        return sum(each.messages for export in self.exports.values() for each in export.outstanding.after(SlotMarks()))

    def invariants(self) -> None:
        for export in self.exports.values():
            export.invariants()
        for imports in self.imports.values():
            imports.invariants()

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return freeze(self)


def _fellows(plan: JoinPlan, members: Sequence[ProcessId]) -> tuple[ProcessId, ...]:
    """The live gateways of a join, first the one that leads."""
    return tuple(member for member in members if slot_of(member) in plan.fellows)


def _colleagues(gateways: set[int], members: Sequence[ProcessId], owner: ProcessId) -> tuple[ProcessId, ...]:
    """All other live gateways of the system that take part in any join."""
    return tuple(member for member in members if slot_of(member) in gateways and member != owner)
