"""Everything that ever happened to one message, and why it was held.

A story answers the questions of somebody who stares at one id: where was it sent, which way did it take, who held it
and what for, who has it, who has not, and did its direct causes stand before it everywhere? Times are the
processes' own clocks: good for latency, never for order. Where the trace has a gap, the story says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.core.ids import Nanos
from isthmus.core.units import duration
from isthmus.trace.causality import direct_causes
from isthmus.trace.history import MessageKey, ProcessHistory, RunHistory, histories
from isthmus.trace.reader import LogTrace, Trace
from isthmus.trace.schema import Event, TraceError, printable

Place: TypeAlias = Literal["before it", "AFTER it", "delivered", "missing", "not for it"]
"""Where a cause stands beside the message; `delivered`: the message itself was not, so nothing can be compared."""


class StoryStep(Struct, frozen=True):
    """One row about the message. `held_ns` is how long the process held it until this delivery."""

    time_ns: Nanos
    process: str
    role: str
    index: int
    event: str
    since_send_ns: Nanos | None
    held_ns: Nanos | None
    peer: str | None
    note: str | None


class Cause(Struct, frozen=True):
    """Where a direct cause stands at a process, compared with the message."""

    message: str
    index: int | None
    place: Place


class DestinationFate(Struct, frozen=True):
    """What became of the message at one of its destinations. `log` says how far that process's word can be trusted."""

    process: str
    delivered_at: int | None
    log: str
    causes: list[Cause]


class Chapter(Struct, frozen=True):
    """The message in one run."""

    run: str
    destinations: list[str] | None
    payload_bytes: int | None
    control_bytes: int | None
    direct_causes: list[str]
    steps: list[StoryStep]
    standings: list[DestinationFate]


class Story(Struct, frozen=True):
    """The message in every run that has it."""

    message: str
    chapters: list[Chapter]

    def lines(self) -> list[str]:
        """The story as plain text."""
        text: list[str] = []
        for chapter in self.chapters:
            text += [""] if text else []
            text += map(printable, _chapter_lines(self.message, chapter))
        return text


def tell(trace: Trace, message: str) -> Story:
    """The story of the message `system/process/number`."""
    key = _parse(message)
    chapters = []
    for run in trace.runs:
        logs = [log for log in trace.logs.values() if log.run == run]
        rows = [row for log in logs for row in log.events if _key(row) == key]
        if rows:
            chapters.append(_chapter(run, key, logs, rows))
    if not chapters:
        raise TraceError(message, "no such message in the trace", _nearest(trace, key))
    return Story(message, chapters)


# Finding it -----------------------------------------------------------------------------------------------------------


def _parse(text: str) -> MessageKey:
    system, _, rest = text.partition("/")
    process, _, number = rest.rpartition("/")
    # More digits than an int64 has are no number of a message, and slow to convert.
    if not (system and process and number.isascii() and number.isdigit() and len(number) < 20):
        raise TraceError(text, "not a message id", "write system/process/number, such as madrid/p1/3")
    return system, process, int(number)


def _key(row: Event) -> MessageKey | None:
    if row.origin_system is None or row.origin_process is None or row.origin_seq is None:
        return None
    return row.origin_system, row.origin_process, row.origin_seq


def _nearest(trace: Trace, wanted: MessageKey) -> str:
    """What the user probably meant: the nearest numbers of that process, or processes with a name like it."""
    known: dict[str, set[int]] = {}
    for row in trace.events():
        key = _key(row)
        if key is not None:
            known.setdefault(f"{key[0]}/{key[1]}", set()).add(key[2])
    if not known:
        return "give another: this one holds no messages at all"
    origin = f"{wanted[0]}/{wanted[1]}"
    if origin in known:
        nearest = sorted(known[origin], key=lambda number: abs(number - wanted[2]))[:4]
        return f"try {_listing((f'{origin}/{number}' for number in sorted(nearest)), 'or')}"
    alike = get_close_matches(origin, known, n=4, cutoff=0.5) or sorted(known)[:4]
    return f"try {_listing((f'{name}/{min(known[name])}' for name in alike), 'or')}"


# Telling it -----------------------------------------------------------------------------------------------------------


def _chapter(run: str, key: MessageKey, logs: list[LogTrace], rows: list[Event]) -> Chapter:
    [history] = histories(row for log in logs for row in log.events)
    message = history.find(*key)
    causes = direct_causes(history)[message] if message is not None else []
    recipients = history.recipients(message) if message is not None else []
    destinations = history.destinations[message] if message is not None else None
    logs_by_name = {log.name: log for log in logs}
    return Chapter(
        run=run,
        destinations=None if destinations is None else sorted(destinations),
        payload_bytes=next((row.payload_bytes for row in rows if row.payload_bytes is not None), None),
        control_bytes=max((row.control_bytes for row in rows if row.control_bytes is not None), default=None),
        direct_causes=[history.text(cause) for cause in causes],
        steps=_steps(rows),
        standings=[
            _standing(history, process, message, causes, logs_by_name.get(process.name))
            for process in recipients
            if message is not None
        ],
    )


def _steps(rows: list[Event]) -> list[StoryStep]:
    sent = next((row.time_ns for row in rows if row.event == "send"), None)
    held_since: dict[str, Nanos] = {}
    steps = []
    for row in rows:  # each process's in the order of its log
        name = f"{row.system}/{row.process}"
        held = None
        if row.event == "hold":
            held_since.setdefault(name, row.time_ns)
        elif row.event == "deliver" and name in held_since:
            held = row.time_ns - held_since.pop(name)
        steps.append(
            StoryStep(
                time_ns=row.time_ns,
                process=name,
                role=row.role,
                index=row.index,
                event=row.event,
                since_send_ns=None if sent is None else row.time_ns - sent,
                held_ns=held,
                peer=row.peer,
                note=row.note,
            )
        )
    return sorted(steps, key=lambda step: (step.time_ns, step.process, step.index))


def _standing(
    history: RunHistory, process: ProcessHistory, message: int, causes: Sequence[int], log: LogTrace | None
) -> DestinationFate:
    index = process.deliveries.get(message)
    state = _state_of(log)
    if index is None and not history.owes(process, message):
        state += ", joined later and does not owe it"
    return DestinationFate(
        process=process.name,
        delivered_at=index,
        log=state,
        causes=[_cause(history, process, cause, index) for cause in causes],
    )


def _cause(history: RunHistory, process: ProcessHistory, cause: int, index: int | None) -> Cause:
    cause_index = process.deliveries.get(cause)
    place: Place
    if cause_index is None:
        place = "missing" if history.is_for(cause, process) else "not for it"
    elif index is None:
        place = "delivered"
    else:
        place = "before it" if cause_index < index else "AFTER it"
    return Cause(history.text(cause), cause_index, place)


def _state_of(log: LogTrace | None) -> str:
    if log is None:
        return "not in the trace"
    if log.gaps:
        return f"gap at index {log.gaps[0][0]}"
    endings = {"end": "complete", "crash": "crashed", "leave": "left"}
    return endings.get(log.ending or "", f"breaks off after index {log.events[-1].index}")


# Writing it down ------------------------------------------------------------------------------------------------------


def _chapter_lines(message: str, chapter: Chapter) -> list[str]:
    sizes = [
        f"{size} bytes of {what}"
        for size, what in ((chapter.payload_bytes, "payload"), (chapter.control_bytes, "control"))
        if size is not None
    ]
    audience = "everyone" if chapter.destinations is None else _listing(chapter.destinations or ["nobody"])
    text = [f"{message} in run {chapter.run}: " + ", ".join([*sizes, f"for {audience}"])]
    if not any(step.event == "send" for step in chapter.steps):
        text.append("no row says that it was sent: its sender's log is not whole, or nobody sent it")
    text.append(f"direct causes: {_listing(chapter.direct_causes) if chapter.direct_causes else 'none'}")
    text.append("")
    text += _table([("since send", "process", "index", "event", ""), *map(_step_cells, chapter.steps)])
    if chapter.standings:
        text.append("")
        text += _table(
            [("destination", "delivered", "its log", "direct causes there"), *map(_standing_cells, chapter.standings)]
        )
    return text


def _step_cells(step: StoryStep) -> tuple[str, ...]:
    remarks = []
    if step.event == "hold":
        remarks.append(f"waits for {step.peer}" if step.peer else "waits")
    elif step.peer:
        remarks.append(f"with {step.peer}")
    if step.held_ns is not None:
        remarks.append(f"after it was held for {duration(step.held_ns)}")
    if step.note:
        remarks.append(step.note)
    process = step.process if step.role == "app" else f"{step.process} ({step.role})"
    since = "?" if step.since_send_ns is None else duration(step.since_send_ns)
    return since, process, str(step.index), step.event, "; ".join(remarks)


def _standing_cells(standing: DestinationFate) -> tuple[str, ...]:
    delivered = "never" if standing.delivered_at is None else f"at index {standing.delivered_at}"
    causes = [
        f"{cause.message} {cause.place}" + ("" if cause.index is None else f", at index {cause.index}")
        for cause in standing.causes
    ]
    return standing.process, delivered, standing.log, "; ".join(causes)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _listing(words: Iterable[str], conjunction: str = "and") -> str:
    *most, last = words
    return f"{', '.join(most)} {conjunction} {last}" if most else last
