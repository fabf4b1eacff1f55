"""Starts one process of a system, of any kind: its connections, its trace, and the driver on top of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from socket import socket
from typing import TypeAlias, TypeVar

from isthmus.core.endpoint import View
from isthmus.core.ids import SECOND, ProcessId, slot_of
from isthmus.ordering.group.quorum import is_quorum
from isthmus.runtime.driver.endpoint import Driver
from isthmus.runtime.driver.recorder import FLUSH_AFTER, PART_AFTER, LiveRecorder
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.carrier import Carrier
from isthmus.runtime.transport.hello import group_tag
from isthmus.runtime.transport.mesh import Mesh
from isthmus.runtime.transport.peer import Limits
from isthmus.trace.recorder import Beginning
from isthmus.trace.schema import Role, TraceError
from isthmus.trace.writer import open_log

log = logging.getLogger(__name__)

AnyDriver = TypeVar("AnyDriver", bound=Driver)

CALLS_PER_SUSPICION = 6
"""How many pauses between two calls fit into the silence that somebody is suspected after; with their jitter, four."""

Connect: TypeAlias = Callable[[SystemSpec, ProcessId, socket, Limits], Carrier]
"""Makes what carries the PDUs of one process, which listens on this socket; nothing is connected yet."""


def to_each_peer(spec: SystemSpec, process: ProcessId, listener: socket, limits: Limits) -> Carrier:
    """Connections by TCP to each of the other members."""
    label = str(spec.directory().name(process))
    tag = group_tag(f"{spec.run}/{spec.system}")
    # Who has just come, or come back, is to be called again before it can take our silence for a sign of death.
    pause = spec.suspect_after / SECOND / CALLS_PER_SUSPICION
    first, longest = min(limits.first_pause, pause), min(limits.longest_pause, pause)
    limits = limits._replace(first_pause=first, longest_pause=longest)
    return Mesh(
        process, spec.addresses, listener, group=tag, label=label, limits=limits, hand_over=not spec.sockets_only
    )


async def start_driver(
    spec: SystemSpec,
    process: ProcessId,
    listener: socket,
    make: Callable[[Carrier], AnyDriver],
    connect: Connect,
    *,
    joining: bool,
    limits: Limits,
    calls: int | None = None,
) -> AnyDriver:
    """Connect one process with the others, and let the driver run that `make` puts on top of that.

    It runs at once: whoever is there is to be heard. But a founder is left to its application only when all founders
    answer, or enough of them (`_wait_for_founders`). A process that joins needs only somebody who answers. With `calls`
    a founder calls only so many others: 128 that call everybody need 16,256 connections before the first message.
    """
    mesh = connect(spec, process, listener, limits)
    try:
        await mesh.open()
        driver = make(mesh)
    except BaseException:
        mesh.abort()
        raise
    driver.start()
    if not joining:
        try:
            await _wait_for_founders(spec, process, driver, calls)
        except BaseException:
            driver.kill("stopped while it waited for the other founders")
            raise
    return driver


async def _wait_for_founders(spec: SystemSpec, process: ProcessId, driver: Driver, calls: int | None) -> None:
    """Wait until all founders have answered, or enough of them after `start_within`; without those, wait on.

    Of many it calls the next `calls` in the order of their slots; whether the others are there, its endpoint finds out.
    It is over as well when the driver has ended: the others may have gone on without this process long ago.
    """
    names, founders = spec.directory(), spec.founders()
    slot = slot_of(process)
    after = [founder for founder in founders if slot_of(founder) > slot]
    others = [*after, *(founder for founder in founders if slot_of(founder) < slot)][:calls]
    seconds = spec.start_within / SECOND
    while missing := await _unless_it_ends(driver, driver.mesh.reach(others, seconds)):
        absent = " and ".join(f"{names.name(each)} ({spec.addresses[slot_of(each)]})" for each in missing)
        waited = f"{driver.mesh.me.label} has waited {seconds:g} s for {absent}"
        if is_quorum(set(founders) - set(missing), founders):
            log.warning("%s and goes on: a quorum of the founders is there. Who comes later has to join.", waited)
            return
        log.warning(
            "%s and goes on waiting: fewer than a quorum of the founders are there. "
            "Start the missing processes, or correct their addresses.",
            waited,
        )


async def _unless_it_ends(driver: Driver, reaching: Coroutine[None, None, list[ProcessId]]) -> list[ProcessId]:
    """What `reaching` returns; nothing when the driver ends before."""
    calls = asyncio.ensure_future(reaching)
    end = asyncio.ensure_future(driver.wait_ended())
    try:
        await asyncio.wait((calls, end), return_when=asyncio.FIRST_COMPLETED)
        return calls.result() if calls.done() else []
    finally:
        calls.cancel()
        end.cancel()
        # What broke the driver comes out of its own `wait_ended`.
        await asyncio.gather(calls, end, return_exceptions=True)


def open_recorder(
    spec: SystemSpec, process: ProcessId, how: Beginning, view: View | None, role: Role
) -> LiveRecorder | None:
    """Begin the trace of one process, if the system is to be traced."""
    if spec.trace is None:
        return None
    names = spec.directory()
    name = names.name(process)
    try:
        process_log = open_log(spec.trace, spec.trace_format, spec.run, name.system, name.process, role, names)
    except TraceError as error:
        raise RuntimeProblem(str(error)) from error
    flush_after = FLUSH_AFTER if spec.trace_format == "jsonl" else PART_AFTER
    return LiveRecorder(process, process_log, how, view, sync=spec.trace_sync, flush_after=flush_after)
