"""The receiving half of one direction of a join, at one gateway (parallel Fig. 2 and Fig. 5, right side; Sect. 7).

Blocks come off links and are broadcast in the own system when it is their turn. When the sending side opens an epoch,
the first live gateway here leads: it has everybody freeze, finds out what is final, and begins the epoch with all.
docs/design/joins.md has the argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import starmap

from isthmus.core.endpoint import Carried
from isthmus.core.gateway import GatewayOutbox
from isthmus.core.ids import LinkId, ProcessId, life_of, slot_of
from isthmus.core.segment import Marks, Segment
from isthmus.core.wire.join import (
    Behind,
    Block,
    Broken,
    Confirm,
    Epoch,
    FellowBegin,
    FellowFreeze,
    FellowFrozen,
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

    `frozen_for` is above `epoch` while a new epoch is being opened; `_asked_for` is the last that the leader was asked
    to open, which may have died with the question. `_term` is the own system's view. `last_delivered` is, per origin,
    the last message that was delivered here, `last_broadcast` the last one that this gateway broadcast, `last_finished`
    the last one that every member here has finished with, `last_confirmed` the last one that was confirmed to the
    sending side.
    """

    def __init__(self, plan: JoinPlan, owner: ProcessId, outstanding: Outstanding) -> None:
        super().__init__(plan, owner)
        self._sent_out = outstanding
        self.epoch = self.frozen_for = self._asked_for = first_epoch()
        self._term = term_of(life_of(owner), 1)
        self._knows_the_past = self._has_begun = True
        self.final: dict[ProcessId, int] = {}
        self.total = 0
        self.before_epoch = 0
        self.relayed_to = 0
        self.last_delivered: dict[ProcessId, int] = {}
        self.last_broadcast: dict[ProcessId, int] = {}
        self.last_finished: dict[ProcessId, int] = {}
        self.last_confirmed: dict[ProcessId, int] = {}
        self._held: dict[int, Block] = {}
        self._unnumbered: deque[Segment] = deque()
        self._early: list[tuple[LinkId, Block]] = []
        self._reports: dict[ProcessId, FellowFrozen] = {}
        self._unsettled: deque[tuple[ProcessId, int, Marks]] = deque()
        self._settled: dict[ProcessId, int] = {}
        self._before: dict[ProcessId, int] = {}
        self._reported = 0

    @property
    def received(self) -> int:
        """Numbers of this epoch that were delivered here; below 0 while some of older epochs are still to come."""
        return self.total - self.before_epoch

    @property
    def frozen(self) -> bool:
        return self.frozen_for > self.epoch

    @property
    def ready(self) -> bool:
        """Whether this gateway knows what came in before its time, and which epoch it is."""
        return self._knows_the_past and self._has_begun

    def comes_late(self) -> None:
        """This gateway comes when the join runs already: blocks wait until it knows the past and an epoch begins."""
        self._knows_the_past = self._has_begun = False

    def go_on_from(self, recovered: Recovered) -> None:
        """After a restart of the whole site: take what it had finished with before for imported."""
        imported = self.plan.imported
        done = {origin: seq for origin, seq in recovered.done.items() if slot_of(origin) in imported}
        self.last_delivered.update(done)
        self.total = sum(self.last_delivered.values())
        self.last_finished.update(done)
        self.last_confirmed.update(done)
        self.last_broadcast.update(
            {origin: seq for origin, seq in recovered.last().items() if slot_of(origin) in imported}
        )

    def comes_in(self, origin: ProcessId) -> bool:
        """Whether the messages of an origin come in by this join."""
        return slot_of(origin) in self.plan.imported

    # Blocks

    def on_block(self, link: LinkId, block: Block, out: GatewayOutbox) -> None:
        """A block off a link. One of an older epoch is void; one of an epoch that has not begun here waits."""
        if block.epoch > self.epoch or not self.ready:
            self._early.append((link, block))
            return
        if block.epoch < self.epoch or self.frozen or not block.segment:
            return
        out.carried.append(Carried("accept", link, block.segment))
        if self.plan.numbered_imports:
            self._held[block.first] = block
            self._relay_what_is_due(out)
        else:
            self._unnumbered.append(block.segment)
            self._relay_unnumbered(out)

    def _relay_unnumbered(self, out: GatewayOutbox) -> None:
        """Broadcast as it comes, but not before everything of older epochs has been delivered here."""
        while self._unnumbered and self.received >= 0 and not self.frozen:
            self._relay(self._unnumbered.popleft(), out)

    def _relay_what_is_due(self, out: GatewayOutbox) -> None:
        """Broadcast the next numbers, if they are here: everything before has been delivered, or broadcast by us.

        And not before what they may be answers to: a fellow that has delivered it carried it out, but have we?
        """
        while self._held and self.ready and not self.frozen:
            position = max(self.received, self.relayed_to)
            block = self._held.get(position + 1)
            if block is None or not all(starmap(self._sent_out.has_delivered, block.after)):
                return
            del self._held[position + 1]
            self.relayed_to = position + block.segment.messages
            self._relay(block.segment, out)

    def _relay(self, segment: Segment, out: GatewayOutbox) -> None:
        out.relays.append(segment)
        self.last_broadcast.update(segment.marks)

    def delivered(self, sender: ProcessId, number: int, segment: Segment, out: GatewayOutbox) -> None:
        """The own system delivered these, and they came in by this join."""
        self.last_delivered.update(segment.marks)
        self._unsettled.append((sender, number, segment.marks))
        self.total += segment.messages
        self._relay_what_is_due(out)
        self._relay_unnumbered(out)
        if self.leads and self.frozen:
            self._conclude(out)

    def went_out(self, out: GatewayOutbox) -> None:
        """The own system delivered messages that go out by this join: answers to them may have come already."""
        if self._held:
            self._relay_what_is_due(out)

    def report(self, links_up: Mapping[LinkId, bool], out: GatewayOutbox) -> None:
        """Tell the sending side how far we are, once per step."""
        if self.plan.numbered_imports and self.received > self._reported and not self.frozen:
            self._reported = self.received
            progress = Progress(self.epoch, self.received)
            out.links.extend((link, progress) for link in self._my_links if links_up[link])

    # Stability

    def settled(self, sender: ProcessId, number: int, out: GatewayOutbox) -> Collection[ProcessId]:
        """Every live member here has finished with `sender`'s batches up to `number`. Returns the origins with news."""
        if number <= self._settled.get(sender, 0):
            return ()
        self._settled[sender] = number
        news: dict[ProcessId, int] = {}
        while self._unsettled and self._unsettled[0][1] <= self._settled.get(self._unsettled[0][0], 0):
            news.update(self._unsettled.popleft()[2])
        self._have_settled(news, out)
        return news

    def all_have_arrived(self, out: GatewayOutbox) -> Collection[ProcessId]:
        """Everybody has delivered what lies before our first view: it is settled. Returns the origins with news."""
        before, self._before = self._before, {}
        news = {origin: seq for origin, seq in before.items() if seq > self.last_finished.get(origin, 0)}
        self._have_settled(news, out)
        return news

    def _have_settled(self, news: Mapping[ProcessId, int], out: GatewayOutbox) -> None:
        self.last_finished.update(news)
        if news and self.leads and self.frozen:
            self._conclude(out)

    def confirm(self, levels: Mapping[ProcessId, int], links_up: Mapping[LinkId, bool], out: GatewayOutbox) -> None:
        """Tell the sending side what is stable here and in every system behind us."""
        news = {origin: seq for origin, seq in levels.items() if seq > self.last_confirmed.get(origin, 0)}
        if news:
            self.last_confirmed.update(news)
            confirm = Confirm(sorted(news.items()))
            out.links.extend((link, confirm) for link in self._my_links if links_up[link])

    def link_up(self, link: LinkId, out: GatewayOutbox) -> None:
        """Repeat to the far side what may have been lost with an old connection or process."""
        if self.last_confirmed:
            out.links.append((link, Confirm(sorted(self.last_confirmed.items()))))
        if self.plan.numbered_imports and self.received > 0:
            out.links.append((link, Progress(self.epoch, self.received)))

    # Epochs

    def view(
        self, number: int, fellows: tuple[ProcessId, ...], links_up: Mapping[LinkId, bool], out: GatewayOutbox
    ) -> None:
        """The fellows that live. What one that is gone held is lost; what it broadcast has been delivered by now."""
        self._term = term_of(life_of(self.owner), number)
        lost = [fellow for fellow in self.fellows if fellow not in fellows]
        self.fellows = fellows
        for fellow in lost:
            self._reports.pop(fellow, None)
        if lost:
            out.links.extend((link, Broken(self.epoch)) for link in self._my_links if links_up[link])
        if self.frozen and self.leads:
            self._freeze_all(out)
        if (lost or not self._has_begun) and self._asked_for > max(self.epoch, self.frozen_for):
            # Who leads has died with the question, or we did not know before our first view who it is. The sending side
            # would ask again, but only after a while.
            self._ask_to_freeze(self._asked_for, out)

    def on_open(self, link: LinkId, epoch: Epoch, out: GatewayOutbox) -> None:
        """The sending side opens an epoch: see to it that it begins here, or say that it has."""
        if epoch == self.epoch.opened:
            out.links.append((link, Resume(self.epoch, sorted(self.final.items()))))
        elif epoch < max(self.epoch, self.frozen_for):
            # A leader that does not know what its predecessor opened; or its `Open` is late, and it has gone on since.
            out.links.append((link, Behind(max(self.epoch, self.frozen_for))))
        else:
            self._ask_to_freeze(epoch, out)

    def _ask_to_freeze(self, epoch: Epoch, out: GatewayOutbox) -> None:
        if not self.leads:
            self._asked_for = epoch
            out.to_fellows.append(((self.leader,), FellowFreeze(self.plan.join, epoch)))
        elif epoch >= self.frozen_for:
            if epoch > self.frozen_for:
                self._reports.clear()
            self.frozen_for = epoch
            self._freeze_all(out)

    def _freeze_all(self, out: GatewayOutbox) -> None:
        silent = tuple(fellow for fellow in self._others() if fellow not in self._reports)
        if silent:
            out.to_fellows.append((silent, FellowFreeze(self.plan.join, self.frozen_for)))
        self._conclude(out)

    def on_freeze(self, source: ProcessId, pdu: FellowFreeze, out: GatewayOutbox) -> None:
        """From the leader: freeze and report. From anybody else, to the leader: an epoch is to be opened."""
        if source != self.leader:
            if self.leads and pdu.epoch >= self.frozen_for:
                self._ask_to_freeze(pdu.epoch, out)
            elif self.leads:
                out.to_fellows.append(((source,), FellowFreeze(self.plan.join, self.frozen_for)))
            return
        self.frozen_for = max(self.frozen_for, pdu.epoch)
        handed, final = sorted(self.last_broadcast.items()), sorted(self.final.items())
        out.to_fellows.append(((source,), FellowFrozen(self.plan.join, pdu.epoch, self.epoch, final, handed)))

    def on_frozen(self, source: ProcessId, pdu: FellowFrozen, out: GatewayOutbox) -> None:
        if self.leads and self.frozen and pdu.epoch == self.frozen_for and source in self.fellows:
            self._reports[source] = pdu
            self._conclude(out)

    def _conclude(self, out: GatewayOutbox) -> None:
        """Begin the epoch, once everybody has reported and everything that was broadcast has been delivered here."""
        if not self._knows_the_past or any(fellow not in self._reports for fellow in self._others()):
            return
        for report in self._reports.values():
            # A leader before us got as far as beginning it, somewhere: its word stands.
            if report.begun.opened == self.frozen_for:
                self._announce(report.begun, report.final, out)
                return
        # Where the system is only FIFO, what another gateway broadcasts next may be delivered first somewhere, unless
        # everybody has this already.
        there = self.last_delivered if self.plan.causal_system else self.last_finished
        broadcast = [self.last_broadcast.items(), *(report.handed for report in self._reports.values())]
        if all(there.get(origin, 0) >= seq for marks in broadcast for origin, seq in marks):
            self._announce(self.frozen_for._replace(answer=self._term), sorted(self.last_delivered.items()), out)

    def _announce(self, epoch: Epoch, final: list[tuple[int, int]], out: GatewayOutbox) -> None:
        out.to_fellows.append((self._others(), FellowBegin(self.plan.join, epoch, final)))
        self.begin(epoch, final, out)

    def on_begin(self, pdu: FellowBegin, out: GatewayOutbox) -> None:
        if pdu.epoch > self.epoch or not self._has_begun:
            self.begin(pdu.epoch, pdu.final, out)

    def on_caught_up(self, source: ProcessId, out: GatewayOutbox) -> None:
        """A gateway of our system has come, and does not know which epoch it is."""
        if self.leads and self.ready and source in self.fellows:
            begin = FellowBegin(self.plan.join, self.epoch, sorted(self.final.items()))
            out.to_fellows.append(((source,), begin))

    def begin(self, epoch: Epoch, final: Iterable[tuple[ProcessId, int]], out: GatewayOutbox) -> None:
        """Begin an epoch: older ones end with `final`. What the new one brought may have been delivered already."""
        self._has_begun = True
        self.epoch = epoch
        self.final = dict(final)
        self._reports.clear()
        self._held.clear()
        self._unnumbered.clear()
        self.before_epoch = sum(self.final.values())
        self.relayed_to = self.received
        self._reported = 0
        # Over every link: whoever leads there and has not opened this epoch is behind, and what it carries is void.
        resume = Resume(epoch, sorted(self.final.items()))
        out.links.extend((link, resume) for link in self._my_links)
        self._take_early(out)

    def _take_early(self, out: GatewayOutbox) -> None:
        early, self._early = self._early, []
        for link, block in early:
            self.on_block(link, block, out)

    def catch_up(self, marks: Mapping[ProcessId, int], out: GatewayOutbox) -> None:
        """What our system had delivered when our first view began; we add what we delivered since."""
        before = {origin: seq for origin, seq in marks.items() if self.comes_in(origin)}
        self.last_delivered = before | self.last_delivered
        self.total = sum(self.last_delivered.values())
        self.relayed_to = self.received
        # Nobody will tell us that these have settled, and whoever could have told the sending side may be gone. But
        # when all members have come as far as our first view, they have them.
        self._before = before
        self._knows_the_past = True
        if self.leads and self.frozen:
            self._conclude(out)
        self._take_early(out)

    def invariants(self) -> None:
        position = max(self.received, self.relayed_to) if not self.frozen else 0
        assert all(first > position for first in self._held), f"held {sorted(self._held)} behind {position}"
