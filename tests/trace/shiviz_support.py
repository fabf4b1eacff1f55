"""Random runs for the tests of ShiViz logs, and shorthands to read and write such logs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from isthmus.trace.schema import Event
from isthmus.trace.shiviz.importer import import_log
from isthmus.trace.shiviz.log import Expressions

DEFAULT = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
GOVECTOR = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"


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


def read(text: str | bytes, parser: str = "", delimiter: str = "") -> tuple[list[Event], list[tuple[int, str]]]:
    """The rows of a log called `log`, and what is wrong with it."""
    bad: list[tuple[int, str]] = []
    content = text.encode() if isinstance(text, str) else text
    rows = [event for _, event in import_log(content, "log", Expressions(parser, delimiter), bad)]
    return rows, sorted(bad)


def in_words(rows: list[Event]) -> list[str]:
    """Rows in short: `b deliver a/1`."""
    texts = []
    for each in rows:
        message = f" {each.origin_process}/{each.origin_seq}" if each.origin_seq else ""
        to = " to " + ",".join(name.partition("/")[2] for name in each.destinations or ())
        texts.append(f"{each.process}{each.index} {each.event}{message}{to if each.event == 'send' else ''}")
    return texts
