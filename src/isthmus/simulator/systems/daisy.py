"""A simulated daisy: its processes, their application, and what goes wrong with them.

Processes write to sets of processes and answer in chains. Members and servers crash, the network loses, duplicates,
reorders and is cut. A daisy survives that as long as every local group keeps its quorum (docs/design/daisy.md,
"Model"); where one does not, the run says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from isthmus.core.ids import Nanos, ProcessId
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.process import OUTSIDE, DaisyProcess
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.hierarchy.daisy.shape import Shape, fit
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.ordering.group.window import GroupSettings
from isthmus.simulator.faults.daisy import DaisyNemesis, DaisyWatch, daisy_of
from isthmus.simulator.systems.addressed import Accept, AddressedApplication, AddressedSystem, Writer, no_batches
from isthmus.simulator.systems.kind import OpenLog
from isthmus.simulator.workload import window_for
from isthmus.simulator.world import Host, World
from isthmus.topology.model import System, Topology
from isthmus.trace.recorder import Recorder

EVERYBODY = 1 << 16
WINDOW = 12
"""Own messages that are not stable everywhere: small, so that back-pressure is met in short runs."""


class DaisyApplication(AddressedApplication):
    """Each message goes to several processes: the one that is meant, and now and then others.

    To how many others, is drawn from `beside`.
    """

    beside: tuple[int, ...] = (0, 0, 1, 2, EVERYBODY)

    def _accept(self, endpoint: Writer, everybody: tuple[ProcessId, ...]) -> Accept:
        assert isinstance(endpoint, DaisyProcess)
        return partial(endpoint.send, everybody)

    def _recipients(self, endpoint: Writer, target: ProcessId) -> tuple[ProcessId, ...]:
        others = self.rng.sample(self._processes, min(self.rng.choice(self.beside), len(self._processes)))
        assert isinstance(endpoint, DaisyProcess)
        return tuple(sorted(each for each in {target, *others} if endpoint.tree.knows((each,))))


class SimulatedDaisy(AddressedSystem):
    """Starts the processes of one daisy."""

    def __init__(
        self,
        topology: Topology,
        system: System,
        world: World,
        seed: int,
        open_log: OpenLog,
        *,
        tight: bool,
    ) -> None:
        super().__init__(topology, system, world)
        self.tree = tree_of(system.own(DaisyTable), self.by_name.__getitem__)
        self.application = self._applied(DaisyApplication, seed)
        self.nemesis = DaisyNemesis(world, self.slots, self._plan(seed))
        self._settings = GroupSettings(
            heartbeat=system.heartbeat,
            suspect_after=system.suspect_after,
            retry_after=2 * system.heartbeat,
            window_messages=window_for(self.simulation.workload, WINDOW if tight else GroupSettings().window_messages),
        )
        self._generations: dict[ProcessId, int] = {}
        self.watch = DaisyWatch(world, self.slots)
        self._start(self._make, open_log, late=self._newcomers(seed))

    def _newcomers(self, seed: int) -> dict[str, Nanos]:
        """Who is on standby, and when it comes: at any time, as long as others send."""
        rng = Random(f"newcomers {seed} {self.system.name}")
        return {name: rng.randrange(self.simulation.duration) for name in self.system.standby}

    def _make(self, slot: ProcessId, recorder: Recorder) -> Host:
        endpoint = DaisyProcess(slot, self.tree, self._settings, self.world.now)
        host = Host(endpoint, recorder, no_batches, self.application.on_addressed)
        host.view = endpoint.current.view()
        self._generations[slot] = endpoint.tree.generation
        return host

    def viewed(self, host: Host) -> None:
        generation = daisy_of(host).tree.generation
        before, self._generations[host.id] = self._generations[host.id], generation
        if generation > before:
            self.world.sometimes.reach("let in" if before == OUTSIDE else "groups changed")

    def ended(self, host: Host) -> None:
        if host.ended == "crash":
            self.watch.crashed(host)
        self.watch.count_lost_quorum()

    def note_causes(self) -> None:
        """Which group has lost its quorum, or more members at a time than it is to survive."""
        if group := self.watch.without_quorum():
            self.world.causes.note("lost-quorum", f"{group} of {self.system.name} has lost its quorum")
        if group := self.watch.without_holders():
            why = f"{group} of {self.system.name} has lost more members at a time than its resilience"
            self.world.causes.note("lost-holders", why)

    def _unfinished_at(self, host: Host, living: Sequence[Host]) -> str:
        endpoint = daisy_of(host)
        if reason := not_with_the_others(endpoint, list(map(daisy_of, living)), self._name):
            return reason
        if endpoint.is_outside:
            return "has not been let in"
        if endpoint.is_changing:
            return f"is between generation {endpoint.tree.generation} and another"
        ids = {each.id for each in living}
        if endpoint.options.changes and (wanted := self._wanted(endpoint, ids)) is not None:
            return f"is in groups of {_sizes(endpoint.tree.shape())}, which should be {_sizes(wanted)}"
        return not_settled(endpoint)

    def _wanted(self, endpoint: DaisyProcess, living: set[ProcessId]) -> Shape | None:
        """Which groups there should be; None if they are as they should."""
        present = endpoint.tree.shape().only(living)
        wanted = fit(present, endpoint.sizes, {})
        return None if wanted.same_as(present) else wanted


def not_with_the_others(process: DaisyProcess, living: Sequence[DaisyProcess], name: Callable[[ProcessId], str]) -> str:
    """How the view of a local group is not what it should be, in words; empty if it is."""
    view = process.local.member.view
    ids = {each.id for each in living}
    gone = [member for member in view.members if member not in ids]
    if gone:
        return f"is in a view with {name(gone[0])}, which is gone"
    for other in living:
        if other.id in view.members and other.tree.generation == process.tree.generation:
            if other.local.member.view.number > view.number:
                return f"is in an earlier view than {name(other.id)}, which may be without it"
    return ""


def not_settled(process: DaisyProcess) -> str:
    """What a process has to see through yet, in words; empty if there is nothing."""
    if process.unstable:
        return f"has {len(process.unstable)} messages that are not stable"
    if not process.local.is_quiet:
        return "does not know whether everybody in its group has everything"
    for level in process.levels:
        if isinstance(level, ServersGroup) and not level.installed:
            heard = len(level.states)
            return f"has heard {heard} of {level.size} in a flush of group {level.group.name or 'at the top'}"
        if level.record.kept:
            return f"keeps {len(level.record.kept)} messages that are not settled in group {level.number}"
    return ""


def _sizes(shape: Shape) -> str:
    return " and ".join(str(len(group.processes)) for group in shape.locals())
