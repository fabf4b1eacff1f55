"""What an application sees of any system, whether isthmus runs it or a broker does.

A system has processes; a process sends messages and iterates over those delivered to it. That is all. A message is
finished with when the next one is asked for: an application that does not ask slows its senders down, and loses
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple, Protocol

from isthmus.core.ids import ProcessName


class Delivered(NamedTuple):
    """One message as an application gets it. `origin` and `seq` are its id, the same at every process."""

    origin: ProcessName
    seq: int
    payload: bytes


class Process(Protocol):
    """One process of a system. Iterating over it yields what is delivered to it, in the system's order."""

    @property
    def name(self) -> ProcessName: ...

    async def send(self, *payloads: bytes) -> int:
        """Broadcast, in this order. Waits while the system cannot take more. Returns the first sequence number."""

    async def stable(self, seq: int) -> None:
        """Wait until everybody has finished with this process's messages up to `seq`."""

    def __aiter__(self) -> AsyncIterator[Delivered]: ...


class System(Protocol):
    """A system that is running."""

    @property
    def name(self) -> str: ...

    @property
    def processes(self) -> Iterable[str]:
        """The names of the processes that live here."""

    def __getitem__(self, process: str) -> Process: ...

    async def close(self) -> Sequence[str]:
        """See everything accepted through, then end. Returns what could not be, in words; empty if nothing."""
