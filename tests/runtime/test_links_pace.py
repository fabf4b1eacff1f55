"""The pace of a link whose line has seen little so far: what a few words took says nothing of what the line can do."""

from __future__ import annotations

import pytest
from test_links_window import World

from isthmus.core.ids import MILLISECOND


@pytest.mark.parametrize("pause", [20, 250])
def test_a_line_that_has_carried_little_is_full_as_soon_as_there_is_much(pause: int) -> None:
    """A join that opens, and a join at a fraction of its capacity: then comes the load."""
    world = World(2_500_000, 25 * MILLISECOND, block=4096)
    world.produce_every = pause * MILLISECOND
    world.run(5)
    assert world.window.rate < 500_000
    world.block, world.produce_every = 48 << 10, 0
    world.run(0.6)
    assert world.utilisation(2) > 0.97
