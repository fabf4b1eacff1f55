"""One host of a log: a standby until it has the claim, then its gateway, then a standby again, until told to stop.

Any number of hosts may run the same command. Who of them acts is the broker's decision alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from isthmus.core.ids import SECOND, incarnation_of
from isthmus.join.logged import LogGateway
from isthmus.runtime.driver.recorder import LiveRecorder
from isthmus.runtime.ends import LinkEnds
from isthmus.runtime.link.connection import LinkLimits
from isthmus.runtime.log.driver import LogDriver, Options, Patience
from isthmus.runtime.log.history import LogHistory
from isthmus.runtime.log.interface import Log, State, Superseded
from isthmus.runtime.log.place import place_of
from isthmus.runtime.problems import AddressInUse, AddressUnusable
from isthmus.topology.model import System, Topology
from isthmus.topology.plans import plans
from isthmus.trace.writer import open_log

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


RETRY_AFTER = 2 * SECOND
"""After which an unanswered `Open` is said again."""
LINK_LIMITS = LinkLimits(longest_pause=0.25)
"""Who takes over on another host is to be found within the two seconds that a take-over may last."""
ASK_EVERY = 0.2
"""Seconds between two requests of a standby for the claim."""


class LogSite:
    """One log of a topology, as this host runs it. `run` names the run and is the same at all sites."""

    def __init__(
        self,
        topology: Topology,
        system: System,
        broker: Log,
        run: str,
        options: Options,
        *,
        trace: Path | None = None,
        trace_sync: bool = False,
        limits: LinkLimits = LINK_LIMITS,
    ) -> None:
        self.system = system
        self.place = place_of(topology, system)
        self.run_name = topology.run_of(run, system.name)
        self.driver: LogDriver | None = None
        self.read = self.delivered = 0
        self._log = broker
        self._options = options
        self._trace = trace
        self._trace_sync = trace_sync
        self._plans = plans(topology, system.name)
        self._ends = LinkEnds(topology, system, self.run_name, limits)
        self._tls = self._ends.tls(system.gateways[0]) if system.gateways else None
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._patiently = Patience(system.name, "reached")
        self._told = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. Raises `LogProblem` where somebody has to do something first."""
        name = self.system.name
        try:
            for weakness in await self._unless_stopped(stop, self._patiently(self._log.open)) or ():
                log.warning("%s: %s", name, weakness)
            while not stop.is_set():
                state = await self._unless_stopped(stop, self._patiently(self._claim))
                if state is None:
                    self._tell("another host holds the claim; this one is a standby")
                    await self._unless_stopped(stop, asyncio.sleep(ASK_EVERY))
                    continue
                try:
                    listener = self._ends.listener(self.system.gateways[0])
                except (AddressInUse, AddressUnusable) as problem:
                    self._tell(f"this host cannot act: {problem}")
                    await self._patiently(self._log.release)
                    await self._unless_stopped(stop, asyncio.sleep(ASK_EVERY))
                    continue
                self._tell(f"this host holds the claim, as {self.system.gateways[0]}+{state.token}")
                try:
                    await self._hold(state, listener, stop)
                except Superseded:
                    log.warning("%s: another host has taken the claim", name)
        finally:
            await self._log.close()

    async def _claim(self) -> State | None:
        return await self._log.claim(self._holder, self._options.lease)

    async def _unless_stopped(self, stop: asyncio.Event, work: Coroutine[Any, Any, _Result]) -> _Result | None:
        """What comes of this; None if we are to stop before that."""
        doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
        finally:
            stopped.cancel()
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
        return None

    def _tell(self, state: str) -> None:
        """Say what this host is now, once."""
        if state != self._told:
            log.info("%s: %s", self.system.name, state)
        self._told = state

    async def _hold(self, state: State, listener: socket.socket | None, stop: asyncio.Event) -> None:
        process = incarnation_of(self.place.gateway, state.token)
        gateway = LogGateway(process, self._plans, RETRY_AFTER)
        make_links = partial(self._ends.make, process, listener, self._tls)
        recorder = self._recorder(process)
        driver = self.driver = LogDriver(gateway, self.place, self._log, state, self._options, make_links, recorder)
        complete = False
        try:
            if self._trace is not None:
                driver.history = LogHistory(
                    self._trace, self.run_name, self.place, driver.reading, fsync=self._trace_sync
                )
            await driver.run(stop)
            complete = True
            await self._patiently(self._log.release)
        finally:
            self.read += driver.read
            self.delivered += driver.delivered
            driver.links.abort()
            if recorder is not None:
                recorder.ended(*(("end", "") if complete else ("crash", "it lost the claim, or cannot go on")))
            if driver.history is not None:
                driver.history.close(complete=complete and not self._options.trace_open)

    def _recorder(self, process: int) -> LiveRecorder | None:
        if self._trace is None:
            return None
        names = self.place.names
        name = names.name(process)
        history = open_log(self._trace, "jsonl", self.run_name, name.system, name.process, "gateway", names)
        return LiveRecorder(process, history, "join", sync=self._trace_sync)
