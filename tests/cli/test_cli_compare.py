"""`isthmus compare` on a real Valkey: it finds every mistake that is made by hand, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from broker_support import Joined, brought, valkey
from cli_support import Finished, call

from isthmus.lab.brokers.redis import ValkeyServer

Compare: TypeAlias = Callable[..., Finished]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Compare:
    def compared(joined: Joined, *options: object) -> Finished:
        return call(capsys, monkeypatch, "compare", joined.file, *(options or ("--wait", "1s", "-o", "json")))

    return compared


@pytest.fixture
def joined(server: ValkeyServer, tmp_path: Path) -> Joined:
    return Joined(server, tmp_path / "joined.toml", "ab")


def body(number: int) -> bytes:
    return b"message %d" % number


class Filled:
    """Ten messages from a, of which these are brought into b, in this order; and one answer in b that is in a."""

    def __init__(self, joined: Joined, order: list[int], upto: int = 10) -> None:
        self.joined = joined
        self.origin = f"a/{joined.streams['a']}"
        self.ids = joined.write("a", *(body(number) for number in range(1, 11)))
        joined.append("b", [self.entry(number) for number in order], [(self.origin, upto)])
        joined.write("b", b"answer")
        joined.append("a", [brought(f"b/{joined.streams['b']}", 1, b"answer", "b,a")])

    def entry(self, number: int, says: bytes | None = None) -> Any:
        return brought(self.origin, number, body(number) if says is None else says, "a,b")


def pair(found: Finished, of: str, into: str) -> dict[str, Any]:
    return next(each for each in found.json["pairs"] if (each["of"], each["into"]) == (of, into))


WRONG = ("lost", "twice", "out_of_order", "before_cause", "changed")
APART = ("under_way", "filtered", "parked", "retried", "gone")
BY_CONTENT = ("lost_by_content", "twice_by_content", "out_of_order_by_content")
ZERO = dict.fromkeys((*WRONG, *APART, *BY_CONTENT), 0)


def figures(found: Finished, of: str, into: str, **wanted: int) -> bool:
    """Whether this pair has these figures, and 0 in all others."""
    seen = pair(found, of, into)
    assert {name: seen[name] for name in ZERO} == ZERO | wanted
    return True


def test_logs_that_hold_the_same_in_their_order_hold(joined: Joined, compare: Compare) -> None:
    Filled(joined, list(range(1, 11)))
    found = compare(joined)
    assert found.code == 0, found
    assert figures(found, "a", "b")
    assert figures(found, "b", "a")
    assert (pair(found, "a", "b")["messages"], pair(found, "a", "b")["unique"]) == (10, 10)
    assert found.json["logs"][1] == {"name": "b", "entries": 11, "own": 1, "brought_in": 10, "copied": 0}
    assert "it holds" in compare(joined, "--wait", "1s").out


def test_a_message_that_is_in_the_record_and_not_in_the_log_is_lost(joined: Joined, compare: Compare) -> None:
    Filled(joined, [1, 2, 4, 5, 6, 7, 8, 9])
    found = compare(joined)
    assert found.code == 1
    assert figures(found, "a", "b", lost=2, lost_by_content=2)
    assert f"a/{joined.streams['a']}/3, entry 3 of a, is not in b" in pair(found, "a", "b")["examples"]


def test_an_entry_that_was_deleted_later_is_lost(joined: Joined, compare: Compare) -> None:
    Filled(joined, list(range(1, 11)))
    third = joined.client.xrange(joined.streams["b"])[2][0]
    joined.client.xdel(joined.streams["b"], third)
    found = compare(joined)
    assert figures(found, "a", "b", lost=1, lost_by_content=1)


def test_a_message_that_stands_there_again_is_twice(joined: Joined, compare: Compare) -> None:
    Filled(joined, [1, 2, 3, 4, 3, 5, 6, 7, 8, 9, 10])
    found = compare(joined)
    assert found.code == 1
    assert figures(found, "a", "b", twice=1, twice_by_content=1)
    assert found.json["logs"][1]["copied"] == 0


def test_a_message_behind_a_later_one_of_its_origin_is_out_of_order(joined: Joined, compare: Compare) -> None:
    Filled(joined, [1, 3, 2, 4, 5, 6, 7, 8, 9, 10])
    found = compare(joined)
    assert found.code == 1
    assert figures(found, "a", "b", out_of_order=1, out_of_order_by_content=1)


def test_an_entry_that_says_something_else_is_changed(joined: Joined, compare: Compare) -> None:
    filled = Filled(joined, [1, 2])
    entries = [filled.entry(3, b"other"), brought(filled.origin, 4, body(4), "a,b", [(b"more", b"1")])]
    joined.append("b", [*entries, *(filled.entry(number) for number in range(5, 11))])
    found = compare(joined)
    assert found.code == 1
    assert figures(found, "a", "b", changed=2, lost_by_content=1)


def test_an_answer_before_its_question_is_found(server: ValkeyServer, tmp_path: Path, compare: Compare) -> None:
    joined = Joined(server, tmp_path / "chain.toml", "abc")
    joined.write("a", b"question")
    a, b = (f"{name}/{joined.streams[name]}" for name in "ab")
    joined.append("b", [brought(a, 1, b"question", "a,b")])
    joined.write("b", b"answer")
    joined.append("a", [brought(b, 1, b"answer", "b,a")])
    joined.append("c", [brought(b, 1, b"answer", "b,c"), brought(a, 1, b"question", "a,b,c")])
    found = compare(joined)
    assert found.code == 1
    assert figures(found, "b", "c", before_cause=1)
    assert figures(found, "b", "a")
    assert figures(found, "a", "c")
    assert pair(found, "b", "c")["examples"] == [f"{b}/1 is entry 1 of c, before {a}/1, which it stands behind in b"]
    assert compare(joined, "--systems", "a,b", "-o", "json").code == 0


def test_headers_that_a_client_copied_are_counted_and_do_no_harm(joined: Joined, compare: Compare) -> None:
    filled = Filled(joined, list(range(1, 11)))
    copied = {"isthmus-origin": filled.origin, "isthmus-seq": "3", "isthmus-path": "a,b"}
    joined.write("b", b"with copied headers", **copied)
    joined.write("b", b"made up", **(copied | {"isthmus-seq": "900"}))
    b = f"b/{joined.streams['b']}"
    joined.append("a", [brought(b, 2, b"with copied headers", "b,a"), brought(b, 3, b"made up", "b,a")])
    found = compare(joined)
    assert found.code == 0, found
    assert found.json["logs"][1]["copied"] == 2
    assert figures(found, "a", "b")


def test_what_was_put_aside_is_counted_apart(joined: Joined, compare: Compare) -> None:
    filled = Filled(joined, [1, 2], upto=2)
    joined.park("b", filled.entry(3), "it is ugly")
    joined.append("b", [filled.entry(number) for number in range(4, 11)])
    found = compare(joined)
    assert found.code == 0, found
    assert figures(found, "a", "b", parked=1)


def test_what_does_not_pass_is_counted_apart(server: ValkeyServer, tmp_path: Path, compare: Compare) -> None:
    joined = Joined(server, tmp_path / "joined.toml", "ab", '[joins.of.a]\ndeny = ["*"]\n')
    Filled(joined, [])
    found = compare(joined)
    assert found.code == 0, found
    assert figures(found, "a", "b", filtered=10)


def test_what_nobody_has_brought_in_yet_is_under_way_and_fails_only_when_nothing_moves(
    joined: Joined, compare: Compare
) -> None:
    Filled(joined, [1, 2, 3, 4, 5, 6], upto=6)
    found = compare(joined)
    assert figures(found, "a", "b", under_way=4)
    assert found.code == 1
    assert not found.json["is_moving"]
    assert "does the join run?" in compare(joined, "--wait", "1s").out


def test_a_log_whose_oldest_entries_are_gone_is_compared_as_far_as_it_goes(joined: Joined, compare: Compare) -> None:
    Filled(joined, list(range(1, 11)))
    joined.client.xtrim(joined.streams["a"], maxlen=7, approximate=False)
    found = compare(joined)
    assert found.code == 0, found
    assert figures(found, "a", "b", gone=4)


def test_wrong_uses_are_one_line(joined: Joined, compare: Compare, tmp_path: Path) -> None:
    assert compare(joined, "--systems", "a").is_refusal("it takes two joined brokers")
    assert compare(joined, "--systems", "a,x").is_refusal("no system 'x'")
    assert compare(joined, "--run", "other").is_refusal("'other'", "--run")
    joined.file.write_text(joined.file.read_text().replace("127.0.0.1", "127.0.0.2"))
    assert compare(joined, "-o", "json").is_refusal("a: the broker does not answer")
