"""The examples that come with isthmus, by their names: in which folder each of them lies is no test's business."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

_FILES = {path.stem: path for path in EXAMPLES.rglob("*.toml")}


def example_file(name: str) -> Path:
    """The topology file of this name."""
    return _FILES[name]
