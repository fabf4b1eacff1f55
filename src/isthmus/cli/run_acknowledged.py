"""`isthmus run` of a system by TO or PO: which medium it is on, and who provides it (docs/design/to-po.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from msgspec import Struct, structs

from isthmus.cli.console import err, fail
from isthmus.cli.run_options import MediumName
from isthmus.runtime.systems.acknowledged import decide
from isthmus.runtime.systems.members import provide_medium
from isthmus.runtime.systems.spec import AcknowledgedSpec, SystemSpec
from isthmus.runtime.systems.table import KINDS
from isthmus.runtime.transport.address import Address
from isthmus.topology.model import System

_KINDS: dict[MediumName, Literal["auto", "hub", "multicast"]] = {
    MediumName.AUTO: "auto",
    MediumName.HUB: "hub",
    MediumName.MULTICAST: "multicast",
}


class MediumOptions(Struct, frozen=True):
    """What the command line says of the medium; `hub` is to run it here, and no process unless some are named."""

    medium: MediumName
    loss: float
    loss_seed: int
    hub: bool

    @property
    def are_given(self) -> bool:
        return self.hub or self.loss > 0 or self.medium is not MediumName.AUTO

    def check(self, file: str, system: System) -> None:
        if self.are_given and KINDS[system.kind].provide is None:
            fail(f"{file}: systems.{system.name} is on no medium: --medium, --loss and --hub are for [acknowledged]")

    def apply(self, spec: SystemSpec) -> SystemSpec:
        """The system with its medium, as far as the command line says which."""
        if KINDS[spec.kind].provide is None:
            return spec
        medium = _KINDS[self.medium]
        own = spec.own_of(AcknowledgedSpec)
        return structs.replace(spec, own=structs.replace(own, medium=medium, loss=self.loss, loss_seed=self.loss_seed))


def medium_address(system: System) -> Address | None:
    """The port behind those of the members: of the hub, or of the multicast group."""
    return None if system.address is None else Address(*system.address.plus(len(system.members)))


@asynccontextmanager
async def on_medium(spec: SystemSpec, at: Address | None, *, provides: bool) -> AsyncIterator[SystemSpec]:
    """The system with its medium decided on, and with a hub for as long as this lasts, if one is to be here."""
    if KINDS[spec.kind].provide is None:
        yield spec
        return
    hub = None
    if provides:
        spec, hub = await provide_medium(spec, at)
    else:
        decided = decide(spec.own_of(AcknowledgedSpec), f"{spec.run}/{spec.system}", at)
        spec = structs.replace(spec, own=decided)
    own = spec.own_of(AcknowledgedSpec)
    err.print(f"isthmus: {spec.system} is on {own.medium} {own.where}", markup=False)
    try:
        yield spec
    finally:
        if hub is not None:
            hub.close()


def refuse_needless_hub(spec: SystemSpec) -> None:
    """Say no to a hub alone where nobody would use it."""
    if spec.own_of(AcknowledgedSpec).medium == "multicast":
        fail(f"{spec.system} is on multicast and needs no hub; write --medium hub, here and for its processes")
