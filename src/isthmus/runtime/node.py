"""One OS process that hosts members: it runs them until it is told to stop, then sees them off.

SIGTERM and SIGINT mean: accept no more messages, see everything accepted through to stability, leave, close the logs.
That is bounded by a timeout; what is not known to be stable by then is said plainly. A second signal cuts it short.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from isthmus.runtime.driver.member import MemberDriver, Stopped
from isthmus.runtime.problems import NotAccepting

LINGER = 2.0
LOOK_EVERY = 0.01

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Outcome(NamedTuple):
    """How the members of a node have ended, by name, and what went wrong in the application, if anything."""

    stopped: dict[str, Stopped]
    failure: BaseException | None = None

    @property
    def clean(self) -> bool:
        """Everybody left or was closed in good order, and nothing accepted is in doubt."""
        return self.failure is None and all(
            each.ended.how != "crash" and not each.unstable for each in self.stopped.values()
        )

    def lines(self) -> list[str]:
        """One line for each thing that a person should know."""
        lines = [f"{name}: {each}" for name, each in self.stopped.items()]
        if self.failure is not None:
            lines.append(f"the application failed: {type(self.failure).__name__}: {self.failure}")
        return lines


class Node:
    """Runs `members`, which have been started, by name.

    `together` means that the whole system ends when this node does: its members then do not leave one by one, which
    would make the others owe them nothing, but end once what they accepted is stable. Where others need them beyond
    that, `at_rest` says of a member that nothing is on its way: then they end when all have been at rest for a while.
    """

    def __init__(
        self,
        members: Mapping[str, MemberDriver],
        *,
        stop_timeout: float = 10.0,
        together: bool = False,
        at_rest: Callable[[MemberDriver], bool] | None = None,
    ) -> None:
        self._members = dict(members)
        self._together = together
        self._at_rest = at_rest
        self._stop_timeout = stop_timeout
        self._told_to_stop = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop; said twice, stop at once."""
        if self._told_to_stop.is_set():
            for member in self._members.values():
                member.kill("told twice to stop")
        self._told_to_stop.set()

    async def run(self, application: Awaitable[None] | None = None) -> Outcome:
        """Run until a signal, until `application` has returned or failed, or until no member is left."""
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self.stop)
        told = asyncio.ensure_future(self._told_to_stop.wait())
        running = asyncio.ensure_future(_wait_for(application))
        ended = asyncio.ensure_future(self._all_ended())
        try:
            await asyncio.wait((told, running, ended), return_when=asyncio.FIRST_COMPLETED)
            self._told_to_stop.set()
            # The application goes on meanwhile: nothing becomes stable unless it takes what is delivered to it.
            if self._together:
                await self._see_through()
            if self._together and self._at_rest is not None:
                await self._come_to_rest(self._at_rest)
            end = _close if self._together else self._leave
            stopped: dict[str, Stopped] = {}
            for last in (False, True):
                going = {name: member for name, member in self._members.items() if member.leaves_last is last}
                stopped |= zip(going, await asyncio.gather(*map(end, going.values())), strict=True)
            return Outcome({name: stopped[name] for name in self._members}, await _failure_of(running))
        finally:
            for task in (told, running, ended):
                task.cancel()
            for each in _SIGNALS:
                loop.remove_signal_handler(each)

    async def _leave(self, member: MemberDriver) -> Stopped:
        return await member.stop(self._stop_timeout)

    async def _see_through(self) -> None:
        """Wait until what everybody here accepted is stable. Nobody goes before: its word may be needed once more."""
        for member in self._members.values():
            member.stop_accepting("the system ends")
        stability = [asyncio.ensure_future(member.stable(member.accepted)) for member in self._members.values()]
        if stability:
            _, unstable = await asyncio.wait(stability, timeout=self._stop_timeout)
            for each in unstable:
                each.cancel()
            await asyncio.gather(*stability, return_exceptions=True)

    async def _come_to_rest(self, at_rest: Callable[[MemberDriver], bool]) -> None:
        """Wait until nothing has been on its way for `LINGER` seconds: others may have sent something meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._stop_timeout
        busy_at = loop.time()
        while loop.time() < min(deadline, busy_at + LINGER):
            if not all(map(at_rest, self._members.values())):
                busy_at = loop.time()
            await asyncio.sleep(LOOK_EVERY)

    async def _all_ended(self) -> None:
        for member in self._members.values():
            await asyncio.wait((asyncio.ensure_future(member.wait_ended()),))


async def _close(member: MemberDriver) -> Stopped:
    await member.close()
    return member.stopped


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
