"""Counters of the rare cases: proof that a campaign without violations was not a campaign without events.

Each counter is raised by looking at what passes on the simulated network or happens to a simulated process, never by
code inside a protocol.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

CASES: Final = {
    "loss": "a PDU was lost",
    "duplication": "a PDU arrived twice",
    "reordering": "a PDU overtook an earlier one",
    "partition": "the system was partitioned",
    "cut": "one direction between two processes was cut",
    "slow": "a process was slowed down",
    "crash": "a process crashed",
    "crash inside a multicast": "a process crashed when only some destinations had been sent to",
    "crash after delivery": "a process crashed after it delivered and before it sent anything",
    "crash in a view change": "a process crashed while a view change was under way",
    "quorum lost": "a view was left with fewer members than a quorum",
    "exclusion": "a live process was excluded and stopped",
    "leave": "a process left in good order",
    "join": "a process joined a running system",
    "held for a cause": "a batch arrived before one of its causes",
    "held to be safe": "a batch arrived before a quorum held it",
    "held for what its sender had": "a PDU arrived before one that its sender had received",
    "held for its place": "a batch arrived before the sequencer had placed it",
    "gap": "a receiver saw a gap and said so",
    "view change": "a view was installed",
    "same members again": "a view was installed with the members of the one before, to go back behind a loss",
    "asked for a PDU": "a receiver asked a sender for what it had lost",
    "told of places": "a receiver was told by one who was sure where what it had lost stood",
    "flush fetched": "a view change had to fetch missing batches",
    "coordinators competed": "a member had promised a higher ballot already",
    "proposal taken over": "a coordinator met a proposal accepted under an earlier ballot",
    "link cut": "a link between systems was cut",
    "site cut": "all links of a site were cut at once",
    "gateway crashed": "a gateway crashed",
    "sequencer crashed": "the first gateway of a system crashed",
    "last gateway gone": "a join was left without any gateway on one side",
    "gateway came back": "a new process took the place of a gateway that was gone",
    "gateway left": "a gateway left in good order while messages flowed",
    "server crashed": "the server of a group in a daisy crashed",
    "crash in a flush of servers": "a server crashed while its servers' group exchanged what it had",
    "groups changed": "a process of a daisy began another generation of its tree",
    "crash in a change of groups": "a process crashed while the tree of a daisy changed",
    "let in": "a process that came late was let into a daisy",
    "site died": "all processes of a site died at once, and it began again",
    "gateway paused": "the gateway of a log stopped for a while, and went on",
    "claim taken over": "somebody took the claim on a log while its former holder lived",
    "old gateway refused": "a log refused what a former holder of its claim appended",
    "append with unknown outcome": "a gateway did not hear what came of an append, and had to look",
    "broker died": "the broker of a log died",
    "broker lost its tail": "the broker of a log lost entries that were not durable",
    "log trimmed": "the oldest entries of a log went",
    "log recreated": "a log was deleted and made anew",
    "headers copied": "a client wrote an entry with the headers of another one",
    "join stopped": "the joins of a log stopped: it does not go on where it was read",
    "epoch": "a join began a new epoch",
    "block of an older epoch": "a block arrived when a later epoch had begun",
    "number before its turn": "a block arrived before the numbers before it were delivered",
    "window full": "a join had as much under way as it may",
    "back-pressure": "a process had messages and no credit",
    "relay": "a message was relayed from one cluster to the next",
}

FAULTS: Final = (
    "crash",
    "quorum lost",
    "partition",
    "cut",
    "slow",
    "leave",
    "join",
    "link cut",
    "site cut",
    "site died",
    "gateway crashed",
    "gateway left",
    "sequencer crashed",
    "last gateway gone",
    "server crashed",
    "gateway paused",
    "claim taken over",
    "broker died",
    "broker lost its tail",
    "log trimmed",
    "log recreated",
    "join stopped",
)
"""Those of the cases that are faults, or what a fault hit: counted when it has happened, not when it was drawn."""


class Sometimes(Counter[str]):
    """Counts by case; a misspelt case is an error."""

    def reach(self, case: str) -> None:
        if case not in CASES:
            raise KeyError(case)
        self[case] += 1
