"""The table of a trace's columns and the table of its events: the one place where the format is written down.

Everything that has to know the format takes it from here: the types and conditions of Parquet, Arrow and Spark, the
checks of rows, and the tables of docs/trace-format.md, which a test compares with these. Only the class of a row
(`trace.schema.Event`) is written out beside it, so that mypy knows its fields; the same test holds it to the table.

A new column is one line here and one field there, and whoever fills it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

ColumnType: TypeAlias = Literal["string", "int64", "array of string"]


class Column(NamedTuple):
    """One column. `least` is the smallest number, or the fewest characters of a text."""

    name: str
    type: ColumnType
    nullable: bool
    meaning: str
    least: int | None = None
    values: tuple[str, ...] = ()
    """All values that the column may hold; empty: anything."""


class EventKind(NamedTuple):
    """One kind of event. `message`: whether a row of it has a message id. `last`: it completes a log."""

    name: str
    message: Literal["always", "never", "maybe"]
    meaning: str
    last: bool = False


TRACE_EVENTS: tuple[EventKind, ...] = (
    EventKind("start", "never", "the process is a member from the beginning"),
    EventKind("join", "never", "the process came later, or came back as a new process"),
    EventKind("send", "always", "the application of this process sent the message"),
    EventKind("deliver", "always", "the application of this process was given the message"),
    EventKind("stable", "always", "the message is known to be delivered by every live destination in every system"),
    EventKind("transfer", "maybe", "the message was put onto a link; `peer` is the link, or the process that is next"),
    EventKind("accept", "maybe", "the message was taken off a link; `peer` is the link"),
    EventKind("sequence", "maybe", "the sequencer gave the message its number for a join"),
    EventKind("crash", "never", "the process crashed; nothing follows", last=True),
    EventKind("leave", "never", "the process left its system; nothing follows", last=True),
    EventKind("end", "never", "the log is complete; nothing follows", last=True),
    EventKind("view", "never", "the membership changed: `destinations` are the members, `peer` is the view's number"),
    EventKind("hold", "always", "the message arrived and waits: `peer` is the process it waits for, `note` says why"),
    EventKind("receive", "always", "TO and PO: the message arrived"),
    EventKind("pre-acknowledge", "always", "TO and PO: every member is known to have received the message"),
    EventKind("acknowledge", "always", "TO and PO: every member is known to know that"),
)

TRACE_COLUMNS: tuple[Column, ...] = (
    Column("run", "string", False, "which run", least=1),
    Column("system", "string", False, "the system in which it happened; its name has no slash", least=1),
    Column("process", "string", False, "the process to which it happened", least=1),
    Column("role", "string", False, "what the process is: only rows of `app` are judged", values=("app", "gateway")),
    Column("index", "int64", False, "position in the process's own history: 0, 1, 2, … with no gap", least=0),
    Column("event", "string", False, "what happened", values=tuple(event.name for event in TRACE_EVENTS)),
    Column("origin_system", "string", True, "message id: the system of the process that sent it", least=1),
    Column("origin_process", "string", True, "message id: the process that sent it", least=1),
    Column("origin_seq", "int64", True, "message id: the sender's number for it, from 1", least=1),
    Column("destinations", "array of string", True, "for whom the message is, as `system/process`; null: for everyone"),
    Column("peer", "string", True, "the link or process at the other side"),
    Column("payload_bytes", "int64", True, "size of the payload", least=0),
    Column("control_bytes", "int64", True, "size of all ordering information carried with the message", least=0),
    Column("time_ns", "int64", False, "the process's own clock in nanoseconds; for latency, never for order"),
    Column("note", "string", True, "a remark for people"),
)

PAYLOAD = Column("payload", "string", True, "what the message said, as its application wrote it")
"""Not part of a trace: the one column more of logs that applications write for the streaming source."""
