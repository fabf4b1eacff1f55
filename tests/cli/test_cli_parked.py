"""`isthmus parked` on a real Valkey: what was put aside is listed, appended once, or given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from broker_support import Joined, brought, valkey
from cli_support import Finished, call

from isthmus.lab.brokers.redis import ValkeyServer

Isthmus: TypeAlias = Callable[..., Finished]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.fixture
def joined(server: ValkeyServer, tmp_path: Path) -> Joined:
    """Of four messages from a, b has refused the second and the third."""
    made = Joined(server, tmp_path / "joined.toml", "ab")
    made.write("a", b"1", b"2", b"3", b"4")
    entries = [brought(f"a/{made.streams['a']}", number, b"%d" % number, "a,b") for number in range(1, 5)]
    made.append("b", entries[:1])
    made.park("b", entries[1], "it is [ugly]")
    made.park("b", entries[2], "it is too long")
    made.append("b", entries[3:])
    return made


def test_what_was_put_aside_is_listed_with_its_reason(joined: Joined, isthmus: Isthmus) -> None:
    found = isthmus("parked", "list", joined.file, "--site", "b", "-o", "json")
    assert found.code == 0
    seen = [(each["seq"], each["bytes"], each["reason"]) for each in found.json["parked"]]
    assert seen == [(2, 1, "it is [ugly]"), (3, 1, "it is too long")]
    assert "it is [ugly]" in isthmus("parked", "list", joined.file, "--site", "b").out
    assert "nothing was put aside" in isthmus("parked", "list", joined.file, "--site", "a").out


def test_a_retry_appends_what_is_named_and_compare_counts_it_apart(joined: Joined, isthmus: Isthmus) -> None:
    listed = isthmus("parked", "list", joined.file, "--site", "b", "-o", "json").json["parked"]
    done = isthmus("parked", "retry", joined.file, "--site", "b", "--id", listed[0]["id"], "-o", "json")
    assert done.code == 0, done
    assert [each["became"] for each in done.json["messages"]] == ["appended"]
    assert joined.bodies("b") == [b"1", b"4", b"2"]
    dropped = isthmus("parked", "drop", joined.file, "--site", "b", "--all")
    assert dropped.code == 0
    assert "dropped" in dropped.out
    assert "nothing was put aside" in isthmus("parked", "retry", joined.file, "--site", "b", "--all").out
    assert joined.bodies("b") == [b"1", b"4", b"2"]
    found = isthmus("compare", joined.file, "--wait", "1s", "-o", "json")
    pair = found.json["pairs"][0]
    assert (pair["retried"], pair["out_of_order"], pair["twice"], pair["under_way"]) == (1, 0, 0, 0)


def test_wrong_uses_are_one_line(joined: Joined, isthmus: Isthmus) -> None:
    retry = ("parked", "retry", joined.file, "--site")
    assert isthmus(*retry, "b").is_refusal("--id", "--all")
    assert isthmus(*retry, "b", "--all", "--id", "1-0").is_refusal("--id", "--all")
    assert isthmus(*retry, "b", "--id", "1-0").is_refusal("has the id 1-0")
    assert isthmus(*retry, "x", "--all").is_refusal("no system 'x'", "a, b")
