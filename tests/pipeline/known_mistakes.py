"""Runs with one known mistake each, in otherwise sound traces."""

from __future__ import annotations

from random_executions import row
from trace_files import numbered, rounds

from isthmus.trace.schema import Event

ROUND = 40
"""In which a mistake is made. At each process a round has a send and five deliveries."""


def large(run: str) -> dict[str, list[Event]]:
    return rounds(run, processes=5, messages=200)


def small(run: str) -> dict[str, list[Event]]:
    return rounds(run, processes=5, messages=60)


def place(log: list[Event], event: str, origin: str, seq: int) -> int:
    return next(
        index
        for index, each in enumerate(log)
        if each.event == event and f"{each.origin_system}/{each.origin_process}" == origin and each.origin_seq == seq
    )


def swapped() -> dict[str, list[Event]]:
    """At p2 the last delivery of a round changes places with the first of the next, of which it is a cause."""
    logs = large("swapped")
    log = logs["a/p2"]
    second = place(log, "deliver", "a/p0", ROUND + 1)
    first = second - 2  # in between p2 sends
    log[first], log[second] = log[second], log[first]
    logs["a/p2"] = numbered("swapped", log)
    return logs


def dropped() -> dict[str, list[Event]]:
    logs = small("dropped")
    log = logs["a/p3"]
    del log[place(log, "deliver", "a/p1", 60)]
    logs["a/p3"] = numbered("dropped", log)
    return logs


def repeated() -> dict[str, list[Event]]:
    logs = small("repeated")
    log = logs["a/p1"]
    log.insert(-1, log[place(log, "deliver", "a/p4", ROUND)])
    logs["a/p1"] = numbered("repeated", log)
    return logs


def invented() -> dict[str, list[Event]]:
    logs = small("invented")
    logs["a/p1"] = numbered("invented", [*logs["a/p1"][:-1], row("a/p1", "deliver", ("a/p4", 5000)), logs["a/p1"][-1]])
    return logs


def crashed() -> dict[str, list[Event]]:
    """A process that crashes owes nothing, and what it sent was delivered by all."""
    logs = small("crashed")
    log = logs["a/p4"]
    end = place(log, "send", "a/p4", 60) + 1
    logs["a/p4"] = numbered("crashed", [*log[:end], row("a/p4", "crash")])
    return logs


def truncated() -> dict[str, list[Event]]:
    logs = small("truncated")
    logs["a/p4"] = logs["a/p4"][:-3]
    return logs


def relayed() -> dict[str, list[Event]]:
    """Four messages, each to one process: the last overtakes the first, and no two neighbours of the chain meet."""
    steps = {
        "a/a": [("send", ("a/a", 1), ("a/d",)), ("send", ("a/a", 2), ("a/b",))],
        "a/b": [("deliver", ("a/a", 2), None), ("send", ("a/b", 1), ("a/c",))],
        "a/c": [("deliver", ("a/b", 1), None), ("send", ("a/c", 1), ("a/d",))],
        "a/d": [("deliver", ("a/c", 1), None), ("deliver", ("a/a", 1), None)],
    }
    logs = {
        name: [
            row(name, "start"),
            *(row(name, event, id_, destinations=to) for event, id_, to in log),
            row(name, "end"),
        ]
        for name, log in steps.items()
    }
    return {name: numbered("relayed", log) for name, log in logs.items()}


RELAYS = [f"a/r{number:02}" for number in range(10)]


def relays() -> tuple[str, ...]:
    """The one chain from the first message of `relayed_far` to that which overtakes it."""
    return ("a/a/1", "a/a/2", "a/q/2", *(f"{name}/1" for name in RELAYS), "a/s/1")


def relayed_far(run: str) -> list[Event]:
    """Over many relays. Looking back from `s`, q comes twice, at first where q knew nothing of the first message."""
    path = ["a/q", *RELAYS, "a/s"]
    logs: dict[str, list[Event]] = {
        "a/a": [_to("a/a", 1, "a/last"), _to("a/a", 2, "a/q")],
        "a/q": [_to("a/q", 1, "a/s"), row("a/q", "deliver", ("a/a", 2)), _to("a/q", 2, RELAYS[0])],
        "a/s": [row("a/s", "deliver", ("a/q", 1))],
        "a/last": [row("a/last", "deliver", ("a/s", 1)), row("a/last", "deliver", ("a/a", 1))],
    }
    for before, name, after in zip(path, path[1:], [*path[2:], "a/last"], strict=False):
        came = row(name, "deliver", (before, 2 if before == "a/q" else 1))
        logs.setdefault(name, []).extend([came, _to(name, 1, after)])
    whole = {name: [row(name, "start"), *log, row(name, "end")] for name, log in logs.items()}
    return [event for log in whole.values() for event in numbered(run, log)]


def _to(name: str, number: int, receiver: str) -> Event:
    return row(name, "send", (name, number), destinations=(receiver,))


def parted() -> dict[str, list[Event]]:
    """Both go from view 1 to view 2, but p2 delivers what p1 sends only then. Short enough for the definition."""
    run, sent = "x parted", ("a/p1", 1)

    def view(name: str, number: int) -> Event:
        return row(name, "view", peer=str(number), destinations=("a/p1", "a/p2"))

    p1 = [row("a/p1", "start"), view("a/p1", 1), row("a/p1", "send", sent), row("a/p1", "deliver", sent)]
    p2 = [row("a/p2", "start"), view("a/p2", 1), view("a/p2", 2), row("a/p2", "deliver", sent), row("a/p2", "end")]
    return {
        "a/p1": numbered(run, [*p1, view("a/p1", 2), row("a/p1", "end")]),
        "a/p2": numbered(run, p2),
    }


def known_mistakes() -> dict[str, list[Event]]:
    runs = (small("sound"), swapped(), dropped(), repeated(), invented(), crashed(), truncated(), relayed(), parted())
    rows = [[event for log in logs.values() for event in log] for logs in runs]
    return {each[0].run: each for each in [*rows, relayed_far("relayed far")]}
