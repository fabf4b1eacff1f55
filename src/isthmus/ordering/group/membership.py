"""Views: who is in the group, and how one view gives way to the next.

One single-decree Paxos per view number decides a `Proposal`: the members of the next view, and the cut, which says how
many batches of each old member belong to the view that ends. The promise of its first phase is the flush: who
promises takes no further part in the old view. The acceptance of its second phase means "I hold everything up to
the cut". Safety needs nothing but quorums of the old view that share a member; progress needs that suspicion is
right for long enough. docs/design/group.md has the argument.

This file decides; it does not touch streams or orders. Its owner implements `ViewCallbacks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import Nanos, ProcessId, slot_of
from isthmus.core.message import MAX_MEMBERS
from isthmus.core.wire.group import (
    Accept,
    Ask,
    Busy,
    Excluded,
    Fetch,
    Install,
    JoinRequest,
    LeaveRequest,
    Prepare,
    Promise,
    Proposal,
    Propose,
    Status,
)
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.group.channel import RESEND_AT_ONCE
from isthmus.ordering.group.detector import FailureDetector
from isthmus.ordering.group.quorum import is_quorum

MembershipPdu = Accept | Busy | Excluded | Install | JoinRequest | LeaveRequest | Prepare | Promise | Propose


EXCLUDED = "excluded: the others went on without this process"
LEFT = "left"


def _is_sound(proposal: Proposal) -> bool:
    """Whether a proposal off the wire makes sense at all."""
    members, senders = proposal.members, proposal.senders
    distinct = len(set(members)) == len(members) and len(set(senders)) == len(senders)
    return distinct and len(proposal.cut) == len(senders)


class ViewCallbacks(Protocol):
    """What a view change needs from the group member around it."""

    def received(self) -> list[int]:
        """By rank in the current view: how many batches of each member are held here without a gap."""

    def block(self) -> None:
        """Take no further part in the current view: no acknowledgement, no delivery, no new batch."""

    def install(self, decision: Install, now: Nanos, out: Outbox) -> None:
        """Everything up to the cut is held. Finish the old view, begin the next."""

    def stop(self, reason: str, out: Outbox) -> None: ...

    def may_accept(self) -> bool:
        """Whether this process, if it has to keep what a view owed, does so by now."""

    def round_heard(self, member: ProcessId) -> int:
        """The latest round of sending again that this member has named in a heartbeat."""


class Attempt:
    """A ballot that this process runs as coordinator."""

    __slots__ = ("accepts", "asked", "ballot", "promises", "proposal", "proposed", "retried", "retry_at")

    def __init__(self, ballot: int, asked: tuple[ProcessId, ...], retry_at: Nanos) -> None:
        self.ballot = ballot
        self.asked = asked
        self.promises: dict[ProcessId, Promise] = {}
        self.proposal: Proposal | None = None
        self.proposed = False
        self.accepts: set[ProcessId] = set()
        self.retry_at = retry_at
        self.retried = False

    def owing(self) -> list[ProcessId]:
        """Who has been asked again and has not answered."""
        answered = self.accepts if self.proposed else self.promises
        return [member for member in self.asked if member not in answered] if self.retried else []


class Membership:
    """The view of one process and the change under way, if any.

    `view` is None until a joining process is let in. `goal` is a decision or proposal that waits for batches still to
    be fetched from `goal_source`. `asked_for` are the first and the last batch, by rank, that were asked for.
    `keepers` are slots whose members keep a journal.
    """

    def __init__(
        self,
        owner: ProcessId,
        view: View | None,
        host: ViewCallbacks,
        detector: FailureDetector,
        retry_after: Nanos,
        keepers: frozenset[int] = frozenset(),
    ) -> None:
        self.owner = owner
        self.view = view
        self.host = host
        self.detector = detector
        self.retry_after = retry_after
        self.keepers = keepers
        self.leaving = False
        self.decision: Install | None = None
        self.joiners: dict[ProcessId, Nanos] = {}
        self.leavers: set[ProcessId] = set()
        self._begin()

    def _begin(self) -> None:
        """Reset to the state at the start of a view: nothing promised, nothing accepted."""
        self.promised = 0
        self.highest_ballot = 0
        self.accepted_ballot = 0
        self.accepted: Proposal | None = None
        self.attempt: Attempt | None = None
        self.goal: Propose | Install | None = None
        self.goal_source: ProcessId = self.owner
        self.patience: Nanos = 0
        self.asked_for: dict[int, tuple[int, int]] = {}
        self.fetch_again_at: Nanos = 0

    @property
    def may_go(self) -> bool:
        """This process has asked to be left out, with nothing unfinished."""
        return self.owner in self.leavers

    @property
    def blocked(self) -> bool:
        """Whether this process has promised to take part in a view change: it delivers nothing until that ends."""
        return self.promised > 0 or self.goal is not None

    def enter(self, view: View, decision: Install) -> None:
        """The next view has begun here."""
        self.view = view
        self.decision = decision
        self.leavers.clear()
        for member in view.members:
            self.joiners.pop(member, None)
        self._begin()

    # Time

    def tick(self, now: Nanos, out: Outbox) -> None:
        """Retry what was not answered; start a change when one is due and it falls to this process to do so."""
        view = self.view
        assert view is not None
        suspects = self.detector.suspects(now)
        for joiner, asked_at in list(self.joiners.items()):
            if now - asked_at >= self.detector.suspect_after:
                del self.joiners[joiner]
        if self.goal is not None:
            self._pursue(now, out)
            if self.view is not view:
                return
        attempt = self.attempt
        if attempt is not None:
            if suspects.isdisjoint(attempt.asked):
                if now >= attempt.retry_at:
                    attempt.retried = True
                    attempt.retry_at = now + self.retry_after
                    self._push(attempt, now, out)
                return
            self.attempt = None
        if self.detector.is_waiting(now):
            # Whoever is asked has to answer: a change would keep everybody waiting for founders that may never come.
            return
        # A change that has begun anywhere must end, or whoever promised is blocked for ever.
        if not (suspects or self.joiners or self.leavers or self.highest_ballot):
            return
        trusted = tuple(member for member in view.members if member not in suspects)
        if trusted[0] == self.owner and now >= self.patience and is_quorum(trusted, view.members):
            self._start(trusted, now, out)

    # Coordinator

    def _start(self, trusted: tuple[ProcessId, ...], now: Nanos, out: Outbox) -> None:
        assert self.view is not None
        rank = self.view.members.index(self.owner)
        round_number = self.highest_ballot // MAX_MEMBERS + 1
        attempt = Attempt(round_number * MAX_MEMBERS + rank, trusted, now + self.retry_after)
        self.attempt = attempt
        attempt.promises[self.owner] = self._promise(attempt.ballot)
        self._push(attempt, now, out)

    def _push(self, attempt: Attempt, now: Nanos, out: Outbox) -> None:
        """Do whatever the attempt waits for: ask who has not promised, fetch, propose to who has not accepted."""
        assert self.view is not None
        silent = tuple(member for member in attempt.asked if member not in attempt.promises)
        if silent:
            out.sends.append((silent, Prepare(self.view.number, attempt.ballot)))
            return
        if attempt.proposal is None:
            attempt.proposal = self._choose(attempt)
        missing = self._missing(attempt.proposal)
        if missing:
            promises = attempt.promises
            self._fetch(missing, lambda rank: max(promises, key=lambda each: promises[each].received[rank]), now, out)
            return
        attempt.proposed = True
        if self.owner not in attempt.accepts and self.host.may_accept():
            self._accept(attempt.ballot, attempt.proposal)
            attempt.accepts.add(self.owner)
        undecided = tuple(member for member in attempt.asked if member not in attempt.accepts)
        if undecided:
            out.sends.append((undecided, Propose(self.view.number, attempt.ballot, attempt.proposal)))
        self._maybe_decide(attempt, now, out)

    def _choose(self, attempt: Attempt) -> Proposal:
        """The value of this ballot. One that may have been decided already binds us."""
        assert self.view is not None
        promises = attempt.promises.values()
        latest = max(promises, key=lambda promise: promise.accepted_ballot)
        if latest.accepted is not None:
            return latest.accepted
        # One that has come again is not there twice: all that its former self sent lies before what it sends.
        taken = set(map(slot_of, self.joiners))
        staying = [member for member in attempt.asked if member not in self.leavers and slot_of(member) not in taken]
        cut = self._cut([promise.received for promise in promises])
        return Proposal(staying + sorted(self.joiners), list(self.view.members), cut)

    def _cut(self, received: Sequence[Sequence[int]]) -> list[int]:
        """What any of those asked holds belongs to the view that ends: it may have been delivered somewhere."""
        return [max(column) for column in zip(*received, strict=True)]

    def _maybe_decide(self, attempt: Attempt, now: Nanos, out: Outbox) -> None:
        assert self.view is not None
        if attempt.proposal is None or not attempt.proposed or not is_quorum(attempt.accepts, self.view.members):
            return
        staying = set(attempt.asked).intersection(attempt.proposal.members)
        if any(slot_of(member) in self.keepers and member not in attempt.accepts for member in staying):
            # Installing delivers what the view still owed, and nobody may before the keepers hold it.
            return
        decision = Install(self.view.number, attempt.proposal)
        audience = {*attempt.asked, *attempt.proposal.members} - {self.owner}
        out.sends.append((tuple(sorted(audience)), decision))
        self.host.install(decision, now, out)

    # Member

    def may_say(self, source: ProcessId, pdu: Pdu) -> bool:
        """Whether a PDU is taken from its sender: some are only taken from members of the view, none from oneself."""
        view, decision = self.view, self.decision
        if source == self.owner:
            return False
        if view is None:
            return isinstance(pdu, Install)
        if isinstance(pdu, JoinRequest):
            return True
        if isinstance(pdu, (Status, Ask)) and pdu.view <= view.number:
            return pdu.view < view.number
        former = () if decision is None else decision.proposal.senders
        if isinstance(pdu, (Install, Excluded, Status)):
            # A new process in the place of one that we knew may be the only one left to tell us.
            return slot_of(source) in {slot_of(member) for member in (*view.members, *former)}
        return isinstance(pdu, Fetch) and source in former

    def handle(self, source: ProcessId, pdu: MembershipPdu, now: Nanos, out: Outbox) -> None:
        view = self.view
        if isinstance(pdu, Install):
            self._on_install(source, pdu, now, out)
        elif view is None:
            return
        elif isinstance(pdu, JoinRequest):
            self._on_join(source, pdu, now, out)
        elif isinstance(pdu, Excluded):
            if pdu.view > view.number:
                self.host.stop(LEFT if self.may_go else EXCLUDED, out)
        elif pdu.view != view.number:
            return
        elif isinstance(pdu, LeaveRequest):
            if source in view.members:
                self.leavers.add(source)
        elif isinstance(pdu, Prepare):
            self._on_prepare(source, pdu, now, out)
        elif isinstance(pdu, Promise):
            self._on_promise(source, pdu, now, out)
        elif isinstance(pdu, Propose):
            self._on_propose(source, pdu, now, out)
        elif isinstance(pdu, Accept):
            if self.attempt is not None and pdu.ballot == self.attempt.ballot and source in self.attempt.asked:
                self.attempt.accepts.add(source)
                self._maybe_decide(self.attempt, now, out)
        elif isinstance(pdu, Busy):
            self.heard_of(pdu.ballot)
            if self.attempt is not None and pdu.ballot > self.attempt.ballot:
                self._yield_to_other(now)

    def heard_of(self, ballot: int) -> None:
        """Note a ballot that somebody in this view knows of: our own next one has to be higher."""
        self.highest_ballot = max(self.highest_ballot, ballot)

    def behind(self, source: ProcessId, pdu: Status | Ask, out: Outbox) -> None:
        """A heartbeat from an earlier view: its sender missed the decision, or is out."""
        if self.view is None or self.decision is None or pdu.view >= self.view.number:
            return
        if source in self.view.members:
            out.sends.append(((source,), self.decision))
        else:
            out.sends.append(((source,), Excluded(self.view.number)))

    def stored(self, now: Nanos, out: Outbox) -> None:
        """Go on with a view change that waits for batches: some have come."""
        attempt = self.attempt
        if self.goal is not None:
            self._pursue(now, out)
        elif attempt is not None and attempt.proposal is not None and not attempt.proposed:
            self._push(attempt, now, out)

    def _on_join(self, source: ProcessId, pdu: JoinRequest, now: Nanos, out: Outbox) -> None:
        assert self.view is not None
        joiner = pdu.process
        if joiner != source:
            return
        if joiner in self.view.members:
            if self.decision is not None:
                out.sends.append(((joiner,), self.decision))
            return
        if len(self.view.members) + len(self.joiners) >= MAX_MEMBERS and joiner not in self.joiners:
            return
        # One process at a time lives in a slot, and a later one has a higher id. Requests of the others are old.
        rivals = [each for each in (*self.view.members, *self.joiners) if slot_of(each) == slot_of(joiner)]
        if max(rivals, default=0) > joiner:
            return
        for former in rivals:
            if self.joiners.pop(former, None) is None:
                self.detector.give_up(former)
        self.joiners[joiner] = now

    def _promise(self, ballot: int) -> Promise:
        assert self.view is not None
        self.host.block()
        self.promised = ballot
        self.heard_of(ballot)
        # Accepting an older ballot from now on would break the promise, even if its batches still arrive.
        if isinstance(self.goal, Propose) and self.goal.ballot < ballot:
            self.goal = None
        return Promise(self.view.number, ballot, self.host.received(), self.accepted_ballot, self.accepted)

    def _on_prepare(self, source: ProcessId, pdu: Prepare, now: Nanos, out: Outbox) -> None:
        assert self.view is not None
        if pdu.ballot < self.promised:
            out.sends.append(((source,), Busy(self.view.number, self.promised)))
            return
        if pdu.ballot > self.promised:
            self._yield_to_other(now)
        out.sends.append(((source,), self._promise(pdu.ballot)))

    def _yield_to_other(self, now: Nanos) -> None:
        self.attempt = None
        self.patience = now + 4 * self.retry_after

    def _on_promise(self, source: ProcessId, pdu: Promise, now: Nanos, out: Outbox) -> None:
        attempt = self.attempt
        assert self.view is not None
        if attempt is None or pdu.ballot != attempt.ballot or source not in attempt.asked:
            return
        if len(pdu.received) != len(self.view.members) or source in attempt.promises:
            return
        if pdu.accepted is not None and not self._ends_this_view(pdu.accepted):
            return
        attempt.promises[source] = pdu
        if len(attempt.promises) == len(attempt.asked):
            self._push(attempt, now, out)

    def _on_propose(self, source: ProcessId, pdu: Propose, now: Nanos, out: Outbox) -> None:
        assert self.view is not None
        if pdu.ballot < self.promised:
            out.sends.append(((source,), Busy(self.view.number, self.promised)))
        elif self._ends_this_view(pdu.proposal):
            self.host.block()
            self.promised = pdu.ballot
            self.heard_of(pdu.ballot)
            if not isinstance(self.goal, Install):
                self.goal, self.goal_source = pdu, source
            self._pursue(now, out)

    def _accept(self, ballot: int, proposal: Proposal) -> None:
        self.accepted_ballot, self.accepted = ballot, proposal

    def _on_install(self, source: ProcessId, pdu: Install, now: Nanos, out: Outbox) -> None:
        view, proposal = self.view, pdu.proposal
        if view is None:
            if self.owner in proposal.members and self.owner not in proposal.senders and _is_sound(proposal):
                self.host.install(pdu, now, out)
            return
        if pdu.view > view.number and self.owner not in proposal.senders:
            # A later view was without us. We cannot get there, and whoever believes us there would wait for ever.
            self.host.stop(LEFT if self.may_go else EXCLUDED, out)
            return
        if pdu.view == view.number and self._ends_this_view(proposal):
            if self.owner not in proposal.members and not self.may_go:
                self.host.stop(EXCLUDED, out)
                return
            self.host.block()
            if source in proposal.senders:
                self.goal_source = source
            elif not isinstance(self.goal, Install):
                # It has just come, and never had what may be missing here.
                stayed = [each for each in proposal.senders if each in proposal.members and each != self.owner]
                self.goal_source = stayed[0] if stayed else source
            self.goal = pdu
            self._pursue(now, out)
        elif pdu.view < view.number and source not in view.members:
            # It is out, and waits until it knows that we have moved on.
            out.sends.append(((source,), Excluded(view.number)))

    def _ends_this_view(self, proposal: Proposal) -> bool:
        assert self.view is not None
        return proposal.senders == list(self.view.members) and _is_sound(proposal)

    def _pursue(self, now: Nanos, out: Outbox) -> None:
        """Reach the goal if everything up to its cut is here, else ask for what is missing."""
        goal, view = self.goal, self.view
        assert goal is not None
        assert view is not None
        missing = self._missing(goal.proposal)
        if missing:
            self._fetch(missing, lambda _: self.goal_source, now, out)
            return
        if isinstance(goal, Propose) and not self.host.may_accept():
            return
        self.goal = None
        if isinstance(goal, Install):
            self.host.install(goal, now, out)
        else:
            self._accept(goal.ballot, goal.proposal)
            out.sends.append(((self.goal_source,), Accept(view.number, goal.ballot)))

    def _fetch(
        self, missing: list[tuple[int, int, int]], holder_of: Callable[[int], ProcessId], now: Nanos, out: Outbox
    ) -> None:
        """Ask for some of what is missing: for others when these have come, for the same again after a while."""
        assert self.view is not None
        lacking = {rank for rank, first, _ in missing if first <= self.asked_for.get(rank, (0, 0))[1]}
        if lacking and now < self.fetch_again_at:
            return
        if not lacking:
            self.asked_for.clear()
            room = RESEND_AT_ONCE
            for rank, first, last in missing:
                if room > 0:
                    self.asked_for[rank] = first, min(last, first + room - 1)
                    room -= last - first + 1
                    lacking.add(rank)
        self.fetch_again_at = now + self.retry_after
        for rank in sorted(lacking):
            holder = holder_of(rank)
            first, last = self.asked_for[rank]
            fetch = Fetch(self.view.number, self.view.members[rank], first, last, self.host.round_heard(holder))
            out.sends.append(((holder,), fetch))

    def _missing(self, proposal: Proposal) -> list[tuple[int, int, int]]:
        """What lies below the cut and is not held here, as (rank, first, last)."""
        received = self.host.received()
        return [
            (rank, have + 1, need)
            for rank, (have, need) in enumerate(zip(received, proposal.cut, strict=True))
            if have < need
        ]
