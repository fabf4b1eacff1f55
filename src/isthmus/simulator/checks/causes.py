"""Why a run may fail: things that no protocol here survives yet, each computed from what happened in the run.

A cause excuses nothing. A run that fails fails; its causes say which of the holes that are written down
(`tests/known-holes.toml`) it fell into. A failure without a cause, or one that its cause does not explain, is news.
"""

from __future__ import annotations

from typing import Final

CAUSES: Final = {
    "lost-quorum": "a group stands still for good: fewer of its latest view are left than a quorum",
    "fast-delivery": "a joined system that delivers before a quorum holds lost a process, and with it what only it had",
    "last-link": "a join has no link left both ends of which are there, and nobody comes back",
    "lost-holders": "more members of a group were gone at a time than hold a message",
    "epoch-livelock": "a join began epoch after epoch when every fault was over",
    "leaders-duel": "two gateways of one side opened epochs against each other",
}


class Causes(dict[str, str]):
    """What happened, in words, by cause; the first time counts. A misspelt cause is an error."""

    def note(self, cause: str, words: str) -> None:
        if cause not in CAUSES:
            raise KeyError(cause)
        self.setdefault(cause, words)
