"""The table of kinds: how each is explored, one line each.

Systems that broadcast are nothing but their definition here, and what is explored are the gateways between them. Where
messages are for some processes each, the processes themselves are explored, of one system that stands alone.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from isthmus.explorer.clusters import explore_clusters
from isthmus.explorer.daisy import explore_daisy
from isthmus.explorer.search import Outcome
from isthmus.topology.model import System, Topology


def _nothing_against(system: System) -> str:
    return ""


class ExploredKind(Struct, frozen=True, kw_only=True):
    """`alone` explores a topology of one system of this kind: so many messages, at most so many states.

    It is None where a system is its definition. `no_crashes` says why nobody may crash there, and `refusal` why a
    system cannot be explored at all; empty where it can.
    """

    alone: Callable[[Topology, int | None, int | None], Outcome] | None = None
    no_crashes: str = ""
    refusal: Callable[[System], str] = _nothing_against


def _broadcast_daisy(system: System) -> str:
    if not system.broadcasts:
        return ""
    reason = "the explorer has daisies whose messages are for some, and joins of systems that are one step"
    return f'daisy has audience = "everybody": {reason}; simulate it instead'


KINDS: dict[str, ExploredKind] = {
    "group": ExploredKind(),
    "acknowledged": ExploredKind(),
    "clusters": ExploredKind(alone=explore_clusters, no_crashes="clusters promise nothing after a crash"),
    "daisy": ExploredKind(
        alone=explore_daisy, no_crashes="a daisy is explored without crashes", refusal=_broadcast_daisy
    ),
    "log": ExploredKind(),
}
