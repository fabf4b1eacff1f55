"""The sending half of one direction of a join, at one gateway (parallel Fig. 2 and Fig. 5, left side; Sect. 7).

It keeps what the far side has not confirmed, has its share say what goes by which link, and puts blocks on its own
links as they are ready. Links may come and go within an epoch. A new one is for what cannot be mended otherwise: a
leader that is gone, or a gateway of the far side. The first live fellow leads: it opens epochs, and where the share
needs one it is the sequencer. docs/design/joins.md has the argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from isthmus.core.endpoint import Carried, Outbox
from isthmus.core.ids import SLOT_BITS, LinkId, Nanos, ProcessId, life_of, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import MAX_SEGMENT_MESSAGES, Marks, Run, Segment
from isthmus.core.wire.join import (
    NO_EPOCH,
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
    Line,
    Open,
    first_epoch,
    term_of,
)
from isthmus.join.half import Half
from isthmus.join.outgoing import Outstanding
from isthmus.join.parcel import Lane, Parcel
from isthmus.join.plan import JoinPlan
from isthmus.join.recovery import Recovered
from isthmus.join.share import SHARES, Share, Start


class Export(Half):
    """`opening` is until the far side has answered an `Open`: nothing goes onto a link meanwhile.

    So begins a gateway that comes late, until it knows which epoch it is. `term` is that of those who act for our side,
    in which the first of `fellows` leads. `_latest_answer` is the latest term of the far side that we have heard of:
    who answers from an earlier one has been left out. `_came_in` is, per origin, the last message that came in by this
    join. `_lines` are those of our links that are ready; `_parked` is what the sequencer gave us and our system has not
    delivered yet; `_broken` is the latest epoch that the far side called broken before it had begun here.
    """

    def __init__(self, plan: JoinPlan, owner: ProcessId, retry_after: Nanos, *, late: bool = False) -> None:
        super().__init__(plan, owner)
        self.epoch = self._first_epoch = first_epoch(life_of(owner))
        self.term = term_of(life_of(owner), 1)
        self._latest_answer = 0
        self._broken = NO_EPOCH
        self.opening = late
        self.outstanding = Outstanding(late=late)
        self.colleagues: tuple[ProcessId, ...] = ()
        self.links_up: dict[LinkId, bool] = {end.link: not late for end in plan.links}
        self._retry_after = retry_after
        self._retry_at: Nanos | None = None
        self._came_in = SlotMarks()
        self._caught_up = not late
        self._came_up: set[LinkId] = set()
        self._lanes = {link: Lane(apart=plan.share == "sets") for link in self._my_links}
        self._lines: dict[LinkId, Line] = {}
        self._parked: list[FellowAssign] = []
        self.share: Share = SHARES[plan.share](plan, self.outstanding, self._my_links)

    def start(self, fellows: tuple[ProcessId, ...]) -> None:
        """Begin at the start of the system: the links of all gateways that are there are taken to work."""
        self.fellows = fellows
        present = set(map(slot_of, fellows))
        self.links_up = {end.link: end.near in present for end in self.plan.links}
        self.share.begin(Start((), {}, self._links(), self.leads), 0)

    def go_on_from(self, recovered: Recovered) -> None:
        """After a restart of the whole site: take what it had finished with before for delivered and confirmed."""
        marks = [(origin, seq) for origin, seq in recovered.done.items() if slot_of(origin) in self.plan.exported]
        self.outstanding.confirm(marks)
        self.outstanding.take_as_delivered(marks)
        self._came_in.update(
            {origin: seq for origin, seq in recovered.done.items() if slot_of(origin) in self.plan.imported}
        )

    # Who is who

    @property
    def sequencer(self) -> ProcessId:
        """Who leads this epoch. It may have been opened in a term that has not begun here yet."""
        return next((fellow for fellow in self.fellows if self._opened_by(fellow, self.epoch)), self.leader)

    def _opened_by(self, fellow: ProcessId, epoch: Epoch) -> bool:
        return fellow == (self.leader if epoch == self._first_epoch else epoch.leader)

    def goes_out(self, origin: ProcessId) -> bool:
        """Whether the messages of an origin go out by this join."""
        return slot_of(origin) in self.plan.exported

    def _links(self) -> list[LinkId]:
        return [link for link, up in self.links_up.items() if up]

    # What the own system delivers, and how it gets onto links

    def delivered(self, segment: Segment, now: Nanos, out: Outbox) -> None:
        """The own system delivered these, and they go out by this join."""
        # What was delivered here only after the epoch began may have been over there before.
        fresh = self.outstanding.add(segment).beyond(self.outstanding.final.at(segment.marks))
        if fresh and not self.opening:
            self.share.add(fresh, now)
            self._unpark()
            self._send(out)

    def came_in(self, marks: Mapping[ProcessId, int]) -> None:
        """The own system delivered messages of the far side: whatever goes out from now on may be an answer to them."""
        self._came_in.update(marks)
        self.share.came_in(marks)

    def link_ready(self, link: LinkId, now: Nanos, out: Outbox, line: Line) -> None:
        self._lanes[link].room = line.room
        self._lines[link] = line
        if not self.opening and self.links_up[link]:
            self._offer(link, now, out)
            self._send(out)

    def _offer(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        """Let the sequencer know that a link of ours is ready for a block."""
        if self.share.by_readiness and link in self._lines:
            if self.leads:
                self.share.ready(link, self._lines[link], now)
            else:
                free = FellowFree(self.plan.join, self.epoch, link, self._lines[link])
                out.to_fellows.append(((self.sequencer,), free))

    def on_free(self, pdu: FellowFree, now: Nanos, out: Outbox) -> None:
        if self.leads and pdu.epoch == self.epoch and not self.opening:
            self.share.ready(pdu.link, pdu.line, now)
            self._send(out)

    def on_assign(self, source: ProcessId, pdu: FellowAssign, out: Outbox) -> None:
        fits = sum(count for _, _, count in pdu.runs) <= MAX_SEGMENT_MESSAGES
        if fits and pdu.epoch == self.epoch and not self.opening and self._opened_by(source, pdu.epoch):
            self._parked.append(pdu)
            self._unpark()
            self._send(out)

    def _unpark(self) -> None:
        """What the sequencer gave us waits for its link as soon as our own system has delivered it."""
        still = []
        for pdu in self._parked:
            if not all(map(self.outstanding.has, pdu.runs)):
                still.append(pdu)
            elif self.links_up.get(pdu.link) and pdu.link in self._lanes:
                segment = self.outstanding.find(self._not_arrived(pdu.runs))
                if segment:
                    first = pdu.first + sum(count for _, _, count in pdu.runs) - segment.messages
                    self._lanes[pdu.link].waiting.append(Parcel(first, segment, pdu.home, dict(pdu.after)))
        self._parked = still

    def _not_arrived(self, runs: Sequence[Run]) -> list[Run]:
        """What lies behind the last message that is confirmed: that one and all before it came by another link."""
        left: list[Run] = []
        for origin, first, count in reversed(runs):
            fresh = min(count, max(0, first + count - 1 - self.outstanding.confirmed.get(origin)))
            if fresh:
                left.append((origin, first + count - fresh, fresh))
            if fresh < count:
                break
        return left[::-1]

    def _send(self, out: Outbox) -> None:
        """Put what the share has placed into lanes, our own or a fellow's, and blocks onto links that are ready."""
        for link, parcel in self.share.placed:
            if link in self._lanes:
                self._lanes[link].waiting.append(parcel)
            else:
                self._assign(link, parcel, out)
        self.share.placed.clear()
        for link, lane in self._lanes.items():
            while lane.room and lane.waiting:
                parcel = lane.take()
                self._lines.pop(link, None)
                out.carried.append(Carried("transfer", link, parcel.segment))
                after = sorted(parcel.after.items())
                out.links.append((link, Block(self.epoch, parcel.first, parcel.segment, parcel.home, after)))

    def _assign(self, link: LinkId, parcel: Parcel, out: Outbox) -> None:
        near = next(end.near for end in self.plan.links if end.link == link)
        carrier = next((fellow for fellow in self.fellows if slot_of(fellow) == near), None)
        if carrier is not None:
            out.carried.append(Carried("sequence", link, parcel.segment))
            runs, after = list(parcel.segment.runs()), sorted(parcel.after.items())
            assign = FellowAssign(self.plan.join, self.epoch, parcel.first, link, runs, parcel.home, after)
            out.to_fellows.append(((carrier,), assign))

    # Links and fellows that come and go

    def link_up(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        if not self._caught_up:
            self._came_up.add(link)
            return
        if not self.links_up[link]:
            self.links_up[link] = True
            out.to_fellows.append((self._others(), FellowLink(self.plan.join, link, True)))
            self._relink(now, out)
        if self.opening and self.epoch != self._first_epoch:
            out.links.append((link, Open(self.epoch)))

    def is_held_by(self, peer: ProcessId, now: Nanos, out: Outbox) -> None:
        """The far side is a log, and this gateway holds it. If another one answered for this epoch, it cannot go on.

        That one said how far it was when it had appended, and what a log has taken may be lost until it is durable. The
        new one knows nothing of that, and where nothing more was to be sent it would never hear of this epoch.
        """
        if not self.opening and self.epoch.answer < peer >> SLOT_BITS:
            self.on_broken(self.epoch, now, out)

    def link_down(self, link: LinkId, now: Nanos, out: Outbox) -> None:
        self._came_up.discard(link)
        self._lines.pop(link, None)
        self._lanes[link].room = 0
        self._lanes[link].waiting.clear()
        if self.links_up[link]:
            self.links_up[link] = False
            out.to_fellows.append((self._others(), FellowLink(self.plan.join, link, False)))
            self._relink(now, out)

    def on_link(self, pdu: FellowLink, now: Nanos, out: Outbox) -> None:
        if self.links_up.get(pdu.link) is (not pdu.up):
            self.links_up[pdu.link] = pdu.up
            self._relink(now, out)

    def _relink(self, now: Nanos, out: Outbox) -> None:
        """Other links work than before: have the share see to what may be lost, and use those that have come."""
        if not self.opening:
            self.share.relink(self._links(), now)
            self._send(out)

    def acting(self, term: int, fellows: tuple[ProcessId, ...], now: Nanos, out: Outbox) -> None:
        """The fellows that live. The links of one that is gone are lost; with the leader, the epoch is."""
        self.term = term
        lost = [fellow for fellow in self.fellows if fellow not in fellows]
        led = self.leader
        self.fellows = fellows
        if not lost:
            return
        # Whoever is gone may have told only some of us.
        out.to_fellows.append((self.colleagues, FellowConfirm(self.plan.join, self.outstanding.confirmed.items())))
        gone = set(map(slot_of, lost))
        for end in self.plan.links:
            if end.near in gone:
                self.links_up[end.link] = False
        if led in lost:
            self.renew(now, out)
        else:
            self._relink(now, out)

    def wake(self, now: Nanos, out: Outbox) -> None:
        if not self.opening:
            self.share.wake(now)
            self._send(out)
        elif self._retry_at is not None and now >= self._retry_at:
            if self.leads:
                self._say_open(now, out)
            else:
                self._retry_at = None

    def deadline(self) -> Nanos | None:
        return self._retry_at if self.opening else self.share.deadline()

    # Epochs

    def renew(self, now: Nanos, out: Outbox) -> None:
        """This epoch cannot go on. The leader opens the next one; everybody else waits for it."""
        if self.leads and self._caught_up:
            self._pause(Epoch(self.term, self.epoch.number + 1, self.owner))
            self._say_open(now, out)

    def _pause(self, epoch: Epoch) -> None:
        """Put nothing on a link any more until this epoch begins. What waits for one will be placed anew."""
        self.epoch = epoch
        self.opening = True
        self._parked.clear()
        for lane in self._lanes.values():
            lane.waiting.clear()

    def _say_open(self, now: Nanos, out: Outbox) -> None:
        self._retry_at = now + self._retry_after
        out.to_fellows.append((self._others(), FellowOpen(self.plan.join, self.epoch)))
        self._pass_open_on(out)

    def _pass_open_on(self, out: Outbox) -> None:
        out.links.extend((link, Open(self.epoch)) for link in self._my_links if self.links_up[link])

    def opened(self, pdu: FellowOpen, out: Outbox) -> None:
        """From the leader: a new epoch is being opened. Pass that on over our links."""
        if pdu.epoch < self.epoch:
            return
        self._pause(pdu.epoch)
        self._pass_open_on(out)

    def resumed(self, epoch: Epoch, final: list[tuple[int, int]], now: Nanos, out: Outbox) -> None:
        """The far side is ready for the epoch that we opened; or for a later one."""
        if epoch.answer < self._latest_answer:
            return
        if not self.opening or epoch.opened != self.epoch:
            self.on_behind(epoch, now, out)
        elif not self.leads:
            out.to_fellows.append(((self.sequencer,), FellowResume(self.plan.join, epoch, final)))
        else:
            out.to_fellows.append((self._others(), FellowResume(self.plan.join, epoch, final)))
            self._begin(epoch, SlotMarks(final), now, out)

    def on_resume(self, source: ProcessId, pdu: FellowResume, now: Nanos, out: Outbox) -> None:
        """From a fellow to the leader: the far side has answered. From the leader: go on."""
        if not self._caught_up:
            return  # The leader tells us again when we can begin.
        if self.leads:
            self.resumed(pdu.epoch, pdu.final, now, out)
        elif self._opened_by(source, pdu.epoch) and (pdu.epoch > self.epoch or self._awaits(pdu.epoch)):
            self._begin(pdu.epoch, SlotMarks(pdu.final), now, out)

    def _awaits(self, epoch: Epoch) -> bool:
        """Whether we have come during the first epoch, and it still lasts."""
        return self.opening and epoch == self.epoch == self._first_epoch

    def _begin(self, epoch: Epoch, final: SlotMarks, now: Nanos, out: Outbox) -> None:
        self.epoch = epoch
        self._latest_answer = epoch.answer
        self.opening = False
        self.outstanding.final = final
        self._retry_at = None
        self._parked.clear()
        waiting = list(self.outstanding.after(final))
        self.share.begin(Start(waiting, dict(self._came_in.items()), self._links(), self.leads), now)
        for link in self._lines:
            self._offer(link, now, out)
        self._send(out)
        if self._broken == epoch:
            self.on_broken(epoch, now, out)

    def on_broken(self, epoch: Epoch, now: Nanos, out: Outbox) -> None:
        """The far side has lost a gateway, or is a new one: of this epoch nothing more is taken there."""
        if epoch > self.epoch or (self.opening and epoch == self.epoch):
            # It has not begun here yet, and the far side may not say it again.
            self._broken = max(epoch, self._broken)
        if epoch > self.epoch:
            self.on_behind(epoch, now, out)
        elif epoch < self.epoch or self.opening:
            return
        elif self.leads:
            self.renew(now, out)
        else:
            out.to_fellows.append(((self.leader,), FellowBroken(self.plan.join, epoch)))

    def on_behind(self, epoch: Epoch, now: Nanos, out: Outbox) -> None:
        """The far side is at a later epoch than we are, which a leader before us opened, or one after us."""
        if epoch <= self.epoch:
            return
        if not self.leads:
            out.to_fellows.append(((self.leader,), FellowBehind(self.plan.join, epoch)))
        elif epoch.term <= self.term:
            self._latest_answer = max(epoch.answer, self._latest_answer)
            self.epoch = epoch
            self.renew(now, out)
        # Otherwise somebody leads in a term that has not begun here: either it does, or it is without us.

    # Gateways that come

    def catch_up(self, marks: Marks, came_in: Marks, earlier: Sequence[Segment], now: Nanos, out: Outbox) -> None:
        """What our system holds from before our time. Only now can our links be of use."""
        self.outstanding.add_earlier(earlier)
        self.outstanding.take_as_delivered([(origin, seq) for origin, seq in marks.items() if self.goes_out(origin)])
        imported = self.plan.imported
        self.came_in({origin: seq for origin, seq in came_in.items() if slot_of(origin) in imported})
        self._caught_up = True
        for link in sorted(self._came_up):
            self.links_up[link] = True
            out.to_fellows.append((self._others(), FellowLink(self.plan.join, link, True)))
        if self.opening and self.epoch != self._first_epoch:
            self._pass_open_on(out)
        self.renew(now, out)

    def on_caught_up(self, source: ProcessId, out: Outbox) -> None:
        """A gateway of our system has come. It does not know which links work, what is confirmed, which epoch it is."""
        if source in self.fellows:
            mine = [FellowLink(self.plan.join, link, True) for link in self._my_links if self.links_up[link]]
            out.to_fellows.extend(((source,), word) for word in mine)
        if not self.leads:
            return
        if self.outstanding.confirmed:
            marks = self.outstanding.confirmed.items()
            out.to_fellows.append(((source,), FellowConfirm(self.plan.join, marks)))
        if source in self.fellows and not self.opening:
            final = self.outstanding.final.counted()
            out.to_fellows.append(((source,), FellowResume(self.plan.join, self.epoch, final)))
        elif source in self.fellows and self.epoch != self._first_epoch:
            out.to_fellows.append(((source,), FellowOpen(self.plan.join, self.epoch)))

    # Word from the far side

    def on_progress(self, epoch: Epoch, received: int, now: Nanos, out: Outbox, *, direct: bool) -> None:
        """The far side has delivered everything up to this number. It tells one of us, who may not be in this epoch."""
        if direct:
            # Out of a log everybody counts; else only who numbers has to know.
            others = self._others() if self.plan.share == "counted" else () if self.leads else (self.sequencer,)
            out.to_fellows.append((others, FellowProgress(self.plan.join, epoch, received)))
        if epoch == self.epoch and not self.opening:
            self.share.progress(received, now)
            self._send(out)

    def on_confirm(self, marks: Iterable[tuple[ProcessId, int]], out: Outbox, *, direct: bool) -> Collection[ProcessId]:
        """Stable at the far side. What came over a link is passed on to fellows, whose links may be down.

        Returns the origins of which that is news.
        """
        news = {origin: seq for origin, seq in marks if not self.outstanding.is_confirmed(origin, seq)}
        if news:
            if direct and self.colleagues:
                out.to_fellows.append((self.colleagues, FellowConfirm(self.plan.join, list(news.items()))))
            self.outstanding.confirm(news.items())
        return news

    def invariants(self) -> None:
        self.outstanding.invariants()
