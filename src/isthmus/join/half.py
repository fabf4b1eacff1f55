"""What the two halves of a direction share, at one gateway: with whom it does this, and who of them leads."""

from __future__ import annotations

from isthmus.core.ids import ProcessId, slot_of
from isthmus.join.plan import JoinPlan


class Half:
    """`fellows` are the live gateways of the join on this side; the first of them leads."""

    def __init__(self, plan: JoinPlan, owner: ProcessId) -> None:
        self.plan = plan
        self.owner = owner
        self.fellows: tuple[ProcessId, ...] = plan.fellows
        self._my_links = tuple(end.link for end in plan.links if end.near == slot_of(owner))

    @property
    def leader(self) -> ProcessId:
        return self.fellows[0] if self.fellows else self.owner

    @property
    def leads(self) -> bool:
        return self.leader == self.owner

    def _others(self) -> tuple[ProcessId, ...]:
        return tuple(fellow for fellow in self.fellows if fellow != self.owner)
