"""A ShiViz log as rows of a trace.

Such a log has hosts and vector clocks, and no messages. Where the parser expression has a group `kind`, the log says
itself what each entry is: groups with the names of our columns are taken as they stand (`kind` is our `event`). That
is how our own export comes back exactly, and how anybody's log can name its messages.

Otherwise messages are derived from the clocks. Where the entry of A in a clock of host B grows to k, B has learnt of
event k of A, directly or by way of others: it is a delivery of what A sent at its event k, unless another host of
which B learns in the same entry knew it already. Event k of A is then a send, to all hosts that deliver it so, and its
message id is A and k. Entries that neither send nor deliver leave no row, for a trace has none for them.

What that cannot see: a message that arrives after one of its own effects changes no clock. So a log without `kind` can
never show a violation of order, and its verdicts say no more than that its clocks are clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.schema import COLUMNS, Event
from isthmus.trace.shiviz.log import Bad, Entry, Expressions, read_log

SYSTEM = "shiviz"
"""The system of hosts that are not called `system/process`."""

KIND = "kind"
"""The group for our column `event`, because `event` is ShiViz's own: the text that people see."""

GROUPS: dict[str, str] = {column: KIND if column == "event" else column for column in COLUMNS}
"""Column to the name of its group."""

_TIMES = ("time_ns", "timestamp")
_OTHERS = frozenset(column.name for column in TRACE_COLUMNS if column.type != "string")
"""Columns that hold something else than text."""

Row: TypeAlias = tuple[int, Event]
"""The line of an entry, and what it says."""
_Point: TypeAlias = tuple[str, int]
"""An event: its host, and its place there from 1."""


def import_log(content: bytes, name: str, given: Expressions, bad: Bad) -> Iterator[Row]:
    """The rows of a log. Runs are called after the file (`name`) and the label of the execution, if it has one."""
    for execution in read_log(content, given, bad):
        several = execution.number > 1 or execution.label is not None
        run = f"{name}/{execution.label or execution.number}" if several else name
        entries = iter(execution.entries)
        first = next(entries, None)
        if first is None:
            continue
        if KIND in first.fields:
            yield from _row_as_logged(first, run, bad)
            for entry in entries:
                yield from _row_as_logged(entry, run, bad)
        else:
            yield from _Derivation(run, [first, *entries], bad).rows()


def place_of(host: str) -> tuple[str, str]:
    """System and process of a host."""
    system, _, process = host.partition("/")
    return (system, process) if system and process else (SYSTEM, host)


# Logs that say what their entries are ---------------------------------------------------------------------------------


def _row_as_logged(entry: Entry, run: str, bad: Bad) -> Iterator[Row]:
    system, process = place_of(entry.host)
    values: dict[str, Any] = {"run": run, "system": system, "process": process, "role": "app"}
    values |= {"index": entry.own - 1, "time_ns": 0}
    try:
        for column, group in GROUPS.items():
            text = entry.fields.get(group)
            value = _value(column, text) if text else None
            if value is not None:
                values[column] = value
        yield entry.line, msgspec.convert(values, Event)
    except (ValueError, RecursionError) as error:
        bad.append((entry.line, str(error)))


def _value(column: str, text: str) -> Any:
    """Text may stand as it is or as JSON in quotes; everything else is JSON."""
    if column in _OTHERS or text[0] == '"' or text == "null":
        try:
            return msgspec.json.decode(text)
        except ValueError:
            raise ValueError(f"`{column}` is not JSON: {text[:40]}") from None
    return text


# Logs that do not -----------------------------------------------------------------------------------------------------


class _Derivation:
    """One execution: which entries count, which of them send, which deliver what."""

    def __init__(self, run: str, entries: list[Entry], bad: Bad) -> None:
        self.run = run
        self.bad = bad
        self.at: dict[_Point, Entry] = {}
        self.hosts: dict[str, list[Entry]] = {}
        """Entries that count, by host, in the order of its own clock."""
        self.claimed: dict[str, set[int]] = {}
        """Which places of a host's log somebody claimed, rightly or not."""
        self._take(entries)
        self._refuse_impossible()
        self.delivered: dict[_Point, list[_Point]] = {}
        """Event to the events whose messages it delivers."""
        self.receivers: dict[_Point, set[str]] = {}
        for host, log in self.hosts.items():
            self._find_deliveries(host, log)

    def _take(self, entries: Iterable[Entry]) -> None:
        disputed = set()
        for entry in entries:
            point = (entry.host, entry.own)
            self.claimed.setdefault(entry.host, set()).add(entry.own)
            other = self.at.setdefault(point, entry)
            if other is entry:
                continue
            if (other.clock, other.text, other.fields) == (entry.clock, entry.text, entry.fields):
                self.bad.append((entry.line, f"the same entry again: event {entry.own} of host '{entry.host}'"))
                continue
            disputed.add(point)
            self.bad.append((entry.line, _dispute(entry)))
        for point in disputed:
            self.bad.append((self.at[point].line, _dispute(self.at.pop(point))))
        for entry in sorted(self.at.values(), key=lambda each: (each.host, each.own)):
            self.hosts.setdefault(entry.host, []).append(entry)

    def _refuse_impossible(self) -> None:
        """Take out entries whose clocks go back, or claim to know what knows them."""
        wrong = {}
        for log in self.hosts.values():
            known: dict[str, int] = {}
            for entry in log:
                reason = self._impossible(entry, known)
                if reason is None:
                    known |= entry.clock
                else:
                    wrong[entry.host, entry.own] = reason
        for point, reason in wrong.items():
            self.bad.append((self.at.pop(point).line, reason))
        for host in {host for host, _ in wrong}:
            self.hosts[host] = [entry for entry in self.hosts[host] if (host, entry.own) not in wrong]

    def _impossible(self, entry: Entry, known: dict[str, int]) -> str | None:
        for other, time in entry.clock.items():
            if time < known.get(other, 0):
                return f"the clock goes back: '{other}' is {time}, but was {known[other]} before at this host"
            source = self.at.get((other, time))
            if source is not None and source.clock.get(entry.host, 0) >= entry.own:
                return f"this entry and the one of line {source.line} each claim to come after the other"
        return None

    def _find_deliveries(self, host: str, log: list[Entry]) -> None:
        known: dict[str, int] = {}
        for entry in log:
            learnt = {other: time for other, time in entry.clock.items() if time > known.get(other, 0)}
            if not learnt:
                continue
            known |= learnt
            through_others: dict[str, int] = {}
            for point in learnt.items():
                source = self.at.get(point)
                if source is not None and len(learnt) > 1:
                    for other, time in source.clock.items():
                        through_others[other] = max(time, through_others.get(other, 0))
            direct = [point for point in learnt.items() if through_others.get(point[0], 0) < point[1]]
            self.delivered[host, entry.own] = sorted(direct)
            for point in direct:
                self.receivers.setdefault(point, set()).add(host)

    def rows(self) -> Iterator[Row]:
        for host, log in self.hosts.items():
            if not log:
                continue
            index = previous = 0
            if log[0].own == 1:
                yield log[0].line, self._row(host, 0, "start", log[0], None)
                index = 1
            for entry in log:
                missing = entry.own - previous - 1
                if missing:
                    self._report_gap(entry, previous, missing)
                    index += missing + (previous == 0)
                previous = entry.own
                for source in self.delivered.get((host, entry.own), ()):
                    yield entry.line, self._row(host, index, "deliver", entry, source)
                    index += 1
                if (host, entry.own) in self.receivers:
                    yield entry.line, self._row(host, index, "send", entry, (host, entry.own))
                    index += 1

    def _report_gap(self, entry: Entry, previous: int, missing: int) -> None:
        """What was refused has been reported. A gap may be as long as its clock says: look at few places only."""
        claimed = self.claimed[entry.host]
        if len(claimed) > missing and all(time in claimed for time in range(previous + 1, entry.own)):
            return
        which = f"event {previous + 1}" if missing == 1 else f"events {previous + 1} to {entry.own - 1}"
        verb = "is" if missing == 1 else "are"
        self.bad.append((entry.line, f"{which} of host '{entry.host}' {verb} missing before this entry"))

    def _row(self, host: str, index: int, event: Any, entry: Entry, message: _Point | None) -> Event:
        system, process = place_of(host)
        origin_system, origin_process = place_of(message[0]) if message else (None, None)
        receivers = self.receivers[message] if message else None
        return Event(
            run=self.run,
            system=system,
            process=process,
            role="app",
            index=index,
            event=event,
            origin_system=origin_system,
            origin_process=origin_process,
            origin_seq=message[1] if message else None,
            destinations=tuple(sorted("/".join(place_of(each)) for each in receivers)) if receivers else None,
            time_ns=_time(entry),
            note=entry.text if message and entry.text else None,
        )


def _dispute(entry: Entry) -> str:
    return f"two different entries claim to be event {entry.own} of host '{entry.host}', so neither counts"


def _time(entry: Entry) -> int:
    """Nanoseconds of the host's own clock, where a group says them."""
    for group in _TIMES:
        text = entry.fields.get(group) or ""
        if text.isascii() and text.isdigit() and len(text) < 20:
            return min(int(text), (1 << 63) - 1)
    return 0
