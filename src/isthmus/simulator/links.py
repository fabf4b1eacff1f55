"""Simulated links between gateways: lossless while both ends live, with delay and bandwidth, and with cuts.

Words and blocks are FIFO each, and words go first (docs/design/links.md): a line sends what waits of them before the
next block, and either may overtake the other on its way.

A cut holds everything up; what was put on the link meanwhile arrives after it is mended, as over a connection that
resumes. When an end crashes, what was on its way to it is gone. The ends are told that the link is down when it has
been useless for `DEAD_AFTER`, and that it is up, with whom, when it works again.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random

from isthmus.core.codec import body_of
from isthmus.core.ids import MILLISECOND, SECOND, LinkId, Nanos, ProcessId
from isthmus.core.wire.join import BLOCK_BYTES, Block, Line, LinkPdu
from isthmus.join.log_holder import LogHolder
from isthmus.join.member import GatewayMember
from isthmus.simulator.checks.links import EpochWatch, LinkWatch
from isthmus.simulator.network import FRAME_OVERHEAD
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Exponential, Fixed, LinkNetwork

DEAD_AFTER: Nanos = 300 * MILLISECOND
RECONNECT: Nanos = 20 * MILLISECOND
GATEWAYS = (GatewayMember, LogHolder)
UNLIMITED = 10**12
"""What a line that has no rate says of it: bits per second."""


class SimulatedLink:
    """One link. `slots` are its two ends; everything below comes in pairs, by end."""

    def __init__(
        self,
        world: World,
        link: LinkId,
        slots: tuple[int, int],
        line: LinkNetwork,
        rng: Random,
        watch: LinkWatch,
        epochs: EpochWatch,
    ) -> None:
        self.world = world
        self.id = link
        self.slots = slots
        self._watch = watch
        self._epochs = epochs
        self.bytes_sent = [0, 0]
        self.frames_sent = [0, 0]
        self._line = line
        self._rng = rng
        self._busy = [False, False]
        self._waiting: list[tuple[deque[LinkPdu], deque[LinkPdu]]] = [(deque(), deque()), (deque(), deque())]
        self._last_arrival: list[list[Nanos]] = [[0, 0], [0, 0]]
        self._cuts = 0
        self._sessions = 0
        self._connected: tuple[ProcessId, ProcessId] | None = None
        self._stalled: list[tuple[int, LinkPdu]] = []
        self._queued: list[tuple[int, LinkPdu]] = []
        self._down_at: Nanos | None = None
        self._up = [False, False]
        way = line.delay
        longest = way.delay if isinstance(way, Fixed) else way.mean if isinstance(way, Exponential) else way.maximum
        self._said_of_line = Line(BLOCK_BYTES, 0, longest, (line.bandwidth or UNLIMITED) // 8)

    def _host(self, end: int) -> Host:
        return self.world.hosts[self.slots[end]]

    # Life of the link

    def check(self) -> None:
        """Connect, notice a new process at an end, or notice that nothing works: to be called whenever that may be."""
        alive = all(self._host(end).alive and self._host(end).view is not None for end in (0, 1))
        ends = (self._host(0).id, self._host(1).id)
        if alive and not self._cuts:
            self._down_at = None
            if self._connected != ends:
                # A session with another process: what the old one still carried is gone.
                self._sessions += 1
                self._connected = None
                self._stalled.clear()
                self._queued.clear()
                self._busy = [False, False]
                for words, blocks in self._waiting:
                    words.clear()
                    blocks.clear()
                self._up = [False, False]
            self.world.at(self.world.now + RECONNECT, self._tell_up, self._sessions, ends)
        elif self._down_at is None:
            self._down_at = self.world.now + DEAD_AFTER
            self.world.at(self._down_at, self._tell_down, self._down_at)

    def connect_at_once(self) -> None:
        """The beginning of a run: whoever is not on standby is there."""
        if not all(self._host(end).alive for end in (0, 1)):
            for end in (0, 1):
                self._step(end, "link_down", self.id)
            return
        self._sessions += 1
        self._connected = (self._host(0).id, self._host(1).id)
        self._tell_up(self._sessions, self._connected)

    def _tell_up(self, session: int, ends: tuple[ProcessId, ProcessId]) -> None:
        """These two are connected now, unless one of them has ended meanwhile, or its successor sits there already."""
        if session != self._sessions or self._cuts or ends != (self._host(0).id, self._host(1).id):
            return
        self._connected = ends
        for end in (0, 1):
            if not self._up[end] and self._host(end).alive:
                self._up[end] = True
                self._step(end, "link_up", self.id, self._host(1 - end).id)
                self._tell_ready(end)
        # First what was under way when the cut began, then what has been put on the link since.
        stalled, self._stalled = self._stalled, []
        for end, pdu in stalled:
            self._hand_over(end, pdu)
        queued, self._queued = self._queued, []
        for end, pdu in queued:
            self._carry(end, pdu)

    def _tell_down(self, due: Nanos) -> None:
        if self._down_at == due:
            for end in (0, 1):
                if self._up[end]:
                    self._up[end] = False
                    self._step(end, "link_down", self.id)

    def cut(self) -> None:
        self._cuts += 1
        self.check()

    def mend(self) -> None:
        self._cuts = max(0, self._cuts - 1)
        self.check()

    def mend_for_good(self) -> None:
        self._cuts = 0
        self.check()

    # Frames

    def send(self, source: ProcessId, pdu: LinkPdu) -> None:
        ends = (self._host(0).id, self._host(1).id)
        if source not in ends:
            # Its place has been taken, and with it its end of the link, and it does not know.
            return
        end = ends.index(source)
        self._watch.sent(self.id, end, pdu)
        self._epochs.sent(self.id, end, pdu, self.world.now)
        if self._connected is None:
            return
        if self._cuts or self._stalled or self._queued:
            self._queued.append((end, pdu))
        else:
            self._carry(end, pdu)

    def _carry(self, end: int, pdu: LinkPdu) -> None:
        self._waiting[end][isinstance(pdu, Block)].append(pdu)
        if not self._busy[end]:
            self._send_next(end)

    def _send_next(self, end: int) -> None:
        """Put the next frame on the line: a word, if one waits."""
        words, blocks = self._waiting[end]
        pdu = (words or blocks).popleft()
        size = len(body_of(pdu)) + FRAME_OVERHEAD
        self.bytes_sent[end] += size
        self.frames_sent[end] += 1
        leaves = self.world.now
        if self._line.bandwidth is not None:
            leaves += size * 8 * SECOND // self._line.bandwidth
            self._busy[end] = True
        kind = isinstance(pdu, Block)
        arrival = max(leaves + self._draw() + self._repeats(), self._last_arrival[end][kind] + 1)
        self._last_arrival[end][kind] = arrival
        self.world.at(leaves, self._left, end, self._sessions)
        self.world.at(arrival, self._arrive, 1 - end, pdu, self._sessions)

    def _draw(self) -> Nanos:
        delay = self._line.delay
        if isinstance(delay, Fixed):
            return delay.delay
        if isinstance(delay, Exponential):
            return round(self._rng.expovariate(1) * delay.mean)
        return delay.minimum + int(self._rng.random() * (delay.maximum - delay.minimum))

    def _repeats(self) -> Nanos:
        """How much later a frame comes because the line below the link lost it, perhaps several times."""
        late = 0
        while self._line.loss and self._rng.random() < self._line.loss:
            late += 2 * self._draw()
        return late

    def _left(self, end: int, session: int) -> None:
        if session != self._sessions:
            return
        self._busy[end] = False
        if any(self._waiting[end]):
            self._send_next(end)
        else:
            self._tell_ready(end)

    def _arrive(self, end: int, pdu: LinkPdu, session: int) -> None:
        if session != self._sessions or self._connected is None or self._host(end).id != self._connected[end]:
            return
        if self._cuts or self._stalled:
            self._stalled.append((end, pdu))
        else:
            self._hand_over(end, pdu)

    def _hand_over(self, end: int, pdu: LinkPdu) -> None:
        if self._host(end).alive:
            self._watch.arrived(self.id, end, pdu)
            self._step(end, "from_link", self.id, [pdu])

    def _tell_ready(self, end: int) -> None:
        host = self._host(end)
        if host.alive and isinstance(host.endpoint, GATEWAYS):
            self.world.step(host, partial(host.endpoint.link_ready, line=self._said_of_line), self.id)

    def _step(self, end: int, action: str, *arguments: object) -> None:
        host = self._host(end)
        if host.alive and isinstance(host.endpoint, GATEWAYS):
            self.world.step(host, getattr(host.endpoint, action), *arguments)
