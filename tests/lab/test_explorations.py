"""The long explorations: their pins are those of the examples, and whatever is not as pinned is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_files import example_file

from isthmus.lab.explorations import PINNED, explored
from isthmus.lab.mutants.catalogue import find
from isthmus.lab.mutants.mutant import alive

STATES = 4_958
"""Of `theorem-1`, which takes a second."""


@pytest.mark.parametrize("name", PINNED)
def test_an_example_says_how_many_states_it_has(name: str) -> None:
    assert f"goes through all {PINNED[name]:,} states." in example_file(name).read_text()


def test_a_striped_join_with_a_crash_and_two_senders_is_among_them() -> None:
    assert 0 < PINNED["theorem-3-striped-crash"] <= 12_000_000
    assert "crashes = 1\n" in example_file("theorem-3-striped-crash").read_text()


def test_what_is_as_pinned_is_not_wrong() -> None:
    result = explored(example_file("theorem-1"), STATES)
    assert (result.name, result.states, result.wrong) == ("theorem-1", STATES, "")


def test_a_count_that_differs_is_wrong() -> None:
    assert explored(example_file("theorem-1"), 5_000).wrong.startswith("4,958 states instead of 5,000; ")


def test_a_search_that_stops_early_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(example_file("theorem-1").read_text() + "max-states = 100\n")
    assert explored(file, STATES).wrong.startswith("incomplete after 10")


def test_a_violation_is_wrong() -> None:
    with alive(find("everybody-numbers")):
        assert explored(example_file("theorem-3"), 23_722).wrong.startswith("violates ")
