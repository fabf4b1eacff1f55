"""The simulated network inside a system: one line per ordered pair of processes.

A PDU waits its turn on its line (bandwidth), then takes a drawn delay. Without reordering a line is FIFO, as TCP is; a
reordered PDU is held up so that later ones overtake it. A PDU is lost when it is sent, by chance or because its
line is cut or its ends are in different partitions; what is on its way when a cut begins still arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from isthmus.core.codec import body_of
from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId, slot_of
from isthmus.core.wire.pdu import Pdu
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.topology.read.simulation import Delay, Exponential, Fixed

FRAME_OVERHEAD = 5
HELD_UP: Nanos = 20 * MILLISECOND
"""A reordered PDU is late by up to this much more than its delay."""


class Network:
    """Decides when, and whether, a PDU arrives. Slots, not process ids, are the ends of its lines."""

    def __init__(
        self, rng: Random, delay: Delay, bandwidth: int | None, faults: NetworkFaults, sometimes: Sometimes
    ) -> None:
        self.rng = rng
        self.faults = faults
        self.sometimes = sometimes
        self._delay = delay
        self._bandwidth = bandwidth
        self._busy_until: dict[tuple[int, int], Nanos] = {}
        self._last_arrival: dict[tuple[int, int], Nanos] = {}
        self._cut: dict[tuple[int, int], int] = {}
        self._calm = faults == NetworkFaults() and bandwidth is None
        self._even = delay.delay if self._calm and isinstance(delay, Fixed) else None
        """How long everything takes everywhere, where that is so."""
        self._latest_of: dict[int, Nanos] = {}
        self._together: dict[int, tuple[ProcessId, ...]] = {}
        """By slot of the sender, when the latest of its PDUs arrives, and to whom it goes if it was sent `together`:
        an entry per sender, where one per line took a third of the time of a large group."""

    # Faults, switched on and off by the nemesis

    def cut(self, source: int, destination: int) -> None:
        self._cut[source, destination] = self._cut.get((source, destination), 0) + 1

    def mend(self, source: int, destination: int) -> None:
        self._cut[source, destination] -= 1
        if not self._cut[source, destination]:
            del self._cut[source, destination]

    def mend_all(self) -> None:
        self._cut.clear()

    def is_cut(self, source: int, destination: int) -> bool:
        return (source, destination) in self._cut

    # PDUs

    def together(self, source: ProcessId, destinations: tuple[ProcessId, ...], pdu: Pdu, now: Nanos) -> Nanos | None:
        """When a PDU gets to all of these, if that is the same time for all; None where each has to be asked for."""
        if self._even is None or self._cut:
            return None
        arrival, slot = now + self._even, slot_of(source)
        if arrival <= self._latest_of.get(slot, -1):
            return None
        self._latest_of[slot] = arrival
        self._together[slot] = destinations
        return arrival

    def arrivals(self, source: ProcessId, destination: ProcessId, pdu: Pdu, now: Nanos) -> Iterable[Nanos]:
        """When this PDU gets there: nothing, once, or twice."""
        line = (slot_of(source), slot_of(destination))
        if self._cut and line in self._cut:
            return ()
        if self._calm:
            return (self._in_order(line, now + self.draw()),)
        rng, faults = self.rng, self.faults
        if faults.loss and rng.random() < faults.loss:
            self.sometimes.reach("loss")
            return ()
        arrival = self._on_the_line(line, pdu, now) + self.draw()
        if faults.reordering and rng.random() < faults.reordering:
            arrival += rng.randrange(HELD_UP)
        else:
            arrival = self._in_order(line, arrival)
        if faults.duplication and rng.random() < faults.duplication:
            self.sometimes.reach("duplication")
            return (arrival, arrival + rng.randrange(HELD_UP))
        return (arrival,)

    def draw(self) -> Nanos:
        delay = self._delay
        if isinstance(delay, Fixed):
            return delay.delay
        if isinstance(delay, Exponential):
            return round(self.rng.expovariate(1) * delay.mean)
        return delay.minimum + int(self.rng.random() * (delay.maximum - delay.minimum))

    def _on_the_line(self, line: tuple[int, int], pdu: Pdu, now: Nanos) -> Nanos:
        """When the last bit of this PDU has left, after everything that queued before it."""
        if self._bandwidth is None:
            return now
        bits = 8 * (len(body_of(pdu)) + FRAME_OVERHEAD)
        leaves = max(now, self._busy_until.get(line, 0)) + bits * SECOND // self._bandwidth
        self._busy_until[line] = leaves
        return leaves

    def _in_order(self, line: tuple[int, int], arrival: Nanos) -> Nanos:
        if self._even is not None:
            source = line[0]
            for destination in self._together.pop(source, ()):
                self._last_arrival[source, slot_of(destination)] = self._latest_of[source]
        last = self._last_arrival.get(line, 0)
        if arrival <= last:
            arrival = last + 1
        self._last_arrival[line] = arrival
        if self._even is not None:
            self._latest_of[source] = max(arrival, self._latest_of.get(source, 0))
        return arrival
