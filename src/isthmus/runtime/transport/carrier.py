"""What a driver needs of whatever carries its PDUs: TCP between peers (`mesh.py`), or a broadcast medium."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from isthmus.core.endpoint import Destinations
from isthmus.core.ids import ProcessId
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.transport.peer import Me

Receive: TypeAlias = Callable[[ProcessId, Sequence[Pdu]], None]
"""Takes the PDUs that arrived together from one process."""


class Carrier(Protocol):
    """Carries a process's PDUs. The driver sets `receive`; what arrives before that is lost, as on any network."""

    me: Me
    receive: Receive

    async def open(self) -> None: ...

    async def reach(self, processes: Iterable[ProcessId], timeout: float) -> list[ProcessId]:
        """Wait until each of these processes has answered. Returns those that did not in time."""

    def send(self, destinations: Destinations, pdu: Pdu) -> None:
        """Have `pdu` sent to each destination at the end of this iteration of the event loop."""

    async def close(self, timeout: float = 1.0) -> None:
        """Send what waits, then close."""

    def abort(self) -> None:
        """Cut everything off now, as a crash would."""


def nobody(process: ProcessId, pdus: Sequence[Pdu]) -> None:
    """Takes what arrives before there is a driver."""
