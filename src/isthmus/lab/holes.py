"""The holes that are known: what protocols do not survive yet, one entry each, in `tests/known-holes.toml`.

An entry names a topology, seeds of which at least one fails, how such a run fails, the cause (one of
`simulator/checks/causes.py`) and the reason in a sentence. A failing run is *known* if everything that is wrong with it
is what entries allow for the causes that this run has; any other failing run is news. The suite plays the entries: one
that no longer fails has to go, so the list can only shrink.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct, ValidationError, convert, field

from isthmus.simulator.campaign import Source
from isthmus.simulator.checks.causes import CAUSES
from isthmus.trace.properties import PROPERTIES

FAILURES = (*PROPERTIES, "stuck", "stable", "broken")
"""How a run can fail: `RunOutcome.failed`."""


class HolesError(Exception):
    """A list of holes that cannot be used: where, why, and what to do, in one line."""


class Hole(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry. `seeds` are the first and the last one; `topology` is a path from the root of the repository."""

    topology: str
    seeds: tuple[int, int]
    properties: tuple[str, ...]
    cause: str
    reason: str

    def played(self, root: Path) -> Source:
        return (root / self.topology).read_text(), self.topology

    def range(self) -> range:
        return range(self.seeds[0], self.seeds[1] + 1)


class Holes(Struct, frozen=True):
    """All entries."""

    entries: tuple[Hole, ...] = ()

    def allowed(self, causes: Iterable[str]) -> set[str]:
        """How a run with these causes may fail."""
        causes = set(causes)
        return {each for hole in self.entries if hole.cause in causes for each in hole.properties}

    def explain(self, failed: Collection[str], causes: Iterable[str]) -> str | None:
        """The cause to which a failing run is put down; None if it is news."""
        if not failed or set(failed) - self.allowed(causes):
            return None
        return next(cause for cause in causes if self.allowed([cause]).intersection(failed))


NO_HOLES = Holes()


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    hole: tuple[Hole, ...] = field(default=())


def load_holes(path: Path) -> Holes:
    """The list in a file."""
    try:
        entries = convert(tomllib.loads(path.read_text()), _File).hole
    except OSError as error:
        reason = error.strerror or str(error)
        raise HolesError(f"{path}: {reason}; give that of a clone, or run this at its root") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise HolesError(f"{path}: {error}; write entries [[hole]] as in tests/known-holes.toml") from error
    for entry in entries:
        unknown = [each for each in entry.properties if each not in FAILURES]
        if unknown or not entry.properties:
            raise HolesError(f"{path}: {entry.topology}: properties: {unknown}; write some of {', '.join(FAILURES)}")
        if entry.cause not in CAUSES:
            raise HolesError(f"{path}: {entry.topology}: cause: there is no {entry.cause!r}; use {', '.join(CAUSES)}")
    return Holes(entries)
