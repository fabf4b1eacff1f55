"""One OS process that hosts processes of a system: it starts them, runs them until it is told to stop, sees them off.

SIGTERM and SIGINT mean: accept no more messages, see everything accepted through, leave, close the logs. That is
bounded by a timeout; what has not been seen through by then is said plainly. A second signal cuts it short.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from isthmus.runtime.driver.process import ProcessDriver
from isthmus.runtime.problems import NotAccepting
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.systems.table import KINDS

LINGER = 2.0
"""Seconds at rest before the end where others run elsewhere: longer than an OS process may have to wait its turn."""
LOOK_EVERY = 0.01

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

AnyDriver = TypeVar("AnyDriver", bound=ProcessDriver)


async def start_all(starting: Mapping[str, Coroutine[Any, Any, AnyDriver]]) -> dict[str, AnyDriver]:
    """Start processes, which wait for one another. If one of them cannot start, none of them runs."""
    tasks: dict[str, asyncio.Task[AnyDriver]] = {}
    try:
        async with asyncio.TaskGroup() as group:
            for name, start in starting.items():
                tasks[name] = group.create_task(start)
    except BaseExceptionGroup as failures:
        for task in tasks.values():
            if not task.cancelled() and task.exception() is None:
                task.result().kill("another process of the system could not start")
        raise failures.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


class SystemHost(Generic[AnyDriver]):
    """The processes of one system that run here, by name.

    `together` means that the whole system ends when this host does, as systems of some kinds always do: its processes
    then do not leave one by one, which would make the others owe them nothing, but end once what they accepted is
    stable. Where others need them beyond that, they stay until all here have been at rest for a while: `linger`
    seconds, unless the whole system is here and no other is joined to it.
    """

    def __init__(
        self, spec: SystemSpec, *, together: bool = False, stop_timeout: float = 10.0, linger: float = LINGER
    ) -> None:
        self.spec = spec
        self.processes: dict[str, AnyDriver] = {}
        self.failure: BaseException | None = None
        """What broke the application."""
        self._kind = KINDS[spec.kind]
        self._together = together or self._kind.end_together
        self._stop_timeout = stop_timeout
        self._linger = linger
        self._stop_requested = asyncio.Event()
        self._cut_short = False

    async def start(self, starting: Mapping[str, Coroutine[Any, Any, AnyDriver]]) -> None:
        """Start processes. Founders may wait for others without end: a signal, or `stop`, ends that as well."""
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self.stop)
        begun = asyncio.ensure_future(start_all(starting))
        stop_requested = asyncio.ensure_future(self._stop_requested.wait())
        await asyncio.wait((begun, stop_requested), return_when=asyncio.FIRST_COMPLETED)
        stop_requested.cancel()
        if begun.done():
            self.processes |= begun.result()
            return
        begun.cancel()
        await asyncio.gather(begun, return_exceptions=True)
        self._cut_short = True

    def stop(self) -> None:
        """Begin to stop; said twice, stop at once."""
        if self._stop_requested.is_set():
            self.kill("told twice to stop")
        self._stop_requested.set()

    def kill(self, why: str) -> None:
        for process in self.processes.values():
            process.kill(why)

    async def run(self, application: Awaitable[None] | None = None) -> None:
        """Run until a signal, until `application` has returned or failed, or until no process is left; then end."""
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self.stop)
        stop_requested = asyncio.ensure_future(self._stop_requested.wait())
        running = asyncio.ensure_future(_wait_for(application))
        ended = asyncio.ensure_future(self._all_ended())
        try:
            await asyncio.wait((stop_requested, running, ended), return_when=asyncio.FIRST_COMPLETED)
            self._stop_requested.set()
            # The application goes on meanwhile: nothing becomes stable unless it takes what is delivered to it.
            await self.end()
            self.failure = await _failure_of(running)
        finally:
            for task in (stop_requested, running, ended):
                task.cancel()
            for each in _SIGNALS:
                loop.remove_signal_handler(each)

    async def end(self) -> None:
        """See off all processes."""
        if self._together:
            await self._see_through()
            await self._come_to_rest()
        for last in (False, True):
            going = [process for process in self.processes.values() if process.leaves_last is last]
            await asyncio.gather(*(each.close() if self._together else each.stop(self._stop_timeout) for each in going))

    def unfinished(self) -> list[str]:
        """One line for each thing that is not as it should be, in the end."""
        lines = [f"{each.mesh.me.label}: {left}" for each in self.processes.values() if (left := each.unfinished())]
        if self._cut_short:
            lines.append("told to stop before all had come that have to be there")
        if self.failure is not None:
            lines.append(f"the application failed: {type(self.failure).__name__}: {self.failure}")
        return lines

    async def _see_through(self) -> None:
        """Wait until what everybody here accepted is stable. Nobody goes before: its word may be needed once more."""
        for process in self.processes.values():
            process.stop_accepting("the system ends")
        stability = [asyncio.ensure_future(process.see_through()) for process in self.processes.values()]
        if stability:
            _, unstable = await asyncio.wait(stability, timeout=self._stop_timeout)
            for each in unstable:
                each.cancel()
            await asyncio.gather(*stability, return_exceptions=True)

    async def _come_to_rest(self) -> None:
        """Wait until nothing has been on its way for a while: others may have sent something meanwhile."""
        at_rest = self._kind.at_rest
        if at_rest is None:
            return
        is_whole = len(self.processes) == len(self.spec.addresses) and not self.spec.gateways
        linger = 0.0 if is_whole else self._linger
        loop = asyncio.get_running_loop()
        busy_at = loop.time()
        deadline = busy_at + self._stop_timeout
        while (now := loop.time()) < deadline:
            living = [process for process in self.processes.values() if process.ended is None]
            busy_at = max([busy_at, *(process.last_busy for process in living)])
            if not all(map(at_rest, living)):
                busy_at = now
            elif not living or now >= busy_at + linger:
                return
            await asyncio.sleep(LOOK_EVERY)

    async def _all_ended(self) -> None:
        for process in self.processes.values():
            await asyncio.wait((asyncio.ensure_future(process.wait_ended()),))
        if not self.processes:
            await asyncio.Event().wait()


async def _wait_for(application: Awaitable[None] | None) -> None:
    if application is not None:
        await application
    else:
        await asyncio.Event().wait()


async def _failure_of(application: asyncio.Future[None]) -> BaseException | None:
    """End the application, and return what broke it. That it could not send any more is no failure of its own."""
    application.cancel()
    await asyncio.wait((application,))
    error = None if application.cancelled() else application.exception()
    return None if isinstance(error, NotAccepting) else error
