"""Mistakes of the nemesis: what tries the protocols, with one thing wrong."""

from __future__ import annotations

from isthmus.join.member import GatewayMember
from isthmus.lab.mutants.mutant import mutant
from isthmus.simulator.faults.nemesis import Nemesis

_doom = Nemesis._doom


@mutant("last-gateway-spared", of=Nemesis._doom, scenario="last gateways")
def _spares_the_last_gateway(self: Nemesis, slot: int, progress: float) -> None:
    """The nemesis lets a system keep its last gateway."""
    hosts = [self.world.hosts[each] for each in self.slots]
    gateways = [host for host in hosts if host.alive and isinstance(host.endpoint, GatewayMember)]
    if gateways != [self.world.hosts[slot]]:
        _doom(self, slot, progress)
