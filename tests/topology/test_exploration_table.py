"""The `[exploration]` table: what it says is done, and what makes no sense is refused like everything else."""

from __future__ import annotations

import pytest

from isthmus.explorer.scenario import scenario_of
from isthmus.topology.file import parse
from isthmus.topology.problem import TopologyError
from isthmus.topology.read.exploration import Exploration

SYSTEM = '[systems.s]\nkind = "embedded"\norder = "fifo"\nprocesses = ["p", "q"]\n'


def test_the_table_is_read_in_full() -> None:
    text = 'sends = ["s/q", "s/p", "s/q"]\ncrashes = 2\nstability = "any"\nmax-states = 1000\n'
    topology = parse(SYSTEM + "[exploration]\n" + text, "t.toml")
    scenario = scenario_of(topology)
    assert scenario.sends == (1, 0, 1)
    assert (scenario.crashes, scenario.stability, scenario.max_states) == (2, "any", 1000)


def test_without_a_table_three_messages_are_dealt() -> None:
    topology = parse(SYSTEM, "t.toml")
    assert topology.exploration == Exploration()
    assert scenario_of(topology).sends == (0, 1, 0)
    assert scenario_of(topology, messages=1, crashes=1, max_states=7).sends == (0,)


def test_what_is_said_on_the_command_line_comes_first() -> None:
    topology = parse(SYSTEM + '[exploration]\nsends = ["s/q"]\ncrashes = 1\n', "t.toml")
    scenario = scenario_of(topology, messages=2, crashes=0, max_states=7)
    assert (scenario.sends, scenario.crashes, scenario.max_states) == ((0, 1), 0, 7)


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ('sends = "s/p"', "exploration.sends", "must be an array of 1 to 64 processes, not a string"),
        ("sends = []", "exploration.sends", "not 0 of them"),
        ("sends = [1]", "exploration.sends[0]", "must be a process, not a whole number"),
        ('sends = ["s/p", "s/x"]', "exploration.sends[1]", 'there is no process "s/x"'),
        ("crashes = -1", "exploration.crashes", "must be from 0 to 64"),
        ('stability = "soon"', "exploration.stability", 'must be "late" or "any"'),
        ("max-states = 0", "exploration.max-states", "must be from 1"),
        ("colour = 1", "exploration.colour", "unknown key"),
    ],
)
def test_nonsense_is_refused(line: str, key: str, reason: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(f"{SYSTEM}[exploration]\n{line}\n", "t.toml")
    (problem,) = caught.value.problems
    assert problem.key == key
    assert reason in problem.reason
