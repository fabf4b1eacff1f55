"""parallel, Lemma 1: causal systems in a cycle. The explorer finds the reordering of its proof, and nothing less."""

from __future__ import annotations

from example_files import example_file

from isthmus.explorer.scenario import scenario_of
from isthmus.explorer.search import Counterexample, SearchOutcome, explore
from isthmus.explorer.world import make_gateways
from isthmus.topology.file import parse

M1, M2 = "s0/p/1", "s0/q/1"


def outcome_of(text: str) -> SearchOutcome:
    topology = parse(text, "lemma-1-paths.toml", allow_unsafe=True)
    return explore(topology, make_gateways(topology), scenario_of(topology))


def place(found: Counterexample, where: str, what: str) -> int:
    """The number of the one event of this kind at this process."""
    (number,) = [line.number for line in found.lines if line.where == where and line.what.startswith(what)]
    return number


def test_over_two_paths_an_effect_is_delivered_before_its_cause() -> None:
    """ "m1 is forwarded to S^j before m2, but using a different path. … Since both paths are FIFO ordered, but they are
    not coordinated in order to ensure a global causal order …, it is possible that m2 be delivered in S^j before m1 is
    delivered. This breaks the causal order …" (parallel, proof of Lemma 1)
    """
    outcome = outcome_of(example_file("lemma-1-paths").read_text())
    assert outcome.complete
    found = outcome.counterexample
    assert found is not None
    violation = found.violation
    assert (violation.property, violation.process) == ("causal", "s2/s")
    assert (violation.first, violation.second) == (M1, M2)
    # m1 -> m2: the sender of m2 delivered m1 before.
    assert place(found, "s0/q", f"delivers {M1}") < place(found, "s0/q", f"sends {M2}")
    # m1 is forwarded first, by the other path.
    first, second = (place(found, "s0/g1", f"delivers {each}") for each in (M1, M2))
    assert first < second
    assert found.lines[first - 1].then == (f"puts block ({M1}) on link 0",)
    assert found.lines[second - 1].then == (f"puts block ({M2}) on link 2",)
    # m2 is delivered in S^j, m1 is not.
    assert place(found, "s2/s", f"delivers {M2}") == len(found.lines)
    assert not [line for line in found.lines if line.where.startswith("s2/") and M1 in str(line)]


def test_over_one_path_causal_order_holds_in_the_same_cycle() -> None:
    """ "… in order to preserve such dependencies in the sequence numbers all messages should be forwarded along the
    same path." (parallel, Sect. 6)
    """
    text = example_file("lemma-1-paths").read_text()
    other = 'process = "s0/q"\nlinks = [["s0/g1", "s2/g1"], ["s2/g1", "s1/g1"]]'
    assert other in text
    outcome = outcome_of(text.replace(other, 'process = "s0/q"\nlinks = [["s0/g1", "s1/g1"], ["s1/g1", "s2/g1"]]'))
    assert outcome.counterexample is None
    assert outcome.complete
    assert outcome.ends
