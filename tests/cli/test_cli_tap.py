"""`isthmus tap` on a real Valkey, and the words that refuse what cannot be tapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from broker_support import Joined, brought, valkey
from cli_support import Finished, call

from isthmus.lab.brokers.redis import ValkeyServer
from isthmus.trace.reader import read_trace

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
    made = Joined(server, tmp_path / "joined.toml", "ab")
    made.append("b", [brought(f"a/{made.streams['a']}", number, b"%d" % number, "a,b") for number in range(1, 5)])
    made.write("b", b"own")
    return made


def test_a_tap_writes_a_trace_and_goes_on_where_it_was(joined: Joined, isthmus: Isthmus, tmp_path: Path) -> None:
    tap = ("tap", joined.file, "--site", "b", "--trace", tmp_path / "trace", "--quiet", "1s", "-o", "json")
    assert isthmus(*tap).json == {"site": "b", "name": "tap", "delivered": 5}
    joined.write("b", b"more")
    assert isthmus(*tap, "--end").json["delivered"] == 1
    (log,) = read_trace([tmp_path / "trace"]).logs.values()
    assert [event.event for event in log.events] == ["start", *["deliver"] * 6, "end"]
    assert [(event.origin_system, event.origin_seq) for event in log.events[4:7]] == [("a", 4), ("b", 1), ("b", 2)]
    assert isthmus(*tap).is_refusal("this tap has ended", "--name")


def test_wrong_uses_are_one_line(joined: Joined, isthmus: Isthmus, tmp_path: Path) -> None:
    tap = ("tap", joined.file, "--site", "b")
    assert isthmus(*tap).is_refusal("--trace DIR", "--keep DIR")
    assert isthmus(*tap, "--trace", tmp_path, "--keep", tmp_path).is_refusal("--trace DIR", "--keep DIR")
    assert isthmus(*tap, "--trace", tmp_path, "--name", "g1").is_refusal("--name g1")
    assert isthmus(*tap, "--trace", tmp_path, "--name", "a/b").is_refusal("--name a/b")
    assert isthmus(*tap, "--trace", tmp_path, "--from", "now").is_refusal("no gateway has read it yet")
    joined.file.write_text(joined.file.read_text() + '[joins.of.b]\nfrom = "now"\n')
    assert isthmus(*tap, "--trace", tmp_path).is_refusal("--from start", "--from now")
