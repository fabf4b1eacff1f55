"""The counters of rare cases: which ones a topology should reach, and that none can be misspelt."""

from __future__ import annotations

import pytest
from simulation_support import example

from isthmus.simulator.checks.sometimes import CASES, Sometimes
from isthmus.simulator.systems.table import expected
from isthmus.topology.file import parse
from isthmus.topology.model import Topology

GROUP = """
[systems.site]
kind = "embedded"
order = "{order}"
processes = ["p1", "p2", "p3"]
{more}
"""
ALWAYS = {"held to be safe", "back-pressure"}


def group(order: str, more: str = "") -> Topology:
    return parse(GROUP.format(order=order, more=more), "group")


def joined(order: str, faults: str) -> Topology:
    site = f'kind = "embedded"\norder = "{order}"\nprocesses = ["p1"]\ngateways = 1\n'
    join = f'[[joins]]\nbetween = ["a", "b"]\norder = "{order}"\n'
    return parse(f"[systems.a]\n{site}[systems.b]\n{site}{join}[simulation.faults]\n{faults}\n", "joined")


def test_a_misspelt_case_is_an_error() -> None:
    with pytest.raises(KeyError):
        Sometimes().reach("lost")


def test_cases_are_counted() -> None:
    sometimes = Sometimes()
    for _ in range(3):
        sometimes.reach("loss")
    assert sometimes == {"loss": 3}


def test_a_calm_group_is_expected_to_reach_only_what_comes_without_faults() -> None:
    assert set(expected(group("fifo"))) == ALWAYS
    assert set(expected(group("causal"))) == ALWAYS | {"held for a cause"}
    assert set(expected(group("total"))) == ALWAYS | {"held for its place"}


@pytest.mark.parametrize(
    ("table", "cases"),
    [
        ("[simulation.network]\nloss = 0.1", {"loss", "gap"}),
        ("[simulation.network]\nduplication = 0.1", {"duplication"}),
        ("[simulation.network]\nreordering = 0.1", {"reordering"}),
        ("[simulation.faults]\npartitions = 1", {"partition", "exclusion", "view change"}),
        ("[simulation.faults]\ncuts = 1", {"cut"}),
        ("[simulation.faults]\nslow = 1", {"slow"}),
        ("[simulation.faults]\nleaves = 1", {"leave", "view change"}),
        ("[simulation.faults]\nleaves = 1\njoins = 1", {"leave", "view change", "join"}),
        (
            "[simulation.faults]\ncrashes = 1",
            {"crash", "crash inside a multicast", "crash after delivery", "crash in a view change", "view change"},
        ),
    ],
)
def test_each_fault_brings_its_own_cases(table: str, cases: set[str]) -> None:
    assert set(expected(group("fifo", table))) == ALWAYS | cases


def test_some_cases_need_two_faults_together() -> None:
    both = group("fifo", "[simulation.network]\nloss = 0.1\n[simulation.faults]\ncrashes = 1\npartitions = 1")
    assert {"flush fetched", "coordinators competed", "proposal taken over"} <= set(expected(both))


def test_joins_bring_links_gateways_and_epochs() -> None:
    of_gateways = {
        "gateway crashed",
        "sequencer crashed",
        "gateway came back",
        "epoch",
        "block of an older epoch",
    }
    assert of_gateways <= set(expected(joined("causal", "crashes = 1")))
    of_numbers = {"number before its turn", "window full"}
    assert of_numbers <= set(expected(joined("causal", "")))
    assert not of_numbers & set(expected(joined("fifo", "")))
    assert "link cut" in expected(joined("fifo", "link-cuts = 1"))
    assert not of_gateways & set(expected(group("causal", "[simulation.faults]\ncrashes = 1")))


def test_the_standard_causal_group_expects_exactly_these() -> None:
    assert expected(parse(*example("causal-group"))) == [
        "loss",
        "duplication",
        "reordering",
        "partition",
        "cut",
        "slow",
        "crash",
        "crash inside a multicast",
        "crash after delivery",
        "crash in a view change",
        "exclusion",
        "leave",
        "join",
        "held for a cause",
        "held to be safe",
        "gap",
        "view change",
        "flush fetched",
        "coordinators competed",
        "proposal taken over",
        "back-pressure",
    ]


def test_every_expected_case_is_one_that_exists() -> None:
    for name in ("causal-group", "fifo-group", "total-group", "two-sites"):
        assert set(expected(parse(*example(name)))) <= set(CASES)
