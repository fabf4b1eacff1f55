"""Joins of logs that keep their promises, whatever happens to gateways: docs/design/logs.md."""

from __future__ import annotations

from itertools import pairwise

import pytest
from join_support import join, system
from model_log import ModelLog, World

from isthmus.core.endpoint import Outbox
from isthmus.core.segment import Segment
from isthmus.join.logged import LogGateway, MissingEntries
from isthmus.topology.file import parse
from isthmus.topology.model import Topology
from isthmus.topology.plans import plans


def logs(*names: str, links: int) -> Topology:
    """Logs in a line; each is one origin, with one gateway."""
    text = "".join(system(name, "causal", f"log-{name}", f"{name}1") for name in names)
    text += "".join(join(*pair, "causal", f"links = {links}\n") for pair in pairwise(names))
    return parse(text, "t.toml")


PAIR, LINE = logs("a", "b", links=3), logs("a", "b", "c", links=2)


def follows_births(log: ModelLog, births: dict[int, ModelLog]) -> bool:
    """Whether each entry stands behind all that stood before it in the log that it was born in."""
    for born in births.values():
        place = {entry: number for number, entry in enumerate(log.entries)}
        latest = -1
        for entry in born.entries:
            if entry[0] == born.origin and place[entry] < latest:
                return False
            latest = max(latest, place[entry])
    return True


@pytest.mark.parametrize("trouble", [0, 15, 60])
@pytest.mark.parametrize("topology", [PAIR, LINE], ids=["pair", "line"])
@pytest.mark.parametrize("seed", range(12))
def test_every_entry_is_in_every_log_once_and_behind_its_causes(topology: Topology, seed: int, trouble: int) -> None:
    world = World(topology, seed, messages=80, trouble=trouble)
    world.run()
    births = {log.origin: log for log in world.logs.values()}
    everything = sorted((log.origin, seq) for log in world.logs.values() for seq in range(1, log.local + 1))
    for name, log in world.logs.items():
        assert sorted(log.entries) == everything, name
        assert follows_births(log, births), name
        assert log.checkpoint[0] == len(log.entries), f"{name}: all is confirmed, so nothing has to be read again"


def test_gateways_are_replaced_and_old_ones_refused_in_these_runs() -> None:
    worlds = [World(PAIR, seed, messages=80, trouble=60) for seed in range(12)]
    for world in worlds:
        world.run()
    assert sum(world.replaced for world in worlds) > 50
    assert sum(world.refused for world in worlds) > 10


def test_a_gap_in_what_is_read_is_an_error() -> None:
    origin, *_, own = PAIR.slots("a")
    gateway = LogGateway(own, plans(PAIR, "a"))
    gateway.claimed(1, {}, {origin: 10}, 0, Outbox())
    gateway.read(Segment.pack([(origin, 11, b"")]), 0, Outbox())
    with pytest.raises(MissingEntries):
        gateway.read(Segment.pack([(origin, 13, b"")]), 0, Outbox())
