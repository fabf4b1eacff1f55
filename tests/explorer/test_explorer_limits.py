"""What the explorer does not run it refuses, what it leaves out it says, and who is on standby is not there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from example_files import example_file
from msgspec.structs import replace
from test_explore_command import explore as explore_command
from tiny_gateways import Forwarder, forwarders, two_systems

from isthmus.core.ids import Nanos, ProcessId
from isthmus.explorer.kinds import KINDS
from isthmus.explorer.limits import left_out, refusal
from isthmus.explorer.scenario import scenario_of
from isthmus.explorer.search import SearchOutcome, explore
from isthmus.explorer.step import NOBODY
from isthmus.explorer.world import ExploredWorld, make_gateways
from isthmus.topology.file import load, parse
from isthmus.topology.kinds import table as topologies
from isthmus.topology.model import Topology

# Refusals.


@pytest.mark.parametrize(
    ("example", "line"),
    [
        ("to-hall", "systems.hall.acknowledged: the explorer does not run TO and PO; "),
        ("po-hall", "systems.hall.acknowledged: the explorer does not run TO and PO; "),
        ("to-joined", "systems.hall.acknowledged: the explorer does not run TO and PO; "),
        ("causal-group", "systems.site: nothing joins this group, "),
        ("total-group", "systems.site: nothing joins this group, "),
        ("daisy-joined", "systems.west.daisy.audience: the explorer runs the processes of a daisy only where "),
    ],
)
def test_what_does_not_run_here_is_refused_in_one_line(example: str, line: str) -> None:
    file = example_file(example)
    done = explore_command(str(file), "--messages", "1")
    assert (done.returncode, done.stdout) == (2, "")
    (account,) = done.stderr.splitlines()
    assert account.startswith(f"isthmus: {file}: {line}")
    assert account.endswith("; use isthmus simulate")


def test_every_kind_is_explored_or_refused() -> None:
    assert set(KINDS) == set(topologies.KINDS)


@pytest.mark.parametrize("example", ["theorem-1", "two-logs", "parallel-fig-4", "clusters-fig-6a", "daisy-explored"])
def test_what_runs_here_is_not_refused(example: str) -> None:
    assert refusal(load(example_file(example)), 0) is None


# What is left out.


def lines(topology: Topology, outcome: SearchOutcome, crashes: int = 0) -> str:
    return "\n".join(left_out(topology, outcome, crashes))


def test_a_result_says_what_was_left_out() -> None:
    file = str(example_file("theorem-1"))
    account = explore_command(file, "--messages", "1").stdout
    result = msgspec.json.decode(explore_command(file, "--messages", "1", "-o", "json").stdout)
    assert len(result["left_out"]) == 5
    assert [f"left out: {line}" in account for line in result["left_out"]] == [True] * 5
    assert "how group s0 works inside: it is the definition of fifo order in agreed views" in result["left_out"]


def test_keys_that_change_nothing_here_are_named() -> None:
    topology = two_systems("causal", "causal", ["a/p"])
    near, far = topology.systems
    assert "fast" not in lines(topology, run(topology))
    near = replace(near, delivery="fast", standby=("g1",))
    changed = replace(topology, systems=(near, replace(far, journal="somewhere")))
    account = lines(changed, run(topology), crashes=1)
    assert 'delivery = "fast" of a' in account
    assert "the journal of b" in account
    assert "members of a on standby, who never come here: g1" in account
    assert "crashes of gateways" not in account


class Waiting(Forwarder):
    """Wants to be woken for ever."""

    woken = 0

    def wake(self, now: Nanos, out: object) -> None:
        self.woken = now

    def deadline(self) -> Nanos:
        return self.woken + 1


def run(topology: Topology, kind: type[Forwarder] = Forwarder) -> SearchOutcome:
    return explore(topology, forwarders(topology, kind), scenario_of(topology))


def test_ends_that_time_would_go_beyond_are_counted() -> None:
    topology = two_systems("fifo", "fifo", ["a/p"])
    outcome = run(topology, Waiting)
    assert outcome.waiting == outcome.ends > 0
    assert f"what follows {outcome.waiting} ends where a gateway waits for its time" in lines(topology, outcome)
    outcome = run(topology)
    assert outcome.waiting == 0
    assert "waits for its time" not in lines(topology, outcome)


# Standby.

STANDBY = """
[systems.a]
kind = "embedded"
order = "causal"
processes = ["p", "q"]
gateways = 2
standby = [{near}]

[systems.b]
kind = "embedded"
order = "causal"
processes = ["r", "s"]
gateways = 2
standby = [{far}]

[[joins]]
between = ["a", "b"]
order = "causal"
assign = "{assign}"
"""


def standby(near: str, far: str, assign: str = "striped") -> Topology:
    return parse(STANDBY.format(near=near, far=far, assign=assign), "standby.toml")


def who_acts(topology: Topology, messages: int, crashes: int) -> set[str]:
    """Everybody to whom anything happens in any schedule."""
    scenario = scenario_of(topology, messages=messages, crashes=crashes)
    world = ExploredWorld(topology, make_gateways(topology), scenario)
    acting: set[ProcessId] = set()
    met, waiting = {world.start}, [world.start]
    while waiting:
        for state, step in world.successors(waiting.pop())[0]:
            acting |= {event.process for event in step.events}
            if state not in met:
                met.add(state)
                waiting.append(state)
    directory = topology.directory()
    return {str(directory.name(process)) for process in acting if process != NOBODY}


@pytest.mark.parametrize("assign", ["striped", "transfer-sets"])
@pytest.mark.parametrize(("near", "far"), [('"g1"', ""), ("", '"g2"'), ('"g1"', '"g1"'), ('"g1"', '"g2"')])
def test_a_gateway_on_standby_is_not_there(near: str, far: str, assign: str) -> None:
    """Links to it are down. Where that leaves the sides no link to each other, nothing is owed to the far side."""
    topology = standby(near, far, assign)
    outcome = explore(topology, make_gateways(topology), scenario_of(topology, messages=2))
    assert outcome.counterexample is None
    assert outcome.complete
    assert outcome.ends
    gateways = {f"{system.name}/{name}" for system in topology.systems for name in set(system.gateways)}
    absent = {f"{system.name}/{name}" for system in topology.systems for name in system.standby}
    acting = gateways & who_acts(topology, messages=1, crashes=0)
    assert acting
    assert acting <= gateways - absent


def test_what_is_left_crashes_and_nothing_else() -> None:
    topology = standby('"g2"', '"g2"')
    outcome = explore(topology, make_gateways(topology), scenario_of(topology, messages=1, crashes=1))
    assert outcome.counterexample is None
    assert outcome.complete
    assert not {"a/g2", "b/g2"} & who_acts(topology, messages=1, crashes=1)


def test_a_process_on_standby_neither_sends_nor_is_owed_anything(tmp_path: Path) -> None:
    topology = standby('"q"', '"r"')
    directory = topology.directory()
    dealt = scenario_of(topology, messages=4).sends
    assert [str(directory.name(process)) for process in dealt] == ["a/p", "b/s", "a/p", "b/s"]
    outcome = explore(topology, make_gateways(topology), scenario_of(topology, messages=2))
    assert outcome.counterexample is None
    assert outcome.complete
    assert not {"a/q", "b/r"} & who_acts(topology, messages=1, crashes=0)
    file = tmp_path / "t.toml"
    file.write_text(STANDBY.format(near='"q"', far="", assign="striped") + '[exploration]\nsends = ["a/p", "a/q"]\n')
    done = explore_command(str(file))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"isthmus: {file}: exploration.sends: a/q is on standby, and the explorer begins and ends without it; "
        "name another process, or take it out of systems.a.standby"
    ]


def test_in_a_daisy_nobody_writes_to_those_on_standby() -> None:
    topology = load(example_file("daisy-changing"))
    explored = KINDS["daisy"].alone
    assert explored is not None
    outcome = explored(topology, 12, 500)
    assert outcome.counterexample is None
    assert "members of shop on standby, who never come here: p8" in lines(topology, outcome)
    assert "groups of shop that split and merge" in lines(topology, outcome)


def test_a_forest_of_several_parts_is_refused(tmp_path: Path) -> None:
    """Judged by the weakest of its parts, a violation of a stronger one would pass."""
    pair = example_file("theorem-1").read_text().partition("[exploration]")[0]
    other = pair.replace("s0", "t0").replace("s1", "t1")
    file = tmp_path / "forest.toml"
    file.write_text(pair + other.partition("[systems")[1] + other.partition("[systems")[2])
    done = explore_command(str(file))
    assert done.returncode == 2, done.stderr
    assert "nothing joins t0 to s0" in done.stderr
