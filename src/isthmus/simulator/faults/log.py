"""What goes wrong with a log and with the processes that serve it: drawn before a run, and carried out as drawn.

The usual faults mean here: a *crash* is one of the gateway, a *partition* keeps it from its broker, a *cut* keeps the
broker's answers from it, so that it does not know what came of what it asked for; *slow* is the broker. What only logs
have: gateways that are paused and go on, brokers that die and lose what was not durable, heads that are trimmed, logs
that somebody deletes and makes anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.simulator.faults.nemesis import AT_THE_LATEST
from isthmus.simulator.faults.plan import FaultPlan
from isthmus.simulator.world import Host, World
from isthmus.topology.read.simulation import Faults

LEASE: Nanos = 200 * MILLISECOND


class Pause(Struct, frozen=True):
    """The gateway stops, and goes on at `until`, whoever holds the claim by then."""

    at: Nanos
    until: Nanos


class BrokerKill(Struct, frozen=True):
    """The broker dies, loses this share of the changes that are not durable, and is back at `until`."""

    at: Nanos
    until: Nanos
    share: float


class Trim(Struct, frozen=True):
    """This share of the entries goes, the oldest first."""

    at: Nanos
    share: float


class LogPlan(Struct, frozen=True):
    """What only logs have, in one run."""

    pauses: tuple[Pause, ...] = ()
    kills: tuple[BrokerKill, ...] = ()
    trims: tuple[Trim, ...] = ()
    recreations: tuple[Nanos, ...] = ()


def draw_log_plan(rng: Random, faults: Faults, duration: Nanos) -> LogPlan:
    """In swarm mode every kind of fault is left out of every other run."""

    def count(most: int) -> int:
        if not faults.swarm:
            return most
        return rng.randint(1, most) if most and rng.random() < 0.5 else 0

    pauses, kills = [], []
    for _ in range(count(faults.pauses)):
        at = rng.randrange(duration)
        # Some too short for anybody to take over, some long enough that somebody has by far.
        pauses.append(Pause(at, at + rng.randrange(LEASE // 4, 4 * LEASE)))
    for _ in range(count(faults.broker_kills)):
        at = rng.randrange(duration)
        kills.append(BrokerKill(at, at + rng.randrange(10 * MILLISECOND, LEASE), rng.choice((0.0, 0.5, 1.0))))
    # Mostly little, which retention may always take; some of them more than was read.
    trims = [Trim(rng.randrange(duration), rng.random() ** 3) for _ in range(count(faults.trims))]
    recreations = [rng.randrange(duration) for _ in range(count(faults.recreations))]
    return LogPlan(tuple(pauses), tuple(kills), tuple(trims), tuple(recreations))


class Served(Protocol):
    """What the nemesis does to a simulated log."""

    @property
    def gateway(self) -> Host: ...
    def pause(self, until: Nanos) -> None: ...
    def part(self, until: Nanos, *, answers_only: bool) -> None: ...
    def slow_down(self, until: Nanos, pause: Nanos) -> None: ...
    def kill_broker(self, until: Nanos, share: float) -> None: ...
    def trim(self, share: float) -> None: ...
    def recreate(self) -> None: ...
    def come(self) -> None: ...
    def leave(self) -> None: ...
    def heal(self) -> None: ...


Fault: TypeAlias = tuple[Nanos, Callable[..., None], tuple[Any, ...]]


class LogNemesis:
    """Carries both plans out. It asks nobody whether a fault may be."""

    def __init__(self, world: World, log: Served, plan: FaultPlan, own: LogPlan) -> None:
        self.plan = plan
        self.own = own
        self._world = world
        self._log = log
        self._over = False

    def schedule(self) -> None:
        for at, fault, arguments in self._faults():
            self._world.at(at, self._unless_over, fault, arguments)

    def _faults(self) -> Sequence[Fault]:
        log, plan, own = self._log, self.plan, self.own
        found: list[Fault] = [(each.at, self._doom, (each.progress,)) for each in plan.crashes]
        found += [(each.at, self._part, ("partition", each.until, False)) for each in plan.partitions]
        found += [(each.at, self._part, ("cut", each.until, True)) for each in plan.cuts]
        found += [(each.at, log.slow_down, (each.until, each.pause)) for each in plan.slow]
        found += [(each.at, log.come, ()) for each in plan.rejoins]
        found += [(each.at, log.leave, ()) for each in plan.leaves]
        found += [(each.at, log.pause, (each.until,)) for each in own.pauses]
        found += [(each.at, log.kill_broker, (each.until, each.share)) for each in own.kills]
        found += [(each.at, log.trim, (each.share,)) for each in own.trims]
        found += [(at, log.recreate, ()) for at in own.recreations]
        return found

    def heal(self) -> None:
        """The end of all faults, of those under way and of those still to come."""
        self._over = True
        self._log.gateway.dies_after = None
        self._log.heal()

    def _unless_over(self, fault: Callable[..., None], arguments: Sequence[Any]) -> None:
        if not self._over:
            fault(*arguments)

    def _part(self, kind: str, until: Nanos, answers_only: bool) -> None:
        self._world.sometimes.reach(kind)
        self._log.part(until, answers_only=answers_only)

    def _doom(self, progress: float) -> None:
        """Let the gateway die in its next step that puts something on a link; if none comes soon, between two."""
        host = self._log.gateway
        if host.alive and host.dies_after is None and host.held_up is None:
            host.dies_after = progress
            self._world.at(self._world.now + AT_THE_LATEST, self._unless_over, self._die, (host,))

    def _die(self, host: Host) -> None:
        if host.alive:
            self._world.sometimes.reach("crash")
            self._world.crash(host, "by plan")
