"""What a topology file leaves open is filled in the same way everywhere, and the examples say what they claim."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_files import EXAMPLES, example_file

from isthmus.core.ids import MILLISECOND, SECOND, ProcessName
from isthmus.topology.check.rules import check
from isthmus.topology.file import load, parse
from isthmus.topology.model import BaseAddress, Topology
from isthmus.topology.read.simulation import Exponential, Fixed, LinkNetwork, NetworkModel, Simulation, Uniform
from isthmus.topology.wiring import all_links, forwardings, links, path_links

MINE = (
    "causal-group chain fifo-group message-passing-fig-2 parallel-fig-3 parallel-fig-4 star total-group tree two-sites"
)

CAUTIONED = {
    "message-passing-fig-2": {"gateways"},
    "parallel-fig-4": {"gateways"},
    "star": {"delivery", "gateways"},
    "tree": {"gateways"},
}
"""Of what an example is warned, because that is what it shows."""


def two(order: str = "causal", gateways: tuple[int, int] = (3, 2), join: str = "") -> Topology:
    text = "".join(
        f'[systems.{name}]\nkind = "embedded"\norder = "{order}"\nprocesses = ["p1", "p2", "p3"]\ngateways = {count}\n'
        for name, count in zip("ab", gateways, strict=True)
    )
    return parse(f'{text}[[joins]]\nbetween = ["a", "b"]\norder = "{order}"\n{join}\n', "t.toml")


def ends(topology: Topology, count: int | None = None) -> list[str]:
    return [f"{link.near}-{link.far}" for link in links(topology, 0, count)]


def routes(topology: Topology, join: int = 0) -> list[tuple[str, str, list[str]]]:
    return [(str(one.gateway), str(one.to), list(map(str, one.processes))) for one in forwardings(topology, join)]


@pytest.mark.parametrize("name", MINE.split())
def test_every_example_loads_with_no_warning_but_of_what_it_shows(name: str) -> None:
    file = example_file(name)
    assert file.read_text().startswith("# ")
    cautions = {(problem.kind, problem.key.rpartition(".")[2]) for problem in check(load(file))}
    assert cautions == {("warning", key) for key in CAUTIONED.get(name, ())}


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.toml")), ids=lambda file: file.stem)
def test_whatever_lies_among_the_examples_can_be_read(file: Path) -> None:
    load(file, allow_unsafe=True)


def test_slots_follow_the_file_processes_before_gateways() -> None:
    topology = two(gateways=(1, 2))
    directory = topology.directory()
    assert " ".join(map(str, directory.slots)) == "a/p1 a/p2 a/p3 a/g1 b/p1 b/p2 b/p3 b/g1 b/g2"
    assert topology.slots("b") == range(4, 9)
    assert topology.process_slots("b") == range(4, 7)
    assert topology.gateway_slots("b") == range(7, 9)
    assert directory.id("b", "g1") == 7
    with pytest.raises(KeyError):
        topology.slots("c")
    with pytest.raises(KeyError):
        topology.system("c")


def test_links_take_the_gateways_of_both_sides_in_turn() -> None:
    assert ends(two(join="links = 3")) == ["a/g1-b/g1", "a/g2-b/g2", "a/g3-b/g1"]


@pytest.mark.parametrize(("near", "far"), [(1, 1), (2, 2), (2, 4), (3, 2), (4, 6)])
def test_links_can_use_every_pair_of_gateways_once(near: int, far: int) -> None:
    topology = two(gateways=(near, far), join=f"links = {near * far}")
    assert len(set(ends(topology))) == near * far


def test_the_number_of_links_may_be_left_to_the_planner() -> None:
    topology = two(join='links = "auto"')
    assert topology.joins[0].links == "auto"
    assert ends(topology, count=2) == ["a/g1-b/g1", "a/g2-b/g2"]
    assert ends(topology) == ["a/g1-b/g1"], "three processes that send 10 kB/s each need no second link"


def test_the_planner_gives_a_load_the_links_that_it_needs() -> None:
    load = '[simulation.workload]\nrate = 900\nsize = 1000\n[simulation.links]\nbandwidth = "10Mbit"'
    topology = two(join=f'links = "auto"\n{load}')
    assert topology.joins[0].planned == len(ends(topology)) == 3


def test_defaults_depend_on_the_order_of_the_join() -> None:
    assert two("causal").joins[0].assign == "striped"
    assert forwardings(two("causal"), 0) == ()
    assert two("fifo").joins[0].assign == "transfer-sets"
    assert routes(two("fifo", gateways=(2, 1))) == [
        ("a/g1", "b/g1", ["a/p1", "a/p3"]),
        ("a/g2", "b/g1", ["a/p2"]),
        ("b/g1", "a/g1", ["b/p1", "b/p3"]),
        ("b/g1", "a/g2", ["b/p2"]),
    ]


def test_transfer_sets_without_a_system_hold_for_every_system_that_they_divide() -> None:
    sets = '[joins.transfer-sets]\ng1 = ["p1"]\ng2 = ["p2", "p3"]'
    assert routes(two("fifo", gateways=(3, 2), join=sets)) == [
        ("a/g1", "b/g1", ["a/p1"]),
        ("a/g2", "b/g2", ["a/p2", "a/p3"]),
        ("b/g1", "a/g1", ["b/p1"]),
        ("b/g2", "a/g2", ["b/p2", "b/p3"]),
    ]


def test_transfer_sets_can_say_which_system_they_are_about() -> None:
    sets = '[joins.transfer-sets]\n"b/g2" = ["p1"]\n"b/g1" = ["*"]'
    assert routes(two("fifo", gateways=(1, 2), join=sets)) == [
        ("a/g1", "b/g2", ["a/p1", "a/p3"]),
        ("a/g1", "b/g1", ["a/p2"]),
        ("b/g2", "a/g1", ["b/p1"]),
        ("b/g1", "a/g1", ["b/*", "b/p2", "b/p3"]),
    ]


def test_messages_from_further_away_are_assigned_by_their_origin() -> None:
    star = load(example_file("star"))
    (out, back) = routes(star, 0)
    others = [f"{system}/{process}" for system in ("hub", "east", "south", "west") for process in ("p1", "p2")]
    assert out == ("hub/g1", "north/g1", others)
    assert back == ("north/g1", "hub/g1", ["north/p1", "north/p2"])


def test_a_log_is_the_one_process_of_its_system_and_has_one_gateway() -> None:
    broker = '[systems.b]\nkind = "nats"\nurl = "nats://127.0.0.1"\nstream = "ship.*"\ngateways = 2\n'
    group = '[systems.a]\nkind = "embedded"\norder = "fifo"\nprocesses = ["p"]\ngateways = 1\n'
    text = group + broker + '[[joins]]\nbetween = ["a", "b"]\norder = "fifo"'
    topology = parse(text, "t.toml")
    assert routes(topology) == [("a/g1", "b/g1", ["a/p"]), ("b/g1", "a/g1", ["b/ship._"])]
    assert topology.system("b").gateways == ("g1",)


def test_fig_3_of_parallel_is_wired_as_drawn() -> None:
    """Both isp_1^0 and isp_2^0 transfer to isp_1^1, isp_3^0 to isp_2^1; back, isp_2^1 has two sets (Sect. 3)."""
    topology = load(example_file("parallel-fig-3"))
    assert [(gateway, to) for gateway, to, _ in routes(topology)] == [
        ("s0/g1", "s1/g1"),
        ("s0/g2", "s1/g1"),
        ("s0/g3", "s1/g2"),
        ("s1/g1", "s0/g1"),
        ("s1/g2", "s0/g2"),
        ("s1/g2", "s0/g3"),
    ]
    # Two directions share a link where they join the same gateways: g1-g1 and g3-g2.
    assert len(all_links(topology)) == 4


def test_fig_4_of_parallel_is_wired_as_drawn() -> None:
    """The red, black and blue links of p, q and r (Sect. 4)."""
    topology = load(example_file("parallel-fig-4"))
    paths = {str(process): [f"{start} {end}" for start, end in tree] for process, tree in path_links(topology).items()}
    assert paths["s0/p"] == ["s0/g1 s1/g1", "s0/g1 s2/g1", "s0/g1 s3/g2"]
    assert paths["s0/q"] == ["s0/g2 s2/g1", "s2/g1 s1/g2", "s1/g2 s3/g2"]
    assert paths["s0/r"] == ["s0/g3 s3/g1", "s3/g1 s2/g1", "s3/g1 s1/g2"]
    assert paths["s1/a"] == paths["s1/b"] == paths["s1/*"]
    used = {frozenset(link) for tree in path_links(topology).values() for link in tree}
    assert used == {frozenset((link.near, link.far)) for link in all_links(topology)}
    assert all(forwardings(topology, index) == () for index in range(6))


def test_the_promise_is_that_of_the_weakest_join() -> None:
    assert load(example_file("chain")).promise() == "causal"
    assert load(example_file("star")).promise() == "fifo"
    assert load(example_file("total-group")).promise() == "total"


def test_members_listen_on_consecutive_ports() -> None:
    madrid = load(example_file("two-sites")).system("madrid").address
    assert madrid == BaseAddress("127.0.0.1", 7400)
    assert str(madrid.plus(5)) == "127.0.0.1:7405"
    assert load(example_file("chain")).system("madrid").address is None
    text = '[systems.a]\nkind = "embedded"\norder = "fifo"\nprocesses = ["p"]\naddress = "[::1]:80"'
    assert str(parse(text, "t.toml").system("a").address) == "[::1]:80"


def test_the_simulation_table_is_read_in_full() -> None:
    text = """
    [systems.a]
    kind = "embedded"
    order = "fifo"
    processes = ["p", "q"]
    suspect_after = "1s"
    start-within = "5s"
    [simulation]
    duration = "500ms"
    [simulation.workload]
    rate = 7
    size = [10, 20]
    burst = 3
    reply = 0.5
    reply_depth = 2
    senders = ["a/p"]
    [simulation.network]
    delay = { mean = "2ms" }
    bandwidth = "1Gbit"
    loss = 0.1
    duplication = 0.2
    reordering = 0.3
    [simulation.links]
    delay = { min = "1ms", max = "2ms" }
    bandwidth = "unlimited"
    [simulation.faults]
    crashes = 1
    partitions = 2
    cuts = 3
    slow = 4
    joins = 5
    swarm = true
    """
    topology = parse(text, "t.toml")
    assert topology.system("a").suspect_after == SECOND
    assert topology.system("a").start_within == 5 * SECOND
    simulation = topology.simulation
    workload = simulation.workload
    assert simulation.duration == 500 * MILLISECOND
    assert (workload.rate, workload.minimum_size, workload.maximum_size, workload.burst) == (7.0, 10, 20, 3)
    assert (workload.reply, workload.reply_depth, workload.senders) == (0.5, 2, (ProcessName("a", "p"),))
    assert simulation.network == NetworkModel(
        delay=Exponential(2 * MILLISECOND), bandwidth=10**9, loss=0.1, duplication=0.2, reordering=0.3
    )
    assert simulation.links == LinkNetwork(delay=Uniform(MILLISECOND, 2 * MILLISECOND), bandwidth=None)
    faults = simulation.faults
    assert (faults.crashes, faults.partitions, faults.cuts, faults.slow, faults.joins) == (1, 2, 3, 4, 5)
    assert faults.swarm
    assert two().simulation == Simulation()
    assert two().simulation.links.delay == Fixed(25 * MILLISECOND)


def test_where_there_are_more_links_than_pairs_of_gateways_a_pair_has_several() -> None:
    topology = two(gateways=(1, 2), join="links = 5")
    found = ends(topology)
    assert len(found) == 5
    assert sorted(found.count(pair) for pair in set(found)) == [2, 3]
