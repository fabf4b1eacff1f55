"""A check that says nothing where it should is caught by files of which it is known what has to be said."""

from __future__ import annotations

import pytest

from isthmus.lab.mutants.checks import CHECK_MUTANTS
from isthmus.lab.mutants.mutant import Mutant, alive
from isthmus.topology.check.rules import check
from isthmus.topology.file import parse
from isthmus.topology.problem import TopologyError

GROUP = '[systems.{}]\nkind = "embedded"\norder = "causal"\nprocesses = ["p1", "p2", "p3"]\n'
PAIR = GROUP.format("a") + "gateways = 2\n{}\n" + GROUP.format("b") + "gateways = 2\n{}\n"
JOIN = '[[joins]]\nbetween = ["a", "b"]\norder = "causal"\n'

TO_BE_SAID = {
    PAIR.format('delivery = "fast"', "") + JOIN: "systems.a.delivery",
    PAIR.replace("gateways = 2", "gateways = 1", 1).format("", "") + JOIN: "systems.a.gateways",
    PAIR.format('standby = ["g1", "g2"]', "") + JOIN: "systems.a.standby",
    GROUP.format("a").replace(', "p3"', ""): "systems.a.processes",
    PAIR.format('journal = "one"', 'journal = "one"') + JOIN: "systems.b.journal",
    GROUP.format("a") + "[simulation.network]\nloss = 0.5\n": "simulation.network.loss",
    GROUP.format("a") + "[simulation.faults]\nrestarts = 1\n": "simulation.faults.restarts",
}


def unsaid() -> list[str]:
    """What has to be said of these files, and is not."""
    return [key for text, key in TO_BE_SAID.items() if key not in said(text)]


def said(text: str) -> list[str]:
    try:
        return [problem.key for problem in check(parse(text, "t.toml"))]
    except TopologyError as refused:
        return [problem.key for problem in refused.problems]


@pytest.mark.parametrize("mutant", CHECK_MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_check_that_says_too_little_is_caught(mutant: Mutant) -> None:
    with alive(mutant):
        assert unsaid(), mutant.mistake


def test_the_check_says_all_of_it() -> None:
    assert unsaid() == []
