"""`isthmus bench scale`, as a command."""

from __future__ import annotations

import pytest
from cli_support import call


def test_the_command_prints_what_was_simulated_beside_the_forecast(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--only", "clusters", "--processes", "16", "--seconds", "0.5")
    done = call(capsys, monkeypatch, "bench", "scale", *options, "-o", "json")
    assert done.code == 0
    (figure,) = done.json["scale"]
    assert figure["violations"] == []
    assert "exactly once" in figure["checked"]
    refused = call(capsys, monkeypatch, "bench", "scale", "--only", "nonsense")
    assert refused.code == 2
    assert "there are clusters, daisy, joined" in refused.err
