"""A start in a blink: what a command imports before it knows that it is wanted. Modules are counted, not seconds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_support import ENVIRONMENT, spawn
from example_files import example_file

from isthmus.cli.bench import BENCHMARKS
from isthmus.cli.main import COMMANDS

HEAVY = {
    "isthmus.explorer", "isthmus.lab", "isthmus.runtime.driver", "isthmus.simulator",
    "multiprocessing", "numpy", "pyarrow", "pydantic", "pyspark", "rich", "uvloop",
}  # fmt: skip
MOST_MODULES = 260
"""Python itself, typer and msgspec are about 170."""

RUN = """
import sys
from isthmus.cli.main import main
try:
    main()
except SystemExit as end:
    print()
    print(end.code, *sys.modules)
"""


def started(*arguments: object) -> tuple[int, set[str]]:
    """The exit code of a command, and every module that was imported at its end."""
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=100, check=True)
    code, *modules = ended.stdout.splitlines()[-1].split()
    return int(code), set(modules)


def test_help_imports_no_command() -> None:
    code, modules = started("--help")
    assert code == 0
    assert not modules & (HEAVY | {"asyncio", "isthmus.planner"})
    assert {name for name in modules if name.startswith("isthmus.cli.")} == {
        "isthmus.cli.commands", "isthmus.cli.console", "isthmus.cli.main"
    }  # fmt: skip
    assert len(modules) < MOST_MODULES


@pytest.mark.parametrize("file", ["two-sites", "to-hall", "daisy-two-levels", "clusters-mixed"])
def test_a_check_imports_the_topology_and_what_prints_a_table(file: str) -> None:
    code, modules = started("check", example_file(file))
    assert code == 0
    assert modules & HEAVY == {"rich"}
    assert not modules & {"asyncio", "isthmus.planner", "isthmus.ordering.group.member", "rich.progress"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["check", "file", "-o", "yaml"],
        ["simulate", "file", "--seed", "-1"],
        ["simulate", "file", "--runs", "many"],
        ["plan", "file", "--rate", "nan"],
        *([each.name, "--nonsense"] for each in COMMANDS),
        *(["bench", each.name, "--nonsense"] for each in BENCHMARKS),
    ],
    ids=" ".join,
)
def test_a_usage_error_imports_nothing_that_only_a_run_needs(arguments: list[str]) -> None:
    code, modules = started(*arguments)
    assert code == 2
    assert not modules & HEAVY
    assert len(modules) < MOST_MODULES


def test_the_list_of_commands_has_whole_sentences_under_its_headings() -> None:
    listed = spawn("--help", COLUMNS="80").out
    headings = ["Use:", "Study:", "Operate:", "Develop:"]
    assert [line for line in listed.splitlines() if line in headings] == headings
    assert max(map(len, listed.splitlines())) <= 80
    words = " ".join(listed.split())
    assert all(f"{command.name} {command.sentence}" in words for command in COMMANDS)


def test_a_benchmark_shows_its_own_options_only() -> None:
    shown = spawn("bench", "kills", "--help").out
    assert "--rounds" in shown
    assert "--seeds" not in shown
