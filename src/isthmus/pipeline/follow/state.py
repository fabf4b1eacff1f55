"""What a streaming audit remembers of one run: its logs, its chains, and its messages that are not stable yet.

Everything here is plain data of numbers and names, so that a snapshot is one call of msgspec and holds no code. Logs,
chains and messages are numbered as they turn up; vectors have one entry per chain and may be shorter than there are
chains, which means 0. How it is used is in `follow_run` and `follow_judge`; why it is enough in docs/design/follow.md.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec
from msgspec import Struct

from isthmus.trace.schema import Event, Verdict, Violation

UNSENT = -1
"""The rank of a message whose `send` row was not seen."""


class Row(Struct, frozen=True, gc=False, array_like=True):
    """What the audit asks of a row. Names are `system/process`."""

    process: str
    app: bool
    index: int
    event: str
    origin: str | None = None
    seq: int = 0
    destinations: tuple[str, ...] | None = None


def row_of(event: Event) -> Row:
    process = f"{event.system}/{event.process}"
    app = event.role == "app"
    if event.origin_seq is None or not app or event.event not in ("send", "deliver"):
        return Row(process, app, event.index, event.event)
    origin = f"{event.origin_system}/{event.origin_process}"
    return Row(process, app, event.index, event.event, origin, event.origin_seq, event.destinations)


class FollowedMessage(Struct, array_like=True):
    """A message that somebody sent or delivered, and that is not known to be stable."""

    chain: int
    seq: int
    rank: int = UNSENT
    to: frozenset[int] | None = None
    """The logs that it is for; None for everyone."""
    at: dict[int, int] = {}
    """Log to index of the first delivery there."""
    past: list[int] = []
    """Causal past: messages per chain. It may still grow while not `final`."""
    final: bool = False
    causes: list[int] = []
    """Direct causes whose own pasts may still grow."""
    missing: list[int] = []
    """Logs where it was found missing."""
    said: tuple[str, tuple[str, ...]] | None = None
    """Without a `send` row: for whom it was, as the first process by name says, with that name."""
    sent_at: int = -1
    """The index of its `send` row."""


class Chain(Struct, array_like=True):
    """The messages of one sender in the order of sending, or one message that nobody sent."""

    origin: int
    loose: bool = False
    base: int = 0
    """How many were forgotten, all of them from the beginning."""
    held: list[int] = []
    """Those that were sent and not forgotten, by rank."""
    by_seq: dict[int, int] = {}
    unsent: set[int] = set()
    forgotten: list[int] = []
    """Numbers that were forgotten, as bounds of ranges: [first, last + 1, first, last + 1, …]."""
    addressed: bool = False
    """One that was forgotten was not for everyone."""
    forgettable: int = 0
    """The rank up to which everything was settled when rows came last."""

    @property
    def end(self) -> int:
        return self.base + len(self.held)

    def has_forgotten(self, seq: int) -> bool:
        return bool(self.forgotten) and bisect_right(self.forgotten, seq) % 2 == 1

    def forget(self, seq: int) -> None:
        bounds = self.forgotten
        if bounds and bounds[-1] == seq:
            bounds[-1] = seq + 1
            return
        place = bisect_right(bounds, seq)
        bounds[place:place] = [seq, seq + 1]
        if place + 2 < len(bounds) and bounds[place + 1] == bounds[place + 2]:
            del bounds[place + 1 : place + 3]
        if place and bounds[place - 1] == bounds[place]:
            del bounds[place - 1 : place + 1]


class Log(Struct, array_like=True):
    """One process: how far its log was read, and what it has seen, sent and delivered, as vectors."""

    name: str
    next: int = 0
    """All rows below this index were read."""
    parked: dict[int, Row] = {}
    """Rows behind a gap."""
    seen: bool = False
    """It has rows. Others are only named as a destination or an origin."""
    app: bool = False
    joined: bool = False
    crashed: bool = False
    gone: bool = False
    complete: bool = False
    chain: int = -1
    deliveries: int = 0
    first_deliveries: int = 0
    known: list[int] = []
    """Chain to how many of its messages are in the past of what this process sends next."""
    since: list[int] = []
    """Messages in that past whose own pasts may still grow."""
    frontier: list[int] = []
    """Chain to the rank below which everything that is for this process was delivered."""
    open: list[tuple[int, int, int]] = []
    """Deliveries that cannot be judged for good: index, message, what is settled about it. The first may not be."""
    behind: list[int] = []
    """Of one that joined: the union of the pasts of what it delivered and was judged."""
    owed_from: dict[int, int] = {}
    """Of one that joined: chain to the rank from which on it owes its messages."""
    owed: int = 0
    """How many of the messages that were forgotten it owed."""
    together: dict[int, tuple[int, int, int, int]] = {}
    """Other log to the message with the highest index here that both delivered: both indices, chain, number."""


class RunState(Struct, array_like=True):
    """One run."""

    run: str
    max_held: int
    logs: list[Log] = []
    chains: list[Chain] = []
    messages: dict[int, FollowedMessage] = {}
    next_message: int = 0
    pending: set[int] = set()
    """Messages that were sent and whose pasts may still grow."""
    forgot: bool = False
    rows: int = 0
    counts: dict[str, int] = {}
    """Property to violations."""
    differing: set[tuple[int, int]] = set()
    """Pairs of logs whose order differs, the lower number first."""
    reported: set[int] = set()
    """Keys of the violations that were described, for the case that the run has to be read again."""
    not_counted: int = 0
    """Rows that came twice or after the end of their log."""
    finished: bool = False
    again: int = 0
    """How often the run was read again."""
    offenders: set[str] = set()
    given_up: str | None = None
    files: dict[str, int] = {}
    """Where rows came from, and how far those files were read: where to begin again."""

    def held(self) -> int:
        """Messages that are not stable, and rows behind gaps."""
        return len(self.messages) + sum(len(log.parked) for log in self.logs)


class Findings(Struct):
    """What rows that came have shown about one run."""

    run: str
    rows: int
    """All rows that were read so far."""
    held: int
    finished: bool
    """Every log that has rows is complete."""
    awaited: int
    """Processes that are named as a sender or a destination and have no log."""
    verdicts: list[Verdict]
    violations: list[Violation]
    """The new ones."""
    not_counted: int = 0
    warnings: list[str] = []


class Forgotten(Exception):
    """A row asks about something that was forgotten. The files still have it: the run has to be read again."""

    def __init__(self, offender: str | None, why: str) -> None:
        super().__init__(why)
        self.offender = offender


_decoder = msgspec.msgpack.Decoder(RunState)
_encoder = msgspec.msgpack.Encoder()


def snapshot(state: RunState) -> bytes:
    return _encoder.encode(state)


def restore(data: bytes) -> RunState:
    return _decoder.decode(data)
