"""`[systems.NAME.clusters]`: what is taken, and what is refused, with its key, its reason and its way out."""

from __future__ import annotations

import pytest
from table_support import OTHER, only_problem, refused

from isthmus.topology.check.rules import check
from isthmus.topology.file import parse
from isthmus.topology.model import Topology

TREE = """
[systems.shop]
kind = "embedded"
order = "causal"
processes = ["a1", "a2", "a3", "b1", "b2", "c1", "c2", "hub"]

[systems.shop.clusters]
delivery = "coordinator"
processes = ["hub"]
coordinator = "hub"

[systems.shop.clusters.parts.a]
delivery = "rst"
processes = ["a1", "a2", "a3"]
agent = "a2"

[systems.shop.clusters.parts.b]
delivery = "rst"
processes = ["b1", "b2"]

[systems.shop.clusters.parts.b.parts.c]
delivery = "coordinator"
processes = ["c1", "c2"]
"""


def only(old: str, new: str) -> tuple[str, str, str]:
    return only_problem(TREE, old, new)


def topology(text: str = TREE) -> Topology:
    return parse(text, "t.toml")


def test_a_tree_is_taken_as_it_is_written() -> None:
    loaded = topology()
    assert check(loaded) == []
    assert loaded.promise() == "causal"
    top = loaded.system("shop").table
    assert top is not None
    described = [(each.name, each.delivery, each.members) for each in top.all_clusters()]
    assert described == [
        ("", "coordinator", ("hub", "a2", "b1")),
        ("a", "rst", ("a1", "a2", "a3")),
        ("b", "rst", ("b1", "b2", "c1")),
        ("b.c", "coordinator", ("c1", "c2")),
    ]
    assert (top.serialiser, top.parts[1].parts[0].serialiser, top.layers) == ("hub", "c1", 3)


@pytest.mark.parametrize("delivery", ["rst", "coordinator"])
def test_a_flat_system_need_not_list_its_processes_again(delivery: str) -> None:
    flat = '[systems.s]\nkind = "embedded"\norder = "causal"\nprocesses = ["p", "q"]\n[systems.s.clusters]\ndelivery = '
    top = topology(f'{flat}"{delivery}"\n').system("s").table
    assert top is not None
    assert (top.members, top.layers) == (("p", "q"), 1)


@pytest.mark.parametrize(
    ("old", "new", "key", "reason", "way_out"),
    [
        ('order = "causal"', 'order = "fifo"', "order", "clusters keep causal order, not fifo", "causal"),
        ('order = "causal"', 'order = "total"', "order", "clusters keep causal order, not total", "causal"),
        ('kind = "emb', 'gateways = 1\nkind = "emb', "gateways", "a gateway would miss most", "remove it"),
        ('kind = "emb', 'standby = ["a1"]\nkind = "emb', "standby", "is for groups", "remove it"),
        ('kind = "emb', 'journal = "j"\nkind = "emb', "journal", "is for groups", "remove it"),
        ('kind = "emb', 'delivery = "fast"\nkind = "emb', "delivery", "is for groups", "remove it"),
        ('kind = "emb', 'suspect-after = "1s"\nkind = "emb', "suspect-after", "is for groups", "remove it"),
        ('delivery = "rst"', 'delivery = "vector"', "clusters.parts.a.delivery", 'must be "rst" or', "the choices"),
        ('delivery = "rst"', "", "clusters.parts.a.delivery", "missing: how the members", "set it to"),
        ('agent = "a2"', 'agent = "b2"', "clusters.parts.a.agent", "no member of this cluster", "a1, a2 and a3"),
        ('"hub"\n', '"a1"\n', "clusters.coordinator", '"a1" is no member', "name one of hub, a2 and b1"),
        ('agent = "a2"', 'coordinator = "a2"', "clusters.parts.a.coordinator", "rst has no coordinator", "remove it"),
        ('coordinator = "hub"', 'agent = "hub"', "clusters.agent", "the topmost cluster has no agent", "remove it"),
        ('["hub"]', '["hub", "a1"]', "clusters.processes[1]", "a1 is in two clusters", "remove it from one"),
        ('["hub"]', '["hub", "hob"]', "clusters.processes[1]", 'no process "hob"', 'did you mean "hub"?'),
        (', "hub"]\n\n', ', "hub", "x"]\n\n', "clusters", "x is in no cluster", "add it to the processes of one"),
        ('["c1", "c2"]', '["c1"]', "clusters.parts.b.parts.c", "one member has nobody to talk to", "cluster above"),
        ('["c1", "c2"]', "[]", "clusters.parts.b.parts.c", "no member has nobody to talk to", "list processes"),
        ('agent = "a2"', 'agnet = "a2"', "clusters.parts.a.agnet", "unknown key", 'did you mean "agent"?'),
        ('agent = "a2"', "agent = 2", "clusters.parts.a.agent", "must be a string", "write agent"),
        ("parts.a]", 'parts."a b"]', 'clusters.parts."a b"', "is not a name", "use letters"),
    ],
)
def test_what_makes_no_sense_is_refused(old: str, new: str, key: str, reason: str, way_out: str) -> None:
    found_key, found_reason, found_way_out = only(old, new)
    assert found_key == f"systems.shop.{key}"
    assert reason in found_reason
    assert way_out in found_way_out


def test_clusters_are_for_embedded_systems() -> None:
    broker = '[systems.s]\nkind = "redis"\nurl = "redis://h"\nstream = "x"\n[systems.s.clusters]\ndelivery = "rst"\n'
    (problem,) = refused(broker)
    assert (problem.key, problem.reason) == ("systems.s.clusters", "is for embedded, and this system is redis")


def test_a_join_to_clusters_is_refused_because_it_carries_broadcasts() -> None:
    join = '[[joins]]\nbetween = ["shop", "depot"]\norder = "causal"\n'
    (problem,) = refused(TREE + OTHER + join)
    assert problem.key == "joins[0].between[0]"
    assert problem.reason == (
        "shop is made of clusters: its messages go to one process each, and a join carries broadcasts"
    )
    assert problem.way_out == "remove this join, or systems.shop.clusters"


def test_clusters_stand_alone() -> None:
    (problem,) = refused(TREE + OTHER)
    assert (problem.key, problem.way_out) == ("systems.shop.clusters", "give it a file of its own")


@pytest.mark.parametrize("fault", ["joins", "leaves"])
def test_faults_that_need_views_are_refused(fault: str) -> None:
    (problem,) = refused(f"{TREE}[simulation.faults]\n{fault} = 1\n")
    assert (problem.key, problem.reason) == (f"simulation.faults.{fault}", "the processes of clusters never change")


def test_a_tree_has_an_end() -> None:
    text = TREE
    below = "systems.shop.clusters.parts.b.parts.c"
    for _ in range(40):
        below += ".parts.x"
        text += f'[{below}]\ndelivery = "rst"\n'
    assert any("more than 32 layers" in problem.reason for problem in refused(text))
