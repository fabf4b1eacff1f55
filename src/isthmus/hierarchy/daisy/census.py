"""Who is in a daisy, and whether all are done with this generation: the count that servers take, level by level.

Every process tells the server of its group about itself, and every server tells the server above about everybody below
it, once all of the present view have told it. What was told in another view counts for nothing: somebody may have died
since, whose messages those who are left have to see through first (docs/design/daisy-changes.md, "Why it is right").
"""

from __future__ import annotations

from isthmus.core.ids import ProcessId
from isthmus.core.wire.daisy import Census
from isthmus.hierarchy.daisy.generation import Level
from isthmus.hierarchy.daisy.servers import ServersGroup


class Poll:
    """The censuses that others have sent to this process, by group."""

    def __init__(self) -> None:
        self._censuses: dict[tuple[int, ProcessId], Census] = {}

    def hear(self, group: int, teller: ProcessId, census: Census) -> None:
        self._censuses[group, teller] = census

    def not_halted(self, level: Level) -> tuple[ProcessId, ...]:
        """Members of a group that may not know that they are to halt."""
        censuses = {each: self._censuses.get((level.number, each)) for each in fellows(level)}
        return tuple(each for each, census in censuses.items() if census is None or not census.halted)

    def gather(self, level: Level, own: Census) -> Census | None:
        """The census of everybody below a group; None as long as a member's census of the present view is missing."""
        view = level.view_number
        censuses = [self._censuses.get((level.number, each)) for each in fellows(level)]
        words = [each for each in censuses if each is not None and each.view == view]
        if len(words) < len(censuses) or not _is_there(level):
            return None
        words.append(own)
        return Census(
            view,
            any(each.halted for each in words),
            all(each.ready for each in words),
            sorted(person for each in words for person in each.people),
            sorted({newcomer for each in words for newcomer in each.newcomers}),
        )


def fellows(level: Level) -> tuple[ProcessId, ...]:
    """The other members of a group: of a servers' group, those who hold its seats."""
    if isinstance(level, ServersGroup):
        return level.others()
    return tuple(each for each in level.view.members if each != level.id)


def _is_there(level: Level) -> bool:
    """Whether the present view of the group has begun here."""
    return level.installed if isinstance(level, ServersGroup) else True
