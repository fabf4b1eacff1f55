"""Starts one process of a system, of any kind: its connections, its trace, and the driver on top of them."""

from __future__ import annotations

from collections.abc import Callable
from socket import socket
from typing import TypeAlias, TypeVar

from isthmus.core.endpoint import View
from isthmus.core.ids import ProcessId, slot_of
from isthmus.runtime.driver.endpoint import Driver
from isthmus.runtime.driver.recorder import FLUSH_AFTER, PART_AFTER, LiveRecorder
from isthmus.runtime.problems import PeersUnreachable, RuntimeProblem
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.carrier import Carrier
from isthmus.runtime.transport.hello import group_tag
from isthmus.runtime.transport.mesh import Mesh
from isthmus.runtime.transport.peer import Limits
from isthmus.trace.recorder import Beginning
from isthmus.trace.schema import Role, TraceError
from isthmus.trace.writer import open_log

AnyDriver = TypeVar("AnyDriver", bound=Driver)

Connect: TypeAlias = Callable[[SystemSpec, ProcessId, socket, Limits], Carrier]
"""Makes what carries the PDUs of one process, which listens on this socket; nothing is connected yet."""


def to_each_peer(spec: SystemSpec, process: ProcessId, listener: socket, limits: Limits) -> Carrier:
    """Connections by TCP to each of the other members."""
    label = str(spec.directory().name(process))
    tag = group_tag(f"{spec.run}/{spec.system}")
    return Mesh(process, spec.addresses, listener, group=tag, label=label, limits=limits)


async def start_driver(
    spec: SystemSpec,
    process: ProcessId,
    listener: socket,
    make: Callable[[Carrier], AnyDriver],
    connect: Connect,
    *,
    joining: bool,
    limits: Limits,
) -> AnyDriver:
    """Connect one process with the others, and let the driver run that `make` puts on top of that.

    Founding members wait for one another first: until all can be reached, silence means that somebody is still
    starting, and must not be taken for a crash. A process that joins needs only somebody who answers.
    """
    names = spec.directory()
    mesh = connect(spec, process, listener, limits)
    try:
        await mesh.open()
        if not joining:
            others = [founder for founder in spec.founders() if slot_of(founder) != slot_of(process)]
            missing = await mesh.reach(others, spec.start_within)
            if missing:
                raise PeersUnreachable(str(names.name(process)), list(map(str, missing)), spec.start_within)
        driver = make(mesh)
    except BaseException:
        mesh.abort()
        raise
    driver.start()
    return driver


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
