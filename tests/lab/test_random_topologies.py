"""Random topologies: drawn the same from equal numbers, valid, of every shape, and small once they are reduced."""

from __future__ import annotations

from collections import Counter

from isthmus.lab.topologies.generate import SHAPES, Document, draw, is_valid, write
from isthmus.lab.topologies.reduce import reduce
from isthmus.topology.file import parse


def test_equal_numbers_give_equal_files() -> None:
    assert [write(draw(number)[1]) for number in range(20)] == [write(draw(number)[1]) for number in range(20)]


def test_every_file_is_valid_and_reads_back_as_it_was_drawn() -> None:
    for number in range(60):
        _, document = draw(number)
        topology = parse(write(document), "drawn.toml")
        assert [system.name for system in topology.systems] == list(document["systems"])
        assert len(topology.joins) == len(document.get("joins", []))


def test_every_shape_kind_order_and_fault_is_drawn() -> None:
    shapes: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for number in range(300):
        shape, document = draw(number)
        shapes[shape] += 1
        words.update(document["simulation"].get("faults", {}).keys())
        for system in document["systems"].values():
            words.update([system["kind"], system["order"]])
            words.update(key for key in ("acknowledged", "clusters", "daisy") if key in system)
    assert set(shapes) == set(SHAPES)
    assert {"pauses", "broker-kills", "trims", "recreations", "redis", "nats", "kafka", "postgres"} <= set(words)
    faults = {"crashes", "partitions", "cuts", "slow", "joins", "leaves", "link-cuts", "site-cuts", "restarts"}
    assert faults | {"fifo", "causal", "total", "acknowledged", "clusters", "daisy"} <= set(words)


def test_a_failing_topology_is_reduced_to_what_it_fails_by() -> None:
    """Whatever has two systems and a loss fails here, so nothing else stays that a valid file can do without."""
    number = next(number for number in range(300) if fails(draw(number)[1]) and groups_only(draw(number)[1]))
    _, document = draw(number)
    small = reduce(document, fails)
    assert fails(small)
    assert is_valid(small)
    assert len(small["systems"]) == 2
    assert set(small["simulation"]) == {"network"}
    assert set(small["simulation"]["network"]) == {"loss"}
    assert all(len(system["processes"]) == 1 for system in small["systems"].values())


def groups_only(document: Document) -> bool:
    return all("processes" in system for system in document["systems"].values())


def fails(document: Document) -> bool:
    return len(document["systems"]) >= 2 and "loss" in document.get("simulation", {}).get("network", {})
