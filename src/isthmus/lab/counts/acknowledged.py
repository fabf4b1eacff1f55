"""The counts of TO and PO: how many PDUs, and how many rounds, until one PDU is acknowledged (TO/PO, Sect. 4).

One entity sends one message into silence; counted is every PDU of the protocol that is broadcast until there is silence
again. A round is one delay of the medium. It carries all PDUs of a moment side by side, or one at a time "like the
Ethernet MAC service"; heartbeats pass free and uncounted.

For two entities the paper's best case is one PDU more than its worst: of "every entity broadcasts a PDU which
pre-acknowledges g" the answer of g's own sender tells nobody anything, and is not sent here.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from isthmus.core.ids import MILLISECOND, SECOND, Nanos, ProcessId
from isthmus.core.message import Batch
from isthmus.core.wire.pdu import Pdu
from isthmus.lab.counts.rig import SystemRig
from isthmus.lab.counts.table import CountRow, Section, row
from isthmus.ordering.acknowledged.member import Protocol, make_member
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings, Answer
from isthmus.ordering.group.window import GroupSettings
from isthmus.simulator.media import SimulatedMedium
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host

ROUND: Nanos = MILLISECOND
QUIET: Nanos = 3600 * SECOND
"""Settings under which nobody says anything unasked: only the message that is counted causes PDUs."""

SIZES = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32)


def best_pdus(n: int) -> int:
    """Where all wait for the last pre-acknowledgement: "1+(n-1)+n=2n PDUs are broadcast"."""
    return 2 * n


def worst_pdus(n: int) -> int:
    """Where each is answered: "1+(n-1)+(n-1)*(n-1)=n^2-n+1 PDUs are broadcast"."""
    return n * n - n + 1


class PaperMedium(SimulatedMedium):
    """Loses nothing, and counts. `serial`: a PDU has the medium for a round, and everybody has it at the end."""

    def __init__(self, network: Network, *, serial: bool) -> None:
        super().__init__("1C", network, Random(0), None, AcknowledgedSettings().window)
        self.pdus = 0
        self._serial = serial
        self._free_at: Nanos = 0

    def carry(
        self, source: ProcessId, destinations: tuple[ProcessId, ...], pdu: Pdu, now: Nanos
    ) -> Iterator[tuple[ProcessId, Nanos]]:
        arrival = now
        if isinstance(pdu, Batch):
            self.pdus += 1
            arrival = (max(now, self._free_at) if self._serial else now) + ROUND
            self._free_at = arrival
        for destination in destinations:
            yield destination, arrival


class AcknowledgementRig(SystemRig):
    """So many entities over one medium, of which one sends one message."""

    def __init__(self, protocol: Protocol, size: int, answer: Answer, *, serial: bool) -> None:
        self.acknowledged_at: dict[ProcessId, Nanos] = {}
        settings = GroupSettings(heartbeat=QUIET, suspect_after=4 * QUIET, retry_after=QUIET)
        acknowledged = replace(AcknowledgedSettings(), answer_after=0, answer=answer)
        names = [f"e{number}" for number in range(1, size + 1)]
        super().__init__(names, lambda slot: make_member(protocol, slot, range(size), acknowledged, settings))
        self.medium = PaperMedium(self.network, serial=serial)
        self.world.media.update(dict.fromkeys(range(size), self.medium))
        self.world.run_until(ROUND)

    def acknowledge_one(self) -> None:
        """Send, and wait for silence."""
        self.sent_at = self.world.now
        host = self.world.hosts[0]
        self.world.step(host, host.member.broadcast, [b"p"])
        self.world.run_until(self.world.now + QUIET // 2)
        assert len(self.acknowledged_at) == len(self.world.hosts), "not everybody has acknowledged"

    @property
    def rounds(self) -> int:
        """From sending until the last entity has acknowledged."""
        return (max(self.acknowledged_at.values()) - self.sent_at) // ROUND

    def on_batch(self, host: Host, batch: Batch) -> None:
        if batch.segment:
            self.acknowledged_at[host.id] = self.world.now


def run(protocol: Protocol, size: int, answer: Answer, *, serial: bool = False) -> AcknowledgementRig:
    rig = AcknowledgementRig(protocol, size, answer, serial=serial)
    rig.acknowledge_one()
    return rig


def _best(size: int) -> int:
    """The paper's count, less the answer that tells nobody anything where there are only two."""
    return best_pdus(size) if size > 2 else worst_pdus(size)


def count_best() -> list[CountRow]:
    rows = []
    for protocol in _PROTOCOLS:
        for n in SIZES:
            pdus = run(protocol, n, "finally").medium.pdus
            rows.append(row(f"{protocol.upper()}, n = {n}", "messages", _best(n), [pdus], printed=best_pdus(n)))
    return rows


def count_worst() -> list[CountRow]:
    return [
        row(f"{protocol.upper()}, n = {n}", "messages", worst_pdus(n), [run(protocol, n, "each").medium.pdus])
        for protocol in _PROTOCOLS
        for n in SIZES
    ]


def count_rounds() -> list[CountRow]:
    rows = []
    for n in SIZES:
        rows.append(row(f"in parallel, n = {n}", "hops", 3, [run("to", n, "finally").rounds]))
        best = [run("to", n, "finally", serial=True).rounds]
        rows.append(row(f"one at a time, at best, n = {n}", "hops", _best(n), best, printed=best_pdus(n)))
        worst = [run("to", n, "each", serial=True).rounds]
        rows.append(row(f"one at a time, at worst, n = {n}", "hops", worst_pdus(n), worst))
    return rows


_PROTOCOLS: tuple[Protocol, ...] = ("to", "po")

SECTIONS: tuple[Section, ...] = (
    Section(
        name="acknowledge-best",
        what="PDUs until one is acknowledged, when everybody waits until it is finally pre-acknowledged",
        paper="TO/PO Sect. 4",
        formula="1 + (n − 1) + n = 2n",
        count=count_best,
    ),
    Section(
        name="acknowledge-worst",
        what="PDUs until one is acknowledged, when everybody answers each pre-acknowledgement",
        paper="TO/PO Sect. 4",
        formula="1 + (n − 1) + (n − 1)(n − 1) = n² − n + 1",
        count=count_worst,
    ),
    Section(
        name="acknowledge-rounds",
        what="rounds until everybody has acknowledged one PDU of TO",
        paper="TO/PO Sect. 4",
        formula="3 in parallel; 2n and n² − n + 1 one at a time",
        count=count_rounds,
    ),
)
