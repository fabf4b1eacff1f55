"""Bad input and bad usage: exit code 2, one line per problem that says what and why, and never a traceback."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import GROUP, Finished, call, spawn, write
from example_files import example_file

from isthmus.cli.bench import BENCHMARKS
from isthmus.cli.main import COMMANDS
from isthmus.core.codec import VERSION, encode
from isthmus.core.wire.group import Safe

Isthmus: TypeAlias = Callable[..., Finished]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


# Usage


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["No such command 'nonsense'"]),
        (["--nonsense"], ["No such option: --nonsense"]),
        (["check", "--nonsense", "file"], ["No such option: --nonsense"]),
        (["check"], ["Missing argument", "topology"]),
        (["check", "one", "two"], ["unexpected extra argument", "two"]),
        (["check", "file", "-o", "yaml"], ["'yaml' is not one of 'human', 'json'"]),
        (["simulate", "file", "--seed", "-1"], ["--seed"]),
        (["simulate", "file", "--seed", "one"], ["--seed"]),
        (["simulate", "file", "--runs", "0"], ["--runs"]),
        (["simulate", "file", "--runs"], ["--runs"]),
        (["run", "file"], ["Missing option", "--site"]),
        (["run", "file", "--site", "site", "--size", "2000000"], ["--size"]),
        (["story", "trace"], ["Missing argument"]),
        (["demo", "--seconds", "0"], ["--seconds"]),
        (["demo", "--rate", "100000"], ["--rate"]),
        (["bench", "nonsense"], ["nonsense", "core"]),
    ],
    ids=" ".join,
)
def test_bad_usage_is_refused_in_one_line(isthmus: Isthmus, arguments: list[str], words: list[str]) -> None:
    refused = isthmus(*arguments)
    assert refused.is_refusal(*words, "see `isthmus --help`"), refused


@pytest.mark.parametrize(
    "command", ["", *(f"bench {each.name}" for each in BENCHMARKS), *(each.name for each in COMMANDS)]
)
def test_every_command_explains_itself(isthmus: Isthmus, command: str) -> None:
    explained = isthmus(*command.split(), "--help")
    assert explained.code == 0
    assert "Usage: isthmus" in explained.out
    assert not explained.err


# Topology files


@pytest.mark.parametrize("command", [["check"], ["simulate"], ["run", "--site", "site"]], ids=" ".join)
def test_a_topology_file_that_is_not_there_is_refused(isthmus: Isthmus, command: list[str], tmp_path: Path) -> None:
    refused = isthmus(*command, tmp_path / "nowhere.toml")
    assert refused.is_refusal("nowhere.toml: there is no such file"), refused


@pytest.mark.parametrize("command", [["check"], ["simulate"], ["run", "--site", "site"]], ids=" ".join)
def test_a_directory_is_no_topology_file(isthmus: Isthmus, command: list[str], tmp_path: Path) -> None:
    refused = isthmus(*command, tmp_path)
    assert refused.is_refusal("is not a file"), refused


JOIN = """
[systems.a]
kind = "embedded"
order = "{order}"
processes = ["p1"]
gateways = 1
[systems.b]
kind = "embedded"
order = "causal"
processes = ["p1"]
gateways = 1
[[joins]]
between = ["a", "{other}"]
order = "{join}"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["systems"]),
        ("[systems.site\n", ["line 1"]),
        ("[systems.site]\nkind = 'embedded'\norder = 'causal'\n", ["systems.site.processes"]),
        (GROUP.replace("causal", "casual"), ["systems.site.order", "casual", "causal"]),
        (GROUP.replace("embedded", "carrier"), ["systems.site.kind", "carrier"]),
        (GROUP.replace('"p2"', '"p1"'), ["systems.site.processes", "p1"]),
        (GROUP + "colour = 'red'\n", ["systems.site.colour"]),
        (GROUP + "[simulation]\nduration = 2\n", ["simulation.duration"]),
        (GROUP + "[simulation.network]\nloss = 7\n", ["simulation.network.loss"]),
        (JOIN.format(order="causal", other="c", join="causal"), ["joins[0].between", "c"]),
        (JOIN.format(order="fifo", other="b", join="causal"), ["joins[0]", "causal"]),
        (JOIN.format(order="causal", other="b", join="total"), ["joins[0].order", "total"]),
    ],
)
def test_a_bad_topology_is_refused_with_its_key_and_the_reason(
    isthmus: Isthmus, tmp_path: Path, text: str, words: list[str]
) -> None:
    file = write(tmp_path / "bad.toml", text)
    refused = isthmus("check", file)
    assert refused.is_refusal(str(file), *words), refused


def test_all_problems_of_a_file_are_told_one_line_each(isthmus: Isthmus, tmp_path: Path) -> None:
    text = GROUP.replace("causal", "casual").replace("embedded", "carrier")
    refused = isthmus("check", write(tmp_path / "bad.toml", text))
    lines = refused.err.splitlines()
    assert refused.code == 2
    assert len(lines) == 2
    assert all(line.startswith("isthmus: ") and "bad.toml" in line for line in lines)


def test_bytes_that_are_no_text_are_refused(isthmus: Isthmus, tmp_path: Path) -> None:
    file = tmp_path / "bytes.toml"
    file.write_bytes(b"\xff\xfe\x00[systems]")
    refused = isthmus("check", file)
    assert refused.is_refusal("bytes.toml", "UTF-8"), refused


def test_a_file_cannot_speak_to_the_terminal(isthmus: Isthmus, tmp_path: Path) -> None:
    refused = isthmus("check", write(tmp_path / "bad.toml", GROUP + '"\\u001b[2J" = 1\n'))
    assert refused.code == 2
    assert "\x1b" not in refused.err


# Traces and captures


def test_a_trace_that_is_not_there_is_refused(isthmus: Isthmus, tmp_path: Path) -> None:
    refused = isthmus("story", tmp_path / "nowhere", "site/p1/1")
    assert refused.is_refusal("nowhere: no such file or directory"), refused


def test_a_directory_without_a_trace_is_refused(isthmus: Isthmus, tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", "hello")
    refused = isthmus("story", tmp_path, "site/p1/1")
    assert refused.is_refusal("no trace files", "*.jsonl"), refused


def test_a_trace_of_garbage_knows_no_message(isthmus: Isthmus, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"\x00\xff{]\n" * 100)
    refused = isthmus("story", tmp_path, "site/p1/1")
    assert refused.is_refusal("site/p1/1"), refused


@pytest.mark.parametrize("message", ["", "p1", "site/p1", "site/p1/0", "site/p1/x", "site/p1/1/1", "/p1/1"])
def test_what_is_no_message_id_is_refused(isthmus: Isthmus, tmp_path: Path, message: str) -> None:
    simulated(isthmus, tmp_path)
    refused = isthmus("story", tmp_path, message)
    assert refused.is_refusal("message"), refused


def test_an_unknown_message_is_refused_with_the_nearest_ones(isthmus: Isthmus, tmp_path: Path) -> None:
    simulated(isthmus, tmp_path)
    refused = isthmus("story", tmp_path, "site/p1/1000000")
    assert refused.is_refusal("site/p1/1000000: no such message in the trace", "try site/p1/"), refused


def simulated(isthmus: Isthmus, trace: Path) -> None:
    assert isthmus("simulate", example_file("fifo-group"), "--jobs", 1, "--trace", trace).code == 0


@pytest.mark.parametrize(
    ("capture", "words"),
    [
        (encode(Safe(1, 2))[:-1], ["truncated"]),
        (encode(Safe(1, 2)) + b"\x00\x00", ["truncated"]),
        (b"GET / HTTP/1.1\r\n\r\n", ["version"]),
        (bytes(100), ["version"]),
        (b"\xff\xff\xff\xff" + bytes([VERSION, *bytes(10)]), ["out of bounds"]),
        (b"\x00\x00\x00\x05" + bytes([VERSION]) + b"\xff\xff\xff\xff", ["malformed"]),
    ],
    ids=["cut off", "cut off in the next header", "another protocol", "zeros", "huge", "garbage inside"],
)
def test_a_broken_capture_is_refused(isthmus: Isthmus, tmp_path: Path, capture: bytes, words: list[str]) -> None:
    file = tmp_path / "capture"
    file.write_bytes(capture)
    for output in ("human", "json"):
        refused = isthmus("frames", file, "-o", output)
        assert refused.is_refusal(str(file), *words), refused


def test_a_capture_that_is_not_there_is_refused(isthmus: Isthmus, tmp_path: Path) -> None:
    assert isthmus("frames", tmp_path / "nowhere").is_refusal("nowhere", "No such file")
    assert isthmus("frames", tmp_path).is_refusal(str(tmp_path))


# simulate


def test_an_unknown_mutant_is_refused_with_the_catalogue(isthmus: Isthmus) -> None:
    refused = isthmus("simulate", example_file("causal-group"), "--mutant", "nonsense")
    assert refused.is_refusal("--mutant", "'nonsense'", "causes-ignored"), refused


def test_a_place_for_traces_that_cannot_be_one_is_refused(isthmus: Isthmus, tmp_path: Path) -> None:
    file = write(tmp_path / "taken", "")
    refused = isthmus("simulate", example_file("causal-group"), "--trace", file, "--jobs", 1)
    assert refused.is_refusal(str(file)), refused


# run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--site", "nowhere"], ["there is no system 'nowhere'", "site"]),
        (["--site", "site", "--process", "p9"], ["--process p9", "p1, p2, p3"]),
        (["--site", "site", "--process", "p1"], ["systems.site has no address"]),
        (["--site", "site", "--duration", "soon"], ["--duration soon", "a duration is"]),
        (["--site", "site", "--joining"], ["--joining needs --process"]),
        (
            ["--site", "site", "--joining", "--process", "p1+100000"],
            ["--process p1+100000: is in life 1; in life 0 p1 begins with p1"],
        ),
        (
            ["--site", "site", "--joining", "--process", "p1+100", "--life", "1"],
            ["--process p1+100: is in life 0; in life 1 p1 begins with p1+100000"],
        ),
    ],
    ids=" ".join,
)
def test_a_site_that_cannot_be_run_is_refused(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    refused = spawn("run", write(tmp_path / "group.toml", GROUP), *arguments)
    assert refused.is_refusal(*words), refused


def test_a_port_that_is_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = write(tmp_path / "group.toml", GROUP + f'address = "127.0.0.1:{port}"\n')
        refused = spawn("run", file, "--site", "site")
    assert refused.is_refusal(f"127.0.0.1:{port} is already in use"), refused


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "group.toml", GROUP + 'address = "192.0.2.1:7400"\n')
    refused = spawn("run", file, "--site", "site")
    assert refused.is_refusal("192.0.2.1:7400"), refused


@pytest.mark.parametrize("trace", ["taken", "taken/below"])
def test_a_place_for_traces_of_a_real_run_that_cannot_be_one_is_refused(tmp_path: Path, trace: str) -> None:
    write(tmp_path / "taken", "")
    group = write(tmp_path / "group.toml", GROUP)
    refused = spawn("run", group, "--site", "site", "--trace", tmp_path / trace, "--duration", "1s")
    assert refused.is_refusal(str(tmp_path / trace)), refused


def test_a_process_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    file = write(tmp_path / "group.toml", GROUP + f'address = "127.0.0.1:{port}"\n')
    refused = spawn("run", file, "--site", "site", "--process", "p1+x", "--joining", "--duration", "1s")
    assert refused.is_refusal("p1+x"), refused
