"""Random topologies that `isthmus check` takes: all kinds, shapes, orders, options, faults and workloads.

A topology is drawn as the document of its file, so that it can be written down, replayed by anybody, and made smaller
key by key. Not everything that is drawn is valid (a rule may refuse what two options make together); whoever draws
asks `check` and draws again. Everything comes from one generator: equal seeds give equal files.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from isthmus.core.endpoint import OrderName
from isthmus.simulator.campaign import Source
from isthmus.topology.file import parse
from isthmus.topology.problem import TopologyError

Document: TypeAlias = dict[str, Any]

MOST_TRIES = 100


def draw(seed: int) -> tuple[str, Document]:
    """The shape and the document of one valid topology."""
    rng = Random(f"topology {seed}")
    for _ in range(MOST_TRIES):
        shape = rng.choice(sorted(SHAPES))
        document = SHAPES[shape](rng)
        document["simulation"] = _simulation(rng, document)
        if is_valid(document):
            return shape, document
    raise AssertionError(f"topology {seed}: {MOST_TRIES} drawn documents were all refused")


def is_valid(document: Document) -> bool:
    try:
        parse(*source_of(document, "drawn.toml"))
    except TopologyError:
        return False
    return True


def source_of(document: Document, file: str) -> Source:
    return write(document), file


# Systems


def _group(rng: Random, order: OrderName, gateways: int = 0, most: int = 5) -> Document:
    system: Document = {
        "kind": "embedded",
        "order": order,
        "processes": [f"p{number}" for number in range(1, rng.randint(1 if gateways else 2, most) + 1)],
    }
    if gateways:
        system["gateways"] = gateways
    if rng.random() < 0.6:
        beat = rng.choice((10, 20, 40))
        system |= {"heartbeat": f"{beat}ms", "suspect-after": f"{beat * rng.randint(4, 8)}ms"}
    if rng.random() < 0.15 and len(system["processes"]) > 1:
        system["standby"] = [system["processes"][-1]]
    if rng.random() < 0.1 and order != "total":
        system["delivery"] = "fast"
    return system


def _acknowledged(rng: Random, gateways: int = 0) -> Document:
    protocol = rng.choice(("to", "po"))
    system = _group(rng, "total" if protocol == "to" else "fifo", gateways, most=4)
    system.pop("delivery", None)
    table: Document = {"protocol": protocol, "window": rng.choice((2, 8, 32))}
    if protocol == "po" and rng.random() < 0.3:
        table["act-on"] = "received"
    system["acknowledged"] = table
    return system


def _clusters(rng: Random) -> Document:
    parts: Document = {
        name: {
            "delivery": rng.choice(("rst", "coordinator")),
            "processes": [f"{name}{number}" for number in range(1, rng.randint(2, 3) + 1)],
        }
        for name in "abc"[: rng.randint(2, 3)]
    }
    if rng.random() < 0.3:
        inner = {"delivery": rng.choice(("rst", "coordinator")), "processes": ["x1", "x2"]}
        parts["a"]["parts"] = {"x": inner}
    table: Document = {"delivery": rng.choice(("rst", "coordinator")), "parts": parts}
    return {"kind": "embedded", "order": "causal", "processes": _leaves(parts), "clusters": table}


def _daisy(rng: Random, gateways: int = 0) -> Document:
    system: Document = {"kind": "embedded", "order": "causal", "heartbeat": "10ms", "suspect-after": "60ms"}
    if not gateways and rng.random() < 0.25:
        names = [f"p{number}" for number in range(1, rng.randint(5, 9) + 1)]
        most = rng.randint(2, 5)
        table: Document = {"split-above": most}
        if rng.random() < 0.5:
            table["merge-below"] = rng.randint(1, (most + 1) // 2)
        system |= {"processes": names, "standby": names[-rng.randint(1, 2) :], "daisy": table}
        return system
    parts: Document = {
        name: {"processes": [f"{name}{number}" for number in range(1, rng.randint(1, 3) + 1)]}
        for name in "abc"[: rng.randint(2, 3)]
    }
    if rng.random() < 0.3:
        inside = parts.pop("a")
        parts["deep"] = {"parts": {"a": inside, "y": {"processes": ["y1", "y2"]}}}
    table = {"parts": parts}
    if gateways:
        parts["doors"] = {"processes": [f"g{number}" for number in range(1, gateways + 1)]}
        table["audience"] = "everybody"
        system["gateways"] = gateways
    elif rng.random() < 0.6:
        table |= rng.choice(
            (
                {"star": True},
                {"forward": "on-receipt"},
                {"inside": "recipients", "resilience": 1},
                {"audience": "everybody"},
            )
        )
    system |= {"processes": [name for name in _leaves(parts) if not name.startswith("g")], "daisy": table}
    return system


_BROKERS = {"redis": "redis", "nats": "nats", "kafka": "kafka", "postgres": "postgres"}
"""Brokers, and what their addresses begin with."""


def _log(rng: Random, name: str, order: OrderName) -> Document:
    kind = rng.choice(sorted(_BROKERS))
    system: Document = {"kind": kind, "url": f"{_BROKERS[kind]}://127.0.0.1", "order": order, "gateways": 1}
    if order == "fifo" and rng.random() < 0.4:
        return system | {"streams": [f"{name}-{number}" for number in range(rng.randint(2, 3))]}
    return system | {"stream": name}


def _leaves(parts: Document) -> list[str]:
    """The processes of a tree of parts, from the top."""
    names: list[str] = []
    for part in parts.values():
        names += part.get("processes", [])
        names += _leaves(part.get("parts", {}))
    return names


# Shapes


def _alone(make: Callable[[Random], Document]) -> Callable[[Random], Document]:
    return lambda rng: {"systems": {"s0": make(rng)}}


def _one_group(rng: Random) -> Document:
    return _group(rng, rng.choice(("fifo", "causal", "total")), most=6)


def _forest(rng: Random) -> Document:
    """Groups, joined into one tree, or into two."""
    names = [f"s{number}" for number in range(rng.randint(2, 4))]
    order: OrderName = rng.choice(("fifo", "causal"))
    orders: tuple[OrderName, ...] = ("fifo", "causal", "total") if order == "fifo" else ("causal", "total")
    systems = {name: _group(rng, rng.choice(orders), rng.randint(1, 3), most=3) for name in names}
    joins = []
    for place, name in enumerate(names[1:], 1):
        if rng.random() < 0.1:
            continue
        joins.append(_join(rng, order, systems, rng.choice(names[:place]), name))
    if rng.random() < 0.3:
        for name, system in systems.items():
            if system["order"] != "total" and system.get("delivery") != "fast":
                system["journal"] = f"journal/{name}"
    return {"systems": systems, "joins": joins} if joins else {"systems": systems}


def _join(rng: Random, order: OrderName, systems: Document, near: str, far: str) -> Document:
    join: Document = {"between": [near, far], "order": order}
    possible = systems[near]["gateways"] * systems[far]["gateways"]
    if not all("processes" in systems[name] for name in (near, far)):
        # The gateway of a log may have several links to one gateway.
        possible = max(possible, 3)
    if rng.random() < 0.6:
        join["links"] = rng.randint(1, possible)
    if order == "causal" and rng.random() < 0.4:
        join["assign"] = "transfer-sets"
    return join


def _paths(rng: Random) -> Document:
    """FIFO groups, all joined with all, and a tree of links for each of them: along a random order of the others."""
    names = [f"s{number}" for number in range(rng.randint(2, 3))]
    systems = {name: _group(rng, "fifo", rng.randint(1, 2), most=3) for name in names}
    joins = [{"between": [a, b], "order": "fifo"} for place, b in enumerate(names) for a in names[:place]]
    paths = []
    for name in names:
        gateway = {each: f"{each}/g{rng.randint(1, systems[each]['gateways'])}" for each in names}
        reached = [name]
        links = []
        for other in rng.sample([each for each in names if each != name], len(names) - 1):
            links.append([gateway[rng.choice(reached)], gateway[other]])
            reached.append(other)
        paths.append({"process": f"{name}/*", "links": links})
    return {"systems": systems, "joins": joins, "paths": paths}


def _mixed(rng: Random) -> Document:
    """A group, joined with something of another kind."""
    systems = {"s0": _group(rng, "causal", rng.randint(1, 2), most=3), "s1": rng.choice(_JOINABLE)(rng)}
    causal = systems["s1"]["order"] != "fifo"
    return {"systems": systems, "joins": [_join(rng, "causal" if causal else "fifo", systems, "s0", "s1")]}


def _logs(rng: Random) -> Document:
    """A tree of logs, and of groups or a daisy among them."""
    names = [f"s{number}" for number in range(rng.randint(2, 4))]
    order: OrderName = rng.choice(("fifo", "causal"))
    systems: Document = {}
    for name in names:
        chance = rng.random()
        if chance < 0.6 or name == names[0]:
            systems[name] = _log(rng, name, order)
        elif chance < 0.9:
            systems[name] = _group(rng, rng.choice((order, "total")), rng.randint(1, 3), most=3)
        else:
            systems[name] = _daisy(rng, rng.randint(1, 3))
    joins = [_join(rng, order, systems, rng.choice(names[:place]), name) for place, name in enumerate(names[1:], 1)]
    return {"systems": systems, "joins": joins}


_JOINABLE: tuple[Callable[[Random], Document], ...] = (
    lambda rng: _acknowledged(rng, rng.randint(1, 2)),
    lambda rng: _daisy(rng, rng.randint(1, 3)),
)

SHAPES: dict[str, Callable[[Random], Document]] = {
    "group": _alone(_one_group),
    "acknowledged": _alone(_acknowledged),
    "clusters": _alone(_clusters),
    "daisy": _alone(_daisy),
    "joined groups": _forest,
    "joined kinds": _mixed,
    "joined logs": _logs,
    "paths": _paths,
}


# What happens to it


def _simulation(rng: Random, document: Document) -> Document:
    """Short, with little traffic and much trouble: such runs find most per second."""
    members = sum(len(each.get("processes", (1,))) for each in document["systems"].values())
    burst = rng.choice((1, 1, 3, 8))
    simulation: Document = {
        "duration": f"{rng.choice((300, 500, 800))}ms",
        "workload": {
            # In all some forty bursts a second or more: a run in which nothing is sent shows nothing.
            "rate": max(2, round(rng.choice((40, 100, 200)) * (burst + 1) / 2 / members)),
            "size": rng.choice((0, 16, [16, 256], 2000)),
            "burst": burst,
            "reply": rng.choice((0.0, 0.05, round(0.5 / members, 3))),
        },
        "network": {"delay": rng.choice(("1ms", {"min": "100us", "max": "3ms"}, {"mean": "2ms"}))},
    }
    network = simulation["network"]
    for name, most in (("loss", 0.2), ("duplication", 0.1), ("reordering", 0.2)):
        if rng.random() < 0.5:
            network[name] = round(rng.random() * most, 3)
    if rng.random() < 0.2:
        network["bandwidth"] = rng.choice(("20Mbit", "100Mbit"))
    if document.get("joins"):
        links: Document = {"delay": rng.choice(("0ms", "5ms", {"mean": "10ms"}))}
        links["bandwidth"] = rng.choice(("2Mbit", "20Mbit", "100Mbit"))
        simulation["links"] = links
        if rng.random() < 0.3:
            between = rng.choice(document["joins"])["between"]
            simulation["link"] = [{"between": between, "delay": "30ms", "bandwidth": "5Mbit", "loss": 0.05}]
    faults = _faults(rng, document)
    if faults:
        simulation["faults"] = faults
    return simulation


def _faults(rng: Random, document: Document) -> Document:
    possible = {"crashes": 3, "partitions": 2, "cuts": 2, "slow": 2, "joins": 2, "leaves": 2}
    if document.get("joins"):
        possible |= {"link-cuts": 4, "site-cuts": 2}
    if any("processes" not in system for system in document["systems"].values()):
        possible |= {"pauses": 3, "broker-kills": 3, "trims": 1, "recreations": 1}
    if any("journal" in system for system in document["systems"].values()):
        possible["restarts"] = 2
    kinds = {kind for system in document["systems"].values() for kind in ("clusters", "daisy") if kind in system}
    for kind, never in (("clusters", ("joins", "leaves")), ("daisy", ("joins",))):
        if kind in kinds and len(document["systems"]) == 1:
            possible = {name: most for name, most in possible.items() if name not in never}
    return {name: rng.randint(1, most) for name, most in possible.items() if rng.random() < 0.4}


# The file


def write(document: Document) -> str:
    """The document as TOML."""
    return "\n".join(_lines(document, "")) + "\n"


def _lines(table: Document, path: str) -> list[str]:
    plain = {key: value for key, value in table.items() if not _is_nested(value)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        at = f"{path}.{key}" if path else key
        if isinstance(value, dict) and _is_nested(value):
            lines += ["", f"[{at}]", *_lines(value, at)]
        elif _is_nested(value):
            for each in value:
                lines += ["", f"[[{at}]]", *_lines(each, at)]
    return lines


def _is_nested(value: object) -> bool:
    """Whether a value is written below a heading: a table that is not a leaf, or a list of tables."""
    if isinstance(value, dict):
        return "mean" not in value and "min" not in value
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    return str(value)
