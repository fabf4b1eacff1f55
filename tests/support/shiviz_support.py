"""Random runs for the tests of ShiViz logs, and a reader of such logs."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from hypothesis import strategies as st

from isthmus.pipeline.mapping.model import load_mapping
from isthmus.trace.schema import Event


def row(name: str, index: int, event: Any, message: tuple[str, int] | None = None, **more: Any) -> Event:
    system, _, process = name.partition("/")
    if message is not None:
        origin_system, _, origin_process = message[0].partition("/")
        more |= {"origin_system": origin_system, "origin_process": origin_process, "origin_seq": message[1]}
    values: dict[str, Any] = {"run": "r", "role": "app", "time_ns": 0} | more
    return Event(system=system, process=process, index=index, event=event, **values)


@st.composite
def runs(draw: st.DrawFn, *, disorder: bool = True) -> list[Event]:
    """Sends, deliveries, holds and steps of gateways, in any order. With `disorder`, effects may come before causes."""
    names = ["a/p1", "a/p2", "b/p1", "b/g1"][: draw(st.integers(1, 4))]
    logs: dict[str, list[tuple[str, tuple[str, int] | None]]] = {name: [("start", None)] for name in names}
    sent: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(0, 14))):
        name = draw(st.sampled_from(names))
        event = draw(st.sampled_from(["send", "deliver", "deliver", "deliver", "hold", "transfer", "accept", "view"]))
        if event == "send":
            message = (name, 1 + sum(each[0] == name for each in sent))
            sent.append(message)
            logs[name].append(("send", message))
        elif event != "view":
            logs[name].append((event, draw(st.sampled_from([*sent, ("c/p9", 7)]))))
    if disorder:
        for _ in range(draw(st.integers(0, 2))):
            log = logs[draw(st.sampled_from(names))]
            log[1:] = draw(st.permutations(log[1:]))
    gap = draw(st.integers(0, 2))
    return [
        row(name, index + (gap if index else 0), *event, role="gateway" if "g" in name else "app")
        for name, log in logs.items()
        for index, event in enumerate(log)
    ]


def read(text: str) -> list[Event]:
    """The rows of an exported log, by the pattern of the mapping with which it is read again."""
    [template] = load_mapping("shiviz").inputs
    rows = []
    for line in text.split("\n"):
        found = re.search(template.pattern, line)
        if found is not None:
            columns = found.groupdict()
            columns["event"] = columns.pop("kind")
            rows.append(msgspec.convert({name: json.loads(value) for name, value in columns.items()}, Event))
    return rows
