"""What a topology cannot survive or show: one sentence each, with the way out."""

from __future__ import annotations

import pytest

from isthmus.topology.check.rules import check
from isthmus.topology.file import parse
from isthmus.topology.problem import TopologyError


def system(name: str, gateways: int = 2, processes: str = '["p1", "p2"]', more: str = "") -> str:
    start = f'[systems.{name}]\nkind = "embedded"\norder = "causal"\nprocesses = {processes}\n'
    return f"{start}gateways = {gateways}\n{more}\n"


JOIN = '[[joins]]\nbetween = ["a", "b"]\norder = "causal"\n'


def warnings(text: str) -> dict[str, tuple[str, str]]:
    problems = check(parse(text, "t.toml"))
    assert {problem.kind for problem in problems} <= {"warning"}
    return {problem.key: (problem.reason, problem.way_out) for problem in problems}


def refusals(text: str) -> dict[str, str]:
    with pytest.raises(TopologyError) as caught:
        parse(text, "t.toml")
    return {problem.key: problem.reason for problem in caught.value.problems}


def test_a_sound_pair_is_warned_of_nothing() -> None:
    assert warnings(system("a") + system("b") + JOIN) == {}


def test_fast_delivery_in_a_joined_system_may_lose_what_a_crashed_process_delivered() -> None:
    fast = 'delivery = "fast"'
    reason, way_out = warnings(system("a", more=fast) + system("b") + JOIN)["systems.a.delivery"]
    assert "a crash may lose for the others what only the crashed process had delivered" in reason
    assert way_out == 'write delivery = "uniform"'
    assert warnings(system("a", gateways=1, more=fast)) == {}


def test_one_gateway_is_warned_of() -> None:
    found = warnings(system("a", gateways=1) + system("b") + JOIN)
    assert found.keys() == {"systems.a.gateways"}
    reason = "g1 is the only gateway to b: while it is gone nothing crosses, and nothing becomes stable"
    assert found["systems.a.gateways"][0] == reason


def test_one_gateway_beside_those_on_standby_is_still_the_only_one() -> None:
    found = warnings(system("a", more='standby = ["g2"]') + system("b") + JOIN)
    assert found.keys() == {"systems.a.gateways"}


def test_a_join_whose_only_link_ends_on_standby_is_refused() -> None:
    """g2 is there, and no link ends at it."""
    found = refusals(system("a", more='standby = ["g1"]') + system("b") + JOIN + "links = 1\n")
    assert found.keys() == {"systems.a.standby"}
    assert "every gateway that a link to b ends at is on standby" in found["systems.a.standby"]


def test_a_path_over_a_gateway_on_standby_is_refused() -> None:
    paths = "".join(
        f'[[paths]]\nprocess = "{near}/*"\nlinks = [["{near}/g1", "{far}/g{end}"]]\n'
        for near, far, end in (("a", "b", 1), ("b", "a", 2))
    )
    text = system("a", more='standby = ["g2"]') + system("b") + JOIN.replace("causal", "fifo") + paths
    assert refusals(text.replace('order = "causal"', 'order = "fifo"')).keys() == {"paths[1].links"}


def test_whoever_is_to_come_needs_a_place() -> None:
    found = refusals(system("a") + "[simulation.faults]\njoins = 1\n")
    assert found["simulation.faults.joins"].startswith("can never happen: ")
    assert warnings(system("a") + "[simulation.faults]\njoins = 1\ncrashes = 1\n") == {}


def test_gateways_that_are_all_on_standby_are_refused() -> None:
    found = refusals(system("a", more='standby = ["g1", "g2"]') + system("b") + JOIN)
    assert found.keys() == {"systems.a.standby"}


@pytest.mark.parametrize(
    ("processes", "words"),
    [('["p1"]', "p1 is the only member"), ('["p1", "p2"]', "only p1 can go on alone: without it p2 stands still")],
)
def test_small_groups_are_told_what_they_cannot_survive(processes: str, words: str) -> None:
    found = warnings(system("a", gateways=0, processes=processes))
    assert found.keys() == {"systems.a.processes"}
    assert words in found["systems.a.processes"][0]


def test_loss_above_what_is_tested_is_warned_of() -> None:
    text = system("a") + "[simulation.network]\nloss = {}\n"
    assert warnings(text.format(0.3)) == {}
    assert (
        "0.31 of all PDUs is more than any protocol here is tested with"
        in (warnings(text.format(0.31))["simulation.network.loss"][0])
    )


def test_two_systems_with_one_journal_are_refused() -> None:
    one = system("a", more='journal = "kept"') + system("b", more='journal = "./kept/"') + JOIN
    assert refusals(one).keys() == {"systems.b.journal"}
    two = system("a", more='journal = "kept"') + system("b", more='journal = "kept-b"') + JOIN
    assert warnings(two) == {}


@pytest.mark.parametrize("fault", ["link-cuts", "site-cuts", "restarts"])
def test_faults_that_can_never_happen_are_refused(fault: str) -> None:
    found = refusals(system("a") + f"[simulation.faults]\n{fault} = 3\n")
    assert found[f"simulation.faults.{fault}"].startswith("can never happen: ")


@pytest.mark.parametrize("fault", ["partitions", "cuts"])
def test_one_process_cannot_be_parted_from_itself(fault: str) -> None:
    found = refusals(system("a", 0, '["p1"]') + f"[simulation.faults]\n{fault} = 1\n")
    assert found[f"simulation.faults.{fault}"].startswith("can never happen: ")


def test_faults_that_can_happen_are_taken() -> None:
    faults = "[simulation.faults]\nlink-cuts = 1\nsite-cuts = 1\nrestarts = 1\npartitions = 1\ncuts = 1\n"
    assert warnings(system("a", more='journal = "kept"') + system("b") + JOIN + faults) == {}
