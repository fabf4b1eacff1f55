"""What isthmus needs of a broker: a log that is read in order, and appended to in one atomic step by one holder.

Whoever writes an adapter implements `Log`; `isthmus conformance module:Adapter` tries it. What it promises is
in docs/design/logs.md, how it is used in docs/design/brokers.md. In short:

- all readers see the same entries in the same order, and positions stay what they are;
- `append` writes entries and record together or not at all, and only if the claim is ours and the record is the one
  that we expect;
- nothing is ever skipped in silence: entries that were not read and are gone raise `Trimmed`, another log in place of
  ours raises `Recreated`.

Methods may raise `Unavailable` at any time; the caller waits and calls again. An adapter reconnects by itself in the
next call. `read` and `durable` run beside the others, each once at a time; of the others one is called at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from isthmus.runtime.log.content import Content
from isthmus.runtime.problems import RuntimeProblem

Position: TypeAlias = str
"""A place in a log, behind some entry, as the adapter writes it. It carries whatever shows that the log is the same."""

BEGINNING: Position = ""
"""The place before the first entry that there is."""


class LogSettings(Struct, frozen=True, kw_only=True):
    """Where the log is. `streams` are its parts, each in an order of its own; nearly always there is one.

    `state` names what isthmus keeps in the broker for this log: the same at all hosts that run it. Secrets have been
    read from files and environment by now; `options` are what else the file says, by the adapter's own names.
    """

    system: str
    provider: str
    url: str
    streams: tuple[str, ...]
    state: str
    options: Mapping[str, str] = {}


class Entry(NamedTuple):
    """One entry of a log. `origin` (`system/process`) and `seq` are what its headers say, which clients may copy.

    `path` are the systems that it came through, separated by commas. `part` is which of the log's streams it is in.
    """

    content: Content
    origin: str = ""
    seq: int = 0
    path: str = ""
    part: int = 0


class Slice(NamedTuple):
    """Consecutive entries, and the place behind the last of them. Without entries there is nothing new."""

    entries: Sequence[Entry]
    position: Position


class State(NamedTuple):
    """What the broker keeps for whoever holds the claim (docs/design/brokers.md). Empty where nothing was kept yet."""

    token: int
    record: bytes
    checkpoint: bytes


class Parked(NamedTuple):
    """An entry that was put aside. `id` is the broker's own name for it, `reason` what the broker said."""

    id: str
    reason: str
    entry: Entry


class LogProblem(RuntimeProblem):
    """The log cannot be used until somebody does something about it. The text says what."""


class Trimmed(LogProblem):
    """Entries behind our position are gone that nobody has read. What is left begins at `after`; None: at the start."""

    after: Position | None = None


class Recreated(LogProblem):
    """This is not the log that our position is in, or it has been set back."""


class Unavailable(Exception):
    """The broker does not answer, or refuses everybody for now. Try again."""


class Superseded(Exception):
    """Somebody else holds the claim."""


class Refused(Exception):
    """The broker will never accept the entry at `index` of this append, for `reason`. Nothing was appended."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


class TooMany(Exception):
    """An append takes `most` entries at once. Nothing was appended: divide it, each part with its own record."""

    def __init__(self, most: int) -> None:
        super().__init__(f"an append takes {most} entries at most")
        self.most = most


class Log(Protocol):
    """One log of one broker."""

    async def open(self) -> Sequence[str]:
        """Connect and look at the settings. Returns what weakens the promises, one line each.

        Raises `LogProblem` where nothing can be promised: a wrong password, no such stream, a server that is too old.
        """

    async def claim(self, holder: str, lease: float) -> State | None:
        """Take the claim, with a token above all former ones; None while somebody else's lease lasts.

        `holder` is for people. Whoever held it before can write nothing from here on. The claim is durable when this
        returns: one that a crash of the broker takes back would be handed out again, with the same token.
        """

    async def renew(self, lease: float) -> None:
        """Extend the lease. Raises `Superseded` if the claim is not ours any more."""

    async def release(self) -> None:
        """Give up the claim at once, so that a standby need not wait for the lease. Ours or not, it does not matter."""

    async def state(self) -> State:
        """What is kept now, whoever holds the claim; to find out what became of an append."""

    async def find(self, start: str) -> Position:
        """The position of `"start"`, `"now"`, a time (ISO 8601) or a position in the broker's own words.

        Like every position it tells the log from one that takes its place, also where nothing has been read yet.
        """

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        """The next entries, about so many or so many bytes at most, at least one. Waits up to a second for one.

        Only what would survive a crash of the broker, as far as it can: the number of an entry that was carried on and
        is lost goes to the next one (docs/design/brokers.md). Raises `Trimmed` and `Recreated`. Needs no claim.
        """

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        """Append all of these, in this order, and set the record; only if the claim is ours and the record `expected`.

        Without entries only the record is set: some messages are not to be appended, and that has to be known as well.
        Raises `Superseded` if it is not so, `Refused` if some entry can never be appended, and `TooMany` if they are
        more than the broker stores in one step. After `Unavailable` nobody knows; `state` will tell.
        """

    async def park(self, entry: Entry, reason: str, record: bytes, expected: bytes) -> None:
        """Put an entry aside that was refused, with the reason, and set the record, in one step like `append`."""

    async def parked(self, limit: int) -> Sequence[Parked]:
        """What was put aside, oldest first, so many at most. Needs no claim."""

    async def unpark(self, id: str) -> None:
        """Take this out of what was put aside; nothing happens if it is not there. Needs no claim."""

    async def note(self, checkpoint: bytes, position: Position = BEGINNING) -> None:
        """Keep this checkpoint, if the claim is ours; else `Superseded`.

        `position` is the one in it: nobody will read again what is before. A broker that keeps entries for us until
        then, and for as long as that takes, may let them go.
        """

    async def durable(self) -> None:
        """Return when what was appended before this call would survive a crash of the broker, as far as it can.

        If the broker died meanwhile it may be lost and this return all the same: whoever calls looks at `state` after.
        """

    async def close(self) -> None:
        """Let go of the connection. The claim stays."""
