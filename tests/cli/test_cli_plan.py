"""`isthmus plan`: what to expect of a topology, with the papers' expressions beside."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from cli_support import GROUP, Finished, call, write
from example_files import EXAMPLES

Isthmus: TypeAlias = Callable[..., Finished]

TWO = """
[systems.a]
kind = "embedded"
order = "causal"
processes = ["p1", "p2", "p3"]
gateways = 3

[systems.b]
kind = "embedded"
order = "causal"
processes = ["p1", "p2", "p3"]
gateways = 2

[[joins]]
between = ["a", "b"]
order = "causal"
{join}

[simulation]
workload = {{ rate = 100, size = 1000 }}
network = {{ delay = "1ms", bandwidth = "100Mbit" }}
links = {{ delay = "25ms", bandwidth = "8Mbit" }}
"""

BROKERS = """
[systems.a]
kind = "redis"
order = "total"
url = "redis://127.0.0.1:6379/0"
stream = "orders"
gateways = 2

[systems.b]
kind = "redis"
order = "total"
url = "redis://127.0.0.1:6380/0"
stream = "orders"
gateways = 2

[[joins]]
between = ["a", "b"]
order = "causal"
"""


def content(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text())


JOINED = [path for path in sorted(EXAMPLES.rglob("*.toml")) if "joins" in content(path)]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.fixture
def two(tmp_path: Path) -> Callable[[str], Path]:
    return lambda join: write(tmp_path / "two.toml", TWO.format(join=join))


@pytest.mark.parametrize("file", [path for path in JOINED if "unsafe" not in content(path)], ids=lambda path: path.stem)
def test_every_joined_example_has_a_plan(isthmus: Isthmus, file: Path) -> None:
    planned = isthmus("plan", file, "-o", "json")
    assert (planned.code, planned.err) == (0, "")
    assert [join["between"] for join in planned.json["joins"]] == [join["between"] for join in content(file)["joins"]]
    for join in planned.json["joins"]:
        assert 1 <= join["links_planned"] <= join["links_possible"]
        assert len(join["directions"]) == 2
        assert all(each["latency_worst_ms"] >= each["latency_expected_ms"] > 0 for each in join["directions"])
    result = isthmus("plan", file)
    assert result.code == 0
    assert "longest way: " in result.out


@pytest.mark.parametrize("file", [path for path in JOINED if "unsafe" in content(path)], ids=lambda path: path.stem)
def test_what_check_refuses_has_no_plan(isthmus: Isthmus, file: Path) -> None:
    assert isthmus("plan", file).is_refusal(file.name)


def test_the_expressions_stand_beside_what_is_expected(isthmus: Isthmus, two: Callable[[str], Path]) -> None:
    """By hand: ms = 8,000 bit, so ms/ibw = 0.08 ms and ms/ebw = 1 ms."""
    planned = isthmus("plan", two("links = 3"), "-o", "json").json
    join = planned["joins"][0]
    there, back = join["directions"]
    assert there["latency_expression_3_ms"] == round((3 - 1 / 3) * 1.08 + 26, 6)
    # Uniform delivery: acknowledgement and word of safety, in both systems; striped: no numbering message.
    assert there["latency_expected_ms"] == there["latency_worst_ms"] == 2 * (1.08 + 2) + 26
    assert there["limit_expression_2"] == there["limit_expected"] == 3000
    assert there["messages_per_second"] == back["messages_per_second"] == 300
    assert planned["systems"][0]["limit_expression_1"] == 12_500
    assert planned["systems"][0]["messages_per_second"] == 600
    assert (join["links_needed_expression_2"], join["links_best_expression_4"]) == (1, 13)
    assert planned["worst_route"] == {"systems": ["a", "b"], "latency_ms": 32.16}
    assert planned["notes"] == []


def test_transfer_sets_are_judged_by_their_busiest_link(isthmus: Isthmus, two: Callable[[str], Path]) -> None:
    """Two of three processes share a link, so that it is full at 1,000 of 1,500 messages; and Fig. 5 waits a hop."""
    sets = 'assign = "transfer-sets"\n[joins.transfer-sets]\n"a/g1" = ["p1"]\n"a/g2" = ["p2", "p3"]\n'
    there = isthmus("plan", two(sets), "-o", "json").json["joins"][0]["directions"][0]
    assert (there["share"], there["limit_expression_2"]) == ("sets", 2000)
    assert there["limit_expected"] == pytest.approx(1000 / 1.08)
    fast = isthmus("plan", two(sets), "--local-delay", "1us", "-o", "json").json["joins"][0]["directions"][0]
    assert fast["limit_expected"] == 1500
    assert there["latency_worst_ms"] == 2 * (1.08 + 2) + 26 + 1


def test_options_take_the_place_of_the_file(isthmus: Isthmus, two: Callable[[str], Path]) -> None:
    options = ("--rate", 4500, "--size", 500, "--link-delay", "10ms", "--link-rate", "4Mbit")
    options += ("--local-delay", "2ms", "--local-rate", "unlimited")
    planned = isthmus("plan", two("links = 3"), *options, "-o", "json").json
    assert planned["assumed"] == {
        "message_bytes": 500,
        "local_delay_ms": 2,
        "local_bits_per_second": None,
        "link_delay_ms": 10,
        "link_bits_per_second": 4_000_000,
    }
    join = planned["joins"][0]
    assert (join["links_needed_expression_2"], join["links_best_expression_4"], join["links_planned"]) == (5, None, 5)
    assert join["directions"][0]["latency_expected_ms"] == 23
    assert any("write links = 5" in note for note in planned["notes"])


def test_too_much_is_said_to_be_too_much(isthmus: Isthmus, two: Callable[[str], Path]) -> None:
    result = isthmus("plan", two("links = 3"), "--rate", 9000)
    assert result.code == 0
    assert "note: a cannot carry 18,000 messages/s, whatever its joins do" in result.out
    assert "note: a → b: 9,000 messages/s are too many; expect 3,000" in result.out
    assert "10 links are needed and there are gateways for 6; add gateways" in result.out


def test_auto_is_answered_and_what_runs_now_is_said(isthmus: Isthmus, two: Callable[[str], Path]) -> None:
    join = isthmus("plan", two('links = "auto"'), "-o", "json").json["joins"][0]
    assert (join["links_in_file"], join["links_planned"]) == ("auto", 1)
    more = isthmus("plan", two('links = "auto"'), "--rate", 3500, "-o", "json").json["joins"][0]
    assert more["links_planned"] == 4


def test_a_topology_without_joins_has_only_systems(isthmus: Isthmus, tmp_path: Path) -> None:
    file = write(tmp_path / "group.toml", GROUP)
    assert isthmus("plan", file, "-o", "json").json["joins"] == []
    assert "nothing is joined" in isthmus("plan", file).out


def test_a_join_of_two_brokers_is_planned(isthmus: Isthmus, tmp_path: Path) -> None:
    planned = isthmus("plan", write(tmp_path / "brokers.toml", BROKERS), "-o", "json")
    assert planned.json["worst_route"]["systems"] == ["a", "b"]


def test_a_long_chain_has_a_longest_way(isthmus: Isthmus, tmp_path: Path) -> None:
    """Longer than Python recurses would be, but for the time that a file of that size takes to check."""
    system = '[systems.s{0}]\nkind = "embedded"\norder = "fifo"\nprocesses = ["p"]\ngateways = 1\n'
    join = '[[joins]]\nbetween = ["s{0}", "s{1}"]\norder = "fifo"\n'
    text = "".join(system.format(index) for index in range(60))
    text += "".join(join.format(index, index + 1) for index in range(59))
    worst = isthmus("plan", write(tmp_path / "chain.toml", text), "-o", "json").json["worst_route"]
    assert worst["systems"] == [f"s{index}" for index in range(60)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--link-delay", "fast"), ("--link-delay fast", "a duration is a number with")),
        (("--local-delay", "-1ms"), ("--local-delay -1ms",)),
        (("--link-rate", "many"), ("--link-rate many", "a rate is a number with")),
        (("--link-rate", "0Mbit"), ("nothing would ever arrive",)),
        (("--local-rate", "20"), ("--local-rate 20",)),
        (("--rate", "-1"), ("--rate",)),
        (("--rate", "nan"), ("--rate",)),
        (("--rate", "inf"), ("--rate",)),
        (("--size", "0"), ("--size",)),
    ],
    ids=" ".join,
)
def test_a_bad_option_is_one_line(
    isthmus: Isthmus, two: Callable[[str], Path], options: tuple[str, str], words: tuple[str, ...]
) -> None:
    assert isthmus("plan", two("links = 3"), *options).is_refusal(*words)


def test_a_bad_file_is_one_line(isthmus: Isthmus, tmp_path: Path) -> None:
    assert isthmus("plan", tmp_path / "none.toml").is_refusal("none.toml", "there is no such file")
