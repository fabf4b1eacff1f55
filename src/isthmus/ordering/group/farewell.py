"""The last thing that a process does which is out of the view by a decision that it knows of: it passes it on.

It may be the only one that knows. So it repeats the decision until everybody who goes on has moved on, or for as long
as somebody dead could pass for alive. Who has moved on says so: `Excluded`.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.endpoint import Outbox
from isthmus.core.ids import Nanos, ProcessId
from isthmus.core.wire.group import Excluded, Install
from isthmus.core.wire.pdu import Pdu


class Farewell:
    """Passes the decision on to `still_behind`: members of the next view that may not know that it has begun."""

    __slots__ = ("decision", "reason", "still_behind", "until")

    def __init__(self, decision: Install, reason: str, until: Nanos) -> None:
        self.decision = decision
        self.reason = reason
        self.until = until
        self.still_behind = set(decision.proposal.members)

    def heard(self, source: ProcessId, pdus: Sequence[Pdu]) -> None:
        if any(isinstance(pdu, Excluded) and pdu.view > self.decision.view for pdu in pdus):
            self.still_behind.discard(source)

    def is_over(self, now: Nanos) -> bool:
        return not self.still_behind or now >= self.until

    def say(self, out: Outbox) -> None:
        out.sends.append((tuple(sorted(self.still_behind)), self.decision))
