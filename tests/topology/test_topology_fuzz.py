"""Whatever a file holds, reading it ends in a topology or in a `TopologyError`; and what was read can be wired."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from example_files import EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.topology.check.rules import check
from isthmus.topology.file import parse
from isthmus.topology.problem import TopologyError
from isthmus.topology.wiring import all_links, forwardings, path_links

TEXTS = [file.read_text() for file in sorted(EXAMPLES.rglob("*.toml"))]

NAMES = ["a", "s0", "s1", "g1", "g2", "p", "p1", "q1", "*", "s0/p", "s0/g1", "s1/g1", "s1/*", "madrid", "valencia"]
CHOICES = ["fifo", "causal", "total", "embedded", "redis", "nats", "striped", "paths", "transfer-sets", "uncoordinated"]
TEXTUAL = ["auto", "fast", "5ms", "20Mbit", "redis://h", "nats://h", "h:1", "[::1]:9"]
KEYS = ["kind", "order", "processes", "gateways", "between", "links", "assign", "sets", "from", "to", "process", "url"]
MORE_KEYS = [
    "stream",
    "address",
    "delivery",
    "heartbeat",
    "start-within",
    "suspect_after",
    "delay",
    "min",
    "max",
    "mean",
    "rate",
    "size",
    "clusters",
    "parts",
    "agent",
    "coordinator",
    "rst",
    "messages",
    "after",
]
WORDS = [*NAMES, *CHOICES, *TEXTUAL, *KEYS, *MORE_KEYS, "unsafe", "systems", "joins"]

scalars = st.one_of(
    st.sampled_from([*WORDS, "", "\n", "é", " "]),
    st.integers(-2, 5),
    st.sampled_from([True, False, 2**70, -1, 0.5, float("inf"), float("nan"), 10**300]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=8,
)


def to_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {to_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if isinstance(value, float):
        return {"Infinity": "inf", "NaN": "nan"}.get(json.dumps(value), json.dumps(value))
    return json.dumps(value)


def document_to_toml(document: dict[str, Any]) -> str:
    return "\n".join(f"{json.dumps(key)} = {to_toml(value)}" for key, value in document.items())


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found += [(value, key), *places(value[key])]
    return found


def complete_lines(refusal: TopologyError) -> None:
    assert refusal.problems
    assert len(str(refusal).splitlines()) == len(refusal.problems)


def read(text: str) -> None:
    for allow_unsafe in (False, True):
        try:
            topology = parse(text, "t.toml", allow_unsafe)
        except TopologyError as refusal:
            complete_lines(refusal)
            continue
        kinds = {problem.kind for problem in check(topology)}
        assert kinds <= ({"warning", "protocol"} if allow_unsafe and topology.unsafe else {"warning"})
        topology.promise()
        slots = set(topology.directory().slots)
        for link in all_links(topology):
            assert {link.near, link.far} <= slots
        for index in range(len(topology.joins)):
            for each in forwardings(topology, index):
                assert {each.gateway, each.to} <= slots
        path_links(topology)


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*WORDS, "[", "]", "[[", "]]", "=", '"', "\n", ".", ","])).map("".join)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TEXTS), st.data())
def test_a_damaged_file_is_read_or_refused(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    read(text[:start] + data.draw(st.sampled_from(["", '"', "]", "\n", "x", "= 1", *WORDS])) + text[end:])


@settings(max_examples=700, deadline=None)
@given(st.sampled_from(TEXTS), st.data())
def test_a_file_with_any_values_changed_is_read_or_refused(text: str, data: st.DataObject) -> None:
    document = tomllib.loads(text)
    document["unsafe"] = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(document)))
        change = data.draw(st.sampled_from(["set", "remove", "copy"]))
        if change == "remove":
            del container[key]
        elif change == "copy":
            other, other_key = data.draw(st.sampled_from(places(document)))
            container[key] = json.loads(json.dumps(other[other_key]))
        else:
            container[key] = data.draw(values)
        if not places(document):
            break
    read(document_to_toml(document))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS), values, max_size=4))
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    read(document_to_toml(document))
