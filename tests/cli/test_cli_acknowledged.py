"""TO and PO on the command line: simulated and told, and run for real."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import Finished, call
from example_files import example_file

from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

Isthmus: TypeAlias = Callable[..., Finished]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.mark.parametrize("protocol", ["to", "po"])
def test_run_sees_everything_through_on_a_medium_that_loses(isthmus: Isthmus, protocol: str, tmp_path: Path) -> None:
    file, trace = str(example_file(f"{protocol}-hall")), tmp_path / "trace"
    options = ("--rate", "100", "--duration", "300ms", "--loss", "0.05", "--trace", str(trace), "-o", "json")
    ran = isthmus("run", file, "--site", "hall", *options)
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert result["delivered"] == 5 * sum(result["accepted"].values()) > 0
    assert f"hall is on {'hub' if protocol == 'to' else 'multicast'}" in ran.err
    events = list(read_trace(trace).events())
    assert {"receive", "deliver"} <= {event.event for event in events}
    expected = ("integrity", "agreement", "fifo", *(("total",) if protocol == "to" else ()))
    assert not judge(events, expected).violated


def test_run_refuses_what_makes_no_sense(isthmus: Isthmus) -> None:
    hall = ("run", str(example_file("to-hall")), "--site", "hall")
    assert isthmus(*hall, "--medium", "multicast").is_refusal("multicast is none", "Use the hub")
    assert isthmus(*hall, "--hub").is_refusal("systems.hall has no address")
    group = ("run", str(example_file("total-group")), "--site", "site")
    assert isthmus(*group, "--loss", "0.1").is_refusal("systems.site is on no medium", "--loss")


def test_a_hub_can_be_run_by_itself(isthmus: Isthmus, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = example_file("to-hall").read_text().replace("order =", f'address = "127.0.0.1:{port - 5}"\norder =', 1)
    file = tmp_path / "hall.toml"
    file.write_text(text)
    ran = isthmus("run", str(file), "--site", "hall", "--hub", "--duration", "50ms")
    assert ran.code == 0, ran.err
    assert f"hall is on hub 127.0.0.1:{port}" in ran.err


def test_a_story_tells_the_stages(isthmus: Isthmus, tmp_path: Path) -> None:
    played = isthmus("simulate", str(example_file("to-hall")), "--seed", "3", "--runs", "1", "--trace", str(tmp_path))
    assert played.code == 0
    result = isthmus("story", str(tmp_path / "seed-3"), "hall/p2/1").out
    stages = ("receive", "pre-acknowledge", "acknowledge", "deliver")
    places = [result.index(f" {stage}\n") for stage in stages]
    assert places == sorted(places)
