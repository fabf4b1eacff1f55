"""From a witness of the audit to a picture of it: which processes, messages and deliveries tell the story, and no more.

One scan of the table finds the rows of all messages that the chosen witnesses name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from isthmus.pipeline.report.spacetime import Arrow, Happening, Mark, Picture
from isthmus.trace.schema import Violation

MOST_PICTURES = 6
_MOST_ROWS = 50_000

MessageKey: TypeAlias = tuple[str, str, int]


class Seen(Struct, frozen=True):
    """One row about a message of a witness. `peer` is the link, for an `accept`."""

    run: str
    process: str
    index: int
    event: str
    message: str
    peer: str | None


class Witness(Struct, frozen=True):
    """A violation and its picture."""

    violation: Violation
    picture: Picture


def choose(violations: Sequence[Violation], most: int = MOST_PICTURES) -> list[Violation]:
    """Some of every kind before many of one: a trace with a thousand late messages may hide one that is lost."""
    kinds: dict[tuple[str, str], list[Violation]] = {}
    for each in violations:
        kinds.setdefault((each.property, each.run), []).append(each)
    chosen: list[Violation] = []
    turn = 0
    while len(chosen) < min(most, len(violations)):
        chosen += [kind[turn] for kind in kinds.values() if turn < len(kind)]
        turn += 1
    return sorted(chosen[:most], key=violations.index)


def key_of(message: str) -> MessageKey | None:
    """The parts of `system/process/number`. Only the name of a process may hold a slash."""
    system, _, rest = message.partition("/")
    process, _, number = rest.rpartition("/")
    if not (system and process and number.isascii() and number.isdigit() and len(number) < 20):
        return None
    return system, process, int(number)


def chain_of(violation: Violation) -> list[str]:
    """The messages from the cause to the effect, or all that the violation names."""
    if violation.second is None:
        return [violation.first]
    if violation.chain:
        return list(violation.chain)
    return [violation.first, violation.second]


def witnesses(rows: DataFrame, violations: Sequence[Violation]) -> list[Witness]:
    """Pictures of these violations."""
    if not violations:
        return []
    seen = _rows_about(rows, violations)
    return [Witness(each, picture_of(each, [row for row in seen if row.run == each.run])) for each in violations]


def _rows_about(rows: DataFrame, violations: Iterable[Violation]) -> list[Seen]:
    wanted = {(each.run, key) for each in violations for key in map(key_of, chain_of(each)) if key is not None}
    involved = {each.process for each in violations} | {f"{key[0]}/{key[1]}" for _, key in wanted}
    schema = "run string, origin_system string, origin_process string, origin_seq bigint"
    table = rows.sparkSession.createDataFrame([(run, *key) for run, key in sorted(wanted)], schema)
    app = (f.col("role") == "app") & f.col("event").isin("send", "deliver")
    found = rows.where(app | (f.col("event") == "accept")).join(
        f.broadcast(table), ["run", "origin_system", "origin_process", "origin_seq"]
    )
    name = f.concat_ws("/", "system", "process")
    message = f.concat_ws("/", "origin_system", "origin_process", "origin_seq")
    chosen = found.select(
        "run", name.alias("name"), f.col("index").alias("place"), "event", message.alias("message"), "peer"
    )
    # Thousands of processes may have a message. Those that the witness names come first.
    chosen = chosen.orderBy(~f.col("name").isin(*involved), "name", "place").limit(_MOST_ROWS)
    return [Seen(row.run, row.name, row.place, row.event, row.message, row.peer) for row in chosen.collect()]


# Composing ------------------------------------------------------------------------------------------------------------


def picture_of(violation: Violation, rows: Sequence[Seen]) -> Picture:
    """The picture of one violation, from the rows of its run about its messages."""
    scene = _Scene(chain_of(violation), rows)
    PICTURES.get(violation.property, _Scene.involved)(scene, violation)
    return Picture(scene.messages, scene.happenings, scene.arrows)


class _Scene:
    """A picture in the making. Events are added once, whoever mentions them."""

    def __init__(self, messages: list[str], rows: Sequence[Seen]) -> None:
        self.messages = messages
        self.happenings: list[Happening] = []
        self.arrows: list[Arrow] = []
        self._places: dict[tuple[str, int | None, str, int], int] = {}
        self._rows = rows

    def _deliveries(self, message: str, process: str | None = None) -> list[Seen]:
        found = [
            row
            for row in self._rows
            if row.event == "deliver" and row.message == message and process in (None, row.process)
        ]
        return sorted(found, key=lambda row: (row.process, row.index))

    def _add(self, process: str, index: int | None, event: str, message: int, mark: Mark, caption: str) -> int:
        key = (process, index, event, message)
        if key in self._places:
            place = self._places[key]
            if mark != "plain":
                self.happenings[place] = Happening(process, index, self.happenings[place].event, message, mark, caption)
            return place
        self._places[key] = place = len(self.happenings)
        kind = "send" if event == "send" else "deliver"
        self.happenings.append(Happening(process, index, kind, message, mark, caption))  # type: ignore[arg-type]
        return place

    def sent(self, message: str) -> int | None:
        """The place of its send, or None where the trace has no such row."""
        for row in self._rows:
            if row.event == "send" and row.message == message:
                return self._add(row.process, row.index, "send", self.messages.index(message), "plain", "")
        return None

    def delivered(self, message: str, process: str, index: int | None, mark: Mark = "plain", caption: str = "") -> None:
        """A delivery (or, without an index, the lack of it), and the arrow to it."""
        start = self.sent(message)
        if start is None and mark != "missing":
            caption = f"{message}: {caption}" if caption else message
        end = self._add(process, index, "deliver", self.messages.index(message), mark, caption)
        if start is not None and not any((each.start, each.end) == (start, end) for each in self.arrows):
            via = self._link(message, self.happenings[start].process, process) if index is not None else ""
            self.arrows.append(Arrow(start, end, via, guess=mark == "missing"))

    def _link(self, message: str, sender: str, receiver: str) -> str:
        system = receiver.partition("/")[0]
        if sender.partition("/")[0] == system:
            return ""
        found = {
            row.peer
            for row in self._rows
            if row.event == "accept" and row.message == message and row.process.partition("/")[0] == system
        }
        return (found.pop() or "") if len(found) == 1 else ""

    # What is wrong

    def involved(self, violation: Violation) -> None:
        """Of no property in particular: the messages that the violation names, at its process."""
        for message in self.messages:
            there = self._deliveries(message, violation.process)[:1]
            for row in there:
                self.delivered(message, violation.process, row.index, "wrong")
            if not there:
                self.delivered(message, violation.process, None, "missing")

    def chain(self) -> None:
        """Every message of the chain reaches the sender of the next before that sends it."""
        for earlier, later in pairwise(self.messages):
            start, end = self.sent(earlier), self.sent(later)
            if start is None or end is None or self.happenings[start].process == self.happenings[end].process:
                continue
            effect = self.happenings[end]
            found = self._deliveries(earlier, effect.process)
            if found and effect.index is not None and found[0].index < effect.index:
                self.delivered(earlier, effect.process, found[0].index)
            else:
                self.arrows.append(Arrow(start, end, "by way of others", guess=True))

    def too_early(self, violation: Violation) -> None:
        self.chain()
        process, second = violation.process, self.messages[-1]
        for row in self._deliveries(second, process)[:1]:
            self.delivered(second, process, row.index, "wrong", "too early")
        late = self._deliveries(violation.first, process)[:1]
        for row in late:
            self.delivered(violation.first, process, row.index, "wrong", "too late")
        if not late:
            self.delivered(violation.first, process, None, "missing")

    def two_orders(self, violation: Violation) -> None:
        first, second = self.messages[0], self.messages[-1]
        there = {row.process: row.index for row in reversed(self._deliveries(first))}
        others = [
            row.process
            for row in self._deliveries(second)
            if row.process != violation.process and row.index < there.get(row.process, -1)
        ]
        named = [each for each in others if f", but {each} delivered " in violation.why]
        self.sent(first)
        self.sent(second)
        for process in [violation.process, *(named or others)[:1]]:
            pair = [
                (row.index, message) for message in (first, second) for row in self._deliveries(message, process)[:1]
            ]
            for place, (index, message) in enumerate(sorted(pair)):
                self.delivered(message, process, index, "wrong", ("first", "then")[place])

    def missing_somewhere(self, violation: Violation) -> None:
        message = violation.first
        start = self.sent(message)
        sender = None if start is None else self.happenings[start].process
        others = [row for row in self._deliveries(message) if row.process != violation.process]
        for row in sorted(others, key=lambda each: each.process == sender)[:1]:
            self.delivered(message, row.process, row.index)
        self.delivered(message, violation.process, None, "missing")

    def should_not_be(self, violation: Violation) -> None:
        message = violation.first
        found = self._deliveries(message, violation.process)
        again = [row for row in found[1:] if violation.why.endswith(f"again at index {row.index}")] or found[1:2]
        if again:
            self.delivered(message, violation.process, found[0].index)
            self.delivered(message, violation.process, again[0].index, "wrong", "again")
        elif found:
            sent = self.sent(message)
            caption = "nobody sent it" if sent is None else "not for it"
            if violation.why.endswith("nobody had sent it yet"):
                caption = "not sent yet"
            self.delivered(message, violation.process, found[0].index, "wrong", caption)


PICTURES: dict[str, Callable[[_Scene, Violation], None]] = {
    "integrity": _Scene.should_not_be,
    "agreement": _Scene.missing_somewhere,
    "fifo": _Scene.too_early,
    "causal": _Scene.too_early,
    "total": _Scene.two_orders,
    "same-view": _Scene.missing_somewhere,
}
"""Property to what is drawn of a violation; others show the messages that the violation names."""
