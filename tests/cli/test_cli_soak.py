"""`isthmus bench soak`: it explores the large examples, and says what is not as pinned, and what was not begun."""

from __future__ import annotations

import pytest
from cli_support import call
from example_files import EXAMPLES

from isthmus.lab.explorations import PINNED

STATES = 4_958
"""Of `theorem-1`, which takes a second."""


@pytest.mark.parametrize(("pinned", "code", "word"), [(STATES, 0, "holds"), (5_000, 1, "replay: isthmus explore ")])
def test_the_soak_explores_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, pinned: int, code: int, word: str
) -> None:
    monkeypatch.setitem(PINNED, "theorem-1", pinned)
    done = call(capsys, monkeypatch, "bench", "soak", "--only", "theorem-1", "--jobs", "1", "--examples", str(EXAMPLES))
    assert done.code == code
    assert "4,958" in done.out
    assert word in done.out


def test_without_time_nothing_is_begun_and_that_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PINNED, "theorem-1", STATES)
    only = ("--only", "theorem-1", "--minutes", "0")
    done = call(capsys, monkeypatch, "bench", "soak", *only, "--jobs", "1", "--examples", str(EXAMPLES))
    assert "1 of 1 explorations were not begun: there was no time left" in done.out
