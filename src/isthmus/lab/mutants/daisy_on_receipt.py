"""Mistakes in forwarding on receipt: vectors, what is ahead, what a holder tells (docs/design/daisy-on-receipt.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.hierarchy.daisy.early import NOWHERE, EarlyLocalGroup, EarlyServersGroup
from isthmus.hierarchy.daisy.early_orders import SeatOrder
from isthmus.hierarchy.daisy.local import Arrival
from isthmus.hierarchy.daisy.record import Causes, pack_with
from isthmus.lab.mutants.mutant import Mutant


def _no_gate(self: SeatOrder, rank: int, batch: Batch) -> None:
    return None


def _group_left_out(self: EarlyServersGroup, message: Clocked, causes: Causes, now: Nanos) -> bool:
    return _forward(self, message, Causes([], causes.view, causes.servers), now)


def _servers_left_out(self: EarlyServersGroup, message: Clocked, causes: Causes, now: Nanos) -> bool:
    return _forward(self, message, Causes(causes.group, 0, []), now)


def _in_whole(self: EarlyLocalGroup, message: Clocked, now: Nanos) -> None:
    self.member.relay([pack_with(message, NOWHERE)], now, self.inner)


def _out_of_turn(
    self: EarlyLocalGroup, arrivals: Sequence[Arrival], above: Mapping[ProcessId, int], now: Nanos
) -> None:
    _relay(self, arrivals, {}, now)


_forward = EarlyServersGroup.forward
_relay = EarlyLocalGroup.relay


def _mutant(name: str, mistake: str, *patches: tuple[object, str, object]) -> Mutant:
    return Mutant(f"daisy-early-{name}", "causal", mistake, patches, "early daisy")


DAISY_EARLY_MUTANTS: tuple[Mutant, ...] = (
    _mutant("no-gate", "holders do not heed the vectors", (SeatOrder, "_unmet", _no_gate)),
    _mutant(
        "group-left-out",
        "the vector of the local group is not carried",
        (EarlyServersGroup, "forward", _group_left_out),
    ),
    _mutant(
        "servers-left-out",
        "the vector of the servers' group is not carried",
        (EarlyServersGroup, "forward", _servers_left_out),
    ),
    _mutant("in-whole", "what is ahead is delivered at once", (EarlyLocalGroup, "send_ahead", _in_whole)),
    _mutant(
        "out-of-turn",
        "an answer comes into a group that has not delivered what it answers",
        (EarlyLocalGroup, "relay", _out_of_turn),
    ),
)
