"""TO and PO on the command line: simulated and told, and refused where they cannot be run yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import Finished, call

Isthmus: TypeAlias = Callable[..., Finished]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


@pytest.mark.parametrize("protocol", ["to", "po"])
def test_run_refuses_what_is_only_simulated(isthmus: Isthmus, protocol: str) -> None:
    """Better than to run an ordinary group under another name."""
    file = str(EXAMPLES / f"{protocol}-hall.toml")
    assert isthmus("run", file, "--site", "hall").is_refusal(
        "systems.hall.acknowledged", f"{protocol} is simulated only"
    )


def test_a_story_tells_the_stages(isthmus: Isthmus, tmp_path: Path) -> None:
    played = isthmus("simulate", str(EXAMPLES / "to-hall.toml"), "--seed", "3", "--runs", "1", "--trace", str(tmp_path))
    assert played.code == 0
    told = isthmus("story", str(tmp_path / "seed-3"), "hall/p2/1").out
    stages = ("receive", "pre-acknowledge", "acknowledge", "deliver")
    places = [told.index(f" {stage}\n") for stage in stages]
    assert places == sorted(places)
