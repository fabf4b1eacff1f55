"""Standard tests: one system, or a few joined ones, under every fault at once, drawn anew for each seed.

The files `examples/groups/*.toml` say the same of one system; this is for code that has no file at hand. The joined
ones are small and never left in peace, so that a mistake shows within a few short runs.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Literal, TypeAlias

from isthmus.simulator.campaign import Source

Scenario: TypeAlias = Literal[
    "group",
    "storm",
    "large group",
    "narrow group",
    "striped",
    "sets",
    "fifo",
    "logs",
    "line",
    "paths",
    "turnover",
    "returns",
    "striped cuts",
    "fifo cuts",
    "striped deaths",
    "answers",
    "restarts",
    "last gateways",
    "last gateways in a line",
    "clusters",
    "coordinators",
    "daisy",
    "deep daisy",
    "star daisy",
    "early daisy",
    "dying daisy",
    "changing daisy",
    "recipients daisy",
    "joined daisies",
    "to",
    "slow to",
    "po",
    "brokers",
]

_GROUP = """
[systems.site]
kind = "embedded"
order = "{order}"
{times}processes = {processes}

[simulation]
duration = "{duration}"
workload = {{ rate = {rate}, size = [16, 256], burst = 4, reply = {reply}, reply-depth = 6 }}
network = {{ delay = {{ mean = "2ms" }}, loss = 0.1, duplication = 0.05, reordering = 0.1 }}
faults = {{ {faults}, slow = 1, joins = 2, leaves = 1, swarm = true }}
"""

_NARROW = """
[systems.site]
kind = "embedded"
order = "{order}"
processes = ["p1", "p2", "p3", "p4"]

[simulation]
duration = "600ms"
workload = {{ rate = 150, size = 8000, burst = 3 }}
network = {{ delay = {{ mean = "4ms" }}, bandwidth = "10Mbit", loss = 0.3 }}
"""

_QUICK = 'heartbeat = "10ms"\nsuspect-after = "60ms"\n'
"""Systems that suspect soon, so that much happens in a short run."""

_SHOP = '[systems.shop]\nkind = "embedded"\norder = "causal"\n'

_SITE = """
[systems.{name}]
kind = "embedded"
order = "{order}"
heartbeat = "{heartbeat}"
suspect-after = "{suspect}"
processes = ["p1", "p2"{more}]
gateways = {gateways}
"""

_JOIN = """
[[joins]]
between = ["{near}", "{far}"]
order = "{order}"
"""

_BROKER = """
[systems.{name}]
kind = "redis"
url = "redis://127.0.0.1:{port}"
stream = "{name}"
order = "causal"
gateways = 1
"""

_FORGET = """
[simulation]
duration = "600ms"
workload = { rate = 80, size = [16, 64], burst = 4, reply = 0.1 }
network = { delay = { mean = "1ms" } }
links = { delay = { mean = "5ms" }, bandwidth = "20Mbit" }
faults = { crashes = 2, pauses = 3, cuts = 1, broker-kills = 4, link-cuts = 2, swarm = true }
"""

_SETS = """assign = "transfer-sets"
transfer-sets = { g1 = ["p1"], g2 = ["*"] }
"""

_CRASHES = """
[simulation]
duration = "600ms"
workload = { rate = 25, size = [16, 64], burst = 12, reply = 0.1 }
network = { delay = { mean = "2ms" }, loss = 0.05, reordering = 0.1 }
links = { delay = { mean = "5ms" }, bandwidth = "20Mbit" }
faults = { crashes = 2, partitions = 2, joins = 3, link-cuts = 6, swarm = true }
"""

_TURNOVER = """
[simulation]
duration = "1500ms"
workload = { rate = 10, size = [16, 64], burst = 4, reply = 0.1 }
network = { delay = { mean = "1ms" } }
links = { delay = { mean = "5ms" }, bandwidth = "20Mbit" }
faults = { crashes = 4, joins = 8, link-cuts = 2 }
"""

_RETURNS = """
[simulation]
duration = "600ms"
workload = { rate = 40, size = [16, 64], burst = 4 }
network = { delay = { mean = "1ms" } }
links = { delay = { mean = "3ms" }, bandwidth = "20Mbit" }
faults = { crashes = 6, joins = 60, link-cuts = 20 }
"""

_CUTS = """
[simulation]
duration = "1500ms"
workload = { rate = 20, size = [16, 64], burst = 2, reply = 0.1 }
network = { delay = { mean = "1ms" }, loss = 0.2 }
links = { delay = { mean = "2ms" }, bandwidth = "20Mbit" }
faults = { link-cuts = 12 }
"""

_DEATHS = _CUTS.replace("link-cuts = 12", "crashes = 2, joins = 3")

_ANSWERS = """
[simulation]
duration = "600ms"
workload = { rate = 10, size = [16, 64], reply = 0.1 }
network = { delay = { mean = "500us" }, loss = 0.05 }
links = { delay = "50us" }
faults = { cuts = 10 }
"""

_RESTARTS = """
[simulation]
duration = "700ms"
workload = { rate = 20, size = [16, 64], burst = 4, reply = 0.1 }
network = { delay = { mean = "2ms" }, loss = 0.1, reordering = 0.1 }
links = { delay = { mean = "5ms" }, bandwidth = "20Mbit" }
faults = { restarts = 2, link-cuts = 2, crashes = 1, joins = 1 }
"""

_LAST = """
[simulation]
duration = "200ms"
workload = { rate = 20, size = [16, 64] }
faults = { crashes = 1 }
"""

_CHATTER = """
[simulation]
duration = "400ms"
workload = { rate = 25, size = [16, 64], burst = 3, reply = 0.7, reply-depth = 8 }
network = { delay = { mean = "3ms" }, loss = 0.1, duplication = 0.05, reordering = 0.1 }
"""

_WILT = """
[simulation]
duration = "400ms"
workload = { rate = 8, size = [16, 32], burst = 3, reply = 0.2, reply-depth = 5 }
network = { delay = { mean = "2ms" }, loss = 0.1, duplication = 0.05, reordering = 0.1 }
faults = { crashes = 3, cuts = 2 }
"""

_JOINED_DAISIES = """
[systems.{name}]
kind = "embedded"
order = "causal"
heartbeat = "10ms"
suspect-after = "60ms"
processes = ["p1", "p2", "p3"]
gateways = 3
daisy = {{ audience = "everybody", parts.p.processes = ["p1", "p2", "p3"], parts.g.processes = ["g1", "g2", "g3"] }}
"""

_WITHER = """
[simulation]
duration = "300ms"
workload = { rate = 15, size = [16, 32], burst = 3, reply = 0.1 }
network = { delay = { mean = "2ms" }, loss = 0.1, reordering = 0.1 }
links = { delay = { mean = "5ms" }, bandwidth = "20Mbit" }
faults = { crashes = 1, cuts = 2, link-cuts = 2 }
"""

_HALL = """
[systems.hall]
kind = "embedded"
order = "{order}"
heartbeat = "40ms"
suspect-after = "400ms"
processes = ["p1", "p2", "p3", "p4", "p5"]
acknowledged = {{ protocol = "{protocol}", window = 2 }}

[simulation]
duration = "150ms"
workload = {{ rate = 60, size = [16, 64], burst = 6, reply = 0.1, reply-depth = 4 }}
network = {{ delay = {{ min = "100us", max = "2ms" }}, bandwidth = "10Mbit", loss = 0.1 }}
faults = {{ crashes = 1, slow = 3 }}
"""

_PATHS = """
[[paths]]
process = "a/*"
links = [["a/g1", "b/g1"], ["b/g1", "c/g1"]]
[[paths]]
process = "b/*"
links = [["b/g2", "a/g2"], ["b/g2", "c/g2"]]
[[paths]]
process = "c/*"
links = [["c/g1", "a/g1"], ["a/g1", "b/g2"]]
"""


def standard_group(order: str) -> Source:
    """The topology of a group of this order."""
    faults = "crashes = 3, partitions = 2, cuts = 2"
    return _group(order, 6, times="", duration="1s", rate=5, faults=faults), f"standard {order} group"


def stormy_group(order: str) -> Source:
    """A group that is hardly ever left in peace: for what shows only when one view change runs into the next."""
    faults = "crashes = 4, partitions = 12, cuts = 12"
    return _group(order, 6, times=_QUICK, duration="2s", rate=3, faults=faults), f"stormy {order} group"


def large_group(order: str) -> Source:
    """A group in which not everybody speaks to everybody, and several crash at once.

    Everybody may answer what everybody sends, so the chance of an answer is smaller in it.
    """
    faults = "crashes = 5, partitions = 2, cuts = 2"
    return _group(order, 14, times=_QUICK, duration="300ms", rate=25, faults=faults, reply=0.05), f"large {order} group"


def narrow_group(order: str) -> Source:
    """A group on lines that carry little and lose much of it, where nobody crashes: who is left out was too slow."""
    text = _NARROW.format(order=order)
    return text, f"narrow {order} group"


def _group(order: str, size: int, reply: float = 0.15, **settings: object) -> str:
    processes = ", ".join(f'"p{number}"' for number in range(1, size + 1))
    return _GROUP.format(order=order, processes=f"[{processes}]", reply=reply, **settings)


def _with_journals(systems: str) -> str:
    return re.sub(r"\[systems\.(\w+)\]\n", r'[systems.\1]\njournal = "journal/\1"\n', systems)


def _sites(*orders: str, gateways: int = 3, more: str = "", heartbeat: str = "10ms", suspect: str = "60ms") -> str:
    """Systems a, b, … of these orders."""
    return "".join(
        _SITE.format(name=name, order=order, more=more, gateways=gateways, heartbeat=heartbeat, suspect=suspect)
        for name, order in zip("abcd", orders, strict=False)
    )


def _slow_pair(order: str, gateways: int = 3, more: str = "") -> str:
    """Two systems that take long to send a lost PDU again."""
    return _sites(order, order, gateways=gateways, more=more, heartbeat="40ms", suspect="1s")


def _slow_to_repeat(order: str) -> str:
    """The same, but soon aware that somebody is gone."""
    return _sites(order, order, heartbeat="40ms", suspect="200ms")


def _join(near: str, far: str, order: str) -> str:
    return _JOIN.format(near=near, far=far, order=order)


def standard_join(scenario: Scenario) -> Source:
    """Joined systems: two of one kind, or three, as the name says..

    In `turnover` gateways come and go until nobody is left who was there at the beginning. In `returns`
    processes come back soon, while messages of their predecessors are still on their way. Where it says `cuts`, links
    fail and come back under load and nothing else does, so that messages of one origin go by one link after another.
    With `deaths` processes die there instead, so that epochs end while much is under way. In
    `answers` links are quicker than the systems that they join, so that an answer is back before its question is
    everywhere. In `last gateways` each side has one, and one process of each side crashes;
    the same with three systems in a line.
    """
    causal, fifo = _join("a", "b", "causal"), _join("a", "b", "fifo")
    line = causal + _join("b", "c", "causal")
    triangle = fifo + _join("b", "c", "fifo") + _join("c", "a", "fifo")
    texts: dict[Scenario, str] = {
        "striped": _sites("causal", "causal") + causal + _CRASHES,
        "sets": _sites("causal", "causal", gateways=2) + causal + _SETS + _CRASHES,
        "fifo": _sites("fifo", "fifo") + fifo + _CRASHES,
        "logs": _sites("total", "total") + causal + _CRASHES,
        "line": _sites("causal", "causal", "causal", gateways=2) + line + _CRASHES,
        "paths": _sites("fifo", "fifo", "fifo", gateways=2) + triangle + _PATHS + _CRASHES,
        "turnover": _sites("causal", "causal") + causal + _TURNOVER,
        "returns": _sites("causal", "causal", more=', "p3"', heartbeat="20ms", suspect="200ms") + causal + _RETURNS,
        "striped cuts": _slow_pair("causal") + causal + _CUTS,
        "fifo cuts": _slow_pair("fifo") + fifo + _CUTS,
        "striped deaths": _slow_to_repeat("causal") + causal + _DEATHS,
        "restarts": _with_journals(_sites("causal", "causal", gateways=2, more=', "p3"')) + causal + _RESTARTS,
        "last gateways": _sites("causal", "causal", gateways=1) + causal + _LAST,
        "last gateways in a line": _sites("causal", "causal", "causal", gateways=1) + line + _LAST,
        "answers": _slow_pair("causal", gateways=2, more=', "p3", "p4"') + causal + _SETS + _ANSWERS,
    }
    return texts[scenario], f"standard {scenario} join"


def _four(part: str) -> list[str]:
    """The processes of one part. (Python writes a list of names as TOML does.)"""
    return [f"{part}{number}" for number in (1, 2, 3, 4)]


def standard_clusters(delivery: str) -> Source:
    """Three clusters of four, and a fourth of their agents and one more process, all of one delivery.

    With fewer than four a chain of causes is too short to go past whoever waits for it.
    """
    parts = {part: _four(part) for part in "abc"}
    text = f"{_SHOP}processes = {[*chain(*parts.values()), 'hub']}\n"
    text += f'[systems.shop.clusters]\ndelivery = "{delivery}"\nprocesses = ["hub"]\n'
    for part, members in parts.items():
        text += f'[systems.shop.clusters.parts.{part}]\ndelivery = "{delivery}"\nprocesses = {members}\n'
    return text + _CHATTER, f"standard {delivery} clusters"


_DAISIES: dict[str, str] = {
    "daisy": "",
    "deep daisy": "",
    "star daisy": "star = true",
    "early daisy": 'forward = "on-receipt"',
    "dying daisy": 'forward = "on-receipt"',
    "recipients daisy": 'inside = "recipients"',
}
"""What scenarios with daisies have below `[systems.shop.daisy]`."""


def standard_changing_daisy() -> Source:
    """Six processes in one group that is too large, and three that come later; sorted by who talks to whom."""
    processes = [f"p{number}" for number in range(1, 10)]
    text = f"{_SHOP}{_QUICK}processes = {processes}\nstandby = {processes[6:]}\n"
    text += "[systems.shop.daisy]\nsplit-above = 5\nmerge-below = 3\nreconsider = 100\n"
    return text + _WILT, "standard changing daisy"


def standard_joined_daisies() -> Source:
    """Two daisies of two local groups each, one of which are gateways, with a causal join."""
    text = "".join(_JOINED_DAISIES.format(name=name) for name in "ab")
    return text + _join("a", "b", "causal") + _WITHER, "standard joined daisies"


def standard_daisy(deep: bool, option: str = "") -> Source:
    """Three local groups of four below one servers' group; deep: below two, and a group of hyper-servers.

    With four in a group two servers of it may crash, one after the other.
    """
    parts = {part: _four(part) for part in "abc"}
    above = {"a": "x.parts.", "b": "x.parts.", "c": "y.parts."} if deep else dict.fromkeys(parts, "")
    text = f"{_SHOP}{_QUICK}processes = {[*chain(*parts.values())]}\n"
    text += f"[systems.shop.daisy]\n{option}\n" if option else ""
    for part, members in parts.items():
        text += f"[systems.shop.daisy.parts.{above[part]}{part}]\nprocesses = {members}\n"
    return text + _WILT, f"standard {'deep ' if deep else ''}daisy{f', {option}' if option else ''}"


def standard_brokers() -> Source:
    """Two logs whose gateways and brokers die, and whose gateways are paused until others have taken over."""
    text = "".join(_BROKER.format(name=name, port=6379 + place) for place, name in enumerate("ab"))
    return text + _join("a", "b", "causal") + _FORGET, "standard brokers"


def standard_acknowledged(scenario: Scenario) -> Source:
    """Five entities on a medium, with a small window: one crash, slow ones, and losses everywhere.

    In `slow to` they are only slow, so that nothing makes them go back and takes what is unfinished along.
    """
    protocol = scenario[-2:]
    text = _HALL.format(order="total" if protocol == "to" else "fifo", protocol=protocol)
    if scenario == "slow to":
        text = text.replace("loss = 0.1", "loss = 0").replace("crashes = 1, slow = 3", "slow = 6")
    return text, f"standard {scenario}"


def standard(scenario: Scenario, order: str) -> Source:
    """The topology of a scenario. The order is that of a group; a join has its own.

    In a `dying daisy` most processes crash: nothing arrives for long, and what does must still be in order.
    """
    if scenario in ("to", "slow to", "po"):
        return standard_acknowledged(scenario)
    if scenario == "brokers":
        return standard_brokers()
    if scenario == "joined daisies":
        return standard_joined_daisies()
    if scenario == "changing daisy":
        return standard_changing_daisy()
    if scenario == "dying daisy":
        text, name = standard_daisy(False, _DAISIES[scenario])
        return text.replace("crashes = 3", "crashes = 9"), f"{name}, dying"
    if scenario in _DAISIES:
        return standard_daisy(scenario == "deep daisy", _DAISIES[scenario])
    if scenario in ("clusters", "coordinators"):
        return standard_clusters("rst" if scenario == "clusters" else "coordinator")
    if scenario == "group":
        return standard_group(order)
    if scenario == "large group":
        return large_group(order)
    if scenario == "narrow group":
        return narrow_group(order)
    return stormy_group(order) if scenario == "storm" else standard_join(scenario)
