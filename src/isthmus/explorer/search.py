"""All states of a world, those with the shortest schedules first.

Steps cost as many events as they hold, so states are taken in order of what the cheapest way to them costs (Dijkstra's
algorithm, with one list per cost). A violation is a shortest one when no state is left that costs less.

Of a state only its number, the number of the state before it and which of that state's steps led here are kept; a
schedule is found again by going through its steps once more.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from msgspec import Struct

from isthmus.core.gateway import Gateway
from isthmus.core.ids import ProcessId
from isthmus.explorer.account import AccountLine
from isthmus.explorer.scenario import Scenario
from isthmus.explorer.step import BrokenPromise, Step, StepEvent
from isthmus.explorer.world import ExploredWorld, State
from isthmus.topology.model import Topology

REPORT_EVERY = 20_000


class Space(Protocol):
    """What can be searched: states, what follows from each, and who judges it; with `judges_all` every step."""

    start: State
    judges_all: bool

    def successors(self, state: State) -> tuple[list[tuple[State, Step]], bool]: ...
    def judge(self, after: State, step: Step) -> BrokenPromise | None: ...
    def judge_end(self, state: State) -> BrokenPromise | None: ...
    def rest(self, state: State) -> tuple[StepEvent, ...]: ...
    def waits(self, state: State) -> bool: ...
    def account(self, events: Sequence[StepEvent]) -> tuple[AccountLine, ...]: ...

    @property
    def reactions(self) -> int: ...


class Counterexample(Struct, frozen=True):
    """A shortest schedule that breaks a promise, told step by step."""

    violation: BrokenPromise
    lines: tuple[AccountLine, ...]


class SearchOutcome(Struct, frozen=True, kw_only=True):
    """`complete`: every schedule was looked at, or every one that is shorter than the counterexample.

    `ends` counts the states where nothing more had to happen: with none, nothing was ever finished, and nothing shown.
    In those that `waiting` counts something would still happen later, but no more time passes in a schedule.
    `reactions` is how often gateway code was run.
    """

    states: int
    transitions: int
    ends: int
    waiting: int
    depth: int
    seconds: float
    reactions: int
    complete: bool
    counterexample: Counterexample | None


class Found(NamedTuple):
    """A violation at the end of the way to a state, and of one more of its steps if `choice` is not None."""

    cost: int
    state: int
    choice: int | None
    violation: BrokenPromise


def explore(
    topology: Topology,
    gateways: Mapping[ProcessId, Gateway],
    scenario: Scenario,
    progress: Callable[[int, int], None] = lambda states, depth: None,
) -> SearchOutcome:
    """Look at every schedule. `progress` hears now and then how many states were met, and how far from the start."""
    world = ExploredWorld(topology, gateways, scenario)
    return Search(world, scenario.max_states).run(progress)


class Search:
    """`_ways` holds, by number of a state: the state before, the step taken there, the cost."""

    def __init__(self, world: Space, max_states: int) -> None:
        self._world = world
        self._max_states = max_states
        self._numbers: dict[State, int] = {world.start: 0}
        self._before = array("L", [0])
        self._choices = array("L", [0])
        self._costs = array("L", [0])
        self._best: Found | None = None
        self.transitions = 0
        self.ends = 0
        self.waiting = 0

    def run(self, progress: Callable[[int, int], None]) -> SearchOutcome:
        began = monotonic()
        waiting: dict[int, list[State]] = {0: [self._world.start]}
        cost = depth = 0
        while waiting and len(self._numbers) <= self._max_states:
            while cost not in waiting:
                cost += 1
            if self._best is not None and self._best.cost <= cost:
                break
            depth = cost
            for state in waiting.pop(cost):
                number = self._numbers[state]
                if self._costs[number] == cost:
                    self._expand(state, number, cost, waiting)
                    if not number % REPORT_EVERY:
                        progress(len(self._numbers), depth)
                        # All that was made up to here stays to the end: the collector need not look at it again.
                        gc.freeze()
                    if len(self._numbers) > self._max_states or (self._best is not None and self._best.cost <= cost):
                        break
        best = self._best
        return SearchOutcome(
            states=len(self._numbers),
            transitions=self.transitions,
            ends=self.ends,
            waiting=self.waiting,
            depth=depth,
            seconds=monotonic() - began,
            reactions=self._world.reactions,
            complete=len(self._numbers) <= self._max_states,
            counterexample=None
            if best is None
            else Counterexample(best.violation, self._world.account(self._schedule(best))),
        )

    def _expand(self, state: State, number: int, cost: int, waiting: dict[int, list[State]]) -> None:
        world, numbers, costs = self._world, self._numbers, self._costs
        judges_all = world.judges_all
        following, end = world.successors(state)
        self.transitions += len(following)
        if end:
            self.ends += 1
            self.waiting += world.waits(state)
            violation = world.judge_end(state)
            if violation is not None:
                self._found(Found(cost + len(world.rest(state)), number, None, violation))
        for choice, (after, step) in enumerate(following):
            total = cost + step.cost
            violation = step.violation
            if violation is None and (step.relayed or step.settles or judges_all):
                violation = world.judge(after, step)
            if violation is not None:
                self._found(Found(total, number, choice, violation))
                continue
            known = numbers.setdefault(after, len(costs))
            if known == len(costs):
                costs.append(total)
                self._before.append(number)
                self._choices.append(choice)
            elif costs[known] > total:
                costs[known] = total
                self._before[known] = number
                self._choices[known] = choice
            else:
                continue
            waiting.setdefault(total, []).append(after)

    def _found(self, found: Found) -> None:
        if self._best is None or found.cost < self._best.cost:
            self._best = found

    def _schedule(self, found: Found) -> list[StepEvent]:
        choices = [] if found.choice is None else [found.choice]
        number = found.state
        while number:
            choices.append(self._choices[number])
            number = self._before[number]
        state = self._world.start
        events: list[StepEvent] = []
        for choice in reversed(choices):
            following, _ = self._world.successors(state)
            state, step = following[choice]
            events += step.events
        if found.choice is None:
            events += self._world.rest(state)
        return events
