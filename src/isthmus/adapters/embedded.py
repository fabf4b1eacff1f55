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

import argparse
import asyncio
import importlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec

from isthmus.core.endpoint import OrderName, View
from isthmus.core.ids import Directory, ProcessName, slot_of
from isthmus.core.message import Batch, Message
from isthmus.runtime.driver.member import MemberDriver
from isthmus.runtime.loop import run
from isthmus.runtime.node import Node, Outcome
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.systems.members import MemberFactory, group_member, provide_medium, start_member
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.systems.table import KINDS
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
    and loses nothing.
    """

    def __init__(self, driver: MemberDriver, names: Directory) -> None:
        self.driver = driver
        self.name = names.name(driver.member.id)
        self._names = names
        self._messages: Iterator[Message] = iter(())

    async def send(self, *payloads: bytes) -> int:
        """Broadcast, in this order. Waits while the system cannot take more. Returns the first sequence number."""
        return await self.driver.send(payloads)

    async def stable(self, seq: int) -> None:
        """Wait until everybody has finished with this process's messages up to `seq`."""
        await self.driver.stable(seq)

    async def __anext__(self) -> Delivered:
        deliveries = self.driver.deliveries
        while True:
            message = next(self._messages, None)
            if message is not None:
                deliveries.asked += 1  # An application that takes a long time over a batch is still there.
                return Delivered(self._names.name(message.origin), message.seq, message.payload)
            item = await anext(deliveries)
            if not isinstance(item, View):
                self._messages = iter(item.messages)


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
        starting: dict[str, asyncio.Task[MemberDriver]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for process, listener in listeners.items():
                    member = start_member(
                        self.spec,
                        names.id(self.name, process),
                        listener,
                        on_batch=self._callbacks.get(process),
                        make_member=self._make_member,
                        make_driver=self._make_driver,
                    )
                    starting[process] = group.create_task(member)
        except BaseExceptionGroup as failures:
            for task in starting.values():
                if not task.cancelled() and task.exception() is None:
                    task.result().kill("another process of the system could not start")
            self._unplug()
            raise failures.exceptions[0] from None
        self._processes = {process: EmbeddedProcess(task.result(), names) for process, task in starting.items()}
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
        stability = [asyncio.ensure_future(driver.stable(driver.accepted)) for driver in drivers]
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
    is `module:function`; without one the child takes part and throws deliveries away. `options` are those of
    `asyncio.create_subprocess_exec`.
    """
    command = [sys.executable, "-m", "isthmus.adapters.embedded", process, "--stop-timeout", str(stop_timeout)]
    if application:
        command += ["--application", application]
    if joining:
        command += ["--joining"]
    if together:
        command += ["--together"]
    # Through an open file that has no name: a command line may be too short for it, and nothing needs cleaning up.
    with TemporaryFile() as specification:
        specification.write(msgspec.json.encode(spec))
        specification.seek(0)
        inherited = [specification.fileno()]
        command += ["--spec-fd", str(specification.fileno())]
        if listener is not None:
            inherited.append(listener.fileno())
            command += ["--listener-fd", str(listener.fileno())]
        try:
            return await asyncio.create_subprocess_exec(*command, pass_fds=inherited, **options)
        finally:
            if listener is not None:
                # While anybody holds it, the port answers calls that nobody takes, even after the child is gone.
                listener.close()


async def run_child(spec: SystemSpec, options: argparse.Namespace) -> Outcome:
    """Start one member, run the application on it, see both off."""
    application = load(options.application) if options.application else None
    names = spec.directory()
    try:
        process = names.id(spec.system, options.process)
    except (KeyError, ValueError):
        raise RuntimeProblem(f"There is no process {options.process!r} in {spec.system}.") from None
    if options.listener_fd is not None:
        listener = socket.socket(fileno=options.listener_fd)
    else:
        listener = listen(spec.addresses[slot_of(process)])
    discard: OnBatch | None = None if application else lambda batch: None
    driver = await start_member(spec, process, listener, on_batch=discard, joining=options.joining)
    kind = KINDS[spec.kind]
    node = Node(
        {str(names.name(process)): driver},
        stop_timeout=options.stop_timeout,
        together=options.together or kind.end_together,
        at_rest=kind.at_rest,
    )
    return await node.run(application(EmbeddedProcess(driver, names)) if application else None)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of a child. Exit codes: 0 all is well, 1 something accepted may be lost, 2 it could not start."""
    parser = argparse.ArgumentParser(prog="python -m isthmus.adapters.embedded", description=run_child.__doc__)
    parser.add_argument("process", help="the process of the system that is to run here")
    system = parser.add_mutually_exclusive_group(required=True)
    system.add_argument("--spec", type=Path, help="the system, as a JSON file")
    system.add_argument("--spec-fd", type=int, help="the system, as JSON from an open file descriptor")
    parser.add_argument("--listener-fd", type=int, help="an inherited socket to listen on, instead of its address")
    parser.add_argument("--application", default="", help="module:function to run on the process")
    parser.add_argument("--joining", action="store_true", help="join a system that runs already")
    parser.add_argument("--together", action="store_true", help="the whole system ends when this process is stopped")
    parser.add_argument("--stop-timeout", type=float, default=10.0, help="seconds to leave in good order")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        source = options.spec if options.spec is not None else options.spec_fd
        with open(source, "rb") as file:
            spec = msgspec.json.decode(file.read(), type=SystemSpec)
        outcome = run(run_child(spec, options))
    except (RuntimeProblem, OSError, msgspec.MsgspecError) as problem:
        sys.stderr.write(f"{options.process}: {problem}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"{options.process}: interrupted before it had started\n")
        return 2
    if not outcome.clean:
        sys.stderr.write("".join(f"{line}\n" for line in outcome.lines()))
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    # Under its real name, so that applications meet the same classes as this code.
    from isthmus.adapters.embedded import main as real_main

    raise SystemExit(real_main())
