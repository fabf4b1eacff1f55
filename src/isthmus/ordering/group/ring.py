"""Who speaks to whom in the heartbeats of one view: the members stand in a ring, in the order of the view.

Each speaks to the `width` members after it, its *watchers*, and so hears the `width` before it. In a small group that
is everybody. docs/design/group.md, "Heartbeats", says why it is enough in a large one.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.core.ids import ProcessId
from isthmus.ordering.group.window import GroupSettings


class Ring:
    """The place of one member. `watchers` are those that it speaks to; `before` are all others, the nearest first.

    `is_whole` says that everybody hears everybody, so that nobody has to ask or to be told by others.
    """

    __slots__ = ("before", "is_whole", "watchers", "width")

    def __init__(self, owner: ProcessId, members: Sequence[ProcessId], settings: GroupSettings) -> None:
        place = members.index(owner)
        after = (*members[place + 1 :], *members[:place])
        self.is_whole = len(members) <= max(settings.all_speak, settings.watchers + 1)
        self.before = after[::-1]
        self.width = len(after) if self.is_whole else settings.watchers
        self.watchers = after[: self.width]
