"""`[systems.NAME.daisy]`: what is taken, and what is refused, with its key, its reason and its way out."""

from __future__ import annotations

import pytest
from table_support import OTHER, refused

from isthmus.hierarchy.daisy.tree import NONE, DaisyTree, tree_of
from isthmus.topology.file import parse

TREE = """
[systems.shop]
kind = "embedded"
order = "causal"
processes = ["a1", "a2", "b1", "b2", "c1", "c2"]

[systems.shop.daisy.parts.east.parts.a]
processes = ["a1", "a2"]

[systems.shop.daisy.parts.east.parts.b]
processes = ["b1", "b2"]

[systems.shop.daisy.parts.c]
processes = ["c1", "c2"]
"""


def tree() -> DaisyTree:
    system = parse(TREE, "t.toml").system("shop")
    assert system.table is not None
    return tree_of(system.table, system.processes.index)


def test_groups_have_numbers_from_the_top_down_and_a_seat_in_the_group_above() -> None:
    groups = tree().groups
    assert [(group.name, group.parent, group.seat) for group in groups] == [
        ("", NONE, NONE),
        ("east", 0, 0),
        ("east.a", 1, 0),
        ("east.b", 1, 1),
        ("c", 0, 1),
    ]
    assert [group.everybody for group in groups] == [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3), (0, 1), (2, 3), (4, 5)]


def test_a_message_goes_up_for_those_outside_and_down_for_those_below() -> None:
    daisy = tree()
    assert not daisy.goes_out(2, (0, 1))
    assert daisy.goes_out(2, (0, 2))
    assert not daisy.goes_out(1, (0, 2))
    assert daisy.goes_in(4, (0, 5))
    assert not daisy.goes_in(4, (0, 3))
    assert [daisy.seat_of(1, process) for process in range(6)] == [0, 0, 1, 1, NONE, NONE]
    assert [group.number for group in daisy.path(3)] == [3, 1, 0]


@pytest.mark.parametrize(
    ("old", "new", "key", "reason", "way_out"),
    [
        ('order = "causal"', 'order = "fifo"', "order", "a daisy keeps causal order, not fifo", "write order"),
        ('kind = "emb', 'gateways = 1\nkind = "emb', "gateways", "a gateway would miss the others", "remove it"),
        (
            'kind = "emb',
            'standby = ["a1"]\nkind = "emb',
            "daisy.parts.east.parts.a.processes[0]",
            "a1 is on standby",
            "remove it here",
        ),
        ('kind = "emb', 'delivery = "fast"\nkind = "emb', "delivery", "a quorum of the group holds it", "remove it"),
        ('["c1", "c2"]', '["c1", "a1"]', "daisy.parts.c.processes[1]", "a1 is in two groups", "remove it from one"),
        ('["c1", "c2"]', '["c1"]', "daisy", "c2 is in no group", "add it to the processes"),
        ('["c1", "c2"]', '["c1", "c3"]', "daisy.parts.c.processes[1]", 'no process "c3"', "its processes are"),
        ('["c1", "c2"]', "[]", "daisy.parts.c", "a group of nobody", "list processes, or parts"),
        ("parts.c]", "parts.east]", "daisy.parts.east.processes", "a group has processes or parts", "a part of their"),
        ("parts.c]", 'parts."c d"]', 'daisy.parts."c d"', "is not a name", "use letters"),
        ('processes = ["c1"', 'procesess = ["c1"', "daisy.parts.c.procesess", "unknown key", "did you mean"),
    ],
)
def test_what_makes_no_sense_is_refused(old: str, new: str, key: str, reason: str, way_out: str) -> None:
    assert old in TREE
    problems = refused(TREE.replace(old, new, 1))
    found = [each for each in problems if each.key == f"systems.shop.{key}"]
    assert found, [str(problem) for problem in problems]
    assert reason in found[0].reason
    assert way_out in found[0].way_out


def test_local_groups_are_stars_where_the_file_says_so() -> None:
    for text, star in ((TREE, False), (f"{TREE}[systems.shop.daisy]\nstar = true\n", True)):
        daisy = parse(text, "t.toml").system("shop").table
        assert daisy is not None
        assert tree_of(daisy, ("a1", "a2", "b1", "b2", "c1", "c2").index).options.star is star
    (problem,) = refused(f"{TREE}[systems.shop.daisy]\nstar = 1\n")
    assert problem.key == "systems.shop.daisy.star"


RECIPIENTS = f'{TREE}[systems.shop.daisy]\ninside = "recipients"\n'


def test_messages_go_to_recipients_only_where_the_file_says_so() -> None:
    for text, inside, resilience in ((TREE, "everybody", 0), (RECIPIENTS, "recipients", 1)):
        daisy = parse(text, "t.toml").system("shop").table
        assert daisy is not None
        options = tree_of(daisy, ("a1", "a2", "b1", "b2", "c1", "c2").index).options
        assert (options.inside, options.resilience) == (inside, resilience)


@pytest.mark.parametrize(
    ("text", "key", "reason", "way_out"),
    [
        (f"{RECIPIENTS}resilience = 2\n", "resilience", "3 processes have to hold a message", "write 1 or less"),
        (f"{RECIPIENTS}resilience = 0\n", "resilience", "must be from 1 to 89, not 0", "write resilience = 1"),
        (f"{RECIPIENTS}star = true\n", "inside", "in a star the server multicasts", "remove star"),
        (f"{RECIPIENTS}split-above = 91\n", "inside", "groups grow to 91 processes", "groups of at most 90"),
        (f"{TREE}[systems.shop.daisy]\nresilience = 1\n", "resilience", "a quorum of the group", "or remove it"),
        (
            RECIPIENTS.replace("recipients", "receivers"),
            "inside",
            'must be "everybody" or "recipients"',
            "did you mean",
        ),
    ],
)
def test_recipients_only_where_it_cannot_be_is_refused(text: str, key: str, reason: str, way_out: str) -> None:
    (problem,) = refused(text)
    assert problem.key == f"systems.shop.daisy.{key}"
    assert reason in problem.reason
    assert way_out in problem.way_out


def test_a_group_that_is_too_large_for_a_matrix_is_refused() -> None:
    names = ", ".join(f'"p{number}"' for number in range(91))
    text = f'[systems.s]\nkind = "embedded"\norder = "causal"\nprocesses = [{names}]\n'
    (problem,) = refused(f'{text}[systems.s.daisy]\ninside = "recipients"\n')
    assert problem.reason == "group of all has 91 processes, and a message carries the square of that"


def test_a_join_to_a_daisy_is_refused_because_it_carries_broadcasts() -> None:
    join = '[[joins]]\nbetween = ["shop", "depot"]\norder = "causal"\n'
    (problem,) = refused(TREE + OTHER + join)
    assert problem.key == "joins[0].between[0]"
    assert problem.reason == "shop is a daisy: its messages go to some processes each, and a join carries broadcasts"
    assert problem.way_out.startswith('write systems.shop.daisy.audience = "everybody" if they are for all')


BROADCAST = TREE.replace('kind = "emb', 'gateways = 2\nkind = "emb').replace('["c1", "c2"]', '["c1", "c2", "g1", "g2"]')
BROADCAST += '[systems.shop.daisy]\naudience = "everybody"\n'
JOIN = '[[joins]]\nbetween = ["shop", "depot"]\norder = "{}"\n'


@pytest.mark.parametrize("order", ["causal", "fifo"])
def test_a_daisy_whose_messages_are_for_everybody_can_be_joined(order: str) -> None:
    topology = parse(BROADCAST + OTHER + JOIN.format(order), "t.toml")
    system = topology.system("shop")
    assert (topology.promise(), system.broadcasts, system.gateways) == (order, True, ("g1", "g2"))
    assert system.table is not None
    tree = tree_of(system.table, system.members.index)
    assert tree.groups[4].everybody == (4, 5, 6, 7)
    assert tree.options.audience == "everybody"


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('"everybody"\n', '"some"\n', "gateways", "a gateway would miss the others"),
        ('"c1", "c2", "g1", "g2"]', '"c1", "c2", "g1"]', "daisy", "g2 is in no group"),
        ('"g1", "g2"]', '"g1"]\n[systems.shop.daisy.parts.d]\nprocesses = ["g2"]', "gateways", "in groups c and d"),
        ('"everybody"\n', '"everybody"\nstar = true\n', "gateways", "in a star the server may multicast"),
        ('"everybody"\n', '"everybody"\ninside = "recipients"\n', "daisy.inside", "everybody is a recipient"),
        ('"everybody"\n', '"everybody"\nsplit-above = 9\n', "daisy.split-above", "groups that change let others in"),
        ('"everybody"\n', '"everyone"\n', "daisy.audience", 'must be "some" or "everybody"'),
        ('kind = "emb', 'journal = "j"\nkind = "emb', "journal", "this system is a daisy"),
    ],
)
def test_what_does_not_go_with_messages_for_everybody_is_refused(old: str, new: str, key: str, reason: str) -> None:
    assert old in BROADCAST
    found = [each for each in refused(BROADCAST.replace(old, new, 1)) if each.key == f"systems.shop.{key}"]
    assert found
    assert reason in found[0].reason


@pytest.mark.parametrize(
    "key", ['link-address = "127.0.0.1:7000"', 'tls = { certificate = "c", key = "k", authority = "a" }']
)
def test_what_is_for_gateways_is_refused_where_there_are_none(key: str) -> None:
    (problem,) = refused(TREE.replace('kind = "emb', f'{key}\nkind = "emb'))
    assert problem.reason == "is for gateways, and this daisy has none"


def test_a_daisy_that_broadcasts_need_not_stand_alone() -> None:
    assert parse(BROADCAST + OTHER, "t.toml").system("shop").table is not None
    assert parse(BROADCAST + OTHER + "[simulation.faults]\njoins = 1\ncrashes = 1\n", "t.toml").simulation.faults.joins


def test_a_message_without_destinations_is_for_everybody_where_the_daisy_says_so() -> None:
    system = parse(BROADCAST, "t.toml").system("shop")
    assert system.table is not None
    everybody, some = tree_of(system.table, system.members.index), tree()
    assert all(everybody.goes_out(group, ()) is (group != 0) for group in range(5))
    assert all(everybody.goes_in(group, ()) for group in range(5))
    assert all(everybody.is_for(process, ()) and not some.is_for(process, ()) for process in range(6))
    assert some.is_for(3, (3, 4))
    assert not some.is_for(5, (3, 4))


def test_a_daisy_stands_alone_and_nobody_comes_back_to_it() -> None:
    (problem,) = refused(TREE + OTHER)
    assert (problem.key, problem.way_out) == ("systems.shop.daisy", "give it a file of its own")
    (problem,) = refused(f"{TREE}[simulation.faults]\njoins = 1\n")
    assert (problem.key, problem.reason) == ("simulation.faults.joins", "nobody comes back to a daisy")


def changing(lines: str) -> str:
    return f"{TREE}[systems.shop.daisy]\n{lines}\n"


def test_groups_change_where_the_file_says_how_large_they_may_be() -> None:
    for lines, sizes in (
        ("", (0, 0, 0)),
        ("split-above = 8", (8, 4, 0)),
        ("split-above = 8\nmerge-below = 2\nreconsider = 100", (8, 2, 100)),
    ):
        daisy = parse(changing(lines), "t.toml").system("shop").table
        assert daisy is not None
        assert (daisy.options.split_above, daisy.options.merge_below, daisy.options.reconsider) == sizes
        assert daisy.options.changes is (sizes[0] > 0)


@pytest.mark.parametrize(
    ("lines", "key", "reason"),
    [
        ("merge-below = 3", "merge-below", "only where it is said how large"),
        ("reconsider = 3", "reconsider", "only where it is said how large"),
        ("split-above = 4\nmerge-below = 3", "merge-below", "a group of 5 is split, and its halves are smaller than 3"),
        ("split-above = 1", "split-above", ""),
    ],
)
def test_sizes_that_cannot_be_kept_are_refused(lines: str, key: str, reason: str) -> None:
    (problem,) = refused(changing(lines))
    assert problem.key == f"systems.shop.daisy.{key}"
    assert reason in problem.reason


def test_nobody_is_on_standby_where_groups_never_change() -> None:
    text = TREE.replace('kind = "emb', 'standby = ["late"]\nkind = "emb', 1).replace('"c2"]', '"c2", "late"]', 1)
    (problem,) = refused(text)
    assert problem.key == "systems.shop.standby"
    assert "never change" in problem.reason
    late = parse(text + "[systems.shop.daisy]\nsplit-above = 5\n", "t.toml").system("shop")
    assert late.standby == ("late",)
