"""Lines that are cut and mended one after the other, for real: the join goes on, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from patience import seconds
from runtime_support import run_with_children

from isthmus.core.ids import MILLISECOND
from isthmus.lab.harness.sites import NEAR, JoinedSites, Layout, LinkQuality

LINKS = 3
CUT = 3.0
"""Seconds: long enough that a link is taken for dead."""


@pytest.mark.real
@pytest.mark.parametrize("rate", [2_000_000, 20_000_000])
def test_a_join_survives_that_each_of_its_lines_is_cut_in_turn(tmp_path: Path, rate: int) -> None:
    """Under load. Before, an `Open` that came late behind a block was taken for the end of the epoch that it found."""
    line = LinkQuality(delay=5 * MILLISECOND, rate=rate)
    layout = Layout(processes=(1, 1), gateways=(2, 2), links=LINKS, order="fifo", assign="transfer-sets", line=line)

    async def play() -> None:
        async with JoinedSites(layout, tmp_path) as sites:
            await sites.linked()
            await sites[NEAR].send("p1", size=1024, rate=rate / 10_000)
            assert sites.lines is not None
            for number in range(LINKS):
                await sites.lines.order(f"cut {number}")
                await asyncio.sleep(CUT)
                await sites.lines.order(f"mend {number}")
                await sites.linked()
            await sites.delivered(100)
            await sites.see_through(seconds(40))

    run_with_children(play(), within=seconds(120))
