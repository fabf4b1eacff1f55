"""What a trace is made of: events, verdicts, violations, and the error for traces that cannot be used.

The columns are those of the table in `trace.columns`. Decoding checks types and ranges; `problem` checks what types
cannot say.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from isthmus.trace.columns import TRACE_COLUMNS, TRACE_EVENTS

EventName: TypeAlias = Literal[
    "start",
    "join",
    "send",
    "deliver",
    "stable",
    "transfer",
    "accept",
    "sequence",
    "crash",
    "leave",
    "end",
    "view",
    "hold",
    "receive",
    "pre-acknowledge",
    "acknowledge",
]
Role: TypeAlias = Literal["app", "gateway"]
Answer: TypeAlias = Literal["holds", "violated", "unknown"]

EVENTS: frozenset[str] = frozenset(kind.name for kind in TRACE_EVENTS)
LAST_EVENTS: frozenset[str] = frozenset(kind.name for kind in TRACE_EVENTS if kind.last)
"""A log that ends with one of these is complete."""
WITH_A_MESSAGE: frozenset[str] = frozenset(kind.name for kind in TRACE_EVENTS if kind.message == "always")
WITHOUT_A_MESSAGE: frozenset[str] = frozenset(kind.name for kind in TRACE_EVENTS if kind.message == "never")

Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
SequenceNumber = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1)]


class Event(Struct, frozen=True, gc=False, kw_only=True):
    """One row. Nullable columns may be absent from a file, as many writers of JSON leave nulls out.

    Written out for mypy; a test holds it to the table of columns.
    """

    run: Name
    system: Name
    process: Name
    role: Role
    index: Count
    event: EventName
    origin_system: Name | None = None
    origin_process: Name | None = None
    origin_seq: SequenceNumber | None = None
    destinations: tuple[str, ...] | None = None
    peer: str | None = None
    payload_bytes: Count | None = None
    control_bytes: Count | None = None
    time_ns: Int64
    note: str | None = None


COLUMNS: tuple[str, ...] = tuple(column.name for column in TRACE_COLUMNS)

INCOMPLETE_ID = "the message id is incomplete: origin_system, origin_process and origin_seq go together"
NEEDS_A_MESSAGE = "a `{event}` row needs a message id"
HAS_NO_MESSAGE = "a `{event}` row has no message, so its message id must be null"
FOREIGN_MESSAGE = "a process sends messages of its own only, but the message id names another origin"
SLASH_IN_SYSTEM = "the name of a system must not contain a slash"
EMPTY_VIEW = "a `view` row needs its members in `destinations` and its number in `peer`"


def problem(row: Event) -> str | None:
    """Why a row of the right types still makes no sense, or None."""
    event = row.event
    origin_system = row.origin_system
    if origin_system is None or row.origin_process is None or row.origin_seq is None:
        if origin_system is not None or row.origin_process is not None or row.origin_seq is not None:
            return INCOMPLETE_ID
        if event in WITH_A_MESSAGE:
            return NEEDS_A_MESSAGE.format(event=event)
    elif event in WITHOUT_A_MESSAGE:
        return HAS_NO_MESSAGE.format(event=event)
    elif event == "send" and row.role == "app" and (origin_system != row.system or row.origin_process != row.process):
        return FOREIGN_MESSAGE
    elif "/" in origin_system:
        return SLASH_IN_SYSTEM
    if "/" in row.system:
        return SLASH_IN_SYSTEM
    if event == "view" and (row.destinations is None or row.peer is None):
        return EMPTY_VIEW
    return None


class Verdict(Struct, frozen=True):
    """The answer for one property of one run. `checked` counts what the property was asked about."""

    run: str
    property: str
    """A name in the table of `trace.properties`."""
    verdict: Answer
    checked: int
    violations: int


class Violation(Struct, frozen=True):
    """One witness. `first` should have come before `second`; a property of single messages has only `first`."""

    run: str
    property: str
    process: str
    first: str
    second: str | None
    why: str
    chain: tuple[str, ...] = ()
    """Why `first` had to come before `second`: messages from one to the other, each a direct cause of the next."""


class Report(Struct, frozen=True):
    """What an audit found, in the form in which it is printed."""

    runs: int
    events: int
    verdicts: list[Verdict]
    violations: list[Violation]
    quarantined: int = 0

    def verdict(self, wanted: str, run: str | None = None) -> Answer:
        """The worst answer for a property, over all runs or for one."""
        answers = {each.verdict for each in self.verdicts if each.property == wanted and run in (None, each.run)}
        return "violated" if "violated" in answers else "unknown" if "unknown" in answers else "holds"

    @property
    def violated(self) -> list[Verdict]:
        return [each for each in self.verdicts if each.verdict == "violated"]


class TraceError(Exception):
    """A trace that cannot be written or read at all: where, why, and what to do, in one line."""

    def __init__(self, where: object, reason: str, way_out: str) -> None:
        super().__init__(printable(f"{where}: {reason}; {way_out}"))
        self.reason = printable(reason)


def printable(text: str) -> str:
    """Text on one line that does nothing to a terminal. Names come from files, and files from anywhere."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
