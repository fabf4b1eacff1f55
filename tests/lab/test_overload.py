"""More than a link can take, for real: it waits at its origins, and nobody dies of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from patience import seconds
from runtime_support import run_with_children

from isthmus.core.ids import MILLISECOND
from isthmus.lab.harness.sites import FAR, NEAR, JoinedSites, Layout, LinkQuality
from isthmus.runtime.link.connection import LinkLimits

SENDERS = 12
SIZE = 60_000
SLOW = LinkQuality(delay=25 * MILLISECOND, rate=20_000_000)


@pytest.mark.real
@pytest.mark.parametrize(
    ("order", "assign"), [("fifo", "transfer-sets"), ("causal", "transfer-sets"), ("causal", "striped")]
)
def test_no_load_ends_a_gateway(tmp_path: Path, order: str, assign: str) -> None:
    """Twelve senders of 60 kB, one link of 20 Mbit/s. What they may send at once is more than a link may keep."""
    layout = Layout(
        processes=(SENDERS, 1),
        gateways=(1, 1),
        links=1,
        line=SLOW,
        order=order,
        assign=assign,  # type: ignore[arg-type]
    )

    async def play() -> tuple[int, int, int]:
        async with JoinedSites(layout, tmp_path) as sites:
            await sites.linked()
            for number in range(1, SENDERS + 1):
                await sites[NEAR].send(f"p{number}", size=SIZE)
            accepted = kept = 0
            while accepted * SIZE < LinkLimits().keep + (16 << 20):
                await asyncio.sleep(0.2)
                near = await sites[NEAR].figures()
                accepted = sum(near.accepted.values())
                kept = max(kept, *(link.kept_bytes for link in near.links))
            before = (await sites[FAR].figures()).imported["p1"]
            after = before
            while after < before + 20:
                await asyncio.sleep(0.2)
                after = (await sites[FAR].figures()).imported["p1"]
            assert all(child.alive for child in sites.children.values())
            return accepted, kept, after

    accepted, kept, imported = run_with_children(play(), within=seconds(90))
    assert imported < accepted
    assert kept < 8 << 20, "what the link cannot take waits at its gateway"
