"""The table of kinds: how long a message takes inside a system of each, and which of them `plan` can say nothing of."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from msgspec import Struct

from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.planner.expressions import JoinModel, uniform_words
from isthmus.topology.model import System


def _nothing_against(system: System) -> str:
    return ""


class PlannedKind(Struct, frozen=True, kw_only=True):
    """`latency` is from `send` until every process of the system has delivered, without load.

    `refusal` says why nothing can be computed for a system; empty where it can.
    """

    latency: Callable[[System, JoinModel], Fraction]
    refusal: Callable[[System], str] = _nothing_against


def _in_a_log(system: System, model: JoinModel) -> Fraction:
    return model.local_hop


def _in_a_group(system: System, model: JoinModel) -> Fraction:
    """Fast delivery waits for no word; a place in a total order takes one hop more."""
    words = 0
    if system.delivery != "fast":
        words = uniform_words(len(system.members)) + (system.order == "total")
    return model.local_hop + words * model.local_delay


def _in_a_daisy(system: System, model: JoinModel) -> Fraction:
    """Up from the local group to the topmost group and down again.

    That is two local groups, of which the largest counts, and servers' groups between them, which wait for nobody. A
    server that sends a message on has it itself when the first member has acknowledged it, and not before.
    """
    daisy = system.own(DaisyTable)
    words = uniform_words(max(len(group.processes) for group in daisy.all_groups()))
    if daisy.levels == 1:
        return model.local_hop + words * model.local_delay
    return 2 * (model.local_hop + max(1, words) * model.local_delay) + (2 * daisy.levels - 3) * model.local_hop


def _addressed_daisy(system: System) -> str:
    return "" if system.broadcasts else "is a daisy that cannot be joined, and plan is about joins"


def _clusters(system: System) -> str:
    return "is made of clusters, and plan is about joins; see isthmus counts"


KINDS: dict[str, PlannedKind] = {
    "group": PlannedKind(latency=_in_a_group),
    "acknowledged": PlannedKind(latency=_in_a_group),
    "clusters": PlannedKind(latency=_in_a_log, refusal=_clusters),
    "daisy": PlannedKind(latency=_in_a_daisy, refusal=_addressed_daisy),
    "log": PlannedKind(latency=_in_a_log),
}
