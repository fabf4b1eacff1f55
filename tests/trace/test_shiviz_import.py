"""Anybody's ShiViz logs as rows: documented expressions, messages out of clocks, and everything that can be wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shiviz_support import DEFAULT, GOVECTOR, in_words, read

from isthmus.trace.schema import problem
from isthmus.trace.shiviz import log as shiviz_log

# The documented ways to write a log -----------------------------------------------------------------------------------

PING_PONG = ["b0 start", "b1 deliver a/1", "b2 send b/2 to a"]
A_SIDE = ["a0 start", "a1 send a/1 to b", "a2 deliver b/2"]


@pytest.mark.parametrize(
    ("parser", "entry"),
    [
        (DEFAULT, "{event}\n{host} {clock}\n"),
        (GOVECTOR, "{host} {clock}\n{event}\n"),
        (r'(?<host>\w+) "(?<event>.*)" (?<clock>\{.*\})', '{host} "{event}" {clock}\n'),
        (
            r"(?<date>\d\d/\d\d/\d\d \d\d:\d\d (AM|PM)) (?<event>.*)\n(?<host>\w+) (?<clock>\{.*\})",
            "28/07/14 01:15 PM {event}\n{host} {clock}\n",
        ),
        (
            r"(?<ip>(\d{1,3}\.){3}\d{1,3}) (?<date>(\d+\/){2}\d{4} .*(AM|PM)) (?<event>.*)\n(?<host>\w+) (?<clock>.*)",
            "72.14.255.255 4/24/2015 12:03:50 PM {event}\n{host} {clock}\n\n",
        ),
        (
            r"user/(?<host>\w+)\] (?<clock>{.*}) (?<event>.*)",
            "[INFO] [14:37:20.543] [akka://x/user/{host}] {clock} {event}\n",
        ),
        (
            r"(?<timestamp>(\d*)) (?<event>.*)\n(?<host>\w*) (?<clock>.*)",
            "1456966522871394967 {event}\n{host} {clock}\n",
        ),
        (
            r"^State \d+: <(?<event>.*)>\n(.|\n)*?\/\\ Host = (?<host>.*)\n(.|\n)*?\/\\ Clock = \"(?<clock>.*)\"",
            "State 7: <{event}>\n/\\ color = x\n/\\ Host = {host}\n/\\ n = 1\n/\\ Clock = \"{escaped}\"\n\n",
        ),
    ],
    ids=["default", "govector", "one line", "date", "fields", "inside a line", "timestamp", "many lines"],
)  # fmt: skip
def test_a_documented_expression_reads_its_log(parser: str, entry: str) -> None:
    events = [
        ("a", {"a": 1}, "sends"),
        ("b", {"a": 1, "b": 1, "c": 0}, "receives"),
        ("b", {"a": 1, "b": 2}, "answers"),
        ("a", {"a": 2, "b": 2}, "is happy"),
        ("a", {"a": 3, "b": 2}, "thinks"),
    ]
    text = ""
    for host, clock, event in events:
        written = json.dumps(clock)
        text += entry.format(host=host, clock=written, event=event, escaped=written.replace('"', '\\"'))
    rows, bad = read(text, parser)
    assert not bad
    assert sorted(in_words(rows)) == sorted(A_SIDE + PING_PONG)
    assert {each.note for each in rows if each.event != "start"} == {"sends", "receives", "answers", "is happy"}
    assert {each.system for each in rows} == {"shiviz"}
    assert {each.time_ns for each in rows} == {1456966522871394967 if "timestamp" in parser else 0}
    assert not any(map(problem, rows))
    # The same log with its expressions on top, as it is uploaded.
    assert read(f"{parser}\n\n{text}") == (rows, bad)
    assert read(f"\ufeff{parser}\r\n\r\n{text}".replace("\n", "\r\n").replace("\r\r", "\r")) == (rows, bad)
    if parser == DEFAULT:
        assert read(f"\n\n{text}") == (rows, bad)


EXECUTIONS = """=== first ===
x
a {"a":1}

=== second run ===
x
a {"a":1}
y
b {"b":1,"a":1}
"""


@pytest.mark.parametrize(
    ("delimiter", "names"),
    [
        (r"^=== (?<trace>.*) ===$", ["log/first", "log/second run"]),
        (r"^===.*$", ["log/1", "log/2"]),
    ],
)
def test_each_execution_is_a_run_of_its_own(delimiter: str, names: list[str]) -> None:
    text = EXECUTIONS if "trace" in delimiter else EXECUTIONS.replace("=== first ===\n", "")
    rows, bad = read(text, DEFAULT, delimiter)
    expected = names if "trace" in delimiter else ["log", "log/2"]
    assert list(dict.fromkeys(each.run for each in rows)) == expected
    assert not bad
    assert read(f"{DEFAULT}\n{delimiter}\n{text}")[0] == rows


def test_two_executions_of_one_name_are_not_mixed_up() -> None:
    rows, bad = read(EXECUTIONS.replace("second run", "first"), DEFAULT, r"=== (?<trace>.*) ===")
    assert [each.run for each in rows] == ["log/first"]
    assert bad == [(5, "a second execution called 'first': names must be unique")]


def test_a_host_may_name_its_system() -> None:
    rows, bad = read('x\nmadrid/p1 {"madrid/p1":1}\ny\n/odd {"/odd":1,"madrid/p1":1}\n', DEFAULT)
    assert not bad
    [sent] = [each for each in rows if each.event == "send"]
    [delivered] = [each for each in rows if each.event == "deliver"]
    assert (sent.system, sent.process, sent.destinations) == ("madrid", "p1", ("shiviz//odd",))
    assert (delivered.system, delivered.process) == ("shiviz", "/odd")
    assert (delivered.origin_system, delivered.origin_process) == ("madrid", "p1")


def test_groups_with_the_names_of_columns_are_taken_at_their_word() -> None:
    message = r"(?<origin_system>\w+)\/(?<origin_process>\w+)\/(?<origin_seq>\S+)"
    parser = rf"(?<host>\S+) (?<clock>{{.*}}) (?<kind>\w+)( {message})?( at (?<time_ns>\d+))?(?<event>.*)$"
    lines = ["start", "send s/a/1 at 7", "explode", "deliver s/a/one", "end"]
    text = "".join(f's/a {{"s/a":{number}}} {line}\n' for number, line in enumerate(lines, 1))
    rows, bad = read(text, parser)
    assert in_words(rows) == ["a0 start", "a1 send a/1 to ", "a4 end"]
    assert [each.time_ns for each in rows] == [0, 7, 0]
    assert bad == [(3, "Invalid enum value 'explode' - at `$.event`"), (4, "`origin_seq` is not JSON: one")]


# Messages out of clocks -----------------------------------------------------------------------------------------------


@st.composite
def real_logs(draw: st.DrawFn) -> tuple[str, dict[tuple[str, int], tuple[str, int]]]:
    """A log of real vector clocks, and by event what it received, if that was news."""
    hosts = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    clocks: dict[str, dict[str, int]] = {host: {} for host in hosts}
    flying: list[tuple[str, str, dict[str, int]]] = []
    lines: dict[str, list[str]] = {host: [] for host in hosts}
    news = {}
    for _ in range(draw(st.integers(0, 25))):
        host = draw(st.sampled_from(hosts))
        waiting = [each for each in flying if each[1] == host]
        own = clocks[host]
        own[host] = own.get(host, 0) + 1
        what = draw(st.sampled_from(["send", "receive", "receive", "think"]))
        if what == "receive" and waiting:
            message = draw(st.sampled_from(waiting))
            flying.remove(message)
            sender, _, stamp = message
            if stamp[sender] > own.get(sender, 0):
                news[host, own[host]] = (sender, stamp[sender])
            for other, time in stamp.items():
                own[other] = max(time, own.get(other, 0))
        if what == "send":
            others = [each for each in hosts if each != host]
            flying += [
                (host, to, own.copy()) for to in draw(st.lists(st.sampled_from(others), min_size=1, unique=True))
            ]
        lines[host].append(f"{what}\n{host} {json.dumps(own)}\n")
    order = draw(st.permutations(hosts))
    return "".join(line for host in order for line in lines[host]), news


@given(real_logs())
def test_exactly_the_messages_that_brought_news_are_found(
    log: tuple[str, dict[tuple[str, int], tuple[str, int]]],
) -> None:
    text, news = log
    rows, bad = read(text, DEFAULT)
    assert not bad
    assert not any(map(problem, rows))
    sends = {(each.origin_process, each.origin_seq): each for each in rows if each.event == "send"}
    delivered = [(each.process, (each.origin_process, each.origin_seq)) for each in rows if each.event == "deliver"]
    assert sorted(delivered) == sorted((host, message) for (host, _), message in news.items())
    assert set(sends) == set(news.values())
    for message, each in sends.items():
        receivers = {host for (host, _), source in news.items() if source == message}
        assert each.destinations == tuple(f"shiviz/{host}" for host in sorted(receivers))
    for host in "abcd":
        indices = [each.index for each in rows if each.process == host]
        assert indices == list(range(len(indices)))


def test_an_event_may_deliver_several_messages_and_send_one() -> None:
    text = 's\na {"a":1}\ns\nb {"b":1}\nboth\nc {"a":1,"b":1,"c":1}\nr\nd {"a":1,"b":1,"c":1,"d":1}\n'
    rows, bad = read(text, DEFAULT)
    assert not bad
    assert in_words(rows)[4:] == [
        "c0 start", "c1 deliver a/1", "c2 deliver b/1", "c3 send c/1 to d", "d0 start", "d1 deliver c/1",
    ]  # fmt: skip


# What can be wrong ----------------------------------------------------------------------------------------------------

GOOD = 'x\na {"a":1}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('x\na {"a":1\n}\n', (1, "3 lines in which the parser expression finds no entry")),
        ('x\na {"a":}\n', (1, "the clock is not a JSON object of whole numbers: ")),
        ('x\na {"a":"1"}\n', (1, "the clock is not a JSON object of whole numbers: Expected `int`, got `str`")),
        ('x\na {"a":1.5}\n', (1, "the clock is not a JSON object of whole numbers: ")),
        ('x\na {"a":[[[[1]]]]}\n', (1, "the clock is not a JSON object of whole numbers: ")),
        ('x\na {"a":9999999999999999999999}\n', (1, "the clock")),
        ('x\na {"a":4611686018427387905}\n', (1, "the clock of 'a' is 4611686018427387905, more than")),
        ('x\na {"b":1}\n', (1, "the clock has no entry for its own host 'a'")),
        ('x\na {"a":0}\n', (1, "the clock of host 'a' is 0, but clocks begin at 1")),
        ('x\na {"a":1,"b":-2}\n', (1, "the clock of 'b' is -2, but clocks begin at 1")),
        ('x\n {"":1}\n', (1, "the host has no name")),
        ('x\na {"a":2}\n', (1, "event 1 of host 'a' is missing before this entry")),
        (f'{GOOD}y\na {{"a":9}}\n', (3, "events 2 to 8 of host 'a' are missing before this entry")),
        (f"{GOOD}{GOOD}", (3, "the same entry again: event 1 of host 'a'")),
        (f'{GOOD}x\na {{"a":2,"b":5}}\nx\na {{"a":3,"b":4}}\n', (5, "the clock goes back: 'b' is 4, but was 5 before")),
        ("noise\nand more\n\n" + GOOD, (1, "2 lines in which the parser expression finds no entry")),
        (GOOD + "noise\n", (3, "a line in which the parser expression finds no entry")),
        (b'x\xff\na {"a":1}\n', (1, "not UTF-8")),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str | bytes, expected: tuple[int, str]) -> None:
    _, bad = read(text, DEFAULT)
    assert len(bad) == 1
    assert bad[0][0] == expected[0]
    assert bad[0][1].startswith(expected[1])


def test_what_stands_around_an_entry_on_its_own_lines_is_not_reported() -> None:
    parser = r"<(?<host>\w+) (?<clock>{.*?})\n(?<event>\w+)>"
    rows, bad = read(
        '[INFO] <a {"a":1}\nx> done\n\n[INFO] <a {"a":2}\ny> and <b {"b":1,"a":2}\nz> done\nlost\n', parser
    )
    assert in_words(rows) == ["a0 start", "a1 send a/2 to b", "b0 start", "b1 deliver a/2"]
    assert bad == [(7, "a line in which the parser expression finds no entry")]


def test_an_entry_that_is_too_long_is_left_out_and_the_next_one_counts() -> None:
    rows, bad = read("x" * 300_000 + '\na {"a":1}\n\n' + GOOD, DEFAULT)
    assert in_words(rows) == ["a0 start"]
    assert bad == [
        (1, "an entry longer than 262144 characters"),
        (2, "a line in which the parser expression finds no entry"),
    ]


def test_of_two_entries_that_claim_one_place_neither_counts() -> None:
    rows, bad = read('x\na {"a":1}\ny\na {"a":2}\nz\na {"a":2}\nr\nb {"b":1,"a":2}\n', DEFAULT)
    words = "two different entries claim to be event 2 of host 'a', so neither counts"
    assert bad == [(3, words), (5, words)]
    assert in_words(rows) == ["a0 start", "b0 start", "b1 deliver a/2"]


def test_two_entries_that_each_come_after_the_other_do_not_count() -> None:
    rows, bad = read('x\na {"a":1,"b":1}\ny\nb {"b":1,"a":1}\nz\na {"a":2,"b":1}\n', DEFAULT)
    assert bad == [
        (1, "this entry and the one of line 3 each claim to come after the other"),
        (3, "this entry and the one of line 1 each claim to come after the other"),
    ]
    assert in_words(rows) == ["a2 deliver b/1"]


def test_a_clock_may_speak_of_events_that_are_not_in_the_log() -> None:
    rows, bad = read('x\na {"a":1,"gone":7}\n', DEFAULT)
    assert not bad
    assert in_words(rows) == ["a0 start", "a1 deliver gone/7"]
    assert rows[1].destinations == ("shiviz/a",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("just a line\n", "its first line is no parser expression, and none was given; give --shiviz EXPRESSION"),
        ("(?<host>x)(?<clock>{})(?<event>\n\nx{}\n", "its expressions cannot be used: not a regular expression"),
        (f"{DEFAULT}\n(?P<x>)\n{GOOD}", "its expressions cannot be used: '(?P<' is not known to JavaScript"),
    ],
)
def test_a_log_without_usable_expressions_is_refused_as_a_whole(text: str, words: str) -> None:
    rows, bad = read(text)
    assert not rows
    assert [line for line, _ in bad] == [1]
    assert words in bad[0][1]


@pytest.mark.parametrize("slow", ["parser", "delimiter"])
def test_an_expression_that_would_take_for_ever_is_given_up(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shiviz_log, "SECONDS", 0.2)
    text = GOOD + "a" * 5000 + "\n" + GOOD
    catastrophe = r"(?<event>(a+)+)=\n(?<host>\S*) (?<clock>{.*})|!"
    if slow == "parser":
        rows, bad = read(GOOD + text, catastrophe.replace("|!", ""))
    else:
        rows, bad = read(text, DEFAULT, "(a+)+=")
    assert not rows
    assert len(bad) == 1
    assert f"the {slow} expression has taken 0 s by here, so nothing behind is read: simplify it" in bad[0][1]


@given(
    st.lists(st.sampled_from([b"x", b"\n", b'a {"a":1}', b'b {"b":1,"a":', b"2}", b"\xff", b"{", b"\r"]), max_size=20)
)
def test_every_line_with_content_is_in_an_entry_or_reported(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    for parser in (DEFAULT, GOVECTOR, r"(?<host>\w) (?<clock>{.*})(?<event>)"):
        rows, bad = read(content, parser)
        assert rows or bad or not content.strip()
