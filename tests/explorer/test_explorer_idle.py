"""PDUs that the explorer need not look at closely: nothing comes of them, and real mistakes are found all the same."""

from __future__ import annotations

import pytest
from example_files import example_file
from msgspec.structs import replace

from isthmus.core.wire.join import Behind, Block, Broken, Progress, Resume, first_epoch
from isthmus.explorer.idle import is_idle, is_void
from isthmus.explorer.scenario import Scenario, scenario_of
from isthmus.explorer.search import Search, SearchOutcome, explore
from isthmus.explorer.site import ExploredSite
from isthmus.explorer.world import ExploredWorld, make_gateways
from isthmus.join import export
from isthmus.join.share import WINDOW
from isthmus.lab.mutants.catalogue import find
from isthmus.lab.mutants.mutant import alive
from isthmus.topology.file import load
from isthmus.topology.model import Topology
from isthmus.topology.read.exploration import MAX_SENDS

VOID = Behind | Block | Broken | Resume


def scenario(example: str, sends: str, crashes: int = 0) -> tuple[Topology, Scenario]:
    topology = load(example_file(example), allow_unsafe=True)
    directory = topology.directory()
    senders = tuple(directory.id(*each.split("/")) for each in sends.split())
    return topology, replace(scenario_of(topology), sends=senders, crashes=crashes)


def both_ways(example: str, sends: str, crashes: int = 0) -> tuple[SearchOutcome, SearchOutcome]:
    topology, reduced = scenario(example, sends, crashes)
    full = replace(reduced, reduced=False)
    return explore(topology, make_gateways(topology), reduced), explore(topology, make_gateways(topology), full)


def found(outcome: SearchOutcome) -> tuple[str, int] | None:
    """What is violated, and by how many events. To take word of progress is none."""
    assert outcome.complete
    if outcome.counterexample is None:
        return None
    lines = [line for line in outcome.counterexample.lines if not line.what.startswith("takes progress")]
    return outcome.counterexample.violation.property, len(lines)


def test_no_scenario_fills_the_window() -> None:
    assert MAX_SENDS <= WINDOW
    assert is_idle(Progress(first_epoch(), 1))
    assert not is_idle(Broken(first_epoch()))


def test_what_is_void_is_ignored_now_and_in_every_later_state() -> None:
    """Checked for every state that a gateway comes to, and every PDU that is ever sent."""
    topology, reduced = scenario("theorem-1-crash", "s0/p", crashes=1)
    world = ExploredWorld(topology, make_gateways(topology), reduced)
    Search(world, reduced.max_states).run(lambda states, depth: None)
    words = [(number, pdu) for number, pdu in enumerate(world.pdus.items) if isinstance(pdu, VOID)]
    checked = 0
    for site in world.sites:
        later = edges(site)
        for number, gateway in enumerate(list(site.gateways.items)):
            wire = next(wire for wire in site.wires if site.ids[wire.gateway] == gateway.id)
            for pdu_number, pdu in words:
                if is_void(gateway, 0, pdu):
                    checked += 1
                    reaction = site.react(number, 0, "from_link", (wire.link, (pdu,)), (wire.link, pdu_number))
                    assert reaction == (number, (), (), (), (), ""), pdu
                    assert all(is_void(site.gateways[after], 0, pdu) for after in later.get(number, ())), pdu
    assert checked > 1000


def edges(site: ExploredSite) -> dict[int, set[int]]:
    """Which states of gateways have followed on which."""
    following: dict[int, set[int]] = {}
    for (before, *_), reaction in site.reactions.items():  # type: ignore[misc]
        following.setdefault(before, set()).add(reaction.gateway)
    return following


@pytest.mark.parametrize(
    ("example", "sends", "crashes"),
    [("theorem-1-crash", "s0/p", 1), ("theorem-3", "s0/q", 0), ("theorem-3-striped", "s0/p", 0)],
)
def test_what_holds_holds_in_full(example: str, sends: str, crashes: int) -> None:
    reduced, full = both_ways(example, sends, crashes)
    assert found(reduced) is None
    assert found(full) is None
    assert reduced.states < full.states


def test_a_takeover_that_carries_again_what_is_final_is_caught() -> None:
    with alive(find("late-carried-again")):
        reduced, full = map(found, both_ways("theorem-3-crash", "s0/p", crashes=1))
    assert reduced is not None
    assert full is not None
    assert reduced == full
    assert reduced[0] == "agreement", "its numbers are taken for others"


@pytest.mark.parametrize(
    "mutant",
    [
        "whoever-gets-it",
        "broadcasts-not-awaited",
        "final-carried-again",
        "lost-fellow-ignored",
        "old-epochs-accepted",
    ],
)
def test_over_a_striped_join_with_a_crash_the_same_mistakes_are_caught(mutant: str) -> None:
    """The last one takes what is void: that it is void is no reason not to look what a gateway does with it."""
    with alive(find(mutant)):
        reduced, full = map(found, both_ways("theorem-3-striped", "s0/p", crashes=1))
    assert reduced is not None
    assert full is not None
    # Of two different violations either may be found, and in full some events are that a void or idle word is taken.
    assert reduced[1] <= full[1]


def test_an_answer_that_does_not_wait_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export.Export, "came_in", lambda self, marks: None)
    reduced, full = both_ways("theorem-3", "s1/r s0/q")
    assert found(reduced) == found(full)
    assert found(reduced) is not None
