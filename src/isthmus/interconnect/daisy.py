"""A process of a daisy, through all changes of its tree.

In each *generation* of the tree it is in one local group, and perhaps a server (`daisy_generation.py`, which is the
protocol of daisy, Sect. 3).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import deepcopy
from typing import Self

from isthmus.core.endpoint import Hold, Outbox
from isthmus.core.ids import LinkId, MessageId, Nanos, ProcessId
from isthmus.core.message import Clocked
from isthmus.core.pdu import DaisyFrame, Pdu
from isthmus.interconnect.daisy_generation import DaisyGeneration
from isthmus.interconnect.daisy_local import LocalGroup
from isthmus.interconnect.daisy_servers import ServersGroup
from isthmus.interconnect.daisy_tree import DaisyTree
from isthmus.ordering.window import GroupSettings


class DaisyProcess:
    """One process as an Endpoint."""

    def __init__(
        self, owner: ProcessId, tree: DaisyTree, settings: GroupSettings | None = None, now: Nanos = 0
    ) -> None:
        self.id = owner
        self.settings = settings or GroupSettings()
        self.current = DaisyGeneration(owner, tree, self.settings, now)

    # What it is in now

    @property
    def tree(self) -> DaisyTree:
        return self.current.tree

    @property
    def local(self) -> LocalGroup:
        return self.current.local

    @property
    def levels(self) -> list[LocalGroup | ServersGroup]:
        return self.current.levels

    @property
    def unstable(self) -> dict[MessageId, Clocked]:
        """Own messages that somebody may not have."""
        return self.current.unstable

    # Application side

    def send(self, destinations: Sequence[ProcessId], payloads: Sequence[bytes], now: Nanos, out: Outbox) -> int:
        """Messages to these processes, of which there must be some. Returns the sequence number of the first."""
        return self.current.send(destinations, payloads, now, out)

    def credit(self) -> int:
        """How many more messages fit now: 0 while too many are not stable everywhere."""
        return self.current.credit()

    def leave(self, now: Nanos, out: Outbox) -> None:
        """Stop accepting, see everything sent through to stability, then go. `stopped` says when."""
        self.current.leave(now, out)

    # Network and time

    def receive(self, link: LinkId, pdus: Sequence[Pdu], now: Nanos, out: Outbox) -> None:
        frames = [pdu for pdu in pdus if isinstance(pdu, DaisyFrame)]
        self.current.receive(link, [each for each in frames if each.generation == self.tree.generation], now, out)

    def wake(self, now: Nanos, out: Outbox) -> None:
        self.current.wake(now, out)

    def deadline(self) -> Nanos | None:
        return self.current.deadline()

    # The cold path

    def waiting(self) -> Iterator[Hold]:
        """What has arrived here and is not delivered, and why."""
        return self.current.waiting()

    def invariants(self) -> None:
        self.current.invariants()

    def fork(self) -> Self:
        return deepcopy(self)

    def snapshot(self) -> Hashable:
        return self.current.snapshot()
