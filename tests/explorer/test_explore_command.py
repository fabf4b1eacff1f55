"""`isthmus explore`: exit codes, and both ways to print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from example_files import example_file
from patience import seconds


def explore(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isthmus", "explore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds(100), check=False)


def test_what_holds_exits_0_and_says_how_much_was_looked_at() -> None:
    done = explore(str(example_file("theorem-1")), "--messages", "1")
    assert done.returncode == 0, done.stderr
    assert "no violation in any schedule" in done.stdout
    assert "states" in done.stdout


def test_a_violation_exits_1_and_tells_the_schedule() -> None:
    done = explore(str(example_file("theorem-2")))
    assert done.returncode == 1, done.stderr
    assert "  1  s0/p sends s0/p/1" in done.stdout
    assert "violates causal: s1/r delivers s0/q/1, but its cause s0/p/1 has not been delivered here" in done.stdout


def test_json_holds_the_same() -> None:
    done = explore(str(example_file("theorem-2")), "-o", "json")
    assert done.returncode == 1, done.stderr
    result = msgspec.json.decode(done.stdout)
    assert result["verdict"] == "violated"
    assert result["violation"]["property"] == "causal"
    assert result["complete"]
    assert result["schedule"][0] == "1  s0/p sends s0/p/1"


def test_an_early_end_is_no_violation_and_no_proof() -> None:
    done = explore(str(example_file("theorem-1")), "--max-states", "100")
    assert done.returncode == 0, done.stderr
    assert "incomplete" in done.stdout
    result = msgspec.json.decode(explore(str(example_file("theorem-1")), "--max-states", "100", "-o", "json").stdout)
    assert result["verdict"] == "unknown"


def test_bad_input_exits_2_with_one_line(tmp_path: Path) -> None:
    nobody = tmp_path / "nobody.toml"
    nobody.write_text('[systems.s]\nkind = "redis"\nurl = "redis://127.0.0.1"\nstream = "x"\n')
    for arguments in (["missing.toml"], [str(nobody)], [str(example_file("theorem-1")), "--messages", "0"]):
        done = explore(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("isthmus: ")
        assert "Traceback" not in done.stderr
