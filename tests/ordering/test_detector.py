"""Silence is suspicious, a word clears it, and hearsay counts only from those who hear and are heard."""

from __future__ import annotations

from isthmus.ordering.group.detector import FailureDetector

PATIENCE = 100
ME, A, B, C = 0, 1, 2, 3


def watching(*peers: int, now: int = 0) -> FailureDetector:
    detector = FailureDetector(ME, PATIENCE)
    detector.watch(peers, now)
    return detector


def test_a_peer_is_suspected_after_silence_and_not_before() -> None:
    detector = watching(A, B)
    detector.heard(B, 1)
    assert detector.suspects(PATIENCE - 1) == set()
    assert detector.suspects(PATIENCE) == {A}
    assert detector.suspects(PATIENCE + 1) == {A, B}


def test_one_word_clears_a_suspect() -> None:
    detector = watching(A)
    assert detector.suspects(PATIENCE) == {A}
    detector.heard(A, PATIENCE + 5)
    assert detector.suspects(PATIENCE + 5) == set()


def test_a_new_view_begins_with_the_benefit_of_the_doubt() -> None:
    detector = watching(A, B)
    detector.report(B, [A])
    detector.watch([A, C], 500)
    assert detector.suspects(500 + PATIENCE - 1) == set()
    assert detector.suspects(500 + PATIENCE) == {A, C}


def test_somebody_who_is_not_watched_is_never_suspected() -> None:
    detector = watching(A)
    detector.heard(C, 0)
    detector.report(A, [C])
    detector.report(C, [A])
    detector.heard(A, PATIENCE)
    assert detector.suspects(PATIENCE) == set()
    assert detector.silent(10 * PATIENCE) == {A}


def test_what_somebody_reports_counts_while_we_hear_him() -> None:
    detector = watching(A, B)
    detector.report(B, [A])
    detector.heard(A, PATIENCE)
    assert detector.suspects(PATIENCE - 1) == {A}
    assert detector.suspects(PATIENCE) == {B}, "B is silent itself now, so its word is worth nothing"


def test_a_report_is_replaced_by_the_next() -> None:
    detector = watching(A, B)
    detector.report(B, [A])
    detector.report(B, [])
    assert detector.suspects(1) == set()


def test_only_own_silence_is_handed_on() -> None:
    detector = watching(A, B)
    detector.report(B, [A])
    assert detector.silent(1) == set()


def test_whoever_does_not_hear_us_is_the_suspect_and_not_those_it_names() -> None:
    detector = watching(A, B, C)
    detector.report(C, [ME, A, B])
    assert detector.suspects(1) == {C}
    detector.report(C, [])
    assert detector.suspects(2) == set()


def test_a_peer_whose_place_is_taken_is_given_up_at_once() -> None:
    detector = watching(A, now=50)
    detector.give_up(A)
    assert detector.suspects(50) == {A}
    detector.give_up(C)
    assert detector.suspects(50) == {A}
