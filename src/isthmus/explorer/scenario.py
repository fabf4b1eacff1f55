"""What happens in an exploration: who sends how many messages, how many gateways crash, what is promised.

A message is one bit in a set of messages, and its payload is the set of its causes: gateways never look inside, and
whoever delivers it sees at once what should have come before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from isthmus.core.endpoint import OrderName
from isthmus.core.ids import Directory, ProcessId
from isthmus.core.segment import Opened
from isthmus.topology.model import Topology
from isthmus.topology.read.exploration import Stability

DEFAULT_MESSAGES = 3
CAUSES_BYTES = 8


class Scenario(Struct, frozen=True, kw_only=True):
    """`sends` is the sender of each message; a process sends its own in order, and the rest is free.

    `reduced` off makes every delivery of an application process a step of its own; docs/design/explorer.md says why it
    need not be.
    """

    sends: tuple[ProcessId, ...]
    crashes: int = 0
    stability: Stability = "late"
    max_states: int = 2_000_000
    reduced: bool = True


def scenario_of(
    topology: Topology, messages: int | None = None, crashes: int | None = None, max_states: int | None = None
) -> Scenario:
    """What the file says, with anything that is given here instead. Messages by number are dealt over all processes.

    Not over those on standby: nobody comes while the explorer looks.
    """
    settings = topology.exploration
    directory = topology.directory()
    if settings.sends is not None and messages is None:
        sends = tuple(directory.id(*name) for name in settings.sends)
    else:
        founders = [(system.name, name) for system in topology.systems for name in system.founders]
        processes = [directory.id(*each) for each in founders if each[1] in topology.system(each[0]).processes]
        count = DEFAULT_MESSAGES if messages is None else messages
        sends = tuple(processes[index % len(processes)] for index in range(count if processes else 0))
    return Scenario(
        sends=sends,
        crashes=settings.crashes if crashes is None else crashes,
        stability=settings.stability,
        max_states=settings.max_states if max_states is None else max_states,
    )


class Ledger:
    """All messages that can ever be sent, as bits; and what is a cause of what, as far as it is promised."""

    def __init__(self, sends: Iterable[ProcessId], promise: OrderName, directory: Directory) -> None:
        self.promise = promise
        self._directory = directory
        self._ids: list[tuple[ProcessId, int]] = []
        self.quota: dict[ProcessId, int] = {}
        for sender in sends:
            self.quota[sender] = self.quota.get(sender, 0) + 1
            self._ids.append((sender, self.quota[sender]))
        self._ids.sort()
        if len(self._ids) > 8 * CAUSES_BYTES:
            raise ValueError(f"{len(self._ids)} messages; sets of messages hold {8 * CAUSES_BYTES}")
        self._bits = {each: 1 << place for place, each in enumerate(self._ids)}
        self.everything = (1 << len(self._ids)) - 1

    def bit(self, message: Opened) -> int:
        """0 for a message that no scenario sends."""
        return self._bits.get(message[:2], 0)

    def mask(self, messages: Iterable[Opened]) -> int:
        found = 0
        for message in messages:
            found |= self.bit(message)
        return found

    def stamp(self, sender: ProcessId, seq: int, seen: int, sent: int) -> Opened:
        """A new message of a process that has delivered `seen` and sent `sent`. FIFO order knows no other causes."""
        causes = sent if self.promise == "fifo" else seen | sent
        return sender, seq, causes.to_bytes(CAUSES_BYTES, "big")

    def causes(self, message: Opened) -> int:
        return int.from_bytes(message[2], "big")

    def origins(self) -> Iterator[tuple[ProcessId, int]]:
        """Each message's sender, with its bit."""
        for (origin, _), bit in zip(self._ids, self._bits.values(), strict=True):
            yield origin, bit

    def sender(self, bit: int) -> ProcessId:
        return self._ids[bit.bit_length() - 1][0]

    def text(self, bit: int) -> str:
        origin, seq = self._ids[bit.bit_length() - 1]
        return f"{self._directory.name(origin)}/{seq}"

    def name(self, message: Opened) -> str:
        origin, seq, _ = message
        return f"{self._directory.name(origin)}/{seq}"


def first_of(mask: int) -> int:
    """The lowest bit of a set that is not empty."""
    return mask & -mask
