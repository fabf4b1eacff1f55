"""Founders wait for each other: the rule of docs/design/group.md, in virtual time."""

from __future__ import annotations

import pytest
from group_network import HEARTBEAT, SETTINGS, SUSPECT_AFTER, Network
from msgspec.structs import replace

from isthmus.core.ids import incarnation_of
from isthmus.hierarchy.daisy.options import DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.ordering.acknowledged.member import make_member
from isthmus.ordering.acknowledged.receipts import AcknowledgedSettings
from isthmus.ordering.group.detector import FailureDetector
from isthmus.ordering.group.membership import EXCLUDED

START_WITHIN = 10 * SUSPECT_AFTER
PATIENT = replace(SETTINGS, start_within=START_WITHIN)
CHANGE = SUSPECT_AFTER + 10 * HEARTBEAT
ME, A, B, C, D = 0, 1, 2, 3, 4


def founding(*others: int) -> FailureDetector:
    detector = FailureDetector(ME, SUSPECT_AFTER)
    detector.watch(others, 0)
    detector.await_founders((ME, *others), START_WITHIN, 0)
    return detector


# What the detector knows


def test_nobody_is_suspected_before_everybody_was_heard_once() -> None:
    detector = founding(A, B)
    detector.heard(A, 1)
    late = START_WITHIN - 1
    assert detector.silent(late) == detector.suspects(late) == set()
    detector.heard(B, late)
    assert detector.suspects(late) == {A}, "it has been there, and has been silent since"


def test_the_word_of_others_counts_as_little_as_our_own_silence() -> None:
    detector = founding(A, B, C)
    detector.heard(A, 1)
    detector.report(A, [C, ME])
    assert detector.suspects(2) == set()


def test_a_quorum_goes_on_without_the_others_after_it_has_waited() -> None:
    detector = founding(A, B)
    came = 5 * START_WITHIN
    assert detector.suspects(came) == set(), "one of three waits for ever"
    detector.heard(A, came)
    assert detector.suspects(came + START_WITHIN - 1) == set(), "the quorum has to wait, not one of them"
    detector.heard(A, came + START_WITHIN)
    assert detector.suspects(came + START_WITHIN) == {B}


def test_who_is_a_quorum_alone_waits_as_well() -> None:
    detector = founding(A)
    assert detector.suspects(START_WITHIN - 1) == set()
    assert detector.suspects(START_WITHIN) == {A}


def test_nobody_waits_for_one_whose_place_is_taken() -> None:
    detector = founding(A, B)
    detector.heard(A, 1)
    detector.give_up(B)
    assert detector.suspects(2) == {B}


def test_a_place_that_is_taken_does_not_make_a_quorum() -> None:
    detector = founding(A, B, C, D)
    detector.heard(A, 1)
    detector.give_up(B)
    detector.heard(A, 5 * START_WITHIN)
    assert detector.suspects(5 * START_WITHIN) == set()


def test_the_next_view_has_no_founders() -> None:
    detector = founding(A, B)
    detector.watch([A], 100)
    assert detector.suspects(100 + SUSPECT_AFTER) == {A}


# What becomes of a group


def test_a_founder_that_comes_late_is_still_a_member() -> None:
    network = Network(3, settings=PATIENT)
    network.isolate(3)
    network.broadcast(1, "early")
    network.pass_time(START_WITHIN - 4 * HEARTBEAT)
    assert network.delivered(2) == ["early"], "a quorum delivers meanwhile"
    network.mend()
    network.pass_time(2 * START_WITHIN)
    assert network.delivered(3) == ["early"]
    assert not any(network.views(member) for member in network.members), "nobody has seen another view"


def test_a_founder_that_dies_at_birth_is_excluded_in_the_end() -> None:
    network = Network(3, settings=PATIENT)
    network.crash(3)
    network.pass_time(START_WITHIN - HEARTBEAT)
    assert not network.views(1)
    network.pass_time(CHANGE)
    assert network.views(1)[-1] == network.views(2)[-1] == (1, 2)


def test_a_founder_that_only_some_have_heard_when_it_dies_is_excluded_in_the_end() -> None:
    """p2 has heard it and may suspect it; p1, which would have to act on that, still waits."""
    network = Network(3, settings=PATIENT)
    network.cut_line(3, 1)
    network.pass_time(HEARTBEAT)
    network.crash(3)
    network.pass_time(START_WITHIN - 2 * HEARTBEAT)
    assert not network.views(2)
    network.pass_time(CHANGE)
    assert network.views(1)[-1] == network.views(2)[-1] == (1, 2)


def test_a_crash_after_everybody_was_there_is_noticed_as_ever() -> None:
    network = Network(3, settings=PATIENT)
    network.pass_time(2 * HEARTBEAT)
    network.crash(3)
    network.pass_time(CHANGE)
    assert network.views(1)[-1] == (1, 2)


def test_a_founder_that_comes_too_late_is_told_so() -> None:
    network = Network(3, settings=PATIENT)
    network.isolate(3)
    network.pass_time(START_WITHIN + CHANGE)
    network.mend()
    network.pass_time(CHANGE)
    assert network.stopped == {3: EXCLUDED}


def test_whoever_joins_waits_until_the_founders_have_come_and_stops_nobody() -> None:
    network = Network(3, settings=PATIENT)
    network.isolate(3)
    network.join(7)
    network.pass_time(CHANGE)
    network.broadcast(1, "meanwhile")
    network.pass_time(2 * HEARTBEAT)
    assert network.delivered(2) == ["meanwhile"]
    network.mend()
    network.pass_time(CHANGE)
    assert network.views(7)[-1] == (1, 2, 3, 7)


def test_a_founder_killed_at_birth_may_come_again_at_once() -> None:
    again = incarnation_of(3, 1)
    network = Network(3, settings=PATIENT)
    network.crash(3)
    network.pass_time(2 * HEARTBEAT)
    network.join(again)
    network.pass_time(CHANGE)
    assert network.views(1)[-1] == network.views(again)[-1] == (1, 2, again)


# The same for whatever has a group in it


def _detectors() -> dict[str, FailureDetector]:
    names = ("p0", "p1", "p2")
    tree = tree_of(DaisyTable(processes=names), names.index)
    entities = {kind: make_member(kind, 0, range(3), AcknowledgedSettings(), PATIENT) for kind in ("to", "po")}
    daisy = DaisyProcess(0, tree, PATIENT)
    return {kind: entity.detector for kind, entity in entities.items()} | {"daisy": daisy.below.detector}


@pytest.mark.parametrize("kind", ["to", "po", "daisy"])
def test_entities_and_local_groups_wait_for_their_founders_too(kind: str) -> None:
    detector = _detectors()[kind]
    detector.heard(1, SUSPECT_AFTER)
    assert detector.suspects(SUSPECT_AFTER + START_WITHIN - 1) == set()
    assert detector.suspects(SUSPECT_AFTER + START_WITHIN) == {1, 2}
