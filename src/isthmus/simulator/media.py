"""Broadcast media: what TO and PO run on (TO/PO, Sect. 2; docs/design/to-po.md).

A PDU is carried once, for everybody, and takes its time: its bits keep the medium busy, and others queue behind it. Any
entity may miss it, but its sender gets it back as it was carried. On **1C** there is one medium, and whoever gets two
PDUs gets them in the order in which they were carried; on **MC** every sender has a channel of its own, and only what
one sender sends has an order. Neither duplicates or reorders.

PDUs for a single member, as the group layer sends them, are carried like all others; only, nobody else cares.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal, TypeAlias

from isthmus.core.codec import body_of
from isthmus.core.ids import SECOND, Nanos, ProcessId, slot_of
from isthmus.core.message import Batch
from isthmus.core.wire.pdu import Pdu
from isthmus.simulator.network import FRAME_OVERHEAD, Network

MediumName: TypeAlias = Literal["1C", "MC"]


class SimulatedMedium:
    """The medium of one system. Delays, losses and cuts are the network's; `speed` is in bits per second."""

    def __init__(self, name: MediumName, network: Network, rng: Random, speed: int | None, window: int) -> None:
        self.name = name
        self._network = network
        self._rng = rng
        self._speed = speed
        self._busy_until: dict[int, Nanos] = {}
        self._last_arrival: dict[tuple[int, int], Nanos] = {}
        self.watch = FlowWatch(window)

    def carry(
        self, source: ProcessId, destinations: tuple[ProcessId, ...], pdu: Pdu, now: Nanos
    ) -> Iterator[tuple[ProcessId, Nanos]]:
        """Who gets it, and when."""
        if isinstance(pdu, Batch):
            if source in destinations:
                self.watch.check(pdu, destinations)
            self.watch.carried(pdu)
        channel = 0 if self.name == "1C" else slot_of(source)
        carried = max(now, self._busy_until.get(channel, 0)) + self.duration(pdu)
        self._busy_until[channel] = carried
        network, loss = self._network, self._network.faults.loss
        for destination in destinations:
            own, other = slot_of(source), slot_of(destination)
            if own != other:
                if network.is_cut(own, other):
                    continue
                if loss and self._rng.random() < loss:
                    network.sometimes.reach("loss")
                    continue
            line = (channel, other)
            arrival = max(carried + network.draw(), self._last_arrival.get(line, 0) + 1)
            self._last_arrival[line] = arrival
            yield destination, arrival

    def duration(self, pdu: Pdu) -> Nanos:
        """How long it takes to carry a PDU."""
        if self._speed is None:
            return 0
        return 8 * (len(body_of(pdu)) + FRAME_OVERHEAD) * SECOND // self._speed


class FlowWatch:
    """An onlooker at the medium, who knows what was carried and nothing of any member's state.

    Nobody can know more of what others have than the medium has carried. So whoever has as much data under way as the
    window allows by *that* knowledge, and sends more, ignores the flow condition.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._view = 0
        self._last_stamps: dict[ProcessId, tuple[int, list[int]]] = {}
        self._data: dict[ProcessId, list[int]] = {}

    def check(self, batch: Batch, members: tuple[ProcessId, ...]) -> None:
        """A PDU that is sent to everybody; members are in the order of their ranks."""
        if batch.view != self._view:
            return
        data = self._data.setdefault(batch.sender, [])
        if batch.segment and len(self._last_stamps) == len(members) > 1:
            own = members.index(batch.sender)
            seen = min(stamp[own] for sender, (_, stamp) in self._last_stamps.items() if sender != batch.sender)
            data[:] = [number for number in data if number >= seen]
            assert len(data) < self._window, f"{len(data)} PDUs of {batch.sender} are under way, the window is full"
        if batch.segment:
            data.append(batch.number)

    def carried(self, batch: Batch) -> None:
        """A PDU to somebody, be it the last word of a process that crashed before it had said it to all."""
        if batch.view > self._view:
            self._view = batch.view
            self._last_stamps.clear()
            self._data.clear()
        if batch.view == self._view and batch.number > self._last_stamps.get(batch.sender, (0, []))[0]:
            self._last_stamps[batch.sender] = (batch.number, batch.stamp)
