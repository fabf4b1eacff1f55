"""Says when a join of a system is left without a gateway, and when it has one again.

Until one comes nothing becomes stable, and senders stop when their windows are full (docs/design/joins.md,
"The last gateway dies and is replaced"). Whoever runs the system has to start one, so they have to hear of it: once,
however many processes of the system run here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from isthmus.core.endpoint import View
from isthmus.core.ids import ProcessId, ProcessName, slot_of

log = logging.getLogger(__name__)


class SeatWatch:
    """`joins` are the slots of the gateways of each join, by the name of the system at its other end."""

    def __init__(
        self, system: str, joins: Mapping[str, frozenset[int]], name_of: Callable[[ProcessId], ProcessName]
    ) -> None:
        self._system = system
        self._joins = joins
        self._name_of = name_of
        self._latest = 0
        self._vacant: set[str] = set()

    def saw(self, view: View) -> None:
        """Some process here is in this view. Those that are behind the others say nothing new."""
        if view.number <= self._latest:
            return
        self._latest = view.number
        for far, gateways in self._joins.items():
            present = [member for member in view.members if slot_of(member) in gateways]
            if not present and far not in self._vacant:
                self._vacant.add(far)
                log.warning(
                    "%s has no gateway to %s: nothing becomes stable until one comes, "
                    "and senders stop when their windows are full. Start one.",
                    self._system,
                    far,
                )
            elif present and far in self._vacant:
                self._vacant.discard(far)
                log.info("%s has a gateway to %s again: %s", self._system, far, self._name_of(present[0]).process)
