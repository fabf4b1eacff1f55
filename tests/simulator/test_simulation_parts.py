"""A topology of several connected parts: each records under a run of its own and is judged by its own promise."""

from isthmus.pipeline.campaign.task import play_seeds
from isthmus.runtime.site import site_spec
from isthmus.runtime.transport.address import Address
from isthmus.simulator.campaign import SimulationPlayer
from isthmus.simulator.run import Run
from isthmus.topology.file import parse

FOREST = """
[systems.a]
kind = "embedded"
order = "causal"
processes = ["p", "q"]
gateways = 1

[systems.b]
kind = "embedded"
order = "total"
processes = ["p", "q"]

[systems.c]
kind = "embedded"
order = "causal"
processes = ["p", "q"]
gateways = 1

[[joins]]
between = ["c", "a"]
order = "fifo"

[simulation]
duration = "200ms"
"""

TREE = FOREST.replace("[simulation]", '[[joins]]\nbetween = ["a", "b"]\norder = "fifo"\n\n[simulation]').replace(
    'order = "total"', 'order = "causal"\ngateways = 1'
)


def test_a_forest_of_two_parts_keeps_agreement_in_each() -> None:
    run = Run(parse(FOREST, "forest.toml"), 1)
    outcome = run.play()
    assert not outcome.violated, outcome
    assert {(row.run, row.system) for row in run.sink.events} == {
        ("seed-1.1", "a"),
        ("seed-1.1", "c"),
        ("seed-1.2", "b"),
    }


def test_every_part_is_judged_by_its_own_promise() -> None:
    outcome = Run(parse(FOREST, "forest.toml"), 1).play()
    judged = {(each.run, each.property) for each in outcome.report.verdicts}
    assert ("seed-1.2", "total") in judged
    assert ("seed-1.1", "fifo") in judged
    assert ("seed-1.1", "causal") not in judged


def test_a_topology_of_one_part_keeps_the_name_of_its_run() -> None:
    topology = parse(TREE, "tree.toml")
    assert topology.parts() == (("a", "b", "c"),)
    assert {topology.run_of("run", system.name) for system in topology.systems} == {"run"}


def test_a_part_has_the_number_of_its_first_system_in_the_file() -> None:
    topology = parse(FOREST, "forest.toml")
    assert topology.parts() == (("a", "c"), ("b",))
    assert [topology.run_of("run", name) for name in "abc"] == ["run.1", "run.2", "run.1"]
    assert [topology.promise(part) for part in topology.parts()] == ["fifo", "total"]


def test_a_real_site_records_under_the_run_of_its_part() -> None:
    topology = parse(FOREST, "forest.toml")
    runs = []
    for system in topology.systems:
        addresses = [Address("127.0.0.1", 7000 + place) for place in range(len(system.members))]
        runs.append(site_spec(topology, system, addresses, "live").run)
    assert runs == ["live.1", "live.2", "live.1"]


def test_a_campaign_audits_every_part_as_a_run() -> None:
    account = play_seeds(SimulationPlayer((FOREST, "forest.toml")), [1, 2])
    assert not account.failures
    assert account.verdicts["agreement"] == {"holds": 4}
    assert account.verdicts["total"] == {"holds": 2}
