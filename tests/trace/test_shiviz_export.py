"""Exported logs: clocks that say exactly what happened before what, and rows that come back as they were."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shiviz_support import read, row, runs

from isthmus.trace.schema import Event, TraceError
from isthmus.trace.shiviz.clocks import is_origin, message_of, stamped
from isthmus.trace.shiviz.exporter import PARSER, chosen_run, export_rows, host_name, write_log


def logs_of(rows: list[Event]) -> dict[str, list[Event]]:
    logs: dict[str, list[Event]] = {}
    for each in sorted(rows, key=lambda each: each.index):
        logs.setdefault(f"{each.system}/{each.process}", []).append(each)
    return logs


def happened_before(rows: list[Event], without: set[int]) -> set[tuple[int, int]]:
    """By definition: pairs of rows, closed. Rows in `without` do not come after the send of their message."""
    pairs = set()
    for (one, first), (two, second) in product(enumerate(rows), repeat=2):
        same = (first.system, first.process) == (second.system, second.process)
        if same and first.index < second.index:
            pairs.add((one, two))
        if not same and is_origin(first) and message_of(first) == message_of(second) and two not in without:
            pairs.add((one, two))
    for middle, start, end in product(range(len(rows)), repeat=3):
        if (start, middle) in pairs and (middle, end) in pairs:
            pairs.add((start, end))
    return pairs


@given(runs())
def test_a_row_happened_before_another_exactly_where_its_clock_is_smaller(rows: list[Event]) -> None:
    clocks: dict[int, list[int]] = {}
    circular = set()
    order = []
    numbers = {id(each): number for number, each in enumerate(rows)}
    for each in stamped(logs_of(rows)):
        number = numbers[id(each.row)]
        order.append(number)
        clocks[number] = each.clock.copy()
        if each.circular:
            circular.add(number)
    assert sorted(order) == list(range(len(rows)))
    before = happened_before(rows, circular)
    places = {number: place for place, number in enumerate(order)}
    for one, two in product(clocks, repeat=2):
        smaller = one != two and all(map(int.__le__, clocks[one], clocks[two]))
        assert smaller == ((one, two) in before)
        assert not smaller or places[one] < places[two]


@given(runs(disorder=False))
def test_only_a_trace_that_claims_a_circle_loses_a_cause(rows: list[Event]) -> None:
    assert not any(each.circular for each in stamped(logs_of(rows)))


def test_each_message_brings_its_own_news_and_the_second_time_none() -> None:
    rows = [
        *(row("a/p", 0, "send", ("a/p", 1)), row("a/p", 1, "send", ("a/p", 2))),
        *(row("a/q", place, "deliver", ("a/p", number)) for place, number in enumerate([1, 2, 1])),
    ]
    clocks = [each.clock.copy() for each in stamped(logs_of(rows))]
    assert clocks == [[1, 0], [2, 0], [1, 1], [2, 2], [2, 3]]


def test_a_circle_is_cut_at_one_row_and_what_is_behind_it_keeps_its_causes() -> None:
    rows = [
        row("a/behind", 0, "deliver", ("a/p", 1)),
        row("a/p", 0, "deliver", ("a/q", 1)),
        row("a/p", 1, "send", ("a/p", 1)),
        row("a/q", 0, "deliver", ("a/p", 1)),
        row("a/q", 1, "send", ("a/q", 1)),
    ]
    text = "".join(export_rows(rows))
    assert text.count("[before its send: a circle]") == 1
    assert 'a/behind {"a/behind":1,"a/p":2' in text


@given(runs())
def test_shiviz_takes_every_log_that_is_exported(rows: list[Event]) -> None:
    """Its rules: own clocks are 1, 2, 3, …; a clock speaks of events that are there, and holds what those hold."""
    text = "".join(export_rows(rows))
    parser, delimiter, log = text.split("\n", 2)
    assert (parser, delimiter) == (PARSER, "")
    # The translation that ShiViz itself makes of an expression, with Python's spelling of names.
    found = [match.groupdict() for match in re.finditer(PARSER.replace("(?<", "(?P<"), log, re.MULTILINE)]
    assert len(found) == len(rows)
    hosts: dict[str, list[dict[str, int]]] = {}
    for fields in found:
        hosts.setdefault(fields["host"], []).append(json.loads(fields["clock"]))
    for host, clocks in hosts.items():
        assert [clock[host] for clock in clocks] == list(range(1, len(clocks) + 1))
        for clock in clocks:
            for other, time in clock.items():
                cause = hosts[other][time - 1]
                assert all(cause[each] <= clock[each] for each in cause)


WILD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
NAMES = st.one_of(st.sampled_from(["p 1", "a=b", "x\ny", '"', "{", "%41", "\u2028", "null", "12", "\ufeff"]), WILD)


@given(
    runs(),
    st.dictionaries(st.sampled_from(["a", "b", "p1", "p2"]), NAMES.filter(lambda name: "/" not in name)),
    NAMES,
    st.one_of(st.none(), NAMES),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_every_column_comes_back_exactly(
    rows: list[Event], renamed: dict[str, str], run: str, text: str | None, time: int
) -> None:
    wild = [
        Event(
            run=run,
            system=renamed.get(each.system, each.system),
            process=renamed.get(each.process, each.process),
            role=each.role,
            index=each.index,
            event=each.event,
            origin_system=each.origin_system and renamed.get(each.origin_system, each.origin_system),
            origin_process=each.origin_process and renamed.get(each.origin_process, each.origin_process),
            origin_seq=each.origin_seq,
            destinations=None if text is None else (text, "a/p1"),
            peer=text,
            payload_bytes=None if text is None else len(text),
            time_ns=time,
            note=text,
        )
        for each in rows
    ]
    back = read("".join(export_rows(wild)))
    assert Counter(map(repr, back)) == Counter(map(repr, wild))


def test_two_hosts_never_get_one_name() -> None:
    assert host_name("madrid/p1") == "madrid/p1"
    assert host_name("a/p 1") == "a/p%201"
    assert host_name("a/p%201") == "a/p%25201"
    assert host_name("a/é") == "a/é"


def test_captions_stand_in_what_people_see_and_in_nothing_else() -> None:
    rows = [row("a/p1", 0, "deliver", ("a/p2", 1), peer="x")]
    text = "".join(export_rows(rows, {("a/p1", 0): "too early"}))
    assert "\ndeliver a/p2/1 (x) [too early]\n" in text
    assert read(text) == rows


def test_a_log_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "there" / "run.shiviz"
    with pytest.raises(TraceError, match=r"run\.shiviz: cannot write"):
        write_log(target, [row("a/p1", 0, "start")])
    write_log(tmp_path / "run.shiviz", [row("a/p1", 0, "start")])
    assert [path.name for path in tmp_path.iterdir()] == ["run.shiviz"]


@pytest.mark.parametrize(
    ("runs_there", "wanted", "words"),
    [
        (["r", "r"], None, None),
        (["r", "s"], "s", None),
        (["r", "s"], None, "holds 2 runs; choose one with --run: r, s"),
        (["r", "s"], "t", "no run 't' in the trace; known are r, s"),
        ([], None, "no row of it can be used"),
    ],
)
def test_which_run_is_meant_is_never_guessed(runs_there: list[str], wanted: str | None, words: str | None) -> None:
    if words is None:
        assert chosen_run(runs_there, wanted) == (wanted or "r")
    else:
        with pytest.raises(TraceError, match=words):
            chosen_run(runs_there, wanted)
