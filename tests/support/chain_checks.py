"""Whether a chain of causes is one: from the first message to the second, every link a direct cause of the next."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from second_opinion import Message, Run

from isthmus.trace.schema import Event, Violation


def key_of(text: str) -> Message:
    name, _, number = text.rpartition("/")
    return name, int(number)


def broken_chains(events: Iterable[Event], violations: Iterable[Violation]) -> list[Violation]:
    """Those of the fifo and causal violations of one run whose chain is not what docs/trace-format.md says."""
    run = Run(events)
    return [each for each in violations if each.property in ("fifo", "causal") and not _is_whole(run, each)]


def _is_whole(run: Run, violation: Violation) -> bool:
    chain = [key_of(each) for each in violation.chain]
    ends = chain[:1] + chain[-1:] == [key_of(violation.first), key_of(violation.second or "")]
    return ends and len({*chain}) == len(chain) > 1 and all(_is_direct(run, m1, m2) for m1, m2 in pairwise(chain))


def _is_direct(run: Run, m1: Message, m2: Message) -> bool:
    """The sender of m2 had sent or delivered m1."""
    sender = run.log(m2[0])
    return (m1, m2) in run.before or sender.delivered.get(m1, 1 << 60) < sender.sent.get(m2, -1)
