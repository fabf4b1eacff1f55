"""One log as the topology places it: whose entries are whose, and by which way they come."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from isthmus.core.ids import Directory, ProcessId, incarnation_of, slot_of
from isthmus.runtime.log.content import NOTHING, Content, decode, encode
from isthmus.runtime.log.flow import Passing, flows_into
from isthmus.topology.model import System, Topology


class LogPlace(Struct, frozen=True, kw_only=True):
    """What never changes about one log while its topology stays.

    `parts` are the slots of its streams, each an origin. `logs` are the slots of all origins that are logs: their
    messages are encoded `Content`, those of others are bodies. `paths` says for each system by which systems its
    messages come here, both ends included: in a forest there is one way, so an entry that says another was copied.
    """

    system: System
    names: Directory
    parts: tuple[int, ...]
    gateway: int
    logs: frozenset[int]
    paths: dict[str, str]
    flows: dict[str, Passing]

    def passing(self, system: str) -> Passing | None:
        """What of the messages of a system is brought in here: the last join on their way says so."""
        way = self.paths[system].split(",")
        return self.flows.get(way[-2]) if len(way) > 1 else None

    def origins(self, lives: int) -> tuple[ProcessId, ...]:
        """The log's own origins, one for each of its streams."""
        return tuple(incarnation_of(slot, lives) for slot in self.parts)

    def content_of(self, origin: ProcessId, payload: bytes) -> Content:
        """What a message of this origin is as an entry. A payload that is no entry raises `ValueError`."""
        return decode(payload) if slot_of(origin) in self.logs else Content(body=payload)

    def payload_of(self, origin: ProcessId, content: Content) -> bytes:
        """The message that an entry of this origin travels as."""
        return encode(content) if slot_of(origin) in self.logs else content.body

    def nothing_of(self, origin: ProcessId) -> bytes:
        """In place of a message of this origin whose content is not here any more."""
        return self.payload_of(origin, NOTHING)

    def part_for(self, origin: ProcessId) -> int:
        """Which stream a message from elsewhere goes to: the one of the same name, or else the first."""
        name = self.names.slots[slot_of(origin)].process
        streams = self.system.processes
        return streams.index(name) if name in streams else 0


def place_of(topology: Topology, system: System) -> LogPlace:
    names = topology.directory()
    slots = {name: slot for slot, name in enumerate(names.slots)}
    logs = {each.name for each in topology.systems if each.acts_alone}
    return LogPlace(
        system=system,
        names=names,
        parts=tuple(slot for name, slot in slots.items() if name.system == system.name)[: len(system.processes)],
        gateway=next(slot for name, slot in slots.items() if name == (system.name, system.gateways[0])),
        logs=frozenset(slot for name, slot in slots.items() if name.system in logs),
        paths=_paths(topology, system.name),
        flows=flows_into(topology, system.name),
    )


def _paths(topology: Topology, home: str) -> dict[str, str]:
    """The way from each system to `home`, nearest systems first."""
    ways: dict[str, Sequence[str]] = {home: (home,)}
    waiting = [home]
    for name in waiting:
        for join in topology.joins:
            if name in join.between:
                other = join.between[1] if name == join.between[0] else join.between[0]
                if other not in ways:
                    ways[other] = (other, *ways[name])
                    waiting.append(other)
    return {name: ",".join(way) for name, way in ways.items()}
