"""The list of holes that are known, and what tests of campaigns say of runs that fail."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from isthmus.lab.holes import load_holes
from isthmus.simulator.run import RunOutcome

ROOT = Path(__file__).parents[2]
HOLES = load_holes(ROOT / "tests" / "known-holes.toml")


def news(outcomes: Iterable[RunOutcome], name: str = "") -> list[str]:
    """The failing runs that no entry of the list explains, in words; how many it does explain is printed."""
    found = []
    for outcome in outcomes:
        cause = HOLES.explain(outcome.failed, outcome.causes)
        if cause:
            print(f"{name} seed {outcome.seed} fails by a known hole: {cause}")
        elif outcome.violated:
            found.append(f"{name} seed {outcome.seed} {outcome.causes}: {'; '.join(outcome.reasons)}")
    return found
