"""Runs one gateway: a member of its system that is also the end of links to other systems.

To its system it is a process like any other; what comes over links goes into the same endpoint and the same outbox.
docs/design/sites.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isthmus.core.ids import LinkId, ProcessId
from isthmus.core.message import Batch
from isthmus.core.pdu import LinkPdu
from isthmus.interconnect.gateway_member import GatewayMember
from isthmus.runtime.driver import Ended
from isthmus.runtime.link import LinkCallbacks
from isthmus.runtime.links import Links
from isthmus.runtime.member import MemberDriver, Stopped
from isthmus.runtime.mesh import Mesh
from isthmus.runtime.metrics import LinkMetrics
from isthmus.runtime.recorder import NO_RECORDER, Recorder

LinksFactory = Callable[[LinkCallbacks], Links]


class GatewayDriver(MemberDriver):
    """A driver with links. The application of a gateway is its joins, so nobody else takes its deliveries."""

    leaves_last = True

    def __init__(
        self,
        member: GatewayMember,
        mesh: Mesh,
        recorder: Recorder = NO_RECORDER,
        *,
        make_links: LinksFactory,
        **options: Any,
    ) -> None:
        super().__init__(member, mesh, recorder, **(options | {"on_batch": _nothing, "confirms": "member"}))
        self.gateway = member
        self.links = make_links(LinkCallbacks(self._arrived, self._up, self._down, self._ready))

    def start(self) -> None:
        """Let it run. All links are down to begin with: each of them says when it is up."""
        super().start()
        for link in self.links:
            self._down(link.id)
        self.links.open()

    def link_metrics(self) -> list[LinkMetrics]:
        return self.links.metrics()

    # From links into a step.

    def _arrived(self, link: LinkId, pdus: Sequence[LinkPdu]) -> None:
        self._step_with(self.gateway.from_link, link, pdus)

    def _up(self, link: LinkId, peer: ProcessId) -> None:
        self._step_with(self.gateway.link_up, link, peer)

    def _down(self, link: LinkId) -> None:
        self._step_with(self.gateway.link_down, link)

    def _ready(self, link: LinkId) -> None:
        self._step_with(self.gateway.link_ready, link)

    def _step_with(self, happens: Callable[..., None], *arguments: Any) -> None:
        if self.ended is None:
            try:
                happens(*arguments, self._now(), self._out)
                self._carry_out()
            except Exception as error:
                self._broken(error)

    # Out of it.

    def _onto_links(self, links: list[tuple[LinkId, LinkPdu]]) -> None:
        for link, pdu in links:
            self.links.send(link, pdu)

    # The end.

    def kill(self, why: str = "killed") -> None:
        super().kill(why)
        self.links.abort()

    async def stop(self, timeout: float = 10.0, patience: float = 0.0) -> Stopped:
        stopped = await super().stop(timeout, patience)
        await self.links.close()
        return stopped

    async def close(self) -> None:
        await super().close()
        await self.links.close()

    def _end(self, ended: Ended) -> None:
        super()._end(ended)
        if self.ended is not None and self.ended.how == "crash":
            self.links.abort()


def _nothing(batch: Batch) -> None:
    """The joins have had it."""
