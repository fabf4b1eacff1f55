"""How tests call the `isthmus` command: in this process where only words matter, in its own where signals do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from patience import seconds

import isthmus
from isthmus.cli.main import main

COMMAND = [sys.executable, "-m", "isthmus"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(isthmus.__file__).parents[1]), "COLUMNS": "200"}
PATIENCE = seconds(100)

GROUP = """
[systems.site]
kind = "embedded"
order = "causal"
processes = ["p1", "p2", "p3"]
"""


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, which has to be one JSON value and nothing else."""
        return msgspec.json.decode(self.out)

    def is_refusal(self, *words: str) -> bool:
        """Exit code 2 and one line that holds these words, and nothing on standard output."""
        lines = self.err.splitlines()
        result = len(lines) == 1 and lines[0].startswith("isthmus: ") and all(word in lines[0] for word in words)
        return self.code == 2 and not self.out and result


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Finished:
    """Run the command in this process. Anything but a proper exit is a traceback to a user, and fails the test."""
    monkeypatch.setattr(sys, "argv", ["isthmus", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    out, err = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return Finished(exit_.value.code, out, err)


def spawn(*arguments: object, patience: float = PATIENCE, **environment: str) -> Finished:
    """Run the command in a process of its own, to its end."""
    ended = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT | environment,
        timeout=patience,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return Finished(ended.returncode, ended.stdout, ended.stderr)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
