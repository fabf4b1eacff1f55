"""The sending half of one direction of a join, at one gateway (parallel Fig. 2 and Fig. 5, left side; Sect. 7).

It keeps what the far side has not confirmed, lets its share put messages on links, and goes from epoch to epoch when
something has broken. The first live fellow leads: it opens epochs, and where the share needs one it is the sequencer.
docs/design/joins.md has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from isthmus.core.endpoint import Carried
from isthmus.core.gateway import GatewayOutbox
from isthmus.core.ids import LinkId, Nanos, ProcessId, life_of, slot_of
from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Segment
from isthmus.core.wire.join import (
    BLOCK_BYTES,
    Block,
    Epoch,
    FellowAssign,
    FellowBehind,
    FellowBroken,
    FellowConfirm,
    FellowFree,
    FellowLink,
    FellowOpen,
    FellowProgress,
    FellowResume,
    Open,
    first_epoch,
    term_of,
)
from isthmus.join.half import Half
from isthmus.join.lane import Lane
from isthmus.join.outgoing import Outstanding
from isthmus.join.plan import JoinPlan
from isthmus.join.recovery import Recovered
from isthmus.join.share import SHARES, Share


class Export(Half):
    """`opening` is between `Open` and the answer: nothing goes onto a link meanwhile. `final` is that answer.

    `term` is the own system's view, in which the first of `fellows` leads. `_latest_answer` is the latest view of the
    far side that we have heard of: who answers from an earlier one has been left out.

    `_came_in` is, per origin, the last message that came in by this join; `_not_named`, per own link, those of them
    that no block of this epoch on it has named.
    """

    def __init__(self, plan: JoinPlan, owner: ProcessId, retry_after: Nanos, *, late: bool = False) -> None:
        super().__init__(plan, owner)
        self.epoch = self._first_epoch = first_epoch(life_of(owner))
        self.term = term_of(life_of(owner), 1)
        self._latest_answer = 0
        self.opening = False
        self.outstanding = Outstanding()
        self.colleagues: tuple[ProcessId, ...] = ()
        self.links_up: dict[LinkId, bool] = {end.link: True for end in plan.links}
        self._retry_after = retry_after
        self._retry_at: Nanos | None = None
        self._came_in: dict[ProcessId, int] = {}
        self._not_named: dict[LinkId, dict[ProcessId, int]] = {link: {} for link in self._my_links}
        self._out: GatewayOutbox | None = None
        self._caught_up = not late
        self._came_up: set[LinkId] = set()
        self._void: set[LinkId] = set()
        self._lanes = {link: Lane(apart=plan.share == "sets") for link in self._my_links}
        if late:
            self.links_up = dict.fromkeys(self.links_up, False)
        self.share: Share = SHARES[plan.share](plan, self.outstanding, self)
        if late:
            self.share.begin([], (), leading=False)

    def start(self, fellows: tuple[ProcessId, ...]) -> None:
        """Begin at the start of the system: the links of all gateways that are there are taken to work."""
        self.fellows = fellows
        present = set(map(slot_of, fellows))
        self.links_up = {end.link: end.near in present for end in self.plan.links}
        self.share.begin([], [link for link, up in self.links_up.items() if up], self.leads)

    def go_on_from(self, recovered: Recovered) -> None:
        """After a restart of the whole site: take what it had finished with before for delivered and confirmed."""
        marks = [(origin, seq) for origin, seq in recovered.done.items() if slot_of(origin) in self.plan.exported]
        self.outstanding.confirm(marks)
        self.outstanding.take_as_delivered(marks)
        self.came_in({origin: seq for origin, seq in recovered.done.items() if slot_of(origin) in self.plan.imported})

    # Who is who

    @property
    def sequencer(self) -> ProcessId:
        """Who leads this epoch. It may have been opened in a view that has not come here yet."""
        return next((fellow for fellow in self.fellows if self._opened_by(fellow, self.epoch)), self.leader)

    def _opened_by(self, fellow: ProcessId, epoch: Epoch) -> bool:
        return fellow == (self.leader if epoch == self._first_epoch else epoch.leader)

    def goes_out(self, origin: ProcessId) -> bool:
        """Whether the messages of an origin go out by this join."""
        return slot_of(origin) in self.plan.exported

    def is_mine(self, link: LinkId) -> bool:
        return link in self._my_links

    # What happens at this gateway

    def delivered(self, segment: Segment, out: GatewayOutbox) -> None:
        """The own system delivered these, and they go out by this join."""
        # What was delivered here only after the epoch began may have been over there before.
        fresh = self.outstanding.add(segment).beyond(self.outstanding.final)
        if fresh and self._caught_up and not self.opening:
            self._out = out
            self.share.add(fresh)
            self._send_what_waits()

    def came_in(self, marks: Mapping[ProcessId, int]) -> None:
        """The own system delivered messages of the far side: whatever goes out from now on may be an answer to them."""
        self._came_in.update(marks)
        for not_named in self._not_named.values():
            not_named.update(marks)

    def view(self, number: int, fellows: tuple[ProcessId, ...], now: Nanos, out: GatewayOutbox) -> None:
        """The fellows that live. One that is gone may have taken messages with it: a new epoch."""
        self.term = term_of(life_of(self.owner), number)
        lost = [fellow for fellow in self.fellows if fellow not in fellows]
        self.fellows = fellows
        gone = {slot_of(fellow) for fellow in lost}
        for end in self.plan.links:
            if end.near in gone:
                self.links_up[end.link] = False
        if lost:
            # Whoever is gone may have told only some of us.
            out.to_fellows.append(
                (self.colleagues, FellowConfirm(self.plan.join, sorted(self.outstanding.confirmed.items())))
            )
            self.renew(now, out)

    def link_up(self, link: LinkId, now: Nanos, out: GatewayOutbox) -> None:
        if not self._caught_up:
            self._came_up.add(link)
            return
        if not self.links_up[link]:
            self.links_up[link] = True
            out.to_fellows.append((self._others(), FellowLink(self.plan.join, link, True)))
            self.renew(now, out)
        if self.opening:
            out.links.append((link, Open(self.epoch)))

    def link_down(self, link: LinkId, now: Nanos, out: GatewayOutbox) -> None:
        self._came_up.discard(link)
        self._lanes[link].room = 0
        if self.links_up[link]:
            self.links_up[link] = False
            out.to_fellows.append((self._others(), FellowLink(self.plan.join, link, False)))
            self.renew(now, out)

    def link_ready(self, link: LinkId, out: GatewayOutbox, room: int = BLOCK_BYTES) -> None:
        self._out = out
        self._lanes[link].room = room
        self.share.ready(link, room)
        self._send_what_waits()

    def wake(self, now: Nanos, out: GatewayOutbox) -> None:
        if self.opening and self._retry_at is not None and now >= self._retry_at:
            if self.leads:
                self._say_open(now, out)
            else:
                self._retry_at = None

    def deadline(self) -> Nanos | None:
        return self._retry_at if self.opening else None

    def void(self, link: LinkId, now: Nanos, out: GatewayOutbox) -> None:
        """A new process is at the far end: what went before is lost with the old one, so nothing may follow it."""
        self._void.add(link)
        self.on_broken(self.epoch, now, out)

    # Epochs

    def renew(self, now: Nanos, out: GatewayOutbox) -> None:
        """This epoch cannot go on. The leader opens the next one; everybody else waits for it."""
        if self.leads and self._caught_up:
            self._pause(Epoch(self.term, self.epoch.number + 1, self.owner))
            self._say_open(now, out)

    def _pause(self, epoch: Epoch) -> None:
        """Put nothing on a link any more until this epoch begins. What waits for one will be numbered anew."""
        self.epoch = epoch
        self.opening = True
        self.share.pause()
        for lane in self._lanes.values():
            lane.waiting.clear()

    def _say_open(self, now: Nanos, out: GatewayOutbox) -> None:
        self._retry_at = now + self._retry_after
        out.to_fellows.append((self._others(), FellowOpen(self.plan.join, self.epoch)))
        self._pass_open_on(out)

    def _pass_open_on(self, out: GatewayOutbox) -> None:
        out.links.extend((link, Open(self.epoch)) for link in self._my_links if self.links_up[link])

    def opened(self, pdu: FellowOpen, out: GatewayOutbox) -> None:
        """From the leader: a new epoch is being opened. Pass that on over our links."""
        if pdu.epoch < self.epoch:
            return
        self._pause(pdu.epoch)
        self._pass_open_on(out)

    def resumed(self, epoch: Epoch, final: list[tuple[int, int]], now: Nanos, out: GatewayOutbox) -> None:
        """The far side is ready for the epoch that we opened; or for a later one."""
        if epoch.answer < self._latest_answer:
            return
        if not self.opening or epoch.opened != self.epoch:
            self.on_behind(epoch, now, out)
            return
        if not self.leads:
            out.to_fellows.append(((self.sequencer,), FellowResume(self.plan.join, epoch, final, [])))
            return
        links = [link for link, up in self.links_up.items() if up]
        out.to_fellows.append((self._others(), FellowResume(self.plan.join, epoch, final, links)))
        self._begin(epoch, dict(final), links, out)

    def on_resume(self, source: ProcessId, pdu: FellowResume, now: Nanos, out: GatewayOutbox) -> None:
        """From a fellow to the leader: the far side has answered. From the leader: go on."""
        if self.leads:
            self.resumed(pdu.epoch, pdu.final, now, out)
        elif not self._opened_by(source, pdu.epoch):
            return
        elif pdu.epoch > self.epoch:
            for link in self.links_up:
                if link not in self._my_links:
                    self.links_up[link] = link in pdu.links
            self._begin(pdu.epoch, dict(pdu.final), pdu.links, out)

    def _begin(self, epoch: Epoch, final: dict[ProcessId, int], links: Sequence[LinkId], out: GatewayOutbox) -> None:
        self.epoch = epoch
        self._latest_answer = epoch.answer
        self.opening = False
        self.outstanding.final = final
        self._not_named = {link: dict(self._came_in) for link in self._my_links}
        self._retry_at = None
        self._void.clear()
        self._out = out
        if self._caught_up:
            self.share.begin(list(self.outstanding.after(final)), links, self.leads)
        for link, lane in self._lanes.items():
            if lane.room:
                self.share.ready(link, lane.room)
        self._send_what_waits()

    def catch_up(
        self, marks: Mapping[ProcessId, int], earlier: Sequence[Segment], now: Nanos, out: GatewayOutbox
    ) -> None:
        """What our system holds from before our time. Only now can our links be of use."""
        self.outstanding.add_earlier(earlier)
        self.outstanding.take_as_delivered([(origin, seq) for origin, seq in marks.items() if self.goes_out(origin)])
        imported = self.plan.imported
        self.came_in({origin: seq for origin, seq in marks.items() if slot_of(origin) in imported} | self._came_in)
        self._caught_up = True
        for link in sorted(self._came_up):
            self.link_up(link, now, out)
        if not self._came_up:
            self.renew(now, out)

    # Word from fellows and from the far side

    def on_link(self, pdu: FellowLink, now: Nanos, out: GatewayOutbox) -> None:
        changed = self.links_up.get(pdu.link) is (not pdu.up)
        if not changed:
            return
        self.links_up[pdu.link] = pdu.up
        # Every link that works is to be used, and none that does not: either way it takes an epoch.
        self.renew(now, out)

    def on_broken(self, epoch: Epoch, now: Nanos, out: GatewayOutbox) -> None:
        """The far side has lost a gateway, or is a new one: of this epoch nothing more is taken there."""
        if epoch > self.epoch:
            self.on_behind(epoch, now, out)
        elif epoch < self.epoch or self.opening:
            return
        elif self.leads:
            self.renew(now, out)
        else:
            out.to_fellows.append(((self.leader,), FellowBroken(self.plan.join, epoch)))

    def on_behind(self, epoch: Epoch, now: Nanos, out: GatewayOutbox) -> None:
        """The far side is at a later epoch than we are, which a leader before us opened, or one after us."""
        if epoch <= self.epoch:
            return
        if not self.leads:
            out.to_fellows.append(((self.leader,), FellowBehind(self.plan.join, epoch)))
        elif epoch.term <= self.term:
            self._latest_answer = max(epoch.answer, self._latest_answer)
            self.epoch = epoch
            self.renew(now, out)
        # Otherwise somebody leads in a view that has not come here: either it comes, or it is without us.

    def on_caught_up(self, source: ProcessId, out: GatewayOutbox) -> None:
        """A gateway of our system has come, and does not know which links work and what the far side has confirmed."""
        if source in self.fellows:
            mine = [FellowLink(self.plan.join, link, True) for link in self._my_links if self.links_up[link]]
            out.to_fellows.extend(((source,), word) for word in mine)
        if self.leads and self.outstanding.confirmed:
            marks = sorted(self.outstanding.confirmed.items())
            out.to_fellows.append(((source,), FellowConfirm(self.plan.join, marks)))

    def on_progress(self, epoch: Epoch, received: int, out: GatewayOutbox) -> None:
        if epoch != self.epoch or self.opening:
            return
        self._out = out
        self.share.progress(received)
        self._send_what_waits()
        if not self.leads and self.plan.share in ("sets", "striped"):
            out.to_fellows.append(((self.sequencer,), FellowProgress(self.plan.join, epoch, received)))

    def on_confirm(self, marks: Iterable[tuple[ProcessId, int]], out: GatewayOutbox, *, direct: bool) -> bool:
        """Stable at the far side. What came over a link is passed on to fellows, whose links may be down."""
        news = [(origin, seq) for origin, seq in marks if not self.outstanding.is_confirmed(origin, seq)]
        if not news:
            return False
        if direct and self.colleagues:
            out.to_fellows.append((self.colleagues, FellowConfirm(self.plan.join, news)))
        return self.outstanding.confirm(news)

    def on_free(self, pdu: FellowFree, out: GatewayOutbox) -> None:
        if self.leads and pdu.epoch == self.epoch and not self.opening:
            self._out = out
            self.share.ready(pdu.link, pdu.room)
            self._send_what_waits()

    def on_assign(self, source: ProcessId, pdu: FellowAssign, out: GatewayOutbox) -> None:
        fits = sum(count for _, _, count in pdu.runs) <= MAX_SEGMENT_MESSAGES
        if fits and pdu.epoch == self.epoch and not self.opening and self._opened_by(source, pdu.epoch):
            self._out = out
            self.share.assigned(pdu.link, pdu.first, pdu.runs)
            self._send_what_waits()

    # What a share can have done

    def put(self, link: LinkId, first: int, segment: Segment) -> None:
        self._lanes[link].waiting.append((first, segment))

    def _send_what_waits(self) -> None:
        """Put a block on every link that is ready for one and has something waiting."""
        assert self._out is not None
        for link, lane in self._lanes.items():
            while lane.room and lane.waiting and link not in self._void:
                first, segment = lane.take()
                self._out.carried.append(Carried("transfer", link, segment))
                after = sorted(self._not_named[link].items()) if first else []
                self._not_named[link].clear()
                self._out.links.append((link, Block(self.epoch, first, segment, after)))

    def assign(self, link: LinkId, first: int, segment: Segment) -> None:
        assert self._out is not None
        near = next(end.near for end in self.plan.links if end.link == link)
        carrier = next((fellow for fellow in self.fellows if slot_of(fellow) == near), None)
        if carrier is not None:
            self._out.carried.append(Carried("sequence", link, segment))
            runs = list(segment.runs())
            self._out.to_fellows.append(((carrier,), FellowAssign(self.plan.join, self.epoch, first, link, runs)))

    def offer(self, link: LinkId, room: int) -> None:
        assert self._out is not None
        self._out.to_fellows.append(((self.sequencer,), FellowFree(self.plan.join, self.epoch, link, room)))

    def invariants(self) -> None:
        self.outstanding.invariants()
