"""Theorem 1 of cluster, on the five routes of its Fig. 6, in every schedule; and that the explorer finds mistakes.

A count that differs means that relays do something else than before. That may be right: look why, then pin it anew.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from example_files import example_file
from test_explore_command import explore

from isthmus.explorer.clusters import explore_clusters
from isthmus.explorer.search import SearchOutcome
from isthmus.lab.mutants.catalogue import find
from isthmus.lab.mutants.mutant import alive
from isthmus.topology.file import parse
from isthmus.topology.problem import TopologyError


def outcome_of(case: str, delivery: str = "rst") -> SearchOutcome:
    text = example_file(f"clusters-fig-6{case}").read_text()
    return explore_clusters(parse(text.replace('"rst"', f'"{delivery}"'), f"6{case}"))


@pytest.mark.parametrize(
    ("case", "delivery", "states"),
    [
        ("a", "rst", 4_879),
        ("b", "rst", 1_755),
        ("c", "rst", 5_598),
        ("d", "rst", 2_228),
        ("e", "rst", 11_672),
        ("e", "coordinator", 10_615),
    ],
)
def test_theorem_1_holds_in_every_schedule_of_the_five_routes(case: str, delivery: str, states: int) -> None:
    """ "Then any message m' that is sent by X_i and destined for Y after the delivery of m_i will not be delivered
    before m at Y." (cluster, Theorem 1). The Replay Property is looked at in every step of the same schedules.
    """
    outcome = outcome_of(case, delivery)
    found = outcome.counterexample
    assert found is None, "\n".join([*map(str, found.lines), found.violation.why])
    assert outcome.complete
    assert outcome.ends
    assert outcome.states == states


@pytest.mark.parametrize(
    ("mutant", "case", "delivery", "judged"),
    [
        ("rst-no-wait", "e", "rst", "replay"),
        ("past-the-coordinator", "e", "coordinator", "replay"),
        ("read-on-the-way", "d", "rst", "integrity"),
        ("rst-counted-too-early", "b", "rst", "agreement"),
    ],
)
def test_a_mistake_is_found_and_its_shortest_schedule_told(mutant: str, case: str, delivery: str, judged: str) -> None:
    with alive(find(mutant)):
        outcome = outcome_of(case, delivery)
    assert outcome.counterexample is not None
    assert outcome.counterexample.violation.property == judged
    assert outcome.counterexample.lines


REPLAY = """
[systems.s]
kind = "embedded"
order = "causal"
processes = ["agent", "x", "u", "v", "far", "y"]
[systems.s.clusters]
delivery = "rst"
[systems.s.clusters.parts.a]
delivery = "rst"
processes = ["agent", "x", "u", "v"]
[systems.s.clusters.parts.b]
delivery = "rst"
processes = ["far", "y"]
[exploration]
messages = [
    { from = "s/x", to = "s/y" },
    { from = "s/x", to = "s/u" },
    { from = "s/u", to = "s/y", after = 2 },
    { from = "s/u", to = "s/v", after = 2 },
    { from = "s/v", to = "s/y", after = 4 },
]
"""


def test_a_relay_that_is_not_fifo_breaks_the_replay_property() -> None:
    """An effect overtakes its cause on the way to the agent; when that comes, both are relayed, in causal order."""
    topology = parse(REPLAY, "replay")
    assert explore_clusters(topology).counterexample is None
    with alive(find("relay-not-fifo")):
        found = explore_clusters(topology).counterexample
    assert found is not None
    assert found.violation.property == "replay"
    assert found.violation.why == "s/agent relays message 3 before message 1, which was sent before it"
    assert str(found.lines[-1]).endswith("s/agent takes message 1 from s/x in a; relays message 3; relays message 1")


def test_an_effect_that_is_not_held_breaks_causal_order_where_there_is_nothing_but_one_cluster() -> None:
    flat = '[systems.s]\nkind = "embedded"\norder = "causal"\nprocesses = ["x", "u", "y"]\n'
    flat += '[systems.s.clusters]\ndelivery = "rst"\n' + REPLAY[REPLAY.index("[exploration]") :]
    flat = flat.replace(
        '    { from = "s/u", to = "s/v", after = 2 },\n    { from = "s/v", to = "s/y", after = 4 },\n', ""
    )
    with alive(find("rst-no-wait")):
        found = explore_clusters(parse(flat, "flat")).counterexample
    assert found is not None
    assert found.violation.why == "s/y delivers message 3, but its cause message 1 has not been delivered here"
    assert len(found.lines) == 5


# The command and the table


def test_the_command_goes_through_a_system_of_clusters(tmp_path: Path) -> None:
    done = explore(str(example_file("clusters-fig-6b")), "-o", "json")
    assert done.returncode == 0, done.stderr
    result = msgspec.json.decode(done.stdout)
    assert (result["verdict"], result["states"]) == ("holds", 1_755)
    assert result["sends"][0] == "s/x to s/y"
    refused = explore(str(example_file("clusters-fig-6b")), "--crashes", "1")
    assert refused.returncode == 2
    assert "clusters promise nothing after a crash" in refused.stderr


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('from = "s/u", to = "s/v"', 'from = "s/u"', "messages[3].to", "missing"),
        ('from = "s/u", to = "s/v"', 'from = "s/w", to = "s/v"', "messages[3].from", 'no process "s/w"'),
        ("after = 4", "after = 5", "messages[4].after", "must be from 0 to 4"),
        ("after = 4", "after = 3", "messages[4].after", "message 3 is not for s/v"),
        ("after = 4", "before = 4", "messages[4].before", "unknown key"),
        ("messages = [", 'sends = ["s/x"]\nmessages = [', "sends", "a message has a destination"),
    ],
)
def test_messages_that_make_no_sense_are_refused(old: str, new: str, key: str, reason: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(REPLAY.replace(old, new, 1), "t.toml")
    (problem,) = caught.value.problems
    assert problem.key == f"exploration.{key}"
    assert reason in problem.reason


def test_destinations_are_for_clusters_only() -> None:
    flat = '[systems.s]\nkind = "embedded"\norder = "causal"\nprocesses = ["p", "q"]\n'
    with pytest.raises(TopologyError) as caught:
        parse(flat + '[exploration]\nmessages = [{ from = "s/p", to = "s/q" }]\n', "t.toml")
    (problem,) = caught.value.problems
    assert problem.key == "exploration.messages"
