"""daisy, Theorem 4.1 (causal order), in every schedule of small daisies without crashes; and that mistakes are found.

A count that differs means that processes do something else than before. That may be right: look why, then pin it anew.
"""

from __future__ import annotations

import pytest
from example_files import example_file

from isthmus.explorer.daisy import explore_daisy
from isthmus.explorer.search import SearchOutcome
from isthmus.lab.mutants.catalogue import find
from isthmus.lab.mutants.mutant import alive
from isthmus.topology.file import parse
from isthmus.topology.problem import TopologyError

EXAMPLE = example_file("daisy-explored")

THREE_GROUPS = """
[systems.shop]
kind = "embedded"
order = "causal"
processes = ["a1", "a2", "a3", "b1", "c1"]
[systems.shop.daisy.parts.a]
processes = ["a1", "a2", "a3"]
[systems.shop.daisy.parts.b]
processes = ["b1"]
[systems.shop.daisy.parts.c]
processes = ["c1"]
[exploration]
messages = [
    { from = "shop/a2", to = "shop/c1" },
    { from = "shop/a2", to = "shop/BY" },
    { from = "shop/BY", to = "shop/c1", after = 2 },
]
"""
"""Two ways from a2 to c1, and the second message goes the long one: by another member, or by another server."""


def outcome_of(text: str) -> SearchOutcome:
    return explore_daisy(parse(text, "daisy"))


ANSWERED = """
[systems.shop]
kind = "embedded"
order = "causal"
processes = ["a1", "a2", "a3", "b1"]
[systems.shop.daisy]
forward = "on-receipt"
[systems.shop.daisy.parts.a]
processes = ["a1", "a2", "a3"]
[systems.shop.daisy.parts.b]
processes = ["b1"]
[exploration]
messages = [
    { from = "shop/a2", to = "shop/a3" },
    { from = "shop/a3", to = "shop/b1", also = ["shop/a1"], after = 1 },
    { from = "shop/b1", to = "shop/a1", after = 2 },
]
"""
"""The server a1 can forward the second message before it can deliver it, and then gets the answer."""

RECIPIENTS = """
[systems.shop]
kind = "embedded"
order = "causal"
processes = ["a1", "a2", "a3", "a4"]
[systems.shop.daisy]
inside = "recipients"
[exploration]
messages = [
    { from = "shop/a1", to = "shop/a3", also = ["shop/a4"] },
    { from = "shop/a1", to = "shop/a2" },
    { from = "shop/a2", to = "shop/a4", after = 2 },
]
"""
"""The first message is safe as soon as a3 has it, and then the third may be at a4 before it."""

EARLY = THREE_GROUPS.replace(
    "[systems.shop.daisy.parts.a]",
    """[systems.shop.daisy]
forward = "on-receipt"
[systems.shop.daisy.parts.a]""",
)


@pytest.mark.parametrize(
    ("text", "states"),
    [
        (EXAMPLE.read_text(), 4_543),
        (THREE_GROUPS.replace("BY", "a3"), 5_530),
        (THREE_GROUPS.replace("BY", "b1"), 5_404),
        (EARLY.replace("BY", "a3"), 9_940),
        (ANSWERED, 1_366),
        (RECIPIENTS, 164),
    ],
    ids=["two by two", "by a member", "by a server", "on receipt", "answered", "recipients"],
)
def test_causal_order_holds_in_every_schedule(text: str, states: int) -> None:
    outcome = outcome_of(text)
    found = outcome.counterexample
    assert found is None, "\n".join([*map(str, found.lines), found.violation.why])
    assert outcome.complete
    assert outcome.ends
    assert outcome.states == states


def test_where_a_member_does_not_learn_whom_else_a_message_went_to_its_own_comes_too_early() -> None:
    with alive(find("daisy-recipients-other-receivers-ignored")):
        found = outcome_of(RECIPIENTS).counterexample
    assert found is not None
    assert found.violation.property == "causal"
    assert "shop/a4 takes message 3" in str(found.lines[-1])


@pytest.mark.parametrize(
    ("mutant", "by", "judged"),
    [("daisy-on-receipt", "b1", "causal"), ("daisy-up-on-receipt", "a3", "causal"), ("daisy-not-fifo", "b1", None)],
)
def test_a_mistake_is_found_and_its_shortest_schedule_told(mutant: str, by: str, judged: str | None) -> None:
    with alive(find(mutant)):
        outcome = outcome_of(THREE_GROUPS.replace("BY", by))
    found = outcome.counterexample
    assert found is not None
    assert judged in (None, found.violation.property)
    account = "\n".join(map(str, found.lines))
    assert "sends message 1 to shop/c1" in account
    assert "in the topmost group" in account


@pytest.mark.parametrize(
    ("mutant", "text"),
    [
        ("no-gate", EARLY.replace("BY", "a3")),
        ("group-left-out", EARLY.replace("BY", "a3")),
        ("servers-left-out", EARLY.replace("BY", "b1")),
        ("in-whole", EARLY.replace("BY", "a3")),
        ("out-of-turn", ANSWERED),
    ],
)
def test_vectors_that_are_not_heeded_show_in_a_schedule(mutant: str, text: str) -> None:
    """daisy, Sect. 3.4: forwarding on receipt "requires the message to carry one vector for each group"."""
    with alive(find(f"daisy-early-{mutant}")):
        found = outcome_of(text).counterexample
    assert found is not None
    assert found.violation.property == "causal"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("messages = [", 'sends = ["shop/a1"]\nmessages = [', "in shop a message has a destination"),
        ('["shop/b2"] }', '["shop/zz"] }', '"shop/zz" is not a name'),
        ('["shop/b2"] }', '"shop/b2" }', "must be an array of names"),
        ("after = 2 },  ", "after = 1 },  ", "message 1 is not for shop/a1"),
    ],
)
def test_what_makes_no_sense_is_refused(old: str, new: str, reason: str) -> None:
    text = EXAMPLE.read_text()
    assert old in text
    with pytest.raises(TopologyError, match=reason):
        parse(text.replace(old, new), "daisy")
