"""Silence is suspicious, a word clears it, and hearsay counts only from those who hear and are heard."""

from __future__ import annotations

from isthmus.ordering.group.detector import FailureDetector
from isthmus.ordering.group.ring import Ring
from isthmus.ordering.group.window import GroupSettings

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


# In a ring: members 0 to 9, of which 8 and 9 speak to 0 unasked

TEN = range(10)
NEAR, FAR = (9, 8), (7, 6, 5)


def in_a_ring(now: int = 0) -> FailureDetector:
    detector = FailureDetector(ME, PATIENCE)
    detector.watch(TEN[1:], now, Ring(ME, TEN, GroupSettings(all_speak=9, watchers=2)))
    return detector


def test_silence_of_those_that_need_not_speak_says_nothing() -> None:
    assert in_a_ring().suspects(10 * PATIENCE) == set(NEAR)


def test_silence_of_those_that_are_asked_counts_from_the_first_time_on() -> None:
    detector = in_a_ring()
    for now in range(50, 50 + PATIENCE, 10):
        for peer in NEAR:
            detector.heard(peer, now)
        detector.ask([5, 6], now)
    detector.heard(6, 60)
    assert detector.silent(50 + PATIENCE - 1) == set()
    assert detector.silent(50 + PATIENCE) == {5}
    assert detector.ask([6], 50 + PATIENCE) == {5, 6}, "the reason may be gone because 5 is suspected"
    assert detector.silent(50 + PATIENCE) == {5}
    detector.heard(5, 51 + PATIENCE)
    assert detector.ask([6], 52 + PATIENCE) == {6}


def test_one_whose_watchers_are_all_silent_is_suspected_with_them() -> None:
    detector = in_a_ring()
    assert not detector.doubts_all(PATIENCE // 2 - 1)
    assert detector.doubts_all(PATIENCE // 2)
    detector.ask(TEN[1:], PATIENCE // 2)
    detector.heard(5, PATIENCE - 1)
    assert detector.silent(PATIENCE - 1) == set()
    assert detector.silent(PATIENCE) == {9, 8, 7, 6}, "5 has answered, and so those before it are watched by somebody"


def test_one_that_has_answered_lately_is_not_suspected_with_its_watchers() -> None:
    detector = in_a_ring()
    detector.ask(TEN[1:], PATIENCE // 2)
    detector.heard(7, PATIENCE // 2 + 1)
    assert detector.silent(PATIENCE) == {9, 8}


def test_evidence_of_death_counts_for_everybody() -> None:
    detector = in_a_ring()
    detector.give_up(5)
    assert detector.suspects(1) == {5}


def test_only_a_suspicion_that_is_not_ours_to_have_is_news() -> None:
    detector = in_a_ring()
    assert not detector.report(3, [9], 1), "we shall see for ourselves"
    assert detector.report(3, [9, 5], 1)
    assert not detector.report(4, [5], 1), "3 has said so"
    assert not detector.report(3, [], 2)


def test_the_word_of_one_that_need_not_speak_counts_for_as_long_as_silence_is_borne() -> None:
    detector = in_a_ring()
    detector.report(3, [5], 50)
    detector.heard(9, 100)
    detector.heard(8, 100)
    detector.heard(3, 149)
    assert detector.suspects(149) == {5}
    assert detector.suspects(150) == set()
