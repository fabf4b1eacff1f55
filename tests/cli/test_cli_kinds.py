"""A kind of system is one line in the table of each layer: here is one that no other code has heard of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import Finished, call, write
from msgspec import Struct
from msgspec.structs import replace

from isthmus.core.ids import MILLISECOND
from isthmus.explorer import kinds as explored
from isthmus.planner import kinds as planned
from isthmus.simulator.systems import table as simulated
from isthmus.simulator.systems.group import SimulatedSystem
from isthmus.simulator.systems.kind import SimulatedKind, Traits
from isthmus.topology.file import parse
from isthmus.topology.kinds import table as topologies
from isthmus.topology.kinds.group import KEYS, read_group
from isthmus.topology.kinds.kind import Kind, SystemTable
from isthmus.topology.model import System, Topology
from isthmus.topology.problem import Problems, TopologyError
from isthmus.topology.read.simulation import Simulation
from isthmus.topology.read.table import Table

Isthmus: TypeAlias = Callable[..., Finished]

TEXT = """
[systems.ward]
kind = "embedded"
order = "causal"
processes = ["p1", "p2", "p3"]
[systems.ward.choir]
voices = 3

[simulation]
duration = "200ms"
[simulation.workload]
rate = 100
"""


class ChoirTable(Struct, frozen=True):
    voices: int


class Choir(SimulatedSystem):
    """A group whose members wait a little longer, so that it is seen which code has made it."""

    made = 0

    def __init__(self, topology: Topology, system: System, *others: object, **options: bool) -> None:
        Choir.made += 1
        slow = replace(system, heartbeat=system.own(ChoirTable).voices * 10 * MILLISECOND)
        super().__init__(topology, slow, *others, **options)  # type: ignore[arg-type]


def read_choir(table: Table, system: System) -> System:
    inner = table.table("choir")
    voices = inner.integer("voices", 4, 2, 9)
    inner.close()
    return replace(read_group(table, system), table=ChoirTable(voices))


def check_choirs(report: Problems, topology: Topology, systems: Sequence[System]) -> None:
    for system in systems:
        if system.own(ChoirTable).voices > len(system.processes):
            report.refuse(f"systems.{system.name}.choir.voices", "more voices than processes", "write fewer")


def picture_of(system: System) -> SystemTable:
    voices = system.own(ChoirTable).voices
    return SystemTable(f"{system.name} sings", ("voices",), [(str(voices),)], [{"voices": voices}])


def traits_of(system: System, simulation: Simulation) -> Traits:
    return Traits(holds=True)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    choir = Kind(table="choir", keys=KEYS, read=read_choir, check=check_choirs, picture=picture_of)
    monkeypatch.setitem(topologies.KINDS, "choir", choir)
    monkeypatch.setitem(simulated.KINDS, "choir", SimulatedKind(make=Choir, traits=traits_of))
    monkeypatch.setitem(planned.KINDS, "choir", planned.KINDS["group"])
    monkeypatch.setitem(explored.KINDS, "choir", explored.KINDS["group"])


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(write(tmp_path / "choir.toml", TEXT))


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


def test_check_reads_and_shows_it(isthmus: Isthmus, file: str) -> None:
    assert "ward sings" in isthmus("check", file).out
    (system,) = isthmus("check", file, "-o", "json").json["systems"]
    assert system["choir"] == [{"voices": 3}]


def test_its_own_rules_are_checked() -> None:
    with pytest.raises(TopologyError, match="more voices than processes; write fewer"):
        parse(TEXT.replace("voices = 3", "voices = 5"), "t.toml")


def test_it_is_simulated_and_judged_like_any_other(isthmus: Isthmus, file: str, tmp_path: Path) -> None:
    before = Choir.made
    played = isthmus("simulate", file, "--runs", 2, "--jobs", 1, "--trace", tmp_path / "trace", "-o", "json")
    assert played.code == 0, played.err
    result = played.json
    assert (result["failures"], Choir.made) == ([], before + 2)
    assert result["deliveries"] > 0
    assert list((tmp_path / "trace").rglob("*.jsonl"))


def test_its_line_says_how_it_is_explored_and_planned(isthmus: Isthmus, file: str) -> None:
    assert isthmus("explore", file, "--messages", "1").is_refusal("systems.ward: nothing joins this group")
    assert isthmus("plan", file).code == 0
