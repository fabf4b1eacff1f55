"""The standard test of one system: six processes under every fault at once, drawn anew for each seed.

The files `examples/*-group.toml` say the same; this is for code that has no file at hand.
"""

from __future__ import annotations

from isthmus.simulator.campaign import Source

_GROUP = """
[systems.site]
kind = "embedded"
order = "{order}"
processes = ["p1", "p2", "p3", "p4", "p5", "p6"]

[simulation]
duration = "1s"
workload = {{ rate = 5, size = [16, 256], burst = 4, reply = 0.15, reply-depth = 6 }}
network = {{ delay = {{ mean = "2ms" }}, loss = 0.1, duplication = 0.05, reordering = 0.1 }}
faults = {{ crashes = 3, partitions = 2, cuts = 2, slow = 1, joins = 2, leaves = 1, swarm = true }}
"""


_STORM = """
[systems.site]
kind = "embedded"
order = "{order}"
heartbeat = "10ms"
suspect-after = "60ms"
processes = ["p1", "p2", "p3", "p4", "p5", "p6"]

[simulation]
duration = "2s"
workload = {{ rate = 3, size = [16, 256], burst = 4, reply = 0.15, reply-depth = 6 }}
network = {{ delay = {{ mean = "2ms" }}, loss = 0.1, duplication = 0.05, reordering = 0.1 }}
faults = {{ crashes = 4, partitions = 12, cuts = 12, slow = 1, joins = 2, leaves = 1, swarm = true }}
"""


def standard_group(order: str) -> Source:
    """The topology of a group of this order."""
    return _GROUP.format(order=order), f"standard {order} group"


def stormy_group(order: str) -> Source:
    """A group that is hardly ever left in peace: for what shows only when one view change runs into the next."""
    return _STORM.format(order=order), f"stormy {order} group"
