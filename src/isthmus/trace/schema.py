"""What a trace is made of: events, verdicts, violations, and the error for traces that cannot be used.

The columns and their order are the ones that users see in the contract of the trace format; `note` is ours, for
people only, and stands last. Decoding checks types and ranges; `problem` checks what types cannot say.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

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
"""The last five are additions to the contract. `view` is a change of view: `destinations` are its members, `peer` is
its number as text. `hold` is a message that arrived and waits: `peer` is the process it waits for, `note` says why.
The last three are the stages of a message in a system by TO or PO; `deliver` is when its application gets it."""

Role: TypeAlias = Literal["app", "gateway"]
Property: TypeAlias = Literal["integrity", "agreement", "fifo", "causal", "total", "same_view"]
Answer: TypeAlias = Literal["holds", "violated", "unknown"]

EVENTS: frozenset[str] = frozenset(get_args(EventName))
LAST_EVENTS: frozenset[str] = frozenset({"end", "crash", "leave"})
"""A log that ends with one of these is complete."""

_ABOUT_A_MESSAGE = frozenset({"send", "deliver", "stable", "hold", "receive", "pre-acknowledge", "acknowledge"})
_NOT_ABOUT_A_MESSAGE = frozenset({"start", "join", "crash", "leave", "end", "view"})

Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
SequenceNumber = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1)]


class Event(Struct, frozen=True, gc=False, kw_only=True):
    """One row. Nullable columns may be absent from a file, as many writers of JSON leave nulls out."""

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


COLUMNS: tuple[str, ...] = Event.__struct_fields__
NULLABLE: frozenset[str] = frozenset(COLUMNS[6:13]) | {"note"}


def problem(row: Event) -> str | None:
    """Why a row of the right types still makes no sense, or None."""
    event = row.event
    origin_system = row.origin_system
    if origin_system is None or row.origin_process is None or row.origin_seq is None:
        if origin_system is not None or row.origin_process is not None or row.origin_seq is not None:
            return "the message id is incomplete: origin_system, origin_process and origin_seq go together"
        if event in _ABOUT_A_MESSAGE:
            return f"a `{event}` row needs a message id"
    elif event in _NOT_ABOUT_A_MESSAGE:
        return f"a `{event}` row has no message, so its message id must be null"
    elif event == "send" and row.role == "app" and (origin_system != row.system or row.origin_process != row.process):
        return "a process sends messages of its own only, but the message id names another origin"
    elif "/" in origin_system:
        return "the name of a system must not contain a slash"
    if "/" in row.system:
        return "the name of a system must not contain a slash"
    if event == "view" and (row.destinations is None or row.peer is None):
        return "a `view` row needs its members in `destinations` and its number in `peer`"
    return None


class Verdict(Struct, frozen=True):
    """The answer for one property of one run. `checked` counts what the property was asked about."""

    run: str
    property: Property
    verdict: Answer
    checked: int
    violations: int


class Violation(Struct, frozen=True):
    """One witness. `first` should have come before `second`; a property of single messages has only `first`."""

    run: str
    property: Property
    process: str
    first: str
    second: str | None
    why: str


class Report(Struct, frozen=True):
    """What an audit found, in the form in which it is printed."""

    runs: int
    events: int
    verdicts: list[Verdict]
    violations: list[Violation]
    quarantined: int = 0

    def verdict(self, wanted: Property, run: str | None = None) -> Answer:
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


def printable(text: str) -> str:
    """Text on one line that does nothing to a terminal. Names come from files, and files from anywhere."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
