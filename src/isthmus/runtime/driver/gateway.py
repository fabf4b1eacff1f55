"""Runs one gateway: a member of its system that is also the end of links to other systems.

To its system it is a process like any other; what comes over links goes into the same endpoint and the same outbox.
docs/design/sites.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any

from isthmus.core.ids import SECOND, LinkId, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.wire.join import Line, LinkPdu
from isthmus.join.member import GatewayMember
from isthmus.runtime.driver.endpoint import Ended
from isthmus.runtime.driver.member import MemberDriver, Stopped
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.journal import Journal
from isthmus.runtime.link.link import LinkCallbacks
from isthmus.runtime.link.links import Links
from isthmus.runtime.metrics import LinkMetrics
from isthmus.runtime.transport.carrier import Carrier

LinksFactory = Callable[[LinkCallbacks], Links]

NOTE_EVERY: Nanos = 1 * SECOND
"""Time between two notes in the journal: each is small but not free, and to replay a second more does no harm."""


class GatewayDriver(MemberDriver):
    """A driver with links. The application of a gateway is its joins, so nobody else takes its deliveries."""

    leaves_last = True

    def __init__(
        self,
        member: GatewayMember,
        mesh: Carrier,
        recorder: LiveRecorder | None = None,
        *,
        make_links: LinksFactory,
        journal: Journal | None = None,
        **options: Any,
    ) -> None:
        super().__init__(member, mesh, recorder, **(options | {"on_batch": _nothing, "confirms": "member"}))
        self.gateway = member
        self._journal = journal
        self._noted_at: Nanos = 0
        self._has_news = self._follows_another_life = journal is not None
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

    def _ready(self, link: LinkId, line: Line) -> None:
        self._step_with(partial(self.gateway.link_ready, line=line), link)

    def _step_with(self, happens: Callable[..., None], *arguments: Any) -> None:
        if self.ended is None:
            try:
                happens(*arguments, self._now(), self._out)
                self._carry_out()
            except Exception as error:
                self._broken(error)

    # Out of it.

    def _store(self, batches: list[Batch]) -> None:
        """Write down what we hold before anybody hears that we do."""
        if self._journal is not None:
            self._journal.store(batches)

    def _have_settled(self, settled: list[tuple[ProcessId, int]]) -> None:
        self._has_news = self._journal is not None

    def _step_done(self) -> None:
        super()._step_done()
        if self._has_news and self._journal is not None and self.ended is None:
            self._note(self._journal)

    def _note(self, journal: Journal) -> None:
        """Write down, now and then, what nobody needs any more."""
        if monotonic_ns() - self._noted_at > NOTE_EVERY:
            self._noted_at = monotonic_ns()
            self._has_news = False
            journal.note(self.gateway.gateway.done())
            if self._follows_another_life and self.gateway.gateway.is_replayed:
                self._follows_another_life = False
                journal.forget_former()

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
        if self._journal is not None:
            self._journal.close()
        if self.ended is not None and self.ended.how == "crash":
            self.links.abort()


def _nothing(batch: Batch) -> None:
    """Takes deliveries and does nothing: a gateway has no application, and its joins have had them already."""
