"""Who runs a system hears when a join of it has no gateway, and when it has one again; each once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from runtime_support import run_test, until
from site_support import JoinedPair

from isthmus.core.endpoint import View
from isthmus.core.ids import Directory, ProcessName, incarnation_of
from isthmus.runtime.seats import SeatWatch

NAMES = Directory([ProcessName("madrid", name) for name in ("p1", "g1", "g2")])
NONE = (
    "madrid has no gateway to valencia: nothing becomes stable until one comes, "
    "and senders stop when their windows are full. Start one."
)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "isthmus.runtime.seats")
    return caplog


def lines(said: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in said.records if record.name == "isthmus.runtime.seats"]


def test_a_join_that_loses_its_last_gateway_is_named_once(said: pytest.LogCaptureFixture) -> None:
    watch = SeatWatch("madrid", {"valencia": frozenset([1]), "paris": frozenset([1, 2])}, NAMES.name)
    watch.saw(View(1, (0, 1, 2)))
    assert lines(said) == []
    watch.saw(View(2, (0, 2)))
    watch.saw(View(2, (0, 2)))
    watch.saw(View(3, (0, 2, incarnation_of(5, 1))))
    assert lines(said) == [NONE]
    watch.saw(View(4, (0, 2, incarnation_of(1, 3))))
    watch.saw(View(3, (0, 2)))
    assert lines(said) == [NONE, "madrid has a gateway to valencia again: g1+3"]


def test_real_processes_say_it_when_their_last_gateway_dies(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with JoinedPair(tmp_path, gateways=1) as pair:
            pair.kill("madrid/g1")
            await until(lambda: bool(lines(said)))
            await pair.send("madrid/p1", "late")
            await pair.start("madrid", ["g1+1"], joining=True)
            await pair.until_stable()
            assert lines(said) == [NONE, "madrid has a gateway to valencia again: g1+1"]

    run_test(main())
