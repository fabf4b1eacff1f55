"""One gateway: all joins of its system that it takes part in.

It hands what its system delivers to the joins that carry it on and to the one that it came by. Its system may forget a
message when every join that it goes out by has confirmed it; the far side of the join that it came in by hears that it
is stable when, besides, everybody here has finished with it.

What kind of system that is it never learns: all is counted in marks (core/gateway.py). Whoever knows the system's own
way to count derives from this class: `GroupGateway` (join/grouped.py) for one that counts in batches and views.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Self

from isthmus.core.endpoint import Outbox
from isthmus.core.freeze import freeze
from isthmus.core.gateway import UNKNOWN_LINE, Company
from isthmus.core.ids import MILLISECOND, LinkId, Nanos, ProcessId, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Marks, Segment
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
from isthmus.join.recovery import NOTHING, Recovered

RETRY_AFTER: Nanos = 100 * MILLISECOND
MOST_WORDS = 4096
"""Kept of a gateway that does not act yet. It has a few to say: which of its links work, and that it is caught up."""


class JoinGateway(ABC):
    """The join protocols of one gateway. `exports` and `imports` are by join.

    `everybody` are the slots of all gateways of the system. `is_caught_up` is off at a gateway that has come and does
    not know yet what its system holds from before its time; `has_come` says that it acts. `recovered` is what former
    lives of the system left.
    """

    def __init__(
        self,
        owner: ProcessId,
        founders: Sequence[ProcessId],
        plans: Sequence[JoinPlan],
        retry_after: Nanos = RETRY_AFTER,
        *,
        joining: bool = False,
        recovered: Recovered = NOTHING,
    ) -> None:
        self.id = owner
        self.everybody = frozenset(fellow for plan in plans for fellow in plan.fellows)
        self.actors = self._acting_among(founders)
        mine = [plan for plan in plans if slot_of(owner) in plan.fellows]
        self.exports = {plan.join: Export(plan, owner, retry_after, late=joining) for plan in mine}
        self.imports = {plan.join: Import(plan, owner, self.exports[plan.join].outstanding) for plan in mine}
        self._join_of: dict[LinkId, int] = {
            end.link: plan.join for plan in mine for end in plan.links if end.near == slot_of(owner)
        }
        self._peers: dict[LinkId, ProcessId] = {}
        self._exported = {plan.join: plan.exported for plan in plans}
        self._confirmed_by = {
            plan.join: self.exports[plan.join].outstanding.confirmed if plan.join in self.exports else SlotMarks()
            for plan in plans
        }
        self.is_caught_up = self.has_come = not joining
        self._too_early: dict[ProcessId, list[FellowPdu]] = {}
        for join, export in self.exports.items():
            export.colleagues = self._colleagues()
            if joining:
                self.imports[join].comes_late(recovered)
                continue
            export.start(_fellows(export.plan, self.actors))
            self.imports[join].start(export.fellows)
            export.go_on_from(recovered)
            self.imports[join].go_on_from(recovered)

    @property
    def links(self) -> Collection[LinkId]:
        """The links that end here."""
        return self._join_of.keys()

    def _acting_among(self, members: Sequence[ProcessId]) -> tuple[ProcessId, ...]:
        return tuple(member for member in members if slot_of(member) in self.everybody)

    def _colleagues(self) -> tuple[ProcessId, ...]:
        """All other live gateways of the system that take part in any join."""
        return tuple(actor for actor in self.actors if actor != self.id)

    # The own system

    @abstractmethod
    def finished(self, origin: ProcessId, seq: int, out: Outbox) -> None:
        """Every join of ours that these messages go out by has confirmed them: the system need not keep them for us."""

    def goes_out(self, origin: ProcessId) -> bool:
        """Whether the messages of an origin go out by any join of ours."""
        return any(export.goes_out(origin) for export in self.exports.values())

    def delivered(self, segment: Segment, now: Nanos, out: Outbox) -> None:
        """The own system delivered this here, in this order; what this gateway brought in is part of that."""
        for join, export in self.exports.items():
            going = segment.only(export.goes_out)
            imports = self.imports[join]
            if going:
                export.delivered(going, now, out)
                imports.went_out(out)
            coming = segment.only(imports.comes_in)
            if coming:
                export.came_in(coming.marks)
                imports.delivered(coming, out)
        self._end_of_step(out)

    def acting(self, company: Company, now: Nanos, out: Outbox) -> None:
        """Others act for this side than before. What those brought in that are gone is delivered here, or never is."""
        self.actors = company.actors
        for join, export in self.exports.items():
            fellows = _fellows(export.plan, company.actors)
            export.colleagues = self._colleagues()
            if not self.has_come:
                self.imports[join].fellows = export.fellows = fellows
            self.imports[join].acting(company.term, fellows, export.links_up, out)
            export.acting(company.term, fellows, now, out)
        self.has_come = True
        for source in [source for source in self._too_early if not self._is_to_come(source)]:
            self.from_fellow(source, self._too_early.pop(source), now, out)
        self._end_of_step(out)

    def settled(self, marks: Marks, out: Outbox) -> None:
        """Everybody who lives in the own system has finished with everything up to these marks."""
        for join, imports in self.imports.items():
            if news := imports.settled(marks, out):
                self._confirm_upstream(join, news, out)

    def take_over(
        self,
        marks: Marks,
        segments: Sequence[Segment],
        now: Nanos,
        out: Outbox,
        brought_in: Marks | None = None,
    ) -> None:
        """What was delivered before this gateway came, of each origin, and what of it may not have crossed yet.

        `brought_in` is what has come in so far, where the system knows that apart from what it has delivered here.
        """
        self.is_caught_up = True
        came_in = marks if brought_in is None else brought_in
        # Before any word of links: who leads is to tell us the epoch before it gives us anything to carry.
        for join in self._exported:
            out.to_fellows.append((self._colleagues(), FellowCaughtUp(join)))
        for join, export in self.exports.items():
            earlier = [going for each in segments if (going := each.only(export.goes_out))]
            export.catch_up(marks, came_in, earlier, now, out)
            self.imports[join].catch_up(came_in, out)
        self._end_of_step(out)

    def confirmed_in_the_lead(self) -> Iterator[tuple[int, SlotMarks]]:
        """Of each join that this gateway leads: its place among those of the system, and what has been confirmed."""
        for place, join in enumerate(self._exported):
            export = self.exports.get(join)
            if export is not None and export.leads:
                yield place, export.outstanding.confirmed

    def onward(self, origin: ProcessId, besides: int = -1) -> Iterator[SlotMarks]:
        """What has been confirmed by each join of the system that the messages of an origin go out by."""
        for join, confirmed in self._confirmed_by.items():
            if join != besides and slot_of(origin) in self._exported[join]:
                yield confirmed

    def _confirmed(self, origins: Iterable[ProcessId], out: Outbox) -> None:
        """Joins have confirmed more of these: let the own system know, and whoever sent them to us."""
        for origin in origins:
            levels = [
                export.outstanding.confirmed.of(origin) for export in self.exports.values() if export.goes_out(origin)
            ]
            if levels:
                self.finished(*min(levels), out)
        for join, imports in self.imports.items():
            if waiting := [origin for origin in origins if imports.is_waiting(origin)]:
                self._confirm_upstream(join, waiting, out)

    def _confirm_upstream(self, join: int, origins: Collection[ProcessId], out: Outbox) -> None:
        """Confirm over a join what is finished with here and confirmed by every other join that it goes out by."""
        imports = self.imports[join]
        # Of each slot, the least of the marks: it may be that of a process before the one that is there now.
        levels = [
            min([imports.last_finished.of(origin), *(each.of(origin) for each in self.onward(origin, besides=join))])
            for origin in origins
        ]
        imports.confirm(dict(levels), self.exports[join].links_up, out)

    # Links

    def from_link(self, link: LinkId, pdus: Sequence[LinkPdu], now: Nanos, out: Outbox) -> None:
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

    def leave(self, now: Nanos, out: Outbox) -> None:
        """This gateway is about to leave its system: have both ends stop using its links, and it."""
        for join, imports in self.imports.items():
            imports.leave(self.exports[join].links_up, out)
        for link, join in self._join_of.items():
            if self.exports[join].links_up[link]:
                out.links.append((link, LinkFarewell()))
                self._lose(link, now, out)

    def link_up(self, link: LinkId, peer: ProcessId, now: Nanos, out: Outbox) -> None:
        join = self._join_of[link]
        if self._peers.get(link, peer) != peer:
            # A new process is there: what was on its way to the old one is lost.
            self._lose(link, now, out)
        self._peers[link] = peer
        if self.exports[join].plan.far_acts_alone:
            self.exports[join].is_held_by(peer, now, out)
        self.exports[join].link_up(link, now, out)
        self.imports[join].link_up(link, out)
        self._end_of_step(out)

    def link_down(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        self._lose(link, now, out)

    def _lose(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        join = self._join_of[link]
        self.exports[join].link_down(link, now, out)
        self.imports[join].link_down(self.exports[join].links_up, out)

    def link_ready(self, link: LinkId, now: Nanos, out: Outbox, line: Line = UNKNOWN_LINE) -> None:
        self.exports[self._join_of[link]].link_ready(link, now, out, line)

    # Fellows

    def _is_to_come(self, source: ProcessId) -> bool:
        """Whether a gateway speaks before we know that it acts, and nobody after it in its place does."""
        slot = slot_of(source)
        return not any(slot_of(actor) == slot and actor >= source for actor in self.actors)

    def from_fellow(self, source: ProcessId, pdus: Sequence[FellowPdu], now: Nanos, out: Outbox) -> None:
        if self._is_to_come(source):
            kept = self._too_early.setdefault(source, []) if slot_of(source) in self.everybody else []
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
                self._confirmed_by[pdu.join].update(dict(pdu.marks))
                self._confirmed(dict(pdu.marks), out)
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

    def _end_of_step(self, out: Outbox) -> None:
        for join, imports in self.imports.items():
            imports.report(self.exports[join].links_up, out)

    # Time, and the cold path

    def wake(self, now: Nanos, out: Outbox) -> None:
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


def _fellows(plan: JoinPlan, actors: Sequence[ProcessId]) -> tuple[ProcessId, ...]:
    """The live gateways of a join, first the one that leads."""
    return tuple(actor for actor in actors if slot_of(actor) in plan.fellows)
