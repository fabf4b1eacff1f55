"""TO and PO in the simulator: their media, a sample of the campaign, and the checks that read its rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from known_holes import news
from msgspec import structs
from simulation_support import example

from isthmus.core.ids import MILLISECOND
from isthmus.core.message import Batch
from isthmus.core.segment import EMPTY, Segment
from isthmus.lab.soak import run_chunk
from isthmus.lab.standard import Scenario, standard
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.checks.acknowledged import out_of_turn
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.media import FlowWatch, MediumName, SimulatedMedium
from isthmus.simulator.network import Network
from isthmus.simulator.run import Run, promised
from isthmus.simulator.systems.table import expected
from isthmus.topology.file import parse
from isthmus.topology.read.simulation import Uniform
from isthmus.trace.schema import Event, EventName

SEEDS = range(1, 12)
EVERYBODY = (0, 1, 2, 3)


def network(loss: float = 0.0) -> Network:
    return Network(Random(1), Uniform(MILLISECOND, 9 * MILLISECOND), None, NetworkFaults(loss=loss), Sometimes())


def medium(name: MediumName, loss: float = 0.0, speed: int | None = None) -> SimulatedMedium:
    return SimulatedMedium(name, network(loss), Random(2), speed, 8)


def pdu(sender: int, number: int, view: int = 1, stamp: tuple[int, ...] = (1, 1, 1, 1, 9), data: bool = False) -> Batch:
    return Batch(view, sender, number, list(stamp), 0, Segment.of(sender, number, [b"x"]) if data else EMPTY)


# Media


def test_1c_shows_all_pdus_to_all_in_one_order_and_any_of_them_to_none_but_its_sender() -> None:
    """ "every entity receives PDUs in the same sequence if they are received" (TO/PO, Sect. 2)"""
    one = medium("1C", loss=0.3)
    arrivals: dict[int, list[tuple[int, int]]] = {each: [] for each in EVERYBODY}
    for place in range(200):
        source = place % 4
        for destination, at in one.carry(source, EVERYBODY, pdu(source, place), place * 1000):
            arrivals[destination].append((at, place))
    for entity, seen in arrivals.items():
        places = [place for _, place in sorted(seen)]
        assert places == sorted(places)
        assert {place for place in range(200) if place % 4 == entity} <= set(places)
        assert 120 < len(places) < 190


def test_mc_keeps_the_order_of_each_sender_and_no_other() -> None:
    """ "PDUs broadcast by the same entity are received by every entity in the same sequence" (TO/PO, Sect. 2)"""
    many = medium("MC")
    seen: list[tuple[int, int]] = []
    for place in range(100):
        seen += [
            (at, place) for entity, at in many.carry(place % 4, EVERYBODY, pdu(place % 4, place), 0) if entity == 0
        ]
    places = [place for _, place in sorted(seen)]
    assert places != sorted(places)
    for source in EVERYBODY:
        own = [place for place in places if place % 4 == source]
        assert own == sorted(own)


def test_a_medium_takes_its_time() -> None:
    one, many = medium("1C", speed=1_000_000), medium("MC", speed=1_000_000)
    first, second = pdu(0, 1), pdu(1, 1)
    duration = one.duration(first)
    assert duration > 0
    for shared in (one, many):
        list(shared.carry(0, EVERYBODY, first, 0))
    latest = max(at for _, at in one.carry(1, EVERYBODY, second, 0))
    assert latest >= 2 * duration + MILLISECOND
    assert min(at for _, at in many.carry(1, EVERYBODY, second, 0)) >= duration + MILLISECOND


def test_a_cut_line_is_a_loss_on_a_medium_too() -> None:
    below = network()
    one = SimulatedMedium("1C", below, Random(2), None, 8)
    below.cut(0, 2)
    assert {entity for entity, _ in one.carry(0, EVERYBODY, pdu(0, 1), 0)} == {0, 1, 3}


def test_the_onlooker_sees_who_ignores_the_flow_condition() -> None:
    watch = FlowWatch(2)
    for sender in EVERYBODY:
        watch.carried(pdu(sender, 1))
    for number in (2, 3):
        watch.check(pdu(0, number, data=True), EVERYBODY)
    with pytest.raises(AssertionError, match="the window is full"):
        watch.check(pdu(0, 4, data=True), EVERYBODY)
    for sender in (1, 2, 3):
        watch.carried(pdu(sender, 2, stamp=(3, 1, 1, 1, 9)))
    watch.check(pdu(0, 4, data=True), EVERYBODY)
    watch.carried(pdu(1, 3, view=2))
    watch.check(pdu(0, 5, view=2, data=True), EVERYBODY)


# The campaign


@pytest.mark.parametrize("name", ["to-hall", "po-hall"])
def test_no_run_of_a_sample_breaks_a_promise_and_the_sample_is_not_vacuous(name: str) -> None:
    """Losses of up to 30 % at each entity, crashes, slow entities; `make soak` runs thousands of these."""
    source = example(name)
    topology = parse(*source)
    outcomes = run_chunk(source, SEEDS)
    assert not news(outcomes, f"isthmus simulate {source[1]}")
    assert {case for outcome in outcomes for case in outcome.sometimes} >= {
        case for case in expected(topology) if "crash" not in case
    }
    for outcome in outcomes:
        assert {each.property for each in outcome.report.verdicts} == set(promised(topology))


@pytest.mark.parametrize("scenario", ["to", "slow to", "po"])
def test_without_a_mistake_nothing_is_found_where_mutants_are_hunted(scenario: Scenario) -> None:
    for seed in range(1, 5):
        assert not news([run_seed(standard(scenario, "fifo"), seed)], scenario)


def test_joined_with_others_they_keep_what_the_joins_promise() -> None:
    assert not news(run_chunk(example("to-joined"), range(1, 3)))


@pytest.mark.parametrize("seed", [19, 24, 33, 49, 1092, 1298])
def test_a_slow_entity_is_answered_up_to_its_last_word(seed: int) -> None:
    """Seeds in which silence came too early: words that the log had in between, or that moved back, were not told."""
    outcome = run_seed(example("to-hall"), seed)
    assert not outcome.violated, outcome.stuck


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    topology = parse(*example("to-hall"))
    for directory in ("one", "two"):
        Run(topology, 3, trace=tmp_path / directory).play()
    one, two = (sorted((tmp_path / each).iterdir()) for each in ("one", "two"))
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


def test_the_trace_has_all_stages_and_delivery_is_the_chosen_one() -> None:
    for act_on, stage in (("pre-acknowledged", "pre-acknowledge"), ("acknowledged", "acknowledge")):
        text, file = example("po-hall")
        text = text.partition("[simulation.faults]")[0].replace("loss = 0.3", "loss = 0")
        run = Run(parse(text.replace('"po"', f'"po"\nact-on = "{act_on}"'), file), 1)
        assert not run.play().violated
        times: dict[str, list[tuple[str, int]]] = {}
        for row in run.sink.events:
            if row.origin_seq is not None and row.process == "p1":
                key = f"{row.origin_process}/{row.origin_seq}"
                times.setdefault(row.event, []).append((key, row.time_ns))
        assert sorted(times["deliver"]) == sorted(times[stage])
        assert len(times["receive"]) == len(times["pre-acknowledge"]) == len(times["acknowledge"])


# The check


def row(process: str, index: int, event: EventName, time: int, origin: str = "p1", seq: int = 1) -> Event:
    return Event(
        run="r",
        system="s",
        process=process,
        role="app",
        index=index,
        event=event,
        origin_system=None if event == "view" else "s",
        origin_process=None if event == "view" else origin,
        origin_seq=None if event == "view" else seq,
        destinations=("s/p1", "s/p2") if event == "view" else None,
        peer="1" if event == "view" else None,
        time_ns=time,
    )


def stages(process: str, *times: int) -> list[Event]:
    names: tuple[EventName, ...] = ("receive", "pre-acknowledge", "acknowledge")
    rows = [row(process, number, name, time) for number, (name, time) in enumerate(zip(names, times, strict=False), 1)]
    return [row(process, 0, "view", 0), *rows]


def test_acknowledged_means_that_everyone_has_pre_acknowledged_it() -> None:
    assert not out_of_turn(stages("p1", 1, 3, 5) + stages("p2", 2, 4, 6))
    assert "before s/p2 had pre-acknowledged it" in out_of_turn(stages("p1", 1, 3, 5) + stages("p2", 2, 6, 7))
    assert "before s/p2 had pre-acknowledged it" in out_of_turn(stages("p1", 1, 3, 5) + stages("p2", 2))
    assert "before s/p2 had received it" in out_of_turn(stages("p1", 1, 3) + stages("p2", 4))
    # The sender has its own, wherever its log is.
    assert not out_of_turn(stages("p1", 3) + stages("p2", 1, 2))


def test_a_claim_may_be_about_the_view_that_its_step_ends_with() -> None:
    alone = structs.replace(row("p1", 3, "view", 3), destinations=("s/p1",))
    claim = stages("p1", 1, 3)
    assert not out_of_turn([*claim, alone])
    assert "before s/p2 had received it" in out_of_turn([*claim, structs.replace(alone, time_ns=4)])


def test_two_members_of_po_that_part_raise_no_alarm() -> None:
    """In ten of the first hundred seeds the check took the view before the step for the one of the claim."""
    text = """
[systems.hall]
kind = "embedded"
order = "fifo"
processes = ["p1", "p2"]

[systems.hall.acknowledged]
protocol = "po"

[simulation]
duration = "500ms"

[simulation.workload]
rate = 25.0

[simulation.faults]
cuts = 1
"""
    topology = parse(text, "two.toml")
    assert [outcome.broken for seed in range(1, 31) if (outcome := Run(topology, seed).play()).violated] == []


def test_what_a_sender_had_is_received_before_what_it_sent() -> None:
    cause, effect = ("p1", 1), ("p2", 1)
    sender = [row("p2", 0, "receive", 1, *cause), row("p2", 1, "send", 2, *effect)]
    right = [row("p3", 0, "receive", 3, *cause), row("p3", 1, "receive", 4, *effect)]
    wrong = [row("p3", 0, "receive", 3, *effect), row("p3", 1, "receive", 4, *cause)]
    assert not out_of_turn(sender + right)
    assert "s/p3 received s/p2/1 before s/p1/1" in out_of_turn(sender + wrong)
