"""Mistakes in the joins (docs/design/joins.md), each in a topology and under faults where it shows soon.

What is not here is harmless, and why is worth knowing. A link used out of turn, blocks of one link out of order, or a
numbering message to the wrong gateway change nothing that anybody sees, because the import goes by numbers alone. A
confirmation that is not passed on costs nothing while every gateway has a link that works. A receiving side that does
not say that it has lost a gateway is found out when the link is seen to be dead: that is only slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from isthmus.core.gateway import GatewayOutbox
from isthmus.core.ids import LinkId, Nanos, ProcessId, ProcessName
from isthmus.core.message import Message
from isthmus.core.wire.join import Block, SiteFreeze, SiteState
from isthmus.join.export import Export
from isthmus.join.gateway import JoinGateway
from isthmus.join.imports import Import
from isthmus.join.outgoing import Run
from isthmus.join.plan import JoinPlan
from isthmus.join.share import ByOrigin, Counted, Sequenced
from isthmus.lab.mutants.mutant import Mutant
from isthmus.topology import plans as planning
from isthmus.topology.model import Topology
from isthmus.topology.wiring import path_links

# Numbers and shares


def _number_skipped(self: Sequenced, link: LinkId) -> list[Run]:
    if self._next_number % 7 == 5:
        self._next_number += 1
    return _take(self, link)


def _window_ignored(self: Sequenced) -> bool:
    return self._leading and not self._paused and bool(self._waiting)


def _gathers_for_ever(self: Sequenced) -> bool:
    return self._waiting_messages >= self.block_messages


def _window_of_a_log_ignored(self: Counted) -> None:
    self._received = 1 << 60
    _pump(self)


def _numbers_kept(self: Sequenced, waiting: list[Run], links: Sequence[LinkId], leading: bool) -> None:
    kept = self._next_number
    _begin_sequenced(self, [], links, leading)
    self._next_number = kept
    self._waiting = deque(waiting) if leading else deque()
    self._pump()


def _everybody_numbers(self: Sequenced, waiting: list[Run], links: Sequence[LinkId], leading: bool) -> None:
    _begin_sequenced(self, waiting, links, leading=True)


def _taken_for_a_log(*arguments: Any) -> str:
    share = _share(*arguments)
    return share if share == "by-origin" else "counted"


def _link_per_message(self: ByOrigin, runs: Sequence[Run]) -> None:
    for origin, first, count in runs:
        for seq in range(first, first + count):
            link = self._links[(origin + seq) % len(self._links)] if self._links else None
            if link is not None and self._carrier.is_mine(link):
                self._carrier.put(link, 0, [(origin, seq, 1)])


def _also_sent_back(*arguments: Any) -> JoinPlan:
    plan = _plan(*arguments)
    return structs.replace(plan, exported=plan.exported | plan.imported)


def _paths_mixed_up(topology: Topology) -> dict[ProcessName, tuple[tuple[ProcessName, ProcessName], ...]]:
    paths = path_links(topology)
    names = list(paths)
    return {name: paths[other] for name, other in zip(names, [*names[1:], names[0]], strict=True)}


# What an export carries again, or not at all


def _final_carried_again(
    self: Export, final: dict[ProcessId, int], links: Sequence[LinkId], out: GatewayOutbox
) -> None:
    _begin_export(self, {}, links, out)


def _late_deliveries_carried_again(self: Export, messages: Sequence[Message], out: GatewayOutbox) -> None:
    runs = self.outstanding.add(messages)
    if runs and not self.opening:
        self._out = out
        self.share.add(runs)


def _any_answer_will_do(self: Export, epoch: int, final: list[tuple[int, int]], out: GatewayOutbox) -> None:
    if epoch <= self.epoch:
        _resumed(self, self.epoch, final, out)


def _carried_while_opening(self: Export, messages: Sequence[Message], out: GatewayOutbox) -> None:
    opening, self.opening = self.opening, False
    _delivered_export(self, messages, out)
    self.opening = opening


def _lost_fellows_ignored(self: Export, fellows: tuple[ProcessId, ...], now: Nanos, out: GatewayOutbox) -> None:
    self.fellows = fellows


def _new_peer_ignored(self: Export, link: LinkId, now: Nanos, out: GatewayOutbox) -> None:
    """Nothing."""


def _nothing_outstanding(self: Export, pdu: SiteState, earlier: list[Message], now: Nanos, out: GatewayOutbox) -> None:
    _catch_up_export(self, pdu, [], now, out)


def _answers_forgotten(self: Export, marks: Mapping[ProcessId, int]) -> None:
    """Nothing is remembered of what came in."""


# What an import broadcasts too early, or twice


def _old_epochs_accepted(self: Import, link: LinkId, block: Block, out: GatewayOutbox) -> None:
    _on_block(self, link, structs.replace(block, epoch=max(block.epoch, self.epoch)), out)


def _early_blocks_dropped(self: Import, link: LinkId, block: Block, out: GatewayOutbox) -> None:
    if block.epoch <= self.epoch:
        _on_block(self, link, block, out)


def _answers_not_awaited(self: Import, link: LinkId, block: Block, out: GatewayOutbox) -> None:
    _on_block(self, link, structs.replace(block, after=[]), out)


def _gap_guessed(self: Import, out: GatewayOutbox) -> None:
    _relay_what_is_due(self, out)
    if len(self._held) > 1 and self.ready and not self.frozen:
        self.relayed = min(self._held) - 1
        _relay_what_is_due(self, out)


def _turn_ignored(self: Import, out: GatewayOutbox) -> None:
    for first in sorted(self._held):
        self._relay(self._held.pop(first).messages, out)


def _older_epochs_not_awaited(self: Import, out: GatewayOutbox) -> None:
    while self._unnumbered:
        self._relay(self._unnumbered.popleft(), out)


# Epochs at the receiving side


def _reported_without_freezing(self: Import, source: ProcessId, pdu: SiteFreeze, out: GatewayOutbox) -> None:
    frozen_for = self.frozen_for
    _on_freeze(self, source, pdu, out)
    if source == self.leader:
        self.frozen_for = frozen_for


def _broadcasts_not_awaited(self: Import, out: GatewayOutbox) -> None:
    if all(fellow in self._reports for fellow in self._others()):
        self._announce(self.frozen_for, sorted(self.imported.items()), self.total, out)


def _reports_not_awaited(self: Import, out: GatewayOutbox) -> None:
    if all(self.imported.get(origin, 0) >= seq for origin, seq in self.handed.items()):
        self._announce(self.frozen_for, sorted(self.imported.items()), self.total, out)


def _takeover_at_once(self: Import, out: GatewayOutbox) -> None:
    local, self.local = self.local, self.imported
    _conclude(self, out)
    self.local = local


def _past_not_learnt(self: Import, pdu: SiteState, out: GatewayOutbox) -> None:
    self.ready = True
    self._take_early(out)


# Stability across systems


def _settled_when_delivered(self: Import, sender: ProcessId, number: int, out: GatewayOutbox) -> Collection[ProcessId]:
    _settled(self, sender, number, out)
    self.local.update(self.imported)
    return list(self.imported)


def _finished_at_once(self: JoinGateway, sender: ProcessId, out: GatewayOutbox) -> None:
    queue = self._unfinished[sender]
    if queue and self.is_caught_up:
        out.confirms.append((sender, queue[-1][0]))
        queue.clear()


def _next_system_is_all(self: JoinGateway, join: int, origins: Iterable[ProcessId], out: GatewayOutbox) -> None:
    imports = self.imports[join]
    levels = {origin: imports.local.get(origin, 0) for origin in origins}
    imports.confirm(levels, self.exports[join].links_up, out)


# The originals that mutants build on, taken before anything is replaced.
_take: Callable[..., list[Run]] = Sequenced._take
_begin_sequenced: Callable[..., None] = Sequenced.begin
_pump: Callable[..., None] = Counted._pump
_share: Callable[..., str] = planning._share
_plan: Callable[..., JoinPlan] = planning._plan
_begin_export: Callable[..., None] = Export._begin
_delivered_export: Callable[..., None] = Export.delivered
_resumed: Callable[..., None] = Export.resumed
_catch_up_export: Callable[..., None] = Export.catch_up
_on_block: Callable[..., None] = Import.on_block
_relay_what_is_due: Callable[..., None] = Import._relay_what_is_due
_on_freeze: Callable[..., None] = Import.on_freeze
_conclude: Callable[..., None] = Import._conclude
_settled: Callable[..., Collection[ProcessId]] = Import.settled

JOIN_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "number-skipped",
        "causal",
        "the sequencer leaves a number out",
        ((Sequenced, "_take", _number_skipped),),
        "striped",
    ),
    Mutant(
        "window-ignored",
        "causal",
        "a sequencer numbers as much as there is",
        ((Sequenced, "_may_number", _window_ignored),),
        "striped",
    ),
    Mutant(
        "gathers-for-ever",
        "causal",
        "a sequencer waits until a block is full, however little is under way",
        ((Sequenced, "_is_worth_a_block", _gathers_for_ever),),
        "striped",
    ),
    Mutant(
        "log-window-ignored",
        "causal",
        "what comes out of a log is sent however much is under way",
        ((Counted, "_pump", _window_of_a_log_ignored),),
        "logs",
    ),
    Mutant(
        "numbers-kept",
        "causal",
        "a new epoch goes on with the numbers of the old one",
        ((Sequenced, "begin", _numbers_kept),),
        "striped",
    ),
    Mutant(
        "everybody-numbers",
        "causal",
        "every gateway takes itself for the sequencer",
        ((Sequenced, "begin", _everybody_numbers),),
        "striped",
    ),
    Mutant(
        "taken-for-a-log",
        "causal",
        "gateways of a causal system count for themselves",
        ((planning, "_share", _taken_for_a_log),),
        "striped",
    ),
    Mutant(
        "link-per-message",
        "fifo",
        "a FIFO join chooses the link of each message anew",
        ((ByOrigin, "add", _link_per_message),),
        "fifo",
    ),
    Mutant(
        "sent-back",
        "causal",
        "a message goes back over the join that it came by",
        ((planning, "_plan", _also_sent_back),),
        "striped",
    ),
    Mutant(
        "wrong-path",
        "fifo",
        "messages take the path of another process",
        ((planning, "path_links", _paths_mixed_up),),
        "paths",
    ),
    Mutant(
        "final-carried-again",
        "causal",
        "a new epoch begins with what the far side has already",
        ((Export, "_begin", _final_carried_again),),
        "striped",
    ),
    Mutant(
        "late-carried-again",
        "causal",
        "what is delivered late is carried although the far side has it",
        ((Export, "delivered", _late_deliveries_carried_again),),
        "log cuts",
    ),
    Mutant(
        "any-answer-will-do",
        "causal",
        "the answer to an older epoch is taken for the one awaited",
        ((Export, "resumed", _any_answer_will_do),),
        "striped",
    ),
    Mutant(
        "carried-while-opening",
        "fifo",
        "messages go out while an epoch is being opened",
        ((Export, "delivered", _carried_while_opening),),
        "fifo",
    ),
    Mutant(
        "lost-fellow-ignored",
        "causal",
        "no epoch is opened when a fellow gateway is gone",
        ((Export, "view", _lost_fellows_ignored),),
        "striped",
    ),
    Mutant(
        "new-peer-ignored",
        "fifo",
        "a new process at the far end is sent the rest",
        ((Export, "void", _new_peer_ignored),),
        "fifo",
    ),
    Mutant(
        "newcomer-without-messages",
        "causal",
        "a new gateway does not learn what is outstanding",
        ((Export, "catch_up", _nothing_outstanding),),
        "turnover",
    ),
    Mutant(
        "newcomer-without-past",
        "causal",
        "a new gateway does not learn what came in before",
        ((Import, "catch_up", _past_not_learnt),),
        "striped",
    ),
    Mutant(
        "answers-forgotten",
        "causal",
        "blocks do not name what they may answer",
        ((Export, "came_in", _answers_forgotten),),
        "answers",
    ),
    Mutant(
        "answers-not-awaited",
        "causal",
        "a block is broadcast before what it may answer is delivered",
        ((Import, "on_block", _answers_not_awaited),),
        "answers",
    ),
    Mutant(
        "old-epochs-accepted",
        "causal",
        "blocks of older epochs are taken for new ones",
        ((Import, "on_block", _old_epochs_accepted),),
        "striped",
    ),
    Mutant(
        "early-blocks-dropped",
        "causal",
        "blocks of an epoch that has not begun here are dropped",
        ((Import, "on_block", _early_blocks_dropped),),
        "striped",
    ),
    Mutant(
        "gap-guessed",
        "causal",
        "an import goes on although a number before is missing",
        ((Import, "_relay_what_is_due", _gap_guessed),),
        "striped",
    ),
    Mutant(
        "turn-ignored",
        "causal",
        "an import broadcasts a block when it arrives",
        ((Import, "_relay_what_is_due", _turn_ignored),),
        "sets",
    ),
    Mutant(
        "older-epochs-not-awaited",
        "fifo",
        "an import begins an epoch before it has delivered the last one",
        ((Import, "_relay_unnumbered", _older_epochs_not_awaited),),
        "mixed cuts",
    ),
    Mutant(
        "never-frozen",
        "causal",
        "a gateway reports what it broadcast and goes on",
        ((Import, "on_freeze", _reported_without_freezing),),
        "striped cuts",
    ),
    Mutant(
        "broadcasts-not-awaited",
        "causal",
        "an epoch begins before all that was broadcast is delivered",
        ((Import, "_conclude", _broadcasts_not_awaited),),
        "striped cuts",
    ),
    Mutant(
        "reports-not-awaited",
        "causal",
        "an epoch begins before all gateways have reported",
        ((Import, "_conclude", _reports_not_awaited),),
        "striped cuts",
    ),
    Mutant(
        "takeover-at-once",
        "fifo",
        "a FIFO epoch begins before everybody has the last one",
        ((Import, "_conclude", _takeover_at_once),),
        "fifo cuts",
    ),
    Mutant(
        "settled-when-delivered",
        "causal",
        "a system confirms what only its gateway has delivered",
        ((Import, "settled", _settled_when_delivered),),
        "striped",
    ),
    Mutant(
        "finished-at-once",
        "causal",
        "a gateway does not wait for the far side to confirm",
        ((JoinGateway, "_finish", _finished_at_once),),
        "striped",
    ),
    Mutant(
        "next-system-is-all",
        "causal",
        "a system confirms what systems behind it lack",
        ((JoinGateway, "_confirm_upstream", _next_system_is_all),),
        "line",
    ),
)
