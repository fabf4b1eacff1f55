"""The oracles against the words of the contract, and against mutants of themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from properties_by_definition import verdicts
from random_executions import execution, row

from isthmus.trace import causality, oracles
from isthmus.trace.history import RunHistory
from isthmus.trace.oracles import WITNESSES, judge
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.schema import Event, Violation


def trace(*logs: str) -> list[Event]:
    """Rows from lines such as `a/p1: start, send 1, deliver a/p1/1, end`.

    `send 1 > a/p1 a/p2` has destinations, `view 3` a number, `...` is a lost row, `gateway a/g1:` a gateway's log.
    """
    events = []
    for log in logs:
        name, _, rows = log.partition(": ")
        role = "app"
        if name.startswith("gateway "):
            role, name = "gateway", name.removeprefix("gateway ")
        for index, text in enumerate(rows.split(", ")):
            if text == "...":
                continue
            words, _, destinations = text.partition(" > ")
            event, *about = words.split(" ")
            more: dict[str, Any] = {"index": index, "role": role}
            if destinations:
                more["destinations"] = tuple(destinations.split(" "))
            message = None
            if event == "send":
                message = (name, int(about[0]))
            elif event == "deliver":
                origin, _, number = about[0].rpartition("/")
                message = (origin, int(number))
            elif event == "view":
                more |= {"peer": about[0], "destinations": ()}
            events.append(row(name, event, message, **more))
    return events


def answers(events: list[Event]) -> dict[str, str]:
    return {each.property: each.verdict for each in judge(events).verdicts}


def broken(events: list[Event]) -> set[str]:
    return {name for name, answer in answers(events).items() if answer == "violated"}


def witness(events: list[Event], wanted: str) -> Violation:
    return next(each for each in judge(events).violations if each.property == wanted)


# By definition --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(8))
def test_every_verdict_is_the_one_by_definition(block: int) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(block * 1_000, (block + 1) * 1_000):
        events = execution(Random(seed))
        expected = verdicts(events)
        assert answers(events) == expected, f"seed {seed}"
        seen.update(expected.items())
    # A comparison that never meets a case proves nothing about it.
    kinds = {(each, answer) for each in PROPERTIES for answer in ("holds", "violated", "unknown")}
    assert kinds == seen.keys()


def only_the_previous_send(history: RunHistory) -> list[list[int]]:
    return [causes[:1] for causes in causality.direct_causes(history)]


def direct_causes_everywhere(found: oracles.OracleFinding, process: Any, pasts: Any) -> None:
    causes = causality.direct_causes(found.history)
    for message, index in process.deliveries.items():
        for cause in causes[message]:
            if process.deliveries.get(cause, index) >= index:
                found.violated(process, cause, message)


@pytest.mark.parametrize(
    ("target", "name", "mutant"),
    [
        (oracles, "direct_causes", only_the_previous_send),
        (oracles, "_judge_by_pasts", direct_causes_everywhere),
        (oracles, "_may_be_due", lambda history, message: False),
        (oracles, "_may_differ", lambda history, process, other: False),
        (oracles, "_some_past_is_open", lambda history: False),
        (oracles, "_is_part_of", lambda deliveries, longest: True),
        (RunHistory, "owes", lambda self, process, message: True),
        (RunHistory, "owed_from", lambda self, process, sender: 0),
        (RunHistory, "is_for", lambda self, message, process: True),
        (RunHistory, "past_is_known", lambda self, message: True),
        (RunHistory, "never_sent", lambda self, message: False),
    ],
)
def test_the_comparison_catches_mutants(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(target, name, mutant)
    runs = (execution(Random(seed)) for seed in range(4_000))
    assert any(answers(events) != verdicts(events) for events in runs)


# Sentence by sentence -------------------------------------------------------------------------------------------------


def test_a_sound_run_holds_everywhere() -> None:
    events = trace(
        "a/p1: start, view 1, send 1, deliver a/p1/1, deliver a/p2/1, end",
        "a/p2: start, deliver a/p1/1, send 1, deliver a/p2/1, end",
        "gateway a/g1: start, deliver a/p2/1, deliver a/p1/1, end",
    )
    assert set(answers(events).values()) == {"holds"}


def test_a_violation_reads_as_the_contract_says() -> None:
    events = trace(
        "madrid/p1: start, send 1, deliver madrid/p1/1, deliver madrid/p2/1, end",
        "madrid/p2: start, deliver madrid/p1/1, send 1, deliver madrid/p2/1, end",
        "valencia/p2: start, deliver madrid/p2/1, deliver madrid/p1/1, end",
    )
    report = judge(events, ["causal"])
    assert msgspec.to_builtins(report) == {
        "runs": 1,
        "events": 14,
        "verdicts": [{"run": "r", "property": "causal", "verdict": "violated", "checked": 6, "violations": 1}],
        "violations": [
            {
                "run": "r",
                "property": "causal",
                "process": "valencia/p2",
                "first": "madrid/p1/1",
                "second": "madrid/p2/1",
                "why": "madrid/p2/1 was delivered at index 1 before its cause madrid/p1/1 at index 2",
                "chain": ("madrid/p1/1", "madrid/p2/1"),
            }
        ],
        "quarantined": 0,
    }
    assert report.verdict("causal") == "violated"
    assert report.verdict("causal", run="another") == "holds"


def test_an_own_delivery_before_its_send_breaks_integrity_and_nothing_else() -> None:
    early = trace("a/p1: start, deliver a/p1/1, send 1, end", "a/p2: start, deliver a/p1/1, end")
    assert broken(early) == {"integrity"}
    assert witness(early, "integrity").why == "a/p1/1 was delivered at index 1, but nobody had sent it yet"


def test_integrity_twice_from_nobody_and_not_for_it() -> None:
    twice = trace("a/p1: start, send 1, deliver a/p1/1, deliver a/p1/1, end")
    assert broken(twice) == {"integrity"}
    assert witness(twice, "integrity").why == "a/p1/1 was delivered at index 2 and again at index 3"
    nobody = trace("a/p1: start, deliver a/p1/7, end")
    assert broken(nobody) == {"integrity"}
    assert witness(nobody, "integrity").why == "a/p1/7 was delivered at index 1, but nobody sent it"
    not_for_it = trace("a/p1: start, send 1 > a/p2, deliver a/p1/1, end", "a/p2: start, deliver a/p1/1, end")
    assert broken(not_for_it) == {"integrity"}
    assert "was not for a/p1" in witness(not_for_it, "integrity").why


def test_agreement_binds_also_to_what_only_a_crashed_process_delivered() -> None:
    events = trace("a/p1: start, send 1, deliver a/p1/1, crash", "a/p2: start, end")
    assert broken(events) == {"agreement"}
    assert witness(events, "agreement").why == "a/p1/1 was for a/p2, which never delivered it"


def test_agreement_forgives_what_a_crashed_sender_sent_to_nobody() -> None:
    assert broken(trace("a/p1: start, send 1, crash", "a/p2: start, end")) == set()
    assert broken(trace("a/p1: start, send 1, leave", "a/p2: start, end")) == {"agreement"}


def test_agreement_asks_nothing_of_those_who_crashed_or_left() -> None:
    assert (
        broken(trace("a/p1: start, send 1, deliver a/p1/1, end", "a/p2: start, crash", "a/p3: start, leave")) == set()
    )


def test_agreement_is_open_where_a_log_is() -> None:
    cut = trace("a/p1: start, send 1, deliver a/p1/1, end", "a/p2: start")
    assert answers(cut)["agreement"] == "unknown"
    lost = trace("a/p1: start, send 1 > a/p2, end")
    assert answers(lost)["agreement"] == "unknown"
    maybe_crashed = trace("a/p1: start, send 1", "a/p2: start, end")
    assert answers(maybe_crashed)["agreement"] == "unknown"
    maybe_delivered = trace("a/p1: start, send 1, crash", "a/p2: start, end", "a/p3: start")
    assert answers(maybe_delivered)["agreement"] == "unknown"


def test_fifo_and_causal_count_what_was_never_delivered() -> None:
    events = trace(
        "a/p1: start, send 1, send 2, deliver a/p1/1, deliver a/p1/2, end", "a/p2: start, deliver a/p1/2, crash"
    )
    assert broken(events) == {"fifo", "causal"}
    assert witness(events, "fifo").why == (
        "a/p1/2 was delivered at index 1 before the earlier a/p1/1, which was never delivered there"
    )


def test_a_cause_that_was_for_others_only_need_not_be_delivered() -> None:
    events = trace(
        "a/p1: start, view 1, send 1 > a/p2, end",
        "a/p2: start, deliver a/p1/1, send 1 > a/p3, end",
        "a/p3: start, deliver a/p2/1, end",
    )
    assert set(answers(events).values()) == {"holds"}


def test_a_chain_through_a_message_for_others_still_binds() -> None:
    events = trace(
        "a/p1: start, send 1 > a/p3, send 2 > a/p2, end",
        "a/p2: start, deliver a/p1/2, send 1 > a/p3, end",
        "a/p3: start, deliver a/p2/1, deliver a/p1/1, end",
    )
    assert broken(events) == {"causal"}


def test_who_came_later_owes_what_follows_the_first_it_delivered() -> None:
    sender = "a/p1: start, send 1, send 2, send 3, deliver a/p1/1, deliver a/p1/2, deliver a/p1/3, end"
    assert broken(trace(sender, "a/p2: join, end")) == set()
    assert broken(trace(sender, "a/p2: join, deliver a/p1/2, deliver a/p1/3, end")) == set()
    assert broken(trace(sender, "a/p2: join, deliver a/p1/1, end")) == {"agreement"}
    assert broken(trace(sender, "a/p2: join, deliver a/p1/1, deliver a/p1/3, end")) == {"agreement", "fifo", "causal"}
    late = trace(sender, "a/p2: join, deliver a/p1/2, deliver a/p1/1, deliver a/p1/3, end")
    assert broken(late) == {"fifo", "causal", "total"}


def test_a_cause_behind_one_that_is_not_owed_is_still_owed() -> None:
    """Direct causes alone would miss this: b/p1/1 stands between, and the newcomer does not owe it."""
    events = trace(
        "a/p1: start, send 1, send 2, deliver a/p1/1, deliver a/p1/2, deliver b/p1/1, deliver b/p1/2, end",
        "b/p1: start, deliver a/p1/1, deliver a/p1/2, send 1, send 2, deliver b/p1/1, deliver b/p1/2, end",
        "b/p2: join, deliver a/p1/1, deliver b/p1/2, deliver a/p1/2, end",
    )
    assert broken(events) == {"causal", "total"}


def test_total_order_is_about_pairs_of_processes() -> None:
    senders = ["a/p1: start, send 1, end", "a/p2: start, send 1, end", "a/p3: start, send 1, end"]
    differ = [
        "b/p1: start, deliver a/p1/1, deliver a/p2/1, end",
        "b/p2: start, deliver a/p2/1, deliver a/p1/1, end",
    ]
    assert "total" in broken(trace(*senders, *differ))
    circle = [
        "b/p1: start, deliver a/p1/1, deliver a/p2/1, end",
        "b/p2: start, deliver a/p2/1, deliver a/p3/1, end",
        "b/p3: start, deliver a/p3/1, deliver a/p1/1, end",
    ]
    assert "total" not in broken(trace(*senders, *circle))


def test_total_order_is_open_where_a_missing_message_may_come_late() -> None:
    sender = "a/p1: start, send 1, send 2, deliver a/p1/1, deliver a/p1/2, end"
    assert answers(trace(sender, "a/p2: start, deliver a/p1/1"))["total"] == "holds"
    assert answers(trace(sender, "a/p2: start, deliver a/p1/2"))["total"] == "unknown"
    assert answers(trace(sender, "a/p2: start, ..., deliver a/p1/1, end"))["total"] == "unknown"


def test_a_log_that_breaks_off_later_is_still_evidence() -> None:
    sender = "a/p1: start, send 1, send 2, deliver a/p1/1, deliver a/p1/2, end"
    assert answers(trace(sender, "a/p2: start, deliver a/p1/2"))["fifo"] == "violated"
    assert answers(trace(sender, "a/p2: start, ..., deliver a/p1/2, end"))["fifo"] == "unknown"
    assert answers(trace(sender, "a/p2: start, ..., deliver a/p1/2, deliver a/p1/1, end"))["fifo"] == "violated"


def test_a_lost_send_row_leaves_the_answers_open_and_its_number_still_counts() -> None:
    everyone = "b/p1: start, deliver a/p1/1, deliver a/p1/2, end"
    assert answers(trace("a/p1: start, send 1, deliver a/p1/1, deliver a/p1/2", everyone)) == {
        "integrity": "unknown",
        "agreement": "holds",
        "fifo": "unknown",
        "causal": "unknown",
        "total": "holds",
        "same-view": "unknown",
    }
    no_log_at_all = trace(everyone, "b/p2: start, deliver a/p1/2, deliver a/p1/1, end")
    assert broken(no_log_at_all) == {"fifo", "causal", "total"}


def test_effects_before_causes_in_a_circle_are_violations_and_end() -> None:
    events = trace(
        "a/p1: start, deliver a/p2/1, send 1, deliver a/p1/1, end",
        "a/p2: start, deliver a/p1/1, send 1, deliver a/p2/1, end",
        "a/p3: join, deliver a/p1/1, deliver a/p2/1, end",
    )
    assert "causal" in broken(events)


def test_same_view_compares_those_who_went_the_same_way() -> None:
    moved = [
        "a/p1: start, view 1, send 1, deliver a/p1/1, view 2, end",
        "a/p2: start, view 1, view 2, deliver a/p1/1, end",
    ]
    events = trace(*moved)
    assert broken(events) == {"same-view"}
    assert witness(events, "same-view").why == (
        "between view 1 and view 2 of a, a/p1 delivered a/p1/1 and a/p2 did not"
    )
    excluded = ["a/p1: start, view 1, send 1, deliver a/p1/1, view 2, end", "a/p2: start, view 1, crash"]
    assert broken(trace(*excluded)) == set()
    other_system = ["a/p1: start, view 1, send 1, deliver a/p1/1, view 2, end", moved[1].replace("a/p2:", "b/p2:")]
    assert broken(trace(*other_system)) == set()
    assert answers(trace("a/p1: start, send 1, deliver a/p1/1, end"))["same-view"] == "unknown", "nobody records views"
    gap = ["a/p1: start, view 1, send 1, deliver a/p1/1, view 2, end", "a/p2: start, view 1, ..., view 2, end"]
    assert answers(trace(*gap))["same-view"] == "unknown"


# The rest -------------------------------------------------------------------------------------------------------------


def test_runs_are_judged_apart_and_rows_may_come_in_any_order() -> None:
    good = trace("a/p1: start, send 1, deliver a/p1/1, end")
    bad = [msgspec.structs.replace(event, run="s") for event in trace("a/p1: start, send 1, end")]
    report = judge(reversed(good + bad), ["agreement"])
    assert [(each.run, each.verdict) for each in report.verdicts] == [("r", "holds"), ("s", "violated")]
    assert [each.run for each in report.violated] == ["s"]


def test_two_different_rows_with_one_index_make_a_log_incomplete() -> None:
    events = trace("a/p1: start, view 1, send 1, deliver a/p1/1, end", "a/p2: start, deliver a/p1/1, end")
    assert set(answers(events + events).values()) == {"holds"}
    conflict = msgspec.structs.replace(events[1], origin_seq=2)
    assert answers([*events, conflict])["fifo"] == "unknown"


def test_all_violations_are_counted_and_some_are_described() -> None:
    deliveries = ", ".join(f"deliver a/p1/{number}" for number in range(300, 0, -1))
    sends = ", ".join(f"send {number}" for number in range(1, 301))
    report = judge(trace(f"a/p1: start, {sends}, {deliveries}, end"), ["fifo"])
    assert report.verdicts[0].violations == 299
    assert len(report.violations) == WITNESSES


def test_nothing_is_judged_without_rows() -> None:
    report = judge([])
    assert (report.runs, report.events, report.verdicts) == (0, 0, [])
