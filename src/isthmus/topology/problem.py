"""What is wrong with a topology file: one line each, and all of them at once.

Somebody who mends a file wants to know where, why, and what to do instead; so a problem has exactly these parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal, TypeAlias

from msgspec import Struct

ProblemKind: TypeAlias = Literal["structure", "protocol", "warning"]
"""`structure`: the file does not describe a topology; always refused. `protocol`: it does, but the papers show that
the topology breaks its promise; refused unless the file says `unsafe = true` and the caller wants to see it break.
`warning`: it works, but hardly as meant; never refused."""

_LONGEST_QUOTE = 60


class Problem(Struct, frozen=True, kw_only=True):
    """`key` is a dotted path such as `joins[0].between[1]`, a place such as `line 3`, or empty for the whole file."""

    file: str
    key: str
    reason: str
    way_out: str
    kind: ProblemKind = "structure"

    def __str__(self) -> str:
        place = f"{self.file}: {self.key}" if self.key else self.file
        # File names are the one part that may hold anything; the rest was quoted where it was written.
        return " ".join(f"{place}: {self.reason}; {self.way_out}".splitlines())


class TopologyError(Exception):
    """A topology file was refused. `problems` holds every reason, and no warning; the text has one line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Problems:
    """Collects the problems of one file.

    `incomplete` is set when a value could not be read. What stands in its place is a guess, so rules that span
    several tables are not checked then: they would complain about the guess.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.incomplete = False

    def refuse(self, key: str, reason: str, way_out: str, kind: ProblemKind = "structure") -> None:
        self.problems.append(Problem(file=self.file, key=key, reason=reason, way_out=way_out, kind=kind))


def quote(value: object) -> str:
    """A value from the file, in double quotes, on one line, and never long."""
    text = value if isinstance(value, str) else str(value)
    return json.dumps(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…", ensure_ascii=False)


def listing(words: Iterable[object], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; many are cut short, as nobody reads 4,096 names in one line."""
    parts = [str(word) for word in words]
    if len(parts) > 12:
        parts = [*parts[:10], f"{len(parts) - 10} more"]
    return f" {last} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that was probably meant."""
    if len(word) > _LONGEST_QUOTE:
        return None
    folded = {each.lower().replace("_", "-"): each for each in known}
    matches = get_close_matches(word.lower().replace("_", "-"), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def choose_from(word: str, known: Sequence[str], what: str) -> str:
    """The way out for a word that is not among `known`; `what` introduces the list of what is known."""
    suggestion = closest(word, known)
    return f"{what} {listing(map(quote, known))}" if suggestion is None else f"did you mean {quote(suggestion)}?"
