"""The receiving half of one direction of a join, at one gateway (parallel Fig. 2 and Fig. 5, right side; Sect. 7).

Blocks come off links, and each is broadcast in the own system by one gateway, its *home*, when it is its turn; whoever
else gets it passes it on. When the sending side opens an epoch, the first live gateway here leads: it has everybody
freeze, finds out what is final, and begins the epoch with all who are there. docs/design/joins.md has the argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import starmap

from msgspec import structs

from isthmus.core.endpoint import Carried, Outbox
from isthmus.core.ids import LinkId, ProcessId, life_of, slot_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Marks, Segment
from isthmus.core.wire.join import (
    NO_EPOCH,
    Behind,
    Block,
    Broken,
    Confirm,
    Epoch,
    FellowBegin,
    FellowFreeze,
    FellowFrozen,
    FellowPass,
    Progress,
    Resume,
    first_epoch,
    term_of,
)
from isthmus.join.half import Half
from isthmus.join.outgoing import Outstanding
from isthmus.join.plan import JoinPlan
from isthmus.join.recovery import Recovered


class Import(Half):
    """`total` counts all that this join ever brought here, `before_epoch` how much of it was before this epoch.

    `company` are the gateways that were here when the epoch began; the first of them relays what has no other home.
    `frozen` says that nothing is broadcast until the next epoch begins; `frozen_for` is the last that was asked for
    here, `_asked_for` the last that the leader was asked for, who may have died with the question. `_term` is that
    of those who act here. `last_delivered` is, per origin, the last message that was delivered here, `last_broadcast`
    the last one that this gateway broadcast, `last_finished` the last one that every member here has finished with,
    `last_confirmed` the last one that was confirmed to the sending side.
    """

    def __init__(self, plan: JoinPlan, owner: ProcessId, outstanding: Outstanding) -> None:
        super().__init__(plan, owner)
        self._sent_out = outstanding
        # A later life does not know what the epochs of those before it were.
        self.epoch = self.frozen_for = self._asked_for = NO_EPOCH if life_of(owner) else first_epoch()
        self.frozen = self._leaving = False
        self.company: tuple[ProcessId, ...] = ()
        self._term = term_of(life_of(owner), 1)
        self._knows_the_past = True
        self.final = SlotMarks()
        self.total = 0
        self.before_epoch = 0
        self.relayed_to = 0
        self.last_delivered = SlotMarks()
        self.last_broadcast = SlotMarks()
        self.last_finished = SlotMarks()
        self.last_confirmed = SlotMarks()
        self._held: dict[int, Block] = {}
        self._unnumbered: deque[Segment] = deque()
        self._early: list[tuple[LinkId | None, Block]] = []
        self._reports: dict[ProcessId, FellowFrozen] = {}
        self._reported = 0
        self._reported_over = 0

    def start(self, fellows: tuple[ProcessId, ...]) -> None:
        """Begin at the start of the system, with these."""
        self.fellows = self.company = fellows

    @property
    def received(self) -> int:
        """Numbers of this epoch that were delivered here; below 0 while some of older epochs are still to come."""
        return self.total - self.before_epoch

    @property
    def ready(self) -> bool:
        """Whether this gateway knows what came in before its time, and which epoch it is."""
        return self._knows_the_past and self._has_begun

    @property
    def _has_begun(self) -> bool:
        return self.epoch > NO_EPOCH

    @property
    def is_broken(self) -> bool:
        """Whether one of those who broadcast what this epoch brings is gone, with what it held."""
        return any(member not in self.fellows for member in self.company)

    def comes_late(self, recovered: Recovered) -> None:
        """This gateway comes when the join runs already: blocks wait until it knows the past and an epoch begins."""
        self._await_replay(recovered)
        self._knows_the_past = False
        self.last_delivered = SlotMarks(late=True)
        self.epoch = self.frozen_for = self._asked_for = NO_EPOCH

    def go_on_from(self, recovered: Recovered) -> None:
        """After a restart of the whole site: take what it had finished with before for imported."""
        imported = self.plan.imported
        done = {origin: seq for origin, seq in recovered.done.items() if slot_of(origin) in imported}
        self.last_delivered.update(done)
        self.total = self.last_delivered.total()
        self.last_finished.update(done)
        self.last_confirmed.update(done)
        self._await_replay(recovered)

    def _await_replay(self, recovered: Recovered) -> None:
        """Begin no epoch before what is replayed has been delivered here, as if we had broadcast it."""
        imported = self.plan.imported
        last = {origin: seq for origin, seq in recovered.last().items() if slot_of(origin) in imported}
        self.last_broadcast.update(last)

    def comes_in(self, origin: ProcessId) -> bool:
        """Whether the messages of an origin come in by this join."""
        return slot_of(origin) in self.plan.imported

    # Blocks

    def on_block(self, link: LinkId | None, block: Block, out: Outbox) -> None:
        """A block off a link, or passed on by a fellow. One of an older epoch is void; one of a later one waits."""
        if block.epoch > self.epoch or not self.ready:
            self._early.append((link, block))
            if self._knows_the_past and block.epoch.opened > max(self._asked_for, self.frozen_for):
                # It has begun with somebody who is gone, or has not told us yet.
                self._ask_to_freeze(block.epoch.opened, out)
            return
        if block.epoch < self.epoch or self.frozen or not block.segment:
            return
        if link is not None:
            out.carried.append(Carried("accept", link, block.segment))
        home = self._home_of(block)
        if home != self.owner:
            out.to_fellows.append(((home,), FellowPass(self.plan.join, block)))
        elif self.plan.numbered_imports:
            self._hold(block)
            self._relay_what_is_due(out)
        else:
            self._unnumbered.append(block.segment)
            self._relay_unnumbered(out)

    def _home_of(self, block: Block) -> ProcessId:
        """Who is to broadcast a block: the gateway that it names, or the first of all who were there at the start."""
        return next((member for member in self.company if slot_of(member) == block.home), self.company[0])

    def _relay_unnumbered(self, out: Outbox) -> None:
        """Broadcast as it comes, but not before everything of older epochs has been delivered here, and nothing twice.

        Another link may have brought some of it; but what a link brings has no gap, whoever put it there.
        """
        while self._unnumbered and self.received >= 0 and not self.frozen:
            segment = self._unnumbered.popleft()
            marks = segment.marks
            fresh = segment.beyond(self.last_delivered.at(marks)).beyond(self.last_broadcast.at(marks))
            if fresh:
                self._relay(fresh, out)

    def _hold(self, block: Block) -> None:
        """Keep a block until its turn. The same numbers may have come by another link, in larger or smaller blocks."""
        if block.first + block.segment.messages - 1 <= self.received:
            # Whoever sends what we have delivered has not heard of it.
            self._reported = 0
            return
        known = self._held.get(block.first)
        if known is None or known.segment.messages < block.segment.messages:
            self._held[block.first] = block

    def _relay_what_is_due(self, out: Outbox) -> None:
        """Broadcast the next numbers, if they are here: everything before has been delivered, or broadcast by us.

        And not before what they may be answers to: a fellow that has delivered it carried it out, but have we?
        """
        while self._held and self.ready and not self.frozen:
            position = max(self.received, self.relayed_to)
            block = self._held.get(position + 1) or self._reaching_beyond(position)
            if block is None:
                return
            if not all(starmap(self._sent_out.has_delivered, block.after)):
                self._reaching_beyond(position)
                return
            del self._held[position + 1]
            self.relayed_to = position + block.segment.messages
            self._relay(block.segment, out)

    def _reaching_beyond(self, position: int) -> Block | None:
        """What a held block has from here on, where it begins before; what lies before altogether is dropped."""
        for first in [first for first in self._held if first <= position]:
            block = self._held.pop(first)
            _, rest = block.segment.cut(position + 1 - first)
            if rest:
                self._hold(structs.replace(block, first=position + 1, segment=rest))
        return self._held.get(position + 1)

    def _relay(self, segment: Segment, out: Outbox) -> None:
        out.relays.append(segment)
        self.last_broadcast.update(segment.marks)

    def delivered(self, segment: Segment, out: Outbox) -> None:
        """The own system delivered these, and they came in by this join."""
        self.last_delivered.update(segment.marks)
        self.total += segment.messages
        self._relay_what_is_due(out)
        self._relay_unnumbered(out)
        if self.leads and self.frozen:
            self._conclude(out)

    def went_out(self, out: Outbox) -> None:
        """The own system delivered messages that go out by this join: answers to them may have come already."""
        if self._held:
            self._relay_what_is_due(out)

    def report(self, links_up: Mapping[LinkId, bool], out: Outbox) -> None:
        """Tell the sending side how far we are, once per step: one gateway, over one link."""
        if self.plan.numbered_imports and self.received > self._reported and not self.frozen and self.ready:
            self._reported = self.received
            mine = [link for link in self._my_links if links_up[link]]
            if mine and (self.company[0] == self.owner or not self._has_link(self.company[0], links_up)):
                out.links.append((self._link_for_words(mine), Progress(self.epoch, self.received)))

    def _has_link(self, gateway: ProcessId, links_up: Mapping[LinkId, bool]) -> bool:
        return any(links_up[end.link] for end in self.plan.links if end.near == slot_of(gateway))

    def _link_for_words(self, mine: Sequence[LinkId]) -> LinkId:
        """A link to the sequencer, who is to hear it, if there is one that works; else one after the other."""
        to_leader = [end.link for end in self.plan.links if end.link in mine and end.far == slot_of(self.epoch.leader)]
        if to_leader and self.epoch.leader:
            return to_leader[0]
        self._reported_over += 1
        return mine[self._reported_over % len(mine)]

    # Stability

    def settled(self, marks: Marks, out: Outbox) -> Collection[ProcessId]:
        """Everybody here has finished with all up to these marks. Returns those origins that came in by this join."""
        imported = self.plan.imported
        news = {origin: seq for origin, seq in marks.items() if slot_of(origin) in imported}
        if news:
            self.last_finished.update(news)
            if self.leads and self.frozen:
                self._conclude(out)
        return news

    def is_waiting(self, origin: ProcessId) -> bool:
        """Whether more of an origin is finished with here than the sending side has heard."""
        return self.last_finished.of(origin) > self.last_confirmed.of(origin)

    def confirm(self, levels: Mapping[ProcessId, int], links_up: Mapping[LinkId, bool], out: Outbox) -> None:
        """Tell the sending side what is stable here and in every system behind us."""
        news = {origin: seq for origin, seq in levels.items() if seq > self.last_confirmed.get(origin, 0)}
        if news:
            self.last_confirmed.update(news)
            confirm = Confirm(sorted(news.items()))
            out.links.extend((link, confirm) for link in self._my_links if links_up[link])

    def link_up(self, link: LinkId, out: Outbox) -> None:
        """Repeat to the far side what may have been lost with an old connection or process."""
        if self.last_confirmed:
            out.links.append((link, Confirm(self.last_confirmed.items())))
        if self.ready and self.is_broken:
            out.links.append((link, Broken(self.epoch)))
        elif self.ready and not self.frozen:
            if self.epoch.answer:
                out.links.append((link, Resume(self.epoch, self.final.counted())))
            if self.plan.numbered_imports and self.received > 0:
                out.links.append((link, Progress(self.epoch, self.received)))

    def link_down(self, links_up: Mapping[LinkId, bool], out: Outbox) -> None:
        """What was said over a link that is lost may not arrive: say it over one that works."""
        self._reported = 0
        self.report(links_up, out)

    # Epochs

    def acting(self, term: int, fellows: tuple[ProcessId, ...], links_up: Mapping[LinkId, bool], out: Outbox) -> None:
        """The fellows that live. What one that is gone held is lost; what it broadcast has been delivered by now."""
        self._term = term
        lost = [fellow for fellow in self.fellows if fellow not in fellows]
        self.fellows = fellows
        for fellow in lost:
            self._reports.pop(fellow, None)
        if lost and self.ready and self.is_broken:
            out.links.extend((link, Broken(self.epoch)) for link in self._my_links if links_up[link])
        if self.frozen:
            # Who leads now may not know of it, or may have told us before we knew that it leads.
            self._ask_to_freeze(self.frozen_for, out)
        if (lost or not self._has_begun) and self._asked_for > max(self.epoch.opened, self.frozen_for):
            # Who leads has died with the question, or we did not know before we came who it is. The sending side
            # would ask again, but only after a while.
            self._ask_to_freeze(self._asked_for, out)

    def on_open(self, link: LinkId, epoch: Epoch, out: Outbox) -> None:
        """The sending side opens an epoch: see to it that it begins here, or say that it has."""
        if epoch == self.epoch.opened and self.ready and not self.frozen:
            out.links.append((link, Resume(self.epoch, self.final.counted())))
        elif epoch < max(self.epoch.opened, self.frozen_for):
            # A leader that does not know what its predecessor opened; or its `Open` is late, and it has gone on since.
            out.links.append((link, Behind(max(self.epoch, self.frozen_for))))
        else:
            self._ask_to_freeze(epoch, out)

    def _ask_to_freeze(self, epoch: Epoch, out: Outbox) -> None:
        self._asked_for = max(epoch, self._asked_for)
        if not self.leads:
            out.to_fellows.append(((self.leader,), FellowFreeze(self.plan.join, epoch)))
        elif epoch >= self.frozen_for:
            if epoch > self.frozen_for:
                self._reports.clear()
            self.frozen_for = epoch
            self.frozen = True
            self._freeze_all(out)

    def _freeze_all(self, out: Outbox) -> None:
        silent = tuple(fellow for fellow in self._others() if fellow not in self._reports)
        if silent:
            out.to_fellows.append((silent, FellowFreeze(self.plan.join, self.frozen_for)))
        self._conclude(out)

    def on_freeze(self, source: ProcessId, pdu: FellowFreeze, out: Outbox) -> None:
        """From the leader: freeze and report. From anybody else, to the leader: an epoch is to be opened."""
        if source != self.leader:
            if self.leads and self.ready and not self.frozen and pdu.epoch <= self.epoch.opened:
                self._tell_begin((source,), out)
            elif self.leads and pdu.epoch >= self.frozen_for:
                self._ask_to_freeze(pdu.epoch, out)
            elif self.leads:
                out.to_fellows.append(((source,), FellowFreeze(self.plan.join, self.frozen_for)))
            else:
                # It knows of a term that has not begun here yet. When it does, whoever leads is asked.
                self._asked_for = max(pdu.epoch, self._asked_for)
            return
        if pdu.epoch >= self.epoch.opened:
            self.frozen_for = max(self.frozen_for, pdu.epoch)
            self.frozen = True
        handed = self.last_broadcast.items()
        out.to_fellows.append(((source,), FellowFrozen(self.plan.join, pdu.epoch, handed, self._leaving)))

    def on_frozen(self, source: ProcessId, pdu: FellowFrozen, out: Outbox) -> None:
        if self.leads and self.frozen and pdu.epoch == self.frozen_for and source in self.fellows:
            self._reports[source] = pdu
            self._conclude(out)

    def _conclude(self, out: Outbox) -> None:
        """Begin the epoch, once everybody has reported and everything that was broadcast has been delivered here."""
        if not self._knows_the_past or any(fellow not in self._reports for fellow in self._others()):
            return
        # Where the system is only FIFO, what another gateway broadcasts next may be delivered first somewhere, unless
        # everybody has this already.
        there = self.last_delivered if self.plan.causal_system else self.last_finished
        broadcast = [self.last_broadcast.items(), *(report.handed for report in self._reports.values())]
        if all(there.get(origin) >= seq for marks in broadcast for origin, seq in marks):
            epoch = self.frozen_for._replace(answer=self._term)
            self.begin(epoch, self.last_delivered.counted(), self._who_stays() or self.fellows, out)
            self._tell_begin(self._others(), out)

    def _who_stays(self) -> list[ProcessId]:
        going = {fellow for fellow, report in self._reports.items() if report.leaving}
        return [each for each in self.fellows if each not in going and not (self._leaving and each == self.owner)]

    def leave(self, links_up: Mapping[LinkId, bool], out: Outbox) -> None:
        """We are about to go, and broadcast nothing more: have the sending side begin an epoch without us.

        Else we would go on to relay what others pass on to us, and never be done.
        """
        self._leaving = True
        if self.owner in self.company:
            self.frozen = True
            out.links.extend((link, Broken(self.epoch)) for link in self._my_links if links_up[link])

    def _tell_begin(self, fellows: tuple[ProcessId, ...], out: Outbox) -> None:
        final = self.final.counted()
        out.to_fellows.append((fellows, FellowBegin(self.plan.join, self.epoch, final, list(self.company))))

    def on_begin(self, pdu: FellowBegin, out: Outbox) -> None:
        if pdu.company and pdu.epoch > self.epoch:
            self.begin(pdu.epoch, pdu.final, pdu.company, out)
            if self.is_broken:
                out.links.extend((link, Broken(self.epoch)) for link in self._my_links)

    def on_caught_up(self, source: ProcessId, out: Outbox) -> None:
        """A gateway of our system has come, and does not know which epoch it is."""
        if self.leads and self.ready and source in self.fellows:
            self._tell_begin((source,), out)

    def begin(
        self,
        epoch: Epoch,
        final: Iterable[tuple[ProcessId, int]],
        company: Iterable[ProcessId],
        out: Outbox,
    ) -> None:
        """Begin an epoch: older ones end with `final`. What the new one brought may have been delivered already."""
        self.epoch = epoch
        self.company = tuple(company)
        self.frozen = self._leaving and self.owner in self.company
        self.final = SlotMarks(final)
        self._reports.clear()
        self._held.clear()
        self._unnumbered.clear()
        self.before_epoch = self.final.total()
        self.relayed_to = self.received
        self._reported = 0
        # Over every link: whoever leads there and has not opened this epoch is behind, and what it carries is void.
        resume = Resume(epoch, self.final.counted())
        out.links.extend((link, resume) for link in self._my_links)
        self._take_early(out)

    def _take_early(self, out: Outbox) -> None:
        early, self._early = self._early, []
        for link, block in early:
            self.on_block(link, block, out)

    def catch_up(self, marks: Marks, out: Outbox) -> None:
        """What our system had delivered when we came; we add what we delivered since."""
        before = {origin: seq for origin, seq in marks.items() if self.comes_in(origin)}
        self.last_delivered.go_on_from(before.items())
        self.total = self.last_delivered.total()
        self.relayed_to = self.received
        self._knows_the_past = True
        if self.leads and self.frozen:
            self._conclude(out)
        self._take_early(out)

    def invariants(self) -> None:
        position = max(self.received, self.relayed_to) if not self.frozen else 0
        assert all(first > position for first in self._held), f"held {sorted(self._held)} behind {position}"
