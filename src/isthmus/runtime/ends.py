"""The ends of the links of one system's gateways: who dials whom, where, and who listens (docs/design/sites.md)."""

from __future__ import annotations

from pathlib import Path
from socket import socket

from isthmus.core.ids import LinkId, ProcessId, ProcessName, slot_of
from isthmus.runtime.link.connection import LinkLimits
from isthmus.runtime.link.link import LinkCallbacks
from isthmus.runtime.link.links import Links
from isthmus.runtime.problems import AddressInUse, AddressUnusable, RuntimeProblem
from isthmus.runtime.transport.address import Address, listen
from isthmus.runtime.transport.hello import group_tag
from isthmus.runtime.transport.tls import LinkTls
from isthmus.topology.model import System, Topology
from isthmus.topology.wiring import Link, all_links


class NoAddress(RuntimeProblem):
    """The topology does not say where something is that has to be found."""

    def __init__(self, file: str, key: str, what: str, example: str) -> None:
        super().__init__(f"{file}: {key} is missing: {what}. Write {example}.")


class LinkEnds:
    """What the topology says of the links that end in one system. `run` is the same at all sites."""

    def __init__(self, topology: Topology, system: System, run: str, limits: LinkLimits) -> None:
        self._topology = topology
        self._system = system
        self._names = topology.directory()
        self._links = list(enumerate(all_links(topology)))
        self._group = group_tag(run)
        self._limits = limits

    def make(self, process: ProcessId, listener: socket | None, tls: LinkTls | None, callbacks: LinkCallbacks) -> Links:
        """All links of one gateway, not open yet."""
        name = self._names.name(process)
        place = self._names.slots[slot_of(process)]
        links = Links(process, name, callbacks, group=self._group, listener=listener, tls=tls, limits=self._limits)
        for number, link in self._links:
            if place in (link.near, link.far):
                far = link.far if place == link.near else link.near
                dial = self._where(number, link) if place == link.near else ()
                links.add(number, far, self._names.slots.index(far), *dial)
        return links

    def _where(self, number: LinkId, link: Link) -> tuple[Address, ...]:
        """Where the near end of a link finds the far one: one of these."""
        join = self._topology.joins[link.join]
        if join.dial is not None:
            first = next(other for other, each in self._links if each.join == link.join)
            return (Address(*join.dial.plus(number - first)),)
        addresses = self._topology.system(link.far.system).takes_links_at(link.far.process)
        if not addresses:
            raise self._no_link_address(link.far.system)
        return tuple(Address(*address) for address in addresses)

    def listener(self, gateway: str) -> socket | None:
        """The socket for the links that a gateway is called on, if there are any: the first address that is free."""
        place = ProcessName(self._system.name, gateway.partition("+")[0])
        if all(link.far != place for _, link in self._links):
            return None
        addresses = self._system.takes_links_at(place.process)
        if not addresses:
            raise self._no_link_address(self._system.name)
        for address in addresses[:-1]:
            try:
                return listen(Address(*address))
            except (AddressInUse, AddressUnusable):
                """It is another host's, or a gateway's that does not know yet that it was replaced."""
        return listen(Address(*addresses[-1]))

    def _no_link_address(self, system: str) -> NoAddress:
        key = f"systems.{system}.link-address"
        return NoAddress(self._topology.file, key, "where its gateways wait for links", 'it as "127.0.0.1:7500"')

    def tls(self, gateway: str) -> LinkTls | None:
        files = self._system.tls
        if files is None:
            return None
        base = Path(self._topology.file).parent
        certificate, key, authority = (
            base / path.replace("{gateway}", gateway.partition("+")[0])
            for path in (files.certificate, files.key, files.authority)
        )
        return LinkTls(certificate, key, authority)
