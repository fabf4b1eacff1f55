"""The tree of clusters, and MRP (cluster, Fig. 3): the way between any two processes, whole and step by step."""

from __future__ import annotations

from random import Random

import pytest
from cluster_support import Tree, cluster, random_table

from isthmus.hierarchy.clusters.tree import TOP, route

# Fig. 1: X in cluster A is A's agent, Y is B's; the agents form a cluster of their own.
FIGURE_1 = cluster(
    cluster("x", "p", "a3", name="A"),
    cluster("y", "q", "b3", name="B"),
    cluster("z", "c2", name="C"),
)
# Fig. 2: three layers; r is in three clusters, one on each layer, and a client on the third.
FIGURE_2 = cluster(
    cluster(cluster("r", "p", name="W.U"), cluster("s", "q", name="W.V"), name="W", agent="r"),
    cluster(cluster("t", "u", name="E.X"), cluster("v", "w", name="E.Y"), name="E", agent="v"),
)


def way(tree: Tree, source: str, destination: str) -> str:
    ids = route(tree.tree, tree.ids[source], tree.ids[destination])
    return " ".join(f"{tree.names[sender]}-{tree.names[receiver]}" for sender, receiver in ids)


@pytest.mark.parametrize(
    ("source", "destination", "links"),
    [
        ("p", "a3", "p-a3"),  # "An intra-cluster message will be sent directly to its destination"
        ("p", "q", "p-x x-y y-q"),  # "first directed to the origin's agent, then toward the destination's agent, …"
        ("p", "x", "p-x"),
        ("p", "y", "p-x x-y"),
        ("x", "q", "x-y y-q"),
        ("x", "y", "x-y"),
        ("c2", "b3", "c2-z z-y y-b3"),
    ],
)
def test_two_layers_as_in_figure_1(source: str, destination: str, links: str) -> None:
    assert way(Tree(FIGURE_1), source, destination) == links


@pytest.mark.parametrize(
    ("source", "destination", "links"),
    [
        ("p", "w", "p-r r-v v-w"),  # r is its own agent on layer 2, so that it goes straight to the third
        ("q", "u", "q-s s-r r-v v-t t-u"),
        ("q", "p", "q-s s-r r-p"),
        ("q", "s", "q-s"),
        ("r", "v", "r-v"),
        ("s", "r", "s-r"),
        ("u", "q", "u-t t-v v-r r-s s-q"),
    ],
)
def test_three_layers_as_in_figure_2(source: str, destination: str, links: str) -> None:
    assert way(Tree(FIGURE_2), source, destination) == links


def test_a_process_that_is_an_agent_twice_is_in_three_clusters() -> None:
    tree = Tree(FIGURE_2)
    clusters = list(tree.tree.clusters_of(tree.ids["r"]))
    assert [(each.name, each.layer) for each in clusters] == [("W.U", 1), ("W", 2), ("", 3)]
    assert tree.tree.layers == 3
    assert [each.agent for each in clusters[:2]] == [tree.ids["r"]] * 2
    relays = [name for name in tree.names if tree.tree.is_relay(tree.ids[name])]
    assert relays == ["r", "s", "t", "v"]


def test_a_flat_system_is_one_cluster_and_one_hop() -> None:
    tree = Tree(cluster("a", "b", "c"))
    assert way(tree, "a", "c") == "a-c"
    assert tree.tree.clusters[TOP].members == (0, 1, 2)


@pytest.mark.parametrize("seed", range(30))
def test_the_steps_of_relays_are_the_links_of_the_route(seed: int) -> None:
    """Everybody decides the next step alone; together that is MRP, and it never visits a process twice."""
    tree = Tree(random_table(Random(seed), depth=4)).tree
    for source in tree.home:
        for destination in tree.home:
            if source == destination:
                continue
            links = list(route(tree, source, destination))
            here = source
            for sender, receiver in links:
                assert here == sender
                place = tree.next_hop(here, destination)
                here = tree.clusters[place.cluster].members[place.rank]
                assert here == receiver
            assert here == destination
            visited = [source, *(receiver for _, receiver in links)]
            assert len(set(visited)) == len(visited)
            assert len(links) <= 2 * tree.layers - 1
