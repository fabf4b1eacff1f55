"""Systems that isthmus runs itself: all members in this OS process, or one OS process each.

    async with EmbeddedSystem(["p1", "p2", "p3"], order="causal") as system:
        await system["p1"].send(b"hello")
        async for origin, seq, payload in system["p2"]:
            ...

Members talk over TCP on loopback in both cases, through the same code. An application that runs one OS process per
member is a coroutine function, named as `package.module:function`, that gets an `EmbeddedProcess`:

    spec, listeners = plan(["p1", "p2", "p3"])
    child = await spawn(spec, "p1", "shop.orders:main", listeners["p1"])

A child stops on SIGTERM, or when its application returns: it sees everything accepted through and leaves.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec

from isthmus.core.endpoint import OrderName, View
from isthmus.core.ids import Directory, ProcessId, ProcessName, slot_of
from isthmus.core.message import Batch
from isthmus.core.segment import Opened, Segment
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.host import SystemHost, start_all
from isthmus.runtime.loop import run
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.systems.members import MemberFactory, group_member, provide_medium, start_member
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.runtime.transport.hub import Hub

Application: TypeAlias = Callable[["EmbeddedProcess"], Awaitable[None]]
OnBatch: TypeAlias = Callable[[Batch], None]


class Delivered(NamedTuple):
    """One message as an application gets it. `origin` and `seq` are its id, the same at every process."""

    origin: ProcessName
    seq: int
    payload: bytes


class EmbeddedProcess(AsyncIterator[Delivered]):
    """One process of a system. Iterating over it yields what is delivered to it, in the system's order.

    A message is finished with when the next one is asked for: an application that does not ask slows its senders down,
    and loses nothing. Whoever is in a hurry takes `segments` instead, and sends many at a time.
    """

    def __init__(self, driver: MemberDriver, names: Directory) -> None:
        self.driver = driver
        self.name = names.name(driver.member.id)
        self._names = names
        self._messages: Iterator[Opened] = iter(())

    async def send(self, *payloads: bytes) -> int:
        """Broadcast, in this order. Waits while the system cannot take more. Returns the first sequence number."""
        accepted = self.driver.send_now(payloads)
        return await self.driver.send(payloads) if accepted is None else accepted

    async def send_many(self, payloads: Sequence[bytes]) -> int:
        """The same for a list of payloads: 64 at a time take 1.6 µs less each than a call of `send` for each."""
        accepted = self.driver.send_now(payloads)
        return await self.driver.send(payloads) if accepted is None else accepted

    async def segments(self) -> AsyncIterator[Segment]:
        """What is delivered here, in the segments in which it came. One is finished with when the next is asked for.

        A segment yields (origin, sequence number, payload) of each message, and its `payloads()` alone are faster
        still. Origins are integers here; `name_of` gives their names.
        """
        async for item in self.driver.deliveries:
            if not isinstance(item, View) and item.segment:
                yield item.segment

    def name_of(self, origin: ProcessId) -> ProcessName:
        """The name of an origin that a segment speaks of."""
        return self._names.name(origin)

    async def stable(self, seq: int) -> None:
        """Wait until everybody has finished with this process's messages up to `seq`."""
        await self.driver.stable(seq)

    async def __anext__(self) -> Delivered:
        deliveries = self.driver.deliveries
        while True:
            message = next(self._messages, None)
            if message is not None:
                deliveries.asked += 1  # An application that takes a long time over a batch is still there.
                origin, seq, payload = message
                return Delivered(self._names.name(origin), seq, payload)
            item = await anext(deliveries)
            if not isinstance(item, View):
                self._messages = iter(item.segment)


class EmbeddedSystem:
    """All members of a system in one event loop, on free ports of loopback. Its processes are found by name.

    `callbacks` takes the deliveries of some processes as whole batches, synchronously, which is faster than iterating.
    Everything else that a `SystemSpec` holds can be given as a keyword. Closing takes at most `close_within` seconds,
    and waits for `patience` at most for a consumer to ask for its next delivery.
    """

    def __init__(
        self,
        processes: Sequence[str],
        order: OrderName = "causal",
        *,
        name: str = "embedded",
        callbacks: Mapping[str, OnBatch] | None = None,
        make_member: MemberFactory = group_member,
        make_driver: Callable[..., MemberDriver] = MemberDriver,
        close_within: float = 10.0,
        patience: float = 0.1,
        **settings: Any,
    ) -> None:
        self.name = name
        self._plan = partial(plan, processes, order, system=name, **settings)
        self._callbacks = callbacks or {}
        self._make_member = make_member
        self._make_driver = make_driver
        self._close_within = close_within
        self._patience = patience
        self._processes: dict[str, EmbeddedProcess] = {}
        self._hub: Hub | None = None

    @property
    def processes(self) -> list[str]:
        return list(self._processes)

    def __getitem__(self, process: str) -> EmbeddedProcess:
        return self._processes[process]

    async def __aenter__(self) -> Self:
        self.spec, listeners = self._plan()
        try:
            self.spec, self._hub = await provide_medium(self.spec)
        except BaseException:
            for listener in listeners.values():
                listener.close()
            raise
        names = self.spec.directory()
        starting = {
            process: start_member(
                self.spec,
                names.id(self.name, process),
                listener,
                on_batch=self._callbacks.get(process),
                make_member=self._make_member,
                make_driver=self._make_driver,
            )
            for process, listener in listeners.items()
        }
        try:
            drivers = await start_all(starting)
        except BaseException:
            self._unplug()
            raise
        self._processes = {process: EmbeddedProcess(driver, names) for process, driver in drivers.items()}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _unplug(self) -> None:
        if self._hub is not None:
            self._hub.close()

    async def close(self) -> list[str]:
        """End the whole system, after everything accepted has become stable or the time for that is over.

        Returns what has not become stable, in words; empty if everything has.
        """
        drivers = [process.driver for process in self._processes.values()]
        for driver in drivers:
            driver.stop_accepting("the system is closing", self._patience)
        stability = [asyncio.ensure_future(driver.see_through()) for driver in drivers]
        if stability:
            await asyncio.wait(stability, timeout=self._close_within)
        await asyncio.gather(*(driver.close() for driver in drivers))
        await asyncio.gather(*stability, return_exceptions=True)
        self._unplug()
        return [f"{driver.mesh.me.label}: {driver.stopped}" for driver in drivers if driver.stopped.unstable]


def plan(
    processes: Sequence[str],
    order: OrderName = "causal",
    *,
    system: str = "embedded",
    run: str = "run",
    host: str = LOOPBACK,
    **settings: Any,
) -> tuple[SystemSpec, dict[str, socket.socket]]:
    """A system of these processes on free ports, and the sockets that hold the ports for them."""
    listeners = {process: listen(Address(host, 0)) for process in processes}
    spec = SystemSpec(
        run=run,
        system=system,
        names=tuple(ProcessName(system, process) for process in processes),
        addresses={slot: address_of(listener) for slot, listener in enumerate(listeners.values())},
        order=order,
        **settings,
    )
    return spec, listeners


# One OS process per member.


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """What one OS process is to run: a process of a system, on a socket that it has inherited, or on its address."""

    spec: SystemSpec
    process: str
    application: str = ""
    listener: int | None = None
    joining: bool = False
    together: bool = False
    stop_timeout: float = 10.0


async def spawn(
    spec: SystemSpec,
    process: str,
    application: str = "",
    listener: socket.socket | None = None,
    *,
    joining: bool = False,
    together: bool = False,
    stop_timeout: float = 10.0,
    **options: Any,
) -> asyncio.subprocess.Process:
    """Start one member in an OS process of its own. Ending it is up to the caller.

    The child takes over `listener`, which is closed here; without one it binds its address from `spec`. `application`
    is `module:function`; without one the child takes part and throws deliveries away. `together` says that the whole
    system ends when this process is stopped, for which it has `stop_timeout` seconds. `options` are those of
    `asyncio.create_subprocess_exec`.
    """
    child = Child(
        spec=spec,
        process=process,
        application=application,
        listener=None if listener is None else listener.fileno(),
        joining=joining,
        together=together,
        stop_timeout=stop_timeout,
    )
    # Through an open file that has no name: a command line may be too short for it, and nothing needs cleaning up.
    with TemporaryFile() as file:
        file.write(msgspec.json.encode(child))
        file.seek(0)
        inherited = [file.fileno()] if child.listener is None else [file.fileno(), child.listener]
        command = (sys.executable, "-m", "isthmus.adapters.embedded", str(file.fileno()))
        try:
            return await asyncio.create_subprocess_exec(*command, pass_fds=inherited, **options)
        finally:
            if listener is not None:
                # While anybody holds it, the port answers calls that nobody takes, even after the child is gone.
                listener.close()


async def run_child(child: Child) -> list[str]:
    """Start one member, run the application on it, see both off. Returns what has gone wrong, in words."""
    application = load(child.application) if child.application else None
    spec, names = child.spec, child.spec.directory()
    try:
        process = names.id(spec.system, child.process)
    except (KeyError, ValueError):
        raise RuntimeProblem(f"There is no process {child.process!r} in {spec.system}.") from None
    if child.listener is not None:
        listener = socket.socket(fileno=child.listener)
    else:
        listener = listen(spec.addresses[slot_of(process)])
    discard: OnBatch | None = None if application else lambda batch: None
    host: SystemHost[MemberDriver] = SystemHost(spec, together=child.together, stop_timeout=child.stop_timeout)
    starting = start_member(spec, process, listener, on_batch=discard, joining=child.joining)
    await host.start({child.process: starting})
    running = [application(EmbeddedProcess(driver, names)) for driver in host.processes.values() if application]
    await host.run(running[0] if running else None)
    return host.unfinished()


def load(application: str) -> Application:
    """The function behind `module:function`."""
    module, _, function = application.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise RuntimeProblem(
            f"There is no application {application!r}: {error}. Name one as module:function."
        ) from None
    if not callable(found):
        raise RuntimeProblem(f"The application {application!r} is not a function.")
    return found  # type: ignore[no-any-return]


def main(arguments: Sequence[str]) -> int:
    """Entry of a child: the file of its `Child`, by name or as an open descriptor.

    Exit codes: 0 all is well, 1 something accepted may be lost, 2 it could not start.
    """
    (source,) = arguments
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    who = "a process of an embedded system"
    try:
        with open(int(source) if source.isdecimal() else source, "rb") as file:
            child = msgspec.json.decode(file.read(), type=Child)
        who = child.process
        wrong = run(run_child(child))
    except (RuntimeProblem, OSError, msgspec.MsgspecError) as problem:
        sys.stderr.write(f"{who}: {problem}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"{who}: interrupted before it had started\n")
        return 2
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    # Under its real name, so that applications meet the same classes as this code.
    from isthmus.adapters.embedded import main as real_main

    raise SystemExit(real_main(sys.argv[1:]))
