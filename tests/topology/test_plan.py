"""What a gateway has to know of its joins is worked out from the file: who carries what, who brings in what."""

from __future__ import annotations

import pytest
from example_files import example_file
from join_support import Names, join, system, three_gateways, two_systems

from isthmus.join.plan import JoinPlan
from isthmus.topology.file import load, parse
from isthmus.topology.model import Topology
from isthmus.topology.plans import plans


def plan(topology: Topology, side: str) -> JoinPlan:
    (only,) = plans(topology, side)
    return only


@pytest.mark.parametrize(
    ("topology", "share", "numbered", "causal"),
    [
        (two_systems("causal"), "striped", True, True),
        (two_systems("causal", "transfer-sets"), "sets", True, True),
        (two_systems("causal", system_order="total"), "counted", True, True),
        (two_systems("fifo"), "by-origin", False, False),
        (two_systems("fifo", "transfer-sets"), "by-origin", False, False),
        (two_systems("fifo", system_order="causal"), "by-origin", False, True),
        (two_systems("fifo", system_order="total"), "by-origin", False, True),
    ],
)
def test_the_orders_of_join_and_system_decide_the_share(
    topology: Topology, share: str, numbered: bool, causal: bool
) -> None:
    for side in "ab":
        found = plan(topology, side)
        assert (found.share, found.numbered_imports, found.causal_system) == (share, numbered, causal)


def test_each_side_shares_in_its_own_way_and_the_other_expects_it() -> None:
    """One system is a log and needs no sequencer; the other one is not. Both number."""
    text = system("a", "total", "p1", "g1") + system("b", "causal", "q1", "h1") + join("a", "b", "causal")
    topology = parse(text, "t.toml")
    assert [plan(topology, side).share for side in "ab"] == ["counted", "striped"]
    assert [plan(topology, side).numbered_imports for side in "ab"] == [True, True]


def test_both_sides_see_the_same_links_from_their_own_end() -> None:
    topology = three_gateways("causal")
    names = Names(topology)
    here, there = plan(topology, "a"), plan(topology, "b")
    ends = [(end.link, names.name(end.near), names.name(end.far)) for end in here.links]
    assert ends == [(0, "g1", "h1"), (1, "g2", "h2"), (2, "g3", "h3")]
    assert [(end.link, end.far, end.near) for end in there.links] == [
        (end.link, end.near, end.far) for end in here.links
    ]
    assert here.fellows == names.ids("g1 g2 g3")


def test_what_one_side_sends_out_is_what_the_other_takes_in_and_never_both() -> None:
    topology = load(example_file("tree"))
    for index, connection in enumerate(topology.joins):
        here, there = (
            next(each for each in plans(topology, side) if each.join == index) for side in connection.between
        )
        assert here.exported == there.imported
        assert here.imported == there.exported
        assert not here.exported & here.imported
        everybody = {slot for each in topology.systems for slot in topology.process_slots(each.name)}
        assert here.exported | here.imported == everybody


def test_origins_behind_a_system_go_out_by_links_of_it_like_its_own() -> None:
    """m passes on to b what comes from a: by origin, so that the rule of one process, one set holds in a chain."""
    text = system("a", "fifo", "p1 p2", "g1") + system("m", "fifo", "r1", "m1 m2") + system("b", "fifo", "q1", "h1 h2")
    topology = parse(text + join("a", "m", "fifo") + join("m", "b", "fifo", "links = 2"), "t.toml")
    names = Names(topology)
    onward = plans(topology, "m")[1]
    assert onward.exported == set(names.ids("p1 p2 r1"))
    assert set(onward.carriers) == onward.exported
    assert set(onward.carriers.values()) == {end.link for end in onward.links}


def test_a_striped_join_has_no_fixed_carriers_and_one_with_sets_has_those_of_the_file() -> None:
    assert plan(two_systems("causal"), "a").carriers == {}
    topology = two_systems("causal", "transfer-sets")
    names = Names(topology)
    assert plan(topology, "a").carriers == {names.id("p1"): 0, names.id("p2"): 1}
    assert plan(topology, "b").carriers == {names.id("q1"): 0, names.id("q2"): 1}


def test_a_gateway_without_a_link_of_a_join_is_no_fellow_in_it() -> None:
    text = system("a", "causal", "p1", "g1 g2 g3") + system("b", "causal", "q1", "h1")
    topology = parse(text + join("a", "b", "causal", "links = 2"), "t.toml")
    assert plan(topology, "a").fellows == Names(topology).ids("g1 g2")
    assert plan(topology, "b").fellows == Names(topology).ids("h1")


def test_in_path_mode_a_join_carries_only_those_whose_paths_use_it() -> None:
    """parallel, Fig. 4: p goes straight to s1, s2 and s3; q by way of s2 and s1; r by way of s3."""
    topology = load(example_file("parallel-fig-4"))
    directory = topology.directory()

    def origins(between: tuple[str, str], side: str) -> set[str]:
        index = next(number for number, each in enumerate(topology.joins) if set(each.between) == set(between))
        found = next(each for each in plans(topology, side) if each.join == index)
        assert set(found.carriers) == found.exported
        assert found.share == "by-origin"
        names = {str(directory.name(slot)) for slot in found.exported}
        return {name.removeprefix("s0/") for name in names if name.startswith("s0/")}

    assert origins(("s0", "s1"), "s0") == {"p"}
    assert origins(("s0", "s2"), "s0") == {"p", "q"}
    assert origins(("s0", "s3"), "s0") == {"p", "r"}
    assert origins(("s1", "s2"), "s2") == {"q"}
    assert origins(("s1", "s3"), "s1") == {"q"}
    assert origins(("s2", "s3"), "s3") == {"r"}
    assert origins(("s1", "s3"), "s3") == {"r"}
    for far in ("s1", "s2", "s3"):
        assert origins(("s0", far), far) == set(), "nothing of s0 comes back to it"


def test_in_path_mode_a_message_takes_the_very_link_of_its_path() -> None:
    topology = load(example_file("parallel-fig-4"))
    directory = topology.directory()
    taken = {
        (str(directory.name(slot)), str(directory.name(end.near)), str(directory.name(end.far)))
        for name in ("s0", "s1", "s2", "s3")
        for each in plans(topology, name)
        for slot, link in each.carriers.items()
        for end in each.links
        if end.link == link
    }
    for path in topology.paths:
        for process in path.processes:
            if process.process != "*":
                mine = {(near, far) for origin, near, far in taken if origin == str(process)}
                assert mine == {(str(start), str(end)) for start, end in path.links}
