"""Mistakes in forwarding on receipt: vectors, what is ahead, what a holder tells (docs/design/daisy-on-receipt.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.message import Batch, Clocked
from isthmus.core.segment import Segment
from isthmus.hierarchy.daisy.early import NOWHERE, EarlyLocalGroup, EarlyServersGroup
from isthmus.hierarchy.daisy.early_orders import SeatOrder
from isthmus.hierarchy.daisy.local import Arrival
from isthmus.hierarchy.daisy.record import Causes, pack
from isthmus.lab.mutants.mutant import mutant

# The originals that mutants build on, taken before anything is replaced.
_forward = EarlyServersGroup.forward
_relay = EarlyLocalGroup.relay


@mutant("daisy-early-no-gate", of=SeatOrder._unmet, scenario="early daisy")
def _no_gate(self: SeatOrder, rank: int, batch: Batch) -> None:
    """Holders do not heed the vectors."""
    return None


@mutant("daisy-early-group-left-out", of=EarlyServersGroup.forward, scenario="early daisy")
def _group_left_out(self: EarlyServersGroup, run: Clocked, causes: Causes, now: Nanos) -> bool:
    """The vector of the local group is not carried."""
    return _forward(self, run, Causes([], causes.view, causes.servers), now)


@mutant("daisy-early-servers-left-out", of=EarlyServersGroup.forward, scenario="early daisy")
def _servers_left_out(self: EarlyServersGroup, run: Clocked, causes: Causes, now: Nanos) -> bool:
    """The vector of the servers' group is not carried."""
    return _forward(self, run, Causes(causes.group, 0, []), now)


@mutant("daisy-early-in-whole", of=EarlyLocalGroup.send_ahead, scenario="early daisy")
def _in_whole(self: EarlyLocalGroup, run: Clocked, now: Nanos) -> None:
    """What is ahead is delivered at once."""
    self.member.relay([Segment.pack([pack(run, NOWHERE)])], now, self.inner)


@mutant("daisy-early-out-of-turn", of=EarlyLocalGroup.relay, scenario="dying daisy")
def _out_of_turn(
    self: EarlyLocalGroup, arrivals: Sequence[Arrival], above: Mapping[ProcessId, int], now: Nanos
) -> None:
    """An answer comes into a group that has not delivered what it answers."""
    _relay(self, arrivals, {}, now)
