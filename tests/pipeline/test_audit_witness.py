"""Known mistakes in otherwise sound traces: each is found, alone, and described so that a person can check it."""

from __future__ import annotations

import pytest
from known_mistakes import ROUND, place, repeated, swapped

from isthmus.trace.schema import Report


@pytest.fixture(params=["in_one_task", "spread"])
def report(request: pytest.FixtureRequest) -> Report:
    found: Report = request.getfixturevalue(request.param)
    return found


def answers(report: Report, run: str) -> dict[str, str]:
    """Of what a system promises; these runs keep no total order and record no views."""
    return {each.property: each.verdict for each in report.verdicts if each.run == run and each.property in SOUND}


def only_violation(report: Report, run: str, judged: str) -> tuple[str, str, str | None, str]:
    verdict = next(each for each in report.verdicts if each.run == run and each.property == judged)
    assert verdict.violations == 1
    [found] = [each for each in report.violations if each.run == run and each.property == judged]
    return found.process, found.first, found.second, found.why


SOUND = dict.fromkeys(("integrity", "agreement", "fifo", "causal"), "holds")


def test_a_sound_run_and_one_with_a_crash_hold(report: Report) -> None:
    assert answers(report, "sound") == SOUND
    assert answers(report, "crashed") == SOUND


def test_one_swapped_pair_in_a_large_trace_has_exactly_one_witness(report: Report) -> None:
    assert answers(report, "swapped") == SOUND | {"causal": "violated"}
    log = swapped()["a/p2"]
    second = place(log, "deliver", "a/p0", ROUND + 1)
    late = log[second + 2]
    process, first, effect, why = only_violation(report, "swapped", "causal")
    assert (process, effect) == ("a/p2", f"a/p0/{ROUND + 1}")
    assert first == f"a/{late.origin_process}/{ROUND}"
    assert why == f"{effect} was delivered at index {second} before its cause {first} at index {second + 2}"


def test_a_dropped_delivery_is_missed_by_agreement(report: Report) -> None:
    assert answers(report, "dropped") == SOUND | {"agreement": "violated"}
    process, first, second, why = only_violation(report, "dropped", "agreement")
    assert (process, first, second) == ("a/p3", "a/p1/60", None)
    assert why == "a/p1/60 was for a/p3, which never delivered it"


def test_a_second_delivery_and_an_invented_message_break_integrity(report: Report) -> None:
    assert answers(report, "repeated") == SOUND | {"integrity": "violated"}
    log = repeated()["a/p1"]
    first = place(log, "deliver", "a/p4", ROUND)
    *_, why = only_violation(report, "repeated", "integrity")
    assert why == f"a/p4/{ROUND} was delivered at index {first} and again at index {len(log) - 2}"
    process, message, _, why = only_violation(report, "invented", "integrity")
    assert (process, message) == ("a/p1", "a/p4/5000")
    assert why.endswith("but nobody sent it")


def test_what_a_cut_log_may_have_held_is_unknown(report: Report) -> None:
    assert answers(report, "truncated") == SOUND | {"agreement": "unknown"}


def test_a_cause_that_came_by_way_of_others_is_shown_with_its_chain(report: Report) -> None:
    assert answers(report, "relayed") == SOUND | {"causal": "violated"}
    process, first, second, why = only_violation(report, "relayed", "causal")
    assert (process, first, second) == ("a/d", "a/a/1", "a/c/1")
    assert why.endswith("the chain of causes: a/a/1, a/a/2, a/b/1, a/c/1")


def test_runs_with_different_orders_break_total_order_pair_by_pair(report: Report) -> None:
    verdict = next(each for each in report.verdicts if (each.run, each.property) == ("sound", "total"))
    assert (verdict.verdict, verdict.violations) == ("violated", 10)


def test_one_who_left_a_view_without_what_others_delivered_in_it_is_named(report: Report) -> None:
    assert answers(report, "x parted") == SOUND
    process, first, second, why = only_violation(report, "x parted", "same-view")
    assert (process, first, second) == ("a/p2", "a/p1/1", None)
    assert why == "between view 1 and view 2 of a, a/p1 delivered a/p1/1 and a/p2 did not"
