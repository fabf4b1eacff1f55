"""What simulated applications are asked to do happens, or the run has failed."""

import pytest

from isthmus.simulator.run import Run
from isthmus.topology.file import parse

GROUP = '[systems.a]\nkind = "embedded"\norder = "causal"\nprocesses = ["p1", "p2", "p3"]\n'
JOINED = (
    GROUP
    + GROUP.replace("systems.a", "systems.b")
    + '[[joins]]\nbetween = ["a", "b"]\norder = "causal"\n'
    + "[simulation]\n"
).replace('"p3"]', '"p3"]\ngateways = 2')
CLUSTERS = GROUP + '[systems.a.clusters]\ndelivery = "rst"\n'
DAISY = (
    '[systems.a]\nkind = "embedded"\norder = "causal"\nprocesses = ["p1", "p2", "p3"]\n[systems.a.daisy]\n'
    '[systems.a.daisy.parts.x]\nprocesses = ["p1", "p2"]\n[systems.a.daisy.parts.y]\nprocesses = ["p3"]\n'
)
TO = GROUP.replace("causal", "total") + '[systems.a.acknowledged]\nprotocol = "to"\n'


@pytest.mark.parametrize(
    "text", [GROUP, JOINED, CLUSTERS, DAISY, TO], ids=["group", "joined", "clusters", "daisy", "to"]
)
def test_a_burst_larger_than_the_usual_window_is_sent(text: str) -> None:
    workload = '[simulation.workload]\nrate = 20000\nburst = 1500\nsenders = ["a/p1"]\n'
    outcome = Run(parse(text.replace("[simulation]\n", "") + workload, "t.toml"), 1, check=False).play()
    assert not outcome.violated, outcome
    assert outcome.deliveries > 1500


def test_a_rate_of_next_to_nothing_sends_nothing_and_shows_nothing() -> None:
    outcome = Run(parse(GROUP + "[simulation.workload]\nrate = 1e-300\n", "t.toml"), 1).play()
    assert outcome.deliveries == 0
    assert outcome.violated
    assert "nothing was delivered" in outcome.stuck
