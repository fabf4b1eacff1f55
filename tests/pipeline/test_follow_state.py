"""The streaming audit without Spark: against the definition, whatever the order of arrival, and within its bounds.

`ISTHMUS_EXECUTIONS=20000 pytest tests/pipeline/test_follow_state.py --timeout 0` compares more executions.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import msgspec
import pytest
from follow_harness import Following, arrival, can_be_followed, follow, is_finished, parts, wrong_deliveries
from known_mistakes import known_mistakes
from properties_by_definition import Run, id_of, verdicts
from random_executions import execution, row
from trace_files import all_rows, numbered, rounds

from isthmus.pipeline.follow.judge import FOLLOWED
from isthmus.pipeline.follow.run import feed
from isthmus.pipeline.follow.state import Chain, Row, RunState, row_of
from isthmus.trace.oracles import judge
from isthmus.trace.schema import Event, TraceError

SEEDS = range(int(os.environ.get("ISTHMUS_EXECUTIONS", "600")))
LONG_SEEDS = range(len(SEEDS) // 12)


def random_runs() -> list[tuple[int, list[Event]]]:
    """Short ones of every kind, and some that are long enough for much to be forgotten."""
    short = [(seed, execution(Random(seed))) for seed in SEEDS]
    return short + [(seed, execution(Random(seed), 120)) for seed in LONG_SEEDS]


def test_verdicts_and_counts_of_a_finished_trace_are_those_of_the_batch_audit() -> None:
    answers: Counter[tuple[str, str]] = Counter()
    forgot = again = 0
    for seed, events in random_runs():
        if not is_finished(events):
            continue
        random = Random(seed)
        state, found, violations = follow(arrival(events, random), random)
        expected = {judged: answer for judged, answer in verdicts(events).items() if judged in FOLLOWED}
        assert {each.property: each.verdict for each in found.verdicts} == expected, f"seed {seed}"
        counts = {each.property: (each.checked, each.violations) for each in judge(events, FOLLOWED).verdicts}
        assert {each.property: (each.checked, each.violations) for each in found.verdicts} == counts, f"seed {seed}"
        reported = Counter(each.property for each in violations)
        assert reported == {judged: count for judged, (_, count) in counts.items() if count}, f"seed {seed}"
        answers.update(expected.items())
        forgot += state.forgot
        again += state.again > 0
    # A comparison that never meets a case proves nothing about it.
    assert {(judged, answer) for judged in FOLLOWED for answer in ("holds", "violated")} <= answers.keys()
    assert forgot > len(LONG_SEEDS)
    assert again > len(SEEDS) // 100


def test_what_it_says_of_a_trace_with_losses_is_true() -> None:
    met: Counter[str] = Counter()
    for seed, events in random_runs():
        if is_finished(events) or not can_be_followed(events):
            continue
        random = Random(seed)
        _, found, _ = follow(arrival(events, random), random)
        expected = verdicts(events)
        for each in found.verdicts:
            assert each.verdict in ("unknown", expected[each.property]), f"seed {seed}"
            met[each.verdict] += 1
    assert met["violated"] > 10
    assert met["unknown"] > 10


def test_a_violation_is_reported_in_the_feed_that_brings_its_last_row() -> None:
    """After every feed: what is wrong by the rows that are there, whatever may still come, was reported."""
    compared = 0
    for seed, events in random_runs()[::3]:
        if any(event.event == "join" for event in events) or not is_finished(events):
            continue
        random = Random(seed)
        following = Following()
        arrived: list[Event] = []
        for part in parts(arrival(events, random), random):
            following.feed(part)
            arrived += part
            run = Run(_without_gaps(arrived))
            sent = Run(each for each in _without_gaps(arrived) if each.event != "deliver" or id_of(each) in run.sends)
            for judged, relation in (("fifo", sent.earlier), ("causal", sent.causes)):
                wrong = {(name, "/".join(map(str, id_))) for name, id_ in wrong_deliveries(run, relation)}
                reported = {(each.process, each.second) for each in following.violations if each.property == judged}
                assert wrong <= reported, f"seed {seed}"
                compared += len(wrong)
            again = sum(
                count - 1
                for name in run.app
                for count in Counter(id_of(each) for each in run.rows[name] if each.event == "deliver").values()
            )
            assert sum("again" in each.why for each in following.violations) == again, f"seed {seed}"
    assert compared > 100


def _without_gaps(events: list[Event]) -> list[Event]:
    indices: dict[tuple[str, str], set[int]] = {}
    for event in events:
        indices.setdefault((event.system, event.process), set()).add(event.index)
    read = {log: next(index for index in range(len(seen) + 1) if index not in seen) for log, seen in indices.items()}
    return [event for event in events if event.index < read[event.system, event.process]]


def test_known_mistakes_have_the_sentences_of_the_batch_audit() -> None:
    for name, events in known_mistakes().items():
        following = Following()
        following.feed(events)
        expected = judge(events, FOLLOWED)
        described = {each.why for each in expected.violations if each.property in ("integrity", "agreement", "fifo")}
        said = {each.why for each in following.violations if each.property in ("integrity", "agreement", "fifo")}
        assert said == described, name


# Bounds ---------------------------------------------------------------------------------------------------------------


def in_step(logs: dict[str, list[Event]], size: int) -> list[list[Event]]:
    """Logs that grow side by side."""
    longest = max(map(len, logs.values()))
    return [
        [event for log in logs.values() for event in log[start : start + size]] for start in range(0, longest, size)
    ]


@pytest.mark.parametrize("messages", [200, 800])
def test_what_is_held_does_not_grow_with_the_run(messages: int) -> None:
    following = Following()
    for part in in_step(rounds("r", 5, messages), 60):
        following.feed(part)
    assert following.most_held < 250
    assert following.state.finished
    assert not following.state.messages


def test_a_message_that_one_process_lacks_holds_what_was_sent_after_it_and_few_others() -> None:
    """Of other chains what may be a link of a chain of causes is held too, up to a tenth of what may be held."""
    logs = rounds("r", 4, 300)
    lacking = [event for event in logs["a/p2"] if not (event.event == "deliver" and event.origin_process == "p3")]
    logs["a/p2"] = numbered("r", lacking)[:-1]
    following = Following(max_held=500)
    for part in in_step(logs, 50):
        following.feed(part)
    following.feed([])
    held = Counter(following.state.chains[message.chain].origin for message in following.state.messages.values())
    names = {following.state.logs[origin].name: count for origin, count in held.items()}
    assert names["a/p3"] == 300
    assert sum(names.values()) < 330


def test_a_run_that_holds_too_much_is_given_up_with_a_clear_word_and_without_its_state() -> None:
    rows = all_rows(rounds("r", 3, 100))
    following = Following(max_held=50)
    first = following.feed([event for event in rows if event.process == "p0"])
    assert [each.verdict for each in first.verdicts] == ["unknown"] * 5
    assert following.warnings == [
        "run r is not followed any further: more than 50 messages and rows are not stable; raise --max-held, "
        "or audit it when it is finished"
    ]
    following.feed([event for event in rows if event.process != "p0"])
    assert len(following.warnings) == 1
    assert not following.state.messages
    assert following.state.rows == len(rows)


def test_a_flood_of_rows_behind_a_gap_counts_as_held() -> None:
    following = Following(max_held=100)
    following.feed(msgspec.structs.replace(row("a/p1", "start"), index=index) for index in range(1, 102))
    assert "more than 100" in following.warnings[0]


# Logs -----------------------------------------------------------------------------------------------------------------


def test_a_log_that_turns_up_late_is_judged_like_the_others() -> None:
    """What it delivered was forgotten by then, so the run is read again, and nothing is reported twice."""
    logs = rounds("r", 4, 100)
    log = logs["a/p2"]
    log[20], log[21] = log[21], log[20]
    late = logs.pop("a/p3")
    wrong = late[40]
    late.remove(wrong)
    late.insert(46, wrong)
    logs["a/p2"], late = numbered("r", log), numbered("r", late)
    following = Following()
    for part in in_step(logs, 40):
        following.feed(part)
    assert following.state.forgot
    for start in range(0, len(late), 100):
        following.feed(late[start : start + 100])
    assert following.state.again == 1
    expected = judge([*all_rows(logs), *late], FOLLOWED)
    assert following.state.counts == {each.property: each.violations for each in expected.violated}
    assert following.state.counts == Counter(each.property for each in following.violations)


def test_a_run_that_has_to_be_read_again_and_whose_files_are_gone_is_given_up_with_what_it_has() -> None:
    logs = rounds("r", 3, 60)
    late = logs.pop("a/p2")
    state = RunState("r", 1000)
    for part in in_step(logs, 30):
        state, _ = feed(state, [row_of(event) for event in part], list)

    def gone() -> list[list[Row]]:
        raise TraceError("log.jsonl", "is needed again and has gone", "keep it")

    counted = dict(state.counts)
    state, found = feed(state, [row_of(event) for event in late], gone)
    assert counted
    assert state.counts == counted
    assert "the log of another process turned up" in found.warnings[0]
    assert "log.jsonl: is needed again and has gone" in found.warnings[0]


def test_rows_that_come_twice_or_after_the_end_do_not_count_and_leave_no_verdict_holds() -> None:
    rows = all_rows(rounds("r", 3, 5))
    following = Following()
    assert {each.verdict for each in following.feed(rows).verdicts} - {"holds"} <= {"violated"}
    found = following.feed([rows[0], msgspec.structs.replace(rows[-1], index=rows[-1].index + 1)])
    assert found.not_counted == 2
    assert "holds" not in {each.verdict for each in found.verdicts}


def test_numbers_that_were_forgotten_are_kept_as_ranges() -> None:
    random = Random(1)
    numbers = random.sample(range(1, 200), 120)
    chain = Chain(0)
    for number in numbers:
        chain.forget(number)
    assert [number for number in range(202) if chain.has_forgotten(number)] == sorted(numbers)
    for number in set(range(1, 200)) - set(numbers):
        chain.forget(number)
    assert chain.forgotten == [1, 200]
