"""What goes wrong with a daisy: what does with any system, but every other crash is meant for a server.

Which group a process is in, and who its server is, may change, so the nemesis looks when a crash is due.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.core.endpoint import View
from isthmus.core.ids import slot_of
from isthmus.hierarchy.daisy.member import DaisyMember
from isthmus.hierarchy.daisy.point import PointGroup
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.servers import ServersGroup
from isthmus.hierarchy.daisy.tree import DaisyTree
from isthmus.ordering.group.quorum import is_quorum
from isthmus.simulator.faults.nemesis import Nemesis, group_of, member_of
from isthmus.simulator.faults.plan import Crash, FaultPlan
from isthmus.simulator.world import Host, World


class DaisyNemesis(Nemesis):
    """One plan for the whole daisy. Nobody comes back to it."""

    def __init__(self, world: World, slots: Iterable[int], plan: FaultPlan) -> None:
        super().__init__(world, slots, plan, revive=None)

    def _crash(self, crash: Crash) -> None:
        slot = crash.slot
        if crash.at % 2:
            slot = min((each for each in self._fellows(slot) if self.world.hosts[each].alive), default=slot)
        self._doom(slot, crash.progress)

    def _fellows(self, slot: int) -> list[int]:
        """The slots of the group that a process is in; of none where it is outside, or has never been there."""
        host = self.world.hosts.get(slot)
        if host is None or daisy_of(host).is_outside:
            return []
        tree = daisy_of(host).tree
        return list(map(slot_of, tree.groups[tree.home[slot]].everybody))


class DaisyWatch:
    """What has become of a daisy, seen from above: its groups, and what crashes fell into."""

    def __init__(self, world: World, slots: Iterable[int]) -> None:
        self._world = world
        self._slots = tuple(slots)
        self._without_quorum: set[str] = set()

    def crashed(self, host: Host) -> None:
        """Count what this crash was."""
        servers = daisy_of(host).levels[1:]
        if servers:
            self._world.sometimes.reach("server crashed")
        if any(isinstance(each, ServersGroup) and not each.installed for each in servers):
            self._world.sometimes.reach("crash in a flush of servers")
        if self._is_changing():
            self._world.sometimes.reach("crash in a change of groups")

    def count_lost_quorum(self) -> None:
        """Count each group that has lost its quorum, once."""
        if (group := self.without_quorum()) and group not in self._without_quorum:
            self._without_quorum.add(group)
            self._world.sometimes.reach("quorum lost")

    def without_quorum(self) -> str:
        """The name of a group that cannot go on: too many of its latest view are gone. Empty if there is none."""
        latest: dict[tuple[int, int], View] = {}
        known: dict[tuple[int, int], View] = {}
        trees: dict[int, DaisyTree] = {}
        for host in self._hosts():
            # A process that crashed as soon as it was in a view was in it: the others cannot go back, and those who are
            # in an earlier one need a quorum of that to find out.
            tree, view = daisy_of(host).tree, group_of(host).view
            group = (tree.generation, tree.home[slot_of(host.id)])
            trees[tree.generation] = tree
            latest[group] = max(latest.get(group, view), view)
            if host.alive:
                known[group] = max(known.get(group, view), view)
        # Of the latest tree every group is needed, also one of which nobody is left.
        newest = max((generation for generation, _ in known), default=None)
        needed = known.keys() | {group for group in latest if group[0] == newest}
        living = {host.id for host in self._living()}
        for group in sorted(needed):
            for view in (latest[group], known.get(group, latest[group])):
                if not is_quorum([each for each in view.members if each in living], view.members):
                    generation, number = group
                    return f"group {trees[generation].groups[number].name or 'of all'}"
        # Who has not left its former group yet needs a quorum of that as well.
        for host in self._living():
            if (former := daisy_of(host).former) is not None:
                view = former.local.member.view
                if not is_quorum([each for each in view.members if each in living], view.members):
                    return f"former group {former.tree.groups[former.local.number].name or 'of all'}"
        return ""

    def without_holders(self) -> str:
        """The name of a group from which more have gone at a time than its resilience. Empty if there is none."""
        for host in self._living():
            local = daisy_of(host).local
            if isinstance(local, PointGroup) and local.most_gone > local.tree.options.resilience:
                return f"group {local.tree.groups[local.number].name or 'of all'}"
        return ""

    def _hosts(self) -> list[Host]:
        """Those of the daisy who have ever been there."""
        return [host for slot in self._slots if (host := self._world.hosts.get(slot)) is not None]

    def _living(self) -> list[Host]:
        return [host for host in self._hosts() if host.alive]

    def _is_changing(self) -> bool:
        inside = [process for host in self._living() if not (process := daisy_of(host)).is_outside]
        return len({each.tree.generation for each in inside}) > 1 or any(each.is_changing for each in inside)


def daisy_of(host: Host) -> DaisyProcess:
    """The process in its tree, whatever is on top of it."""
    member = member_of(host)
    process = member.process if isinstance(member, DaisyMember) else member
    assert isinstance(process, DaisyProcess)
    return process
