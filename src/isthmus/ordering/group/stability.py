"""Stability: when has every live member finished with a batch?

Every member counts, per sender, the batches that it has *confirmed*: delivered, and done with by whoever it
delivers to (for a gateway: also by every system that it forwarded them to; parallel Sect. 7, daisy 3.1.1). Heartbeats
carry the counts. The minimum over the members of the view is stable.

Senders are known by id here, not by rank, because the batches of a sender that has left the view still have to become
stable. A view change keeps all counts; who joins has confirmed everything up to the cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from isthmus.core.ids import ProcessId


class Stability:
    """Confirmed counts of all members. Row of a member: sender -> count, never falling."""

    __slots__ = ("mine", "rows")

    def __init__(self) -> None:
        self.rows: dict[ProcessId, dict[ProcessId, int]] = {}
        self.mine: dict[ProcessId, int] = {}

    def confirm(self, sender: ProcessId, number: int) -> None:
        """This process has finished with `sender`'s batches up to `number`."""
        if number > self.mine.get(sender, -1):
            self.mine[sender] = number

    def learn(self, member: ProcessId, counts: Iterable[tuple[ProcessId, int]]) -> None:
        """What `member` says it has confirmed. Old news is harmless."""
        row = self.rows.get(member)
        if row is None:
            return
        for sender, number in counts:
            if number > row.get(sender, 0):
                row[sender] = number

    def stable(self, sender: ProcessId) -> int:
        """How many of `sender`'s batches every member has confirmed."""
        return min(row.get(sender, 0) for row in self.rows.values())

    def install(
        self,
        owner: ProcessId,
        members: Sequence[ProcessId],
        cut: Mapping[ProcessId, int],
        departed: Collection[ProcessId],
        *,
        caught_up: bool = True,
    ) -> None:
        """A view begins. Members that stay keep their counts; those that come say for themselves what they confirm.

        A process that comes itself has nothing to do with the past, so it confirms all of it, unless it is not
        `caught_up`: a gateway takes over what its fellows have not finished with. Of senders outside the view only
        those in `departed` have anything left that can become stable.
        """
        senders = (*members, *departed)
        stable = {sender: self.stable(sender) for sender in cut} if self.rows else cut
        rows = {member: self.rows.get(member, stable) for member in members}
        if owner not in self.rows and not caught_up:
            rows[owner] = {}
        self.rows = {member: {sender: row.get(sender, 0) for sender in senders} for member, row in rows.items()}
        self.mine = self.rows[owner]

    def forget(self, sender: ProcessId) -> None:
        """A departed sender whose last batch is stable."""
        for row in self.rows.values():
            row.pop(sender, None)
