"""`isthmus bench targets`: rows are chosen by name, and the script measures this code and a commit beside it."""

from __future__ import annotations

import pytest

from isthmus.lab.benchmarks.targets import ROWS, CannotMeasure, chosen_rows, measure


def test_rows_are_chosen_by_their_names() -> None:
    assert chosen_rows("") == list(ROWS)
    assert [row.name for row in chosen_rows("core-tcp, loopback-100")] == ["loopback-100", "core-tcp"]
    with pytest.raises(CannotMeasure, match="--rows core: there is no such row; there are loopback-100"):
        chosen_rows("core")


def test_a_row_is_measured_beside_an_old_commit() -> None:
    (figure,) = measure(chosen_rows("core-simulated"), 0.3, beside="HEAD")
    assert figure.new, figure.failure
    assert figure.old, figure.failure
    assert min(figure.new.rate, figure.old.rate, figure.microseconds or 0) > 0


def test_messages_cross_between_sites_while_every_os_process_is_profiled() -> None:
    (figure,) = measure(chosen_rows("loopback-100"), 0.3, profile=True)
    assert figure.new, figure.failure
    assert figure.new.rate > 0
    assert figure.new.profiles.keys() == figure.new.cores.keys() == {"madrid", "valencia"}
    assert "tottime" in figure.new.profiles["madrid"]


def test_a_commit_that_is_not_there_is_refused() -> None:
    with pytest.raises(CannotMeasure, match="--beside nonsense: "):
        list(measure(chosen_rows("core-simulated"), 0.3, beside="nonsense"))
