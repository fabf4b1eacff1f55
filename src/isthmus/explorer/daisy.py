"""Every schedule of a small daisy in which nobody crashes: the real processes, over reliable FIFO channels.

Time stands still: there are no heartbeats, nobody is suspected, and nothing has to be sent again as nothing is lost. So
what is explored is the way of messages through groups and servers, acknowledgements among them, with every overtaking
that channels allow; not stability, which heartbeats carry, and not the flush. The simulator is for those.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.codec import body_of, decode_body
from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Directory, ProcessId
from isthmus.core.message import Batch
from isthmus.core.wire.daisy import DaisyFrame, Parcel
from isthmus.explorer.addressed import AddressedWorld, ProcessReaction, directed_of
from isthmus.explorer.search import Search, SearchOutcome
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.record import unpack
from isthmus.hierarchy.daisy.tree import DaisyTree, tree_of
from isthmus.topology.model import Topology
from isthmus.topology.read.exploration import Directed


class DaisyWorld(AddressedWorld[DaisyProcess, bytes]):
    """The items are frames as they are encoded. A message says which one it is in its payload."""

    def __init__(self, tree: DaisyTree, names: Directory, messages: Sequence[Directed]) -> None:
        self.tree = tree
        super().__init__({process: DaisyProcess(process, tree) for process in tree.home}, names, messages)

    def _run(self, place: int, machine: DaisyProcess, source: ProcessId | None, what: int | bytes) -> ProcessReaction:
        out = Outbox()
        if isinstance(what, bytes):
            assert source is not None
            machine.receive(source, (decode_body(what),), 0, out)
        else:
            machine.send(self.messages[what].destinations, [bytes((what,))], 0, out)
        machine.invariants()
        items = tuple((peer, body_of(pdu)) for destinations, pdu in out.sends for peer in destinations)
        return ProcessReaction(
            self._keep(place, machine),
            tuple(payload[0] for each in out.addressed for payload in each.run.segment.payloads()),
            tuple(payload[0] for each in out.carried for payload in each.segment.payloads()),
            items,
        )

    def _words(self, source: ProcessId, item: bytes) -> str:
        frame = decode_body(item)
        assert isinstance(frame, DaisyFrame)
        inside = self.tree.groups[frame.group].name or "the topmost group"
        what = type(frame.pdu).__name__.lower()
        pdu = frame.pdu.batch if isinstance(frame.pdu, Parcel) else frame.pdu
        if isinstance(pdu, Batch):
            payloads = [payload for run in unpack(pdu.segment) for payload in run.segment.payloads()]
            what = ", ".join(self.text(payload[0]) for payload in payloads) or what
        return f"{what} from {self.name(source)} in {inside}"

    def _rest(self, item: bytes, reaction: ProcessReaction) -> list[str]:
        return []


def explore_daisy(topology: Topology, messages: int | None = None, max_states: int | None = None) -> SearchOutcome:
    """Look at every schedule of the daisy in a topology."""
    (system,) = topology.systems
    directory = topology.directory()
    tree = tree_of(system.own(DaisyTable), lambda name: directory.id(system.name, name))
    world = DaisyWorld(tree, directory, directed_of(topology, messages))
    return Search(world, topology.exploration.max_states if max_states is None else max_states).run(lambda *_: None)
