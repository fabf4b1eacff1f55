"""The theorems of the papers, with the real gateways: every schedule of the examples, and how many states that takes.

A count that differs means that gateways do something else than before. That may be right: look why, then pin it anew.
What takes more than seconds is explored by `isthmus bench soak`. The table is in docs/design/explorer.md.
"""

from __future__ import annotations

import pytest
from example_files import example_file
from msgspec.structs import replace

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import ProcessId
from isthmus.core.wire.join import FellowFreeze
from isthmus.explorer.scenario import scenario_of
from isthmus.explorer.search import SearchOutcome, explore
from isthmus.explorer.world import make_gateways
from isthmus.join.imports import Import
from isthmus.topology.file import load


def outcome_of(example: str, sends: str | None = None, crashes: int | None = None) -> SearchOutcome:
    """What the example comes to; with `sends`, of fewer messages, so that it takes seconds instead of minutes."""
    topology = load(example_file(example), allow_unsafe=True)
    scenario = scenario_of(topology, crashes=crashes)
    if sends is not None:
        directory = topology.directory()
        scenario = replace(scenario, sends=tuple(directory.id(*each.split("/")) for each in sends.split()))
    return explore(topology, make_gateways(topology), scenario)


# What cannot be.


def violation_of(example: str) -> tuple[str, str, int]:
    outcome = outcome_of(example)
    assert outcome.complete
    found = outcome.counterexample
    assert found is not None
    return found.violation.property, found.violation.why, len(found.lines)


def test_theorem_2_gateways_that_are_not_coordinated_break_causal_order() -> None:
    """ "Any two causally ordered systems cannot be properly interconnected if there is more than one IS process at each
    system, and such IS processes are not coordinated." (parallel, Theorem 2)
    """
    why = "s1/r delivers s0/q/1, but its cause s0/p/1 has not been delivered here"
    assert violation_of("theorem-2") == ("causal", why, 7)


def test_lemma_1_a_cycle_is_not_a_proper_interconnection() -> None:
    """ "… is properly interconnected if it does not contain any link cycle." (parallel, Lemma 1)"""
    assert violation_of("lemma-1") == ("integrity", "s2/p delivers s0/p/1 twice", 8)


def test_totally_ordered_systems_cannot_be_interconnected() -> None:
    """ "Totally ordered systems cannot be properly interconnected." (message-passing, Theorem 1)"""
    why = "s1/q delivers s1/q/1 before s0/p/1, s0/p the other way round"
    assert violation_of("impossibility") == ("total", why, 10)


# What holds in every schedule.


def assert_holds(outcome: SearchOutcome) -> None:
    found = outcome.counterexample
    assert found is None, "\n".join([*map(str, found.lines), found.violation.why])
    assert outcome.complete
    assert outcome.ends


@pytest.mark.parametrize(
    ("example", "sends", "states"),
    [
        ("theorem-1", None, 4_958),
        ("theorem-1-crash", "s0/p", 9_135),
        ("theorem-3", None, 23_722),
        ("theorem-3-crash", "s0/p", 11_858),
        ("theorem-3-striped", "s0/p s0/q", 7_264),
    ],
)
def test_every_schedule_holds(example: str, sends: str | None, states: int) -> None:
    outcome = outcome_of(example, sends)
    assert_holds(outcome)
    assert outcome.states == states


def test_blocks_on_whichever_link_is_free_survive_a_crash() -> None:
    outcome = outcome_of("theorem-3-striped", "s0/p", crashes=1)
    assert_holds(outcome)
    assert outcome.states == 24_463


# What the explorer once found.


def test_a_takeover_never_carries_again_what_the_far_side_has() -> None:
    assert_holds(outcome_of("theorem-1-crash", "s0/p s0/p"))


def test_an_answer_never_comes_back_before_what_it_answers() -> None:
    assert_holds(outcome_of("theorem-3", "s1/r s0/q"))


# What it must find.


def test_a_gateway_that_goes_on_after_it_has_said_that_it_is_frozen_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it broadcasts then is not in `final`, and comes again."""
    on_freeze = Import.on_freeze

    def reported_without_freezing(self: Import, source: ProcessId, pdu: FellowFreeze, out: Outbox) -> None:
        frozen = self.frozen
        on_freeze(self, source, pdu, out)
        if source == self.leader:
            self.frozen = frozen

    monkeypatch.setattr(Import, "on_freeze", reported_without_freezing)
    found = outcome_of("theorem-3-crash", "s0/p s0/q").counterexample
    assert found is not None
    assert found.violation.property == "integrity"
