"""Mistakes in the joins (docs/design/joins.md), each in a topology and under faults where it shows soon.

What is not here is harmless, and why is worth knowing. A link used out of turn, blocks of one link out of order, or a
numbering message to the wrong gateway change nothing that anybody sees, because the import goes by numbers alone. A
confirmation that is not passed on costs nothing while every gateway has a link that works. A receiving side that does
not say that it has lost a gateway is found out when the link is seen to be dead: that is only slower.

Nor is what chance meets too seldom, now that only a gateway's death ends an epoch: one that goes on after it has said
that it is frozen (the explorer finds it, tests/explorer), one that begins before it has delivered all of the epochs
before, and one that begins before everybody has, where the system is only FIFO (tests/join holds it to both).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import LinkId, Nanos, ProcessId, ProcessName
from isthmus.core.marks import SlotMarks
from isthmus.core.message import Batch
from isthmus.core.segment import Marks, Segment
from isthmus.core.wire.group import AskPast, PastPart
from isthmus.core.wire.join import Block, Epoch
from isthmus.join.export import Export
from isthmus.join.gateway import JoinGateway
from isthmus.join.grouped import GroupGateway
from isthmus.join.imports import Import
from isthmus.join.parcel import Parcel
from isthmus.join.plan import JoinPlan
from isthmus.join.share import ByOrigin, Counted, Sequenced, Start
from isthmus.lab.mutants.mutant import mutant
from isthmus.ordering.group.past import Past
from isthmus.ordering.group.stability import Stability
from isthmus.topology import plans as planning
from isthmus.topology.model import Topology
from isthmus.topology.wiring import path_links

# The originals that mutants build on, taken before anything is replaced.
_may_number: Callable[..., bool] = Sequenced._may_number
_begin_sequenced: Callable[..., None] = Sequenced.begin
_pump: Callable[..., None] = Counted._pump
_place: Callable[..., None] = ByOrigin._place
_share: Callable[..., str] = planning._share
_plan: Callable[..., JoinPlan] = planning._plan
_begin_export: Callable[..., None] = Export._begin
_delivered_export: Callable[..., None] = Export.delivered
_resumed: Callable[..., None] = Export.resumed
_catch_up_export: Callable[..., None] = Export.catch_up
_catch_up_import: Callable[..., None] = Import.catch_up
_on_block: Callable[..., None] = Import.on_block
_relay_what_is_due: Callable[..., None] = Import._relay_what_is_due
_settled: Callable[..., Collection[ProcessId]] = Import.settled
_install: Callable[..., None] = Stability.install
_tell: Callable[..., PastPart] = Past.tell


# Numbers and shares


@mutant("number-skipped", of=Sequenced._may_number, scenario="striped")
def _number_skipped(self: Sequenced) -> bool:
    """The sequencer leaves a number out."""
    may = _may_number(self)
    if may and self._next_number % 7 == 5:
        self._next_number += 1
    return may


@mutant("window-ignored", of=Sequenced._may_number, scenario="striped")
def _window_ignored(self: Sequenced) -> bool:
    """A sequencer numbers as much as there is."""
    return bool(self._waiting)


@mutant("lost-with-its-link", of=Sequenced._send_again, scenario="striped cuts")
def _lost_with_its_link(self: Sequenced, links: Collection[LinkId]) -> None:
    """What was under way on a link that is lost is not sent again."""


@mutant("nobody-takes-over", breaks="fifo", of=ByOrigin.relink, scenario="fifo cuts")
def _nobody_takes_over(self: ByOrigin, links: Sequence[LinkId], now: Nanos) -> None:
    """Nobody sends again what an origin's link may have lost."""
    self._links = tuple(links)


@mutant("log-window-ignored", of=Counted._pump, scenario="logs")
def _window_of_a_log_ignored(self: Counted) -> None:
    """What comes out of a log is sent however much is under way."""
    self._received = 1 << 60
    _pump(self)


@mutant("numbers-kept", of=Sequenced.begin, scenario="striped")
def _numbers_kept(self: Sequenced, start: Start, now: Nanos) -> None:
    """A new epoch goes on with the numbers of the old one."""
    kept = self._next_number
    _begin_sequenced(self, start._replace(waiting=()), now)
    self._next_number = kept
    for segment in start.waiting if start.leading else ():
        self.add(segment, now)


@mutant("everybody-numbers", of=Sequenced.begin, scenario="striped")
def _everybody_numbers(self: Sequenced, start: Start, now: Nanos) -> None:
    """Every gateway takes itself for the sequencer."""
    _begin_sequenced(self, start._replace(leading=True), now)


@mutant("taken-for-a-log", of=planning._share, scenario="striped")
def _taken_for_a_log(*arguments: Any) -> str:
    """Gateways of a causal system count for themselves."""
    share = _share(*arguments)
    return share if share == "by-origin" else "counted"


@mutant("home-per-message", breaks="fifo", of=ByOrigin._place, scenario="fifo")
def _home_per_message(self: ByOrigin, segments: Sequence[Segment], ours: Mapping[LinkId, LinkId]) -> None:
    """A FIFO join chooses anew for each message who is to broadcast it."""
    _place(self, segments, ours)
    homes = list(self._home.values())
    apart = [
        (link, Parcel(0, Segment.of(origin, seq, (payload,)), homes[seq % len(homes)]))
        for link, parcel in self.placed
        for origin, seq, payload in parcel.segment
    ]
    self.placed[:] = apart


@mutant("sent-back", of=planning._plan, scenario="striped")
def _also_sent_back(*arguments: Any) -> JoinPlan:
    """A message goes back over the join that it came by."""
    plan = _plan(*arguments)
    return structs.replace(plan, exported=plan.exported | plan.imported)


@mutant("wrong-path", breaks="fifo", of=path_links, where=planning, scenario="paths")
def _paths_mixed_up(topology: Topology) -> dict[ProcessName, tuple[tuple[ProcessName, ProcessName], ...]]:
    """Messages take the path of another process."""
    paths = path_links(topology)
    names = list(paths)
    return {name: paths[other] for name, other in zip(names, [*names[1:], names[0]], strict=True)}


# What an export carries again, or not at all


@mutant("final-carried-again", of=Export._begin, scenario="striped")
def _final_carried_again(self: Export, epoch: Epoch, final: SlotMarks, now: Nanos, out: Outbox) -> None:
    """A new epoch begins with what the far side has already."""
    _begin_export(self, epoch, SlotMarks(), now, out)


@mutant("late-carried-again", of=Export.delivered, scenario="sets")
def _late_deliveries_carried_again(self: Export, segment: Segment, now: Nanos, out: Outbox) -> None:
    """What is delivered late is carried although the far side has it."""
    fresh = self.outstanding.add(segment)
    if fresh and not self.opening:
        self.share.add(fresh, now)
        self._send(out)


@mutant("any-answer-will-do", of=Export.resumed, scenario="striped")
def _any_answer_will_do(self: Export, epoch: Epoch, final: list[tuple[int, int]], now: Nanos, out: Outbox) -> None:
    """The answer to an older epoch is taken for the one awaited."""
    if self.opening:
        _resumed(self, self.epoch._replace(answer=max(1, epoch.answer)), final, now, out)


@mutant("carried-while-opening", breaks="fifo", of=Export.delivered, scenario="fifo")
def _carried_while_opening(self: Export, segment: Segment, now: Nanos, out: Outbox) -> None:
    """Messages go out while an epoch is being opened."""
    opening, self.opening = self.opening, False
    _delivered_export(self, segment, now, out)
    self.opening = opening


@mutant("lost-fellow-ignored", of=Export.acting, scenario="striped")
def _lost_fellows_ignored(self: Export, term: int, fellows: tuple[ProcessId, ...], now: Nanos, out: Outbox) -> None:
    """Nothing is done when a fellow gateway is gone."""
    self.fellows = fellows


@mutant("new-peer-ignored", breaks="fifo", of=JoinGateway._lose, scenario="fifo")
def _new_peer_ignored(self: JoinGateway, link: LinkId, now: Nanos, out: Outbox) -> None:
    """A link that is lost, or has a new process at its far end, is used as before."""


@mutant("newcomer-without-messages", of=Export.catch_up, scenario="turnover")
def _nothing_outstanding(
    self: Export, marks: Marks, came_in: Marks, earlier: Sequence[Segment], now: Nanos, out: Outbox
) -> None:
    """A new gateway does not learn what is outstanding."""
    _catch_up_export(self, marks, came_in, [], now, out)


@mutant("answers-forgotten", of=Export.came_in, scenario="answers")
def _answers_forgotten(self: Export, marks: Mapping[ProcessId, int]) -> None:
    """Blocks do not name what they may answer."""


# What an import broadcasts too early, or twice


@mutant("old-epochs-accepted", of=Import.on_block, scenario="striped")
def _old_epochs_accepted(self: Import, link: LinkId, block: Block, out: Outbox) -> None:
    """Blocks of older epochs are taken for new ones."""
    _on_block(self, link, structs.replace(block, epoch=max(block.epoch, self.epoch)), out)


@mutant("early-blocks-dropped", of=Import.on_block, scenario="striped")
def _early_blocks_dropped(self: Import, link: LinkId, block: Block, out: Outbox) -> None:
    """Blocks of an epoch that has not begun here are dropped."""
    if block.epoch <= self.epoch:
        _on_block(self, link, block, out)


@mutant("answers-not-awaited", of=Import.on_block, scenario="answers")
def _answers_not_awaited(self: Import, link: LinkId, block: Block, out: Outbox) -> None:
    """A block is broadcast before what it may answer is delivered."""
    _on_block(self, link, structs.replace(block, after=[]), out)


@mutant("gap-guessed", of=Import._relay_what_is_due, scenario="striped")
def _gap_guessed(self: Import, out: Outbox) -> None:
    """An import goes on although a number before is missing."""
    _relay_what_is_due(self, out)
    if len(self._held) > 1 and self.ready and not self.frozen:
        self.relayed_to = min(self._held) - 1
        _relay_what_is_due(self, out)


@mutant("turn-ignored", of=Import._relay_what_is_due, scenario="sets")
def _turn_ignored(self: Import, out: Outbox) -> None:
    """An import broadcasts a block when it arrives."""
    for first in sorted(self._held):
        self._relay(self._held.pop(first).segment, out)


@mutant("whoever-gets-it", of=Import._home_of, scenario="striped cuts")
def _whoever_gets_it(self: Import, block: Block) -> ProcessId:
    """Whoever gets a block takes it for his own."""
    return self.owner


# Epochs at the receiving side


@mutant("broadcasts-not-awaited", of=Import._conclude, scenario="striped deaths")
def _broadcasts_not_awaited(self: Import, out: Outbox) -> None:
    """An epoch begins before all that was broadcast is delivered."""
    if all(fellow in self._reports for fellow in self._others()):
        self.begin(self.frozen_for._replace(answer=1), self.last_delivered.counted(), self.fellows, out)
        self._tell_begin(self._others(), out)


@mutant("reports-not-awaited", of=Import._conclude, scenario="turnover")
def _reports_not_awaited(self: Import, out: Outbox) -> None:
    """An epoch begins before all gateways have reported."""
    if all(self.last_delivered.get(origin) >= seq for origin, seq in self.last_broadcast.items()):
        self.begin(self.frozen_for._replace(answer=1), self.last_delivered.counted(), self.fellows, out)
        self._tell_begin(self._others(), out)


@mutant("newcomer-without-past", of=Import.catch_up, scenario="striped")
def _past_not_learnt(self: Import, marks: Marks, out: Outbox) -> None:
    """A new gateway does not learn what came in before."""
    _catch_up_import(self, {}, out)


# Processes that come back


@mutant("over-and-forgotten", of=SlotMarks.at, scenario="returns")
def _over_and_forgotten(self: SlotMarks, origins: Iterable[ProcessId]) -> dict[ProcessId, int]:
    """The mark of a process is forgotten as soon as its successor has one, and with it that it is over."""
    return {origin: seq for origin, seq in self.items() if origin in set(origins)}


@mutant("former-origins-not-counted", of=SlotMarks.total, scenario="returns")
def _former_origins_not_counted(self: SlotMarks) -> int:
    """Numbers of a join are counted from what those processes sent that are there now."""
    return sum(seq for _, seq in self.items())


# Stability across systems


@mutant("settled-when-delivered", of=Import.settled, scenario="striped")
def _settled_when_delivered(self: Import, marks: Marks, out: Outbox) -> Collection[ProcessId]:
    """A system confirms what only its gateway has delivered."""
    _settled(self, marks, out)
    delivered = dict(self.last_delivered.items())
    self.last_finished.update(delivered)
    return delivered


@mutant("finished-at-once", of=GroupGateway._confirm, scenario="striped")
def _finished_at_once(self: GroupGateway, slot: int, out: Outbox) -> None:
    """A gateway does not wait for the far side to confirm."""
    queue = self._unconfirmed.get(slot)
    if queue and self.is_caught_up:
        out.confirms.append(queue[-1][:2])
        queue.clear()


@mutant("next-system-is-all", of=JoinGateway._confirm_upstream, scenario="line")
def _next_system_is_all(self: JoinGateway, join: int, origins: Iterable[ProcessId], out: Outbox) -> None:
    """A system confirms what systems behind it lack."""
    imports = self.imports[join]
    levels = dict(imports.last_finished.of(origin) for origin in origins)
    imports.confirm(levels, self.exports[join].links_up, out)


# The last gateway is replaced


@mutant("absent-gateways-forgotten", of=Stability.install, scenario="last gateways")
def _absent_gateways_forgotten(self: Stability, *arguments: Any, **options: Any) -> None:
    """A system without a gateway calls stable what its processes have finished with."""
    _install(self, *arguments, **(options | {"attended": True}))


@mutant("past-not-kept", of=Past.tell, scenario="last gateways")
def _past_not_kept(self: Past, ask: AskPast, cut: Mapping[ProcessId, int]) -> PastPart:
    """A gateway that comes is told how far everything has come, and gets nothing of it."""
    part = _tell(self, ask, cut)
    return structs.replace(part, total=0, batches=[])


@mutant("crossing-not-awaited", of=Past._has_crossed, scenario="last gateways in a line")
def _crossing_not_awaited(self: Past, batch: Batch) -> bool:
    """What came in is forgotten when it is stable here, though it has not gone out yet."""
    return True
