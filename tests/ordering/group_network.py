"""A few group members, and the PDUs between them carried by hand: deterministic, without a simulator.

Nothing arrives unless a test says so. `carry` is one hop: everything under way (or what a filter picks) arrives, and
what the arrivals send is under way in turn. `pass_time` wakes whoever is due and carries everything at once, so under
it a hop takes no time. A cut line or a dead process loses what is sent to it. Every step is followed by the member's
own `invariants()`, and leaves lines in `journal`: the raw material of the transcripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from isthmus.core.codec import body_of, decode_body
from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.group import Ack, Fetch, Install, JoinRequest, Prepare, Promise, Propose, Safe, Status
from isthmus.core.wire.pdu import Pdu
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.order import Order

HEARTBEAT = 20 * MILLISECOND
SUSPECT_AFTER = 200 * MILLISECOND
SETTINGS = GroupSettings(heartbeat=HEARTBEAT, suspect_after=SUSPECT_AFTER, retry_after=40 * MILLISECOND)


class UnderWay(NamedTuple):
    source: int
    destination: int
    pdu: Pdu


class Network:
    """Members 1, 2, 3, … (and joiners under any other id), everything they did, and what is under way between them."""

    def __init__(
        self,
        size: int,
        order: Callable[[], Order] = CausalOrder,
        settings: GroupSettings = SETTINGS,
    ) -> None:
        self.order = order
        self.settings = settings
        self.founders = tuple(range(1, size + 1))
        self.now: Nanos = 0
        self.members: dict[int, GroupMember] = {}
        self.under_way: list[UnderWay] = []
        self.history: dict[int, list[Batch | View]] = {}
        self.stable: dict[int, list[Batch]] = {}
        self.stopped: dict[int, str] = {}
        self.crashed: set[int] = set()
        self.cut: set[tuple[int, int]] = set()
        self.journal: list[str] = []
        for member in self.founders:
            self._add(member, joining=False)

    def _add(self, member: int, *, joining: bool) -> None:
        endpoint = GroupMember(member, self.founders, self.order, self.settings, self.now, joining=joining)
        self.members[member] = endpoint
        self.history[member] = []
        self.stable[member] = []

    def __getitem__(self, member: int) -> GroupMember:
        return self.members[member]

    def say(self, comment: str) -> None:
        """A line for whoever reads the journal."""
        self.journal.append(f"# {comment}")

    # What an application does

    def broadcast(self, member: int, *payloads: str) -> None:
        self.journal.append(f"p{member} broadcasts {' '.join(payloads)}")
        self.step(member, self[member].broadcast, [payload.encode() for payload in payloads])

    def confirm(self, member: int, sender: int, number: int) -> None:
        self.step(member, self[member].confirm, sender, number)

    def leave(self, member: int) -> None:
        self.journal.append(f"p{member} wants to leave")
        self.step(member, self[member].leave)

    def join(self, member: int) -> None:
        self.journal.append(f"p{member} wants to join")
        self._add(member, joining=True)
        self.wake(member)

    # What happens to processes and lines

    def crash(self, *members: int) -> None:
        for member in members:
            self.journal.append(f"p{member} crashes")
            self.crashed.add(member)

    def cut_line(self, source: int, destination: int) -> None:
        self.cut.add((source, destination))

    def isolate(self, member: int) -> None:
        """Nothing gets to this process or from it."""
        for other in self.members:
            self.cut |= {(member, other), (other, member)}

    def mend(self) -> None:
        self.cut.clear()

    # What the network does

    def carry(
        self,
        *kinds: type,
        source: int | None = None,
        to: int | Iterable[int] | None = None,
        where: Callable[[UnderWay], bool] = lambda each: True,
    ) -> int:
        """One hop of what is under way and fits the filter. Says how much that was."""
        picked = self._pick(kinds, source, to, where)
        for each in picked:
            self._arrive(each)
        return len(picked)

    def lose(
        self,
        *kinds: type,
        source: int | None = None,
        to: int | Iterable[int] | None = None,
        where: Callable[[UnderWay], bool] = lambda each: True,
    ) -> int:
        """What is under way and fits the filter never arrives."""
        return len(self._pick(kinds, source, to, where))

    def carry_all(self) -> None:
        """Hop by hop, until nothing is under way."""
        hops = 0
        while self.carry():
            hops += 1
            assert hops < 1000, "the members do not stop talking"

    def pass_time(self, duration: Nanos, *, every: Callable[[], object] = lambda: None) -> None:
        """Wake whoever is due, carry everything, and so on. `every` is called before each hop."""
        end = self.now + duration
        while True:
            due = [(deadline, member) for member in self.alive() if (deadline := self[member].deadline()) is not None]
            if not due or min(due)[0] > end:
                break
            self.now = max(self.now, min(due)[0])
            for deadline, member in sorted(due):
                if deadline <= self.now:
                    self.wake(member)
            every()
            hops = 0
            while self.carry():
                every()
                hops += 1
                assert hops < 1000, "the members do not stop talking"
        self.now = end

    def wake(self, member: int) -> None:
        self.journal.append(f"p{member} wakes")
        self.step(member, self[member].wake)

    def inject(self, source: int, destination: int, *pdus: Pdu) -> None:
        """PDUs that nobody here sent."""
        self.step(destination, self[destination].receive, source, list(pdus))

    def _pick(
        self, kinds: tuple[type, ...], source: int | None, to: int | Iterable[int] | None, where: Callable[..., bool]
    ) -> list[UnderWay]:
        wanted = {to} if isinstance(to, int) else None if to is None else set(to)
        picked, rest = [], []
        for each in self.under_way:
            fits = (
                (not kinds or isinstance(each.pdu, kinds))
                and (source is None or each.source == source)
                and (wanted is None or each.destination in wanted)
                and where(each)
            )
            (picked if fits else rest).append(each)
        self.under_way = rest
        return picked

    def _arrive(self, each: UnderWay) -> None:
        source, destination, pdu = each
        if destination in self.members and self.is_alive(destination) and (source, destination) not in self.cut:
            self.journal.append(f"p{destination} ← p{source}  {describe(pdu)}")
            self.step(destination, self[destination].receive, source, [pdu])

    # One step of one member

    def step(self, member: int, action: Callable[..., object], *arguments: object) -> Outbox | None:
        if not self.is_alive(member):
            return None
        out = Outbox()
        action(*arguments, self.now, out)
        for item in out.deliveries:
            self.history[member].append(item)
            self.journal.append(f"    p{member} {in_words(item)}")
        for hold in out.holds:
            waits = f"until {hold.number} of p{hold.awaited} is {hold.reason}"
            self.journal.append(f"    p{member} holds {hold.batch.number} of p{hold.batch.sender} {waits}")
        for batch in out.stable:
            self.stable[member].append(batch)
            self.journal.append(f"    p{member} learns that {' '.join(texts([batch])) or 'nothing'} is stable")
        for destinations, pdu in out.sends:
            names = " ".join(f"p{destination}" for destination in destinations)
            self.journal.append(f"    p{member} → {names}  {describe(pdu)}")
            # Everything passes the codec, so no test lets a PDU through that a wire would not.
            copy = decode_body(body_of(pdu))
            self.under_way += [UnderWay(member, destination, copy) for destination in destinations]
        if out.stopped:
            self.stopped[member] = out.stopped
            self.journal.append(f"    p{member} stops: {out.stopped}")
        else:
            self[member].invariants()
        return out

    # What has become of everything

    def is_alive(self, member: int) -> bool:
        return member not in self.crashed and member not in self.stopped

    def alive(self) -> list[int]:
        return [member for member in self.members if self.is_alive(member)]

    def delivered(self, member: int) -> list[str]:
        """The payloads that a process delivered, in order."""
        return texts(item for item in self.history[member] if isinstance(item, Batch))

    def delivered_since_view(self, member: int, number: int) -> list[str]:
        history = self.history[member]
        starts = [index for index, item in enumerate(history) if isinstance(item, View) and item.number == number]
        return texts(item for item in history[starts[0] :] if isinstance(item, Batch))

    def views(self, member: int) -> list[tuple[int, ...]]:
        """The members of the views that a process installed, in order."""
        return [item.members for item in self.history[member] if isinstance(item, View)]

    def sent(self, *kinds: type) -> list[UnderWay]:
        return [each for each in self.under_way if isinstance(each.pdu, kinds)]


def texts(batches: Iterable[Batch]) -> list[str]:
    return [payload.decode() for batch in batches for payload in batch.segment.payloads()]


def kept(member: GroupMember) -> int:
    """How many batches a member still holds for others, its own and those of senders that are gone included."""
    streams = [stream.log for stream in member.incoming.values()]
    return sum(map(len, [member.outgoing.log, *streams, *member.departed.values()]))


def make_batch(
    sender: int, number: int, *payloads: str, view: int = 1, stamp: Iterable[int] = (), safe: int = 0
) -> Batch:
    segment = Segment.of(sender, 100 * number, [each.encode() for each in payloads])
    return Batch(view, sender, number, list(stamp), safe, segment)


def in_words(item: Batch | View) -> str:
    if isinstance(item, View):
        return f"is in view {item.number}: {names(item.members)}"
    return f"delivers {' '.join(texts([item])) or 'nothing'} of p{item.sender}"


def names(members: Iterable[int]) -> str:
    return " ".join(f"p{member}" for member in members)


def describe(pdu: Pdu) -> str:
    """One PDU in a transcript."""
    match pdu:
        case Batch():
            words = f"batch {pdu.number} of p{pdu.sender}"
            words += f" {' '.join(texts([pdu])) or 'empty'}"
            words += f" stamp {pdu.stamp}" if pdu.stamp else ""
            return words + (f" safe {pdu.safe}" if pdu.safe else "")
        case Ack():
            return f"ack {pdu.received}" + (f" seen {pdu.seen}" if pdu.seen != pdu.received else "")
        case Safe():
            return f"safe {pdu.safe}"
        case Status():
            words = f"status of view {pdu.view}: sent {pdu.sent} confirmed {pdu.confirmed}"
            words += f" departed {pdu.departed}" if pdu.departed else ""
            words += f" suspects {names(pdu.suspects)}" if pdu.suspects else ""
            return words + (f" ballot {pdu.ballot}" if pdu.ballot else "")
        case Prepare():
            return f"prepare ballot {pdu.ballot}"
        case Promise():
            words = f"promise ballot {pdu.ballot} holding {pdu.received}"
            return words + (f" accepted ballot {pdu.accepted_ballot}" if pdu.accepted is not None else "")
        case Propose():
            return f"propose ballot {pdu.ballot}: {names(pdu.proposal.members)} after {pdu.proposal.cut}"
        case Install():
            return f"install view {pdu.view + 1}: {names(pdu.proposal.members)} after {pdu.proposal.cut}"
        case Fetch():
            return f"fetch {pdu.first} to {pdu.last} of p{pdu.sender}"
        case JoinRequest():
            return "join"
    fields = " ".join(f"{name} {getattr(pdu, name)}" for name in pdu.__struct_fields__)
    return f"{pdu.__struct_config__.tag} {fields}"
