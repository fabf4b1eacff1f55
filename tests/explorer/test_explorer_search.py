"""The search finds what is there, the shortest of it, and nothing else; reductions and stored states hide nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace
from tiny_gateways import Doubler, Forger, Forwarder, Fragile, Hasty, Loser, Swapper, forwarders, two_systems

from isthmus.explorer.scenario import Scenario, scenario_of
from isthmus.explorer.search import SearchOutcome, explore
from isthmus.explorer.step import BrokenPromise, StepEvent
from isthmus.explorer.world import ExploredWorld, State
from isthmus.topology.model import Topology
from isthmus.trace.oracles import judge
from isthmus.trace.schema import Event as Row

Case = tuple[str, str, int, Sequence[str]]

CASES: list[Case] = [
    ("fifo", "fifo", 1, ("a/p", "a/p", "b/q")),
    ("fifo", "fifo", 2, ("a/p", "a/q")),
    ("causal", "fifo", 1, ("a/p", "a/p")),
    ("causal", "causal", 1, ("a/p", "a/q")),
    ("causal", "causal", 2, ("a/p", "a/q")),
    ("total", "causal", 1, ("a/p", "b/q")),
    ("total", "fifo", 1, ("a/p", "a/p")),
    ("total", "total", 1, ("a/p", "b/p")),
    ("fifo", "causal", 1, ("a/p", "a/q")),
]
KINDS = [Forwarder, Swapper, Doubler, Loser, Forger, Hasty, Fragile]


def run(topology: Topology, kind: type[Forwarder], scenario: Scenario | None = None) -> SearchOutcome:
    return explore(topology, forwarders(topology, kind), scenario or scenario_of(topology))


def found(outcome: SearchOutcome) -> tuple[str, int] | None:
    """What is violated, and by how many events."""
    assert outcome.complete
    example = outcome.counterexample
    return None if example is None else (example.violation.property, len(example.lines))


def length(outcome: SearchOutcome) -> int | None:
    verdict = found(outcome)
    return verdict and verdict[1]


# Right and wrong gateways.


@pytest.mark.parametrize("case", CASES[:4] + CASES[5:7])
def test_a_right_gateway_is_let_pass(case: Case) -> None:
    order, join, gateways, sends = case
    outcome = run(two_systems(order, join, sends, gateways), Forwarder)
    assert found(outcome) is None
    assert outcome.ends, "nothing was ever finished, so nothing was shown"


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Swapper, ("fifo", 6)),  # two sends, two deliveries at the gateway, one block, one delivery too early
        (Doubler, ("integrity", 4)),
        (Forger, ("integrity", 3)),
        (Fragile, ("invariant", 6)),
    ],
)
def test_a_wrong_gateway_is_caught(kind: type[Forwarder], wrong: tuple[str, int]) -> None:
    assert found(run(two_systems("fifo", "fifo", ["a/p", "a/p"]), kind)) == wrong


def test_a_lost_message_shows_when_nothing_can_happen_any_more() -> None:
    outcome = run(two_systems("fifo", "fifo", ["a/p", "a/p"]), Loser)
    assert outcome.counterexample is not None
    assert outcome.counterexample.violation == BrokenPromise(
        "agreement", "b/p", "a/p/2", "", "a/p/2 was sent, and nothing can happen any more, but b/p has not delivered it"
    )


def test_a_false_word_of_stability_is_caught() -> None:
    outcome = run(two_systems("fifo", "fifo", ["a/p"]), Hasty)
    assert outcome.counterexample is not None
    assert outcome.counterexample.violation.property == "stable"


def test_a_shortest_counterexample_reads_from_top_to_bottom() -> None:
    outcome = run(two_systems("causal", "causal", ["a/p", "a/q"], gateways=2, processes=("p", "q")), Forwarder)
    assert outcome.counterexample is not None
    assert [str(line) for line in outcome.counterexample.lines] == [
        "  1  a/p sends a/p/1",
        "  2  a/g2 delivers a/p/1",
        "  3  a/q delivers a/p/1",
        "  4  a/q sends a/q/1",
        "  5  a/g2 delivers a/q/1; puts block (a/q/1) on link 1",
        "  6      b/g2 takes block (a/q/1) from a/g2; broadcasts a/q/1",
        "  7      b/p delivers a/q/1",
    ]
    why = "b/p delivers a/q/1, but its cause a/p/1 has not been delivered here"
    assert outcome.counterexample.violation == BrokenPromise("causal", "b/p", "a/p/1", "a/q/1", why)


# Reductions.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_lazy_processes_change_neither_the_verdict_nor_the_length(case: Case, kind: type[Forwarder]) -> None:
    order, join, gateways, sends = case
    topology = two_systems(order, join, sends, gateways)
    scenario = scenario_of(topology)
    reduced = run(topology, kind, scenario)
    full = run(topology, kind, replace(scenario, reduced=False))
    # Of two different violations of the same length either may be found.
    assert length(reduced) == length(full)
    assert reduced.states <= full.states


@pytest.mark.parametrize("kind", [Forwarder, Hasty, Loser])
def test_lazy_processes_change_nothing_when_stability_comes_at_any_time(kind: type[Forwarder]) -> None:
    topology = two_systems("causal", "causal", ["a/p", "b/p"], processes=("p",))
    scenario = replace(scenario_of(topology), stability="any")
    assert found(run(topology, kind, scenario)) == found(run(topology, kind, replace(scenario, reduced=False)))


@pytest.mark.parametrize("kind", [Forwarder, Doubler])
def test_lazy_processes_change_nothing_when_a_gateway_crashes(kind: type[Forwarder]) -> None:
    topology = two_systems("fifo", "fifo", ["a/p", "a/p"], gateways=2, processes=("p",))
    scenario = replace(scenario_of(topology), crashes=1)
    verdict = found(run(topology, kind, scenario))
    assert verdict == found(run(topology, kind, replace(scenario, reduced=False)))
    # The fellow of a gateway that took a message with it does not know, and says that it has finished.
    assert verdict is not None
    assert verdict[0] == ("stable" if kind is Forwarder else "integrity")


# States that are stored once.


def violations_of_all_schedules(world: ExploredWorld, state: State, events: int) -> Iterable[tuple[int, BrokenPromise]]:
    """Every schedule of at most so many events, one by one: no state is ever recognised."""
    following, end = world.successors(state)
    rest = len(world.rest(state)) if end else 0
    if end and rest <= events and (violation := world.judge_end(state)) is not None:
        yield events - rest, violation
    for after, step in following:
        violation = step.violation or world.judge(after, step)
        if step.cost > events:
            continue
        if violation is not None:
            yield events - step.cost, violation
        else:
            yield from violations_of_all_schedules(world, after, events - step.cost)


@pytest.mark.parametrize("kind", [Forwarder, Swapper, Doubler])
@pytest.mark.parametrize("case", [CASES[1], CASES[3], CASES[4], CASES[8]])
def test_storing_states_hides_no_violation(case: Case, kind: type[Forwarder]) -> None:
    order, join, gateways, sends = case
    topology = two_systems(order, join, sends, gateways, processes=("p", "q"))
    scenario = scenario_of(topology)
    limit = 8
    world = ExploredWorld(topology, forwarders(topology, kind), scenario)
    one_by_one = [limit - left for left, _ in violations_of_all_schedules(world, world.start, limit)]
    stored = found(run(topology, kind, scenario))
    shortest = stored[1] if stored is not None else limit + 1
    assert min(one_by_one, default=limit + 1) == min(shortest, limit + 1)


def test_a_search_that_stops_early_says_so() -> None:
    topology = two_systems("fifo", "fifo", ["a/p", "a/p"])
    outcome = run(topology, Forwarder, replace(scenario_of(topology), max_states=10))
    assert not outcome.complete
    assert outcome.counterexample is None
    assert outcome.states >= 10


# The oracles of the simulator as a second opinion.


def rows(topology: Topology, world: ExploredWorld, events: Iterable[StepEvent]) -> list[Row]:
    """A schedule as a trace: what processes did, and that it is the whole story."""
    directory = topology.directory()
    logs: dict[int, list[tuple[str, tuple[str, str, int] | None]]] = {
        slot: [("start", None)] for system in topology.systems for slot in topology.process_slots(system.name)
    }
    for event in events:
        if event.process in logs and event.kind in ("send", "deliver"):
            for origin, seq, _ in event.subject:
                logs[event.process].append((event.kind, (*directory.name(origin), seq)))
    result = []
    for slot, log in logs.items():
        system, process = directory.name(slot)
        for index, (kind, message) in enumerate([*log, ("end", None)]):
            origin = message or (None, None, None)
            result.append(
                Row(
                    run="r",
                    system=system,
                    process=process,
                    role="app",
                    index=index,
                    event=kind,  # type: ignore[arg-type]
                    origin_system=origin[0],
                    origin_process=origin[1],
                    origin_seq=origin[2],
                    time_ns=0,
                )
            )
    return result


@pytest.mark.parametrize("kind", [Forwarder, Swapper, Doubler, Loser])
@pytest.mark.parametrize("case", [*CASES[:5], CASES[7], CASES[8]])
def test_the_oracles_of_the_simulator_agree(case: Case, kind: type[Forwarder]) -> None:
    """Random schedules, every delivery a step: the trace has the violation that was found, or none."""
    order, join, gateways, sends = case
    topology = two_systems(order, join, sends, gateways)
    scenario = replace(scenario_of(topology), reduced=False)
    world = ExploredWorld(topology, forwarders(topology, kind), scenario)
    promised = {"fifo": ["fifo"], "causal": ["fifo", "causal"], "total": ["fifo", "causal", "total"]}[join]
    dice = random.Random(f"{case} {kind.__name__}")
    for _ in range(60):
        state, events, violation = world.start, [], None
        while violation is None:
            following, end = world.successors(state)
            if end:
                violation = world.judge_end(state)
                break
            state, step = dice.choice(following)
            events += step.events
            violation = step.violation or world.judge(state, step)
        checked = ["integrity", *promised]
        if violation is None or violation.property == "agreement":
            checked.append("agreement")
        report = judge(rows(topology, world, events), checked)  # type: ignore[arg-type]
        violated = {verdict.property for verdict in report.violated}
        if violation is None:
            assert not violated
        else:
            assert violation.property in violated
