"""The options of a daisy side by side: what each saves, and what it costs (daisy, Sect. 3.4).

Headers, messages and delay are those of one message in an idle daisy whose lines take a millisecond, counted on the
real protocol code with everything that it says until the message is delivered (`DaisyRig`). Fault tolerance is tried:
in many runs under load some members of one local group crash in the same instant, the server among them, and the
oracles say whether those who are left have kept every promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct, structs

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.hierarchy.daisy.options import PLAIN, DaisyOptions
from isthmus.lab.counts.daisies import FAST, DaisyRig, even_daisy
from isthmus.lab.counts.daisies_on_receipt import LateCause
from isthmus.simulator.faults.daisy import DaisyNemesis
from isthmus.simulator.faults.plan import FaultPlan
from isthmus.simulator.run import Run
from isthmus.simulator.world import World
from isthmus.topology.file import parse

GROUPS, SIZE = 3, 5
"""Three local groups of five: a quorum of three survives two crashes at once."""
UNIFORM = structs.replace(FAST, uniform=True)
RUNS = 40
"""Runs for each option and each number of crashes."""
AT_ONCE = (1, 2)
LATE = (12, 5)

OPTIONS: dict[str, DaisyOptions] = {
    "plain": PLAIN,
    "1 on receipt": DaisyOptions(forward="on-receipt"),
    "2 recipients, k = 1": DaisyOptions(inside="recipients", resilience=1),
    "2 recipients, k = 2": DaisyOptions(inside="recipients", resilience=2),
    "3 star": DaisyOptions(star=True),
}

_LOAD = """
[simulation]
duration = "300ms"
workload = { rate = 20, size = [16, 64], reply = 0.08, reply-depth = 3 }
network = { delay = { mean = "2ms" } }
"""


class Cost(Struct, frozen=True):
    """One message: bytes of all headers that it had, copies, all words until it was delivered, and when that was."""

    header: int
    copies: int
    words: int
    delay: Nanos


class Trial(Struct, frozen=True):
    """So many runs with so many crashes at once: in how many a promise was broken, and the first that was."""

    at_once: int
    runs: int
    broken: int
    why: str


class Option(Struct, frozen=True):
    """One way to run a daisy. `inside` is a message to one process of its group, `across` one to another group's.

    `late` is when a large message is delivered in another group, if its cause is 12 ms late at its server and it
    takes 5 ms on every line itself, in two groups of three.
    """

    name: str
    inside: Cost
    across: Cost
    late: Nanos
    trials: tuple[Trial, ...]


def cost(options: DaisyOptions, destination: int) -> Cost:
    """A message of a process that is no server."""
    rig = DaisyRig(structs.replace(even_daisy(GROUPS * SIZE, GROUPS, 2), options=options), UNIFORM)
    sent = rig.send(SIZE - 1, (destination,))
    header = sum(each.size for each in sent.headers.values())
    return Cost(header, len(sent.lines), sent.words, sent.at[destination])


class AtOnce(DaisyNemesis):
    """Takes the server of the first group and some others of it, all in one instant, whatever that does."""

    def __init__(self, world: World, slots: list[int], count: int, seed: int) -> None:
        super().__init__(world, slots, FaultPlan())
        rng = Random(f"at once {seed}")
        self.victims = [0, *rng.sample(range(1, SIZE), count - 1)]
        self.at = rng.randrange(50 * MILLISECOND, 250 * MILLISECOND)

    def schedule(self) -> None:
        self.world.at(self.at, self._strike)

    def _strike(self) -> None:
        for slot in self.victims:
            self.world.crash(self.world.hosts[slot], "at once")


def topology_of(options: DaisyOptions) -> str:
    groups = {name: [f"{name}{number}" for number in range(1, SIZE + 1)] for name in "abc"[:GROUPS]}
    everybody = [each for group in groups.values() for each in group]
    lines = [f'forward = "{options.forward}"', f'inside = "{options.inside}"']
    lines += ["star = true"] * options.star + [f"resilience = {options.resilience}"] * (options.resilience > 0)
    text = '[systems.shop]\nkind = "embedded"\norder = "causal"\nheartbeat = "10ms"\nsuspect-after = "60ms"\n'
    text += f"processes = {everybody}\n\n[systems.shop.daisy]\n" + "\n".join(lines) + "\n\n"
    for name, members in groups.items():
        text += f"[systems.shop.daisy.parts.{name}]\nprocesses = {members}\n\n"
    return text + _LOAD


def trial(options: DaisyOptions, at_once: int, runs: int, progress: Callable[[], None]) -> Trial:
    topology = parse(topology_of(options), "bench daisies")
    reasons: list[str] = []
    for seed in range(1, runs + 1):
        run = Run(topology, seed)
        (system,) = run.systems
        system.nemesis = AtOnce(run.world, system.slots, at_once, seed)
        outcome = run.play()
        # Also what nobody could promise, because all holders are gone, counts here: it is what the option costs.
        if outcome.violated or outcome.missing:
            reasons.append(next(iter([*(each.why for each in outcome.report.violations), *outcome.reasons])))
        progress()
    return Trial(at_once, runs, len(reasons), reasons[0] if reasons else "")


def measure(
    runs: int = RUNS, progress: Callable[[], None] = lambda: None, names: Sequence[str] = tuple(OPTIONS)
) -> list[Option]:
    """Measure all options. Neither receiver is a server."""
    found = []
    for name in names:
        options = OPTIONS[name]
        trials = tuple(trial(options, count, runs, progress) for count in AT_ONCE)
        late = LateCause(options, *LATE).play()
        found.append(Option(name, cost(options, SIZE - 2), cost(options, GROUPS * SIZE - 1), late, trials))
    return found
