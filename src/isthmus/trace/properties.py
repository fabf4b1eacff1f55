"""The properties that a run can keep: the one list of them, with what violates each and the sentence that says so.

Whoever judges has one table from these names to what judges them there: `ORACLES` in trace/oracles.py, `JUDGES` in
pipeline/engine/judges.py, `FOLLOWED` in pipeline/follow/judge.py. A property that such a table does not have is
`unknown` there. Nothing else lists properties: a new one is an entry here and one in each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from isthmus.trace.schema import TraceError, Violation


class Mistake(Struct, frozen=True, kw_only=True):
    """What is wrong at one process, by names and places: all that a sentence about it is made of."""

    process: str
    first: str
    """The message that is wrong or missing, or that should have come before `second`."""
    second: str | None = None
    first_index: int | None = None
    """Where `first` stands in the log of `process`; None when it was not delivered there."""
    second_index: int | None = None
    other: str | None = None
    """Another process, whose log says otherwise."""
    other_first_index: int | None = None
    other_second_index: int | None = None
    kind: str | None = None
    """Which of several mistakes it is, for a property that knows several."""
    detail: str | None = None
    """Whatever else the sentence needs."""
    chain: tuple[str, ...] = ()
    """The messages from `first` to `second`, each a direct cause of the next, where one is a cause of the other."""


class Property(Struct, frozen=True, kw_only=True):
    """One property."""

    meaning: str
    """What it promises, in a few words."""
    violated_when: str
    why: Callable[[Mistake], str]
    """The sentence about one violation, the same whoever found it."""
    by_default: bool = True
    """An audit judges it without being asked to."""
    expected: bool = True
    """Its violation makes an audit fail that was not told what to expect."""
    weakest_order: str | None = None
    """The weakest order (fifo, causal, total) that includes it; None for what every order includes."""
    of_one_sender: bool = False
    """It is about messages of one sender, so `first` is a direct cause of `second`."""
    about_views: bool = False
    """It can be judged only where processes record their views."""


def violation(run: str, judged: str, mistake: Mistake) -> Violation:
    """A mistake in words."""
    judging, chain = PROPERTIES[judged], mistake.chain
    why = judging.why(mistake)
    if judging.of_one_sender and mistake.second is not None:
        chain = (mistake.first, mistake.second)
    if len(chain) > 2:
        why = f"{why}; the chain of causes: {', '.join(chain)}"
    return Violation(run, judged, mistake.process, mistake.first, mistake.second, why, chain)


# Sentences ------------------------------------------------------------------------------------------------------------


def _wrong_delivery(mistake: Mistake) -> str:
    if mistake.kind == "again" and mistake.first_index is None:
        return f"{mistake.first} was delivered again at index {mistake.second_index}, long after the first time"
    delivered = f"{mistake.first} was delivered at index {mistake.first_index}"
    if mistake.kind == "again":
        return f"{delivered} and again at index {mistake.second_index}"
    reasons = {"nobody": "nobody sent it", "early": "nobody had sent it yet"}
    return f"{delivered}, but {reasons.get(mistake.kind or '', f'was not for {mistake.process}')}"


def _missing(mistake: Mistake) -> str:
    return f"{mistake.first} was for {mistake.process}, which never delivered it"


def _overtook(relation: str) -> Callable[[Mistake], str]:
    """`second` was delivered, and `first`, which is its `relation`, was not there. It may still come: `awaited`."""

    def why(mistake: Mistake) -> str:
        place = f" at index {mistake.first_index}"
        if mistake.first_index is None:
            never = "was not there yet" if mistake.kind == "awaited" else "was never delivered there"
            place = f", which {never}"
        early = f"{mistake.second} was delivered at index {mistake.second_index}"
        return f"{early} before {relation} {mistake.first}{place}"

    return why


def _two_orders(mistake: Mistake) -> str:
    return (
        f"{mistake.process} delivered {mistake.first} at index {mistake.first_index} before {mistake.second} at index "
        f"{mistake.second_index}, but {mistake.other} delivered {mistake.second} at index "
        f"{mistake.other_second_index} before {mistake.first} at index {mistake.other_first_index}"
    )


def _different_views(mistake: Mistake) -> str:
    """`detail` says between which views."""
    system = mistake.process.partition("/")[0]
    return f"{mistake.detail} of {system}, {mistake.other} delivered {mistake.first} and {mistake.process} did not"


# The table ------------------------------------------------------------------------------------------------------------

PROPERTIES: dict[str, Property] = {
    "integrity": Property(
        meaning="nothing twice, nothing invented, nothing for others",
        violated_when=(
            "a process delivers a message twice, or one that nobody sent or had sent yet, or one that was not for it"
        ),
        why=_wrong_delivery,
    ),
    "agreement": Property(
        meaning="what one delivers, all deliver",
        violated_when=(
            "a message that was delivered anywhere (even by a process that crashed later), or whose sender did not "
            "crash, is missing at a destination that did not crash or leave"
        ),
        why=_missing,
    ),
    "fifo": Property(
        meaning="messages of one sender in the order of sending",
        violated_when=(
            "a process delivers m2 of some sender without having delivered before it an earlier m1 of the same sender "
            "that was also for it"
        ),
        why=_overtook("the earlier"),
        weakest_order="fifo",
        of_one_sender=True,
    ),
    "causal": Property(
        meaning="every message after its causes",
        violated_when="a process delivers m2 without having delivered before it a cause m1 that was also for it",
        why=_overtook("its cause"),
        weakest_order="causal",
    ),
    "total": Property(
        meaning="all processes in the same order",
        violated_when="two processes deliver the same two messages in different orders",
        why=_two_orders,
        expected=False,  # a promise that few systems make
        weakest_order="total",
    ),
    "same-view": Property(
        meaning="who goes from one view to the next with others has delivered what they have",
        violated_when="two processes go from one view to the same next one and deliver different messages between",
        why=_different_views,
        by_default=False,
        expected=False,
        about_views=True,
    ),
}


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Properties by their place in the table, each once."""
    wanted = set(names)
    return tuple(name for name in PROPERTIES if name in wanted)


def expected_properties(words: str | None = None) -> tuple[str, ...]:
    """The properties that a user names, as in `fifo,causal`; without a word, those that every run should keep."""
    if words is None:
        return tuple(name for name, each in PROPERTIES.items() if each.expected)
    names = [word.strip() for word in words.split(",") if word.strip()]
    known = f"known are {', '.join(PROPERTIES)}"
    for name in names:
        if name not in PROPERTIES:
            raise TraceError("--expect", f"unknown property '{name}'", known)
    if not names:
        raise TraceError("--expect", "names no property", known)
    return tuple(dict.fromkeys(names))


def audited_properties(expected: Iterable[str] = ()) -> tuple[str, ...]:
    """What an audit judges: what it always judges, and whatever else is expected."""
    return in_order([*(name for name, each in PROPERTIES.items() if each.by_default), *expected])
