"""What of the messages that come in by a join is brought in, and under which subject: `[joins.of.SYSTEM]`, compiled.

It is applied where messages come in. Each keeps its number: what does not pass takes its place in the import record
and is not appended, so that filters may change from one run to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import structs

from isthmus.runtime.log.content import Content
from isthmus.topology.model import Topology
from isthmus.topology.read.flow import Flow

Passing = Callable[[Content], Content | None]
"""The content to append, perhaps under another subject; None for what does not pass."""


def passing(flow: Flow) -> Passing | None:
    """None where everything passes as it is."""
    if not flow.filters and not flow.renames:
        return None
    allowed, denied = _any_of(flow.allow), _any_of(flow.deny)
    renames = [(_pattern(old), new) for old, new in flow.renames]
    by_key = flow.by == "key"

    def passes(content: Content) -> Content | None:
        name = (content.key or b"").decode(errors="replace") if by_key else content.subject
        if (allowed and not allowed.fullmatch(name)) or (denied and denied.fullmatch(name)):
            return None
        for pattern, new in renames:
            if match := pattern.fullmatch(content.subject):
                stood_for = match[1] if pattern.groups else ""
                return structs.replace(content, subject=new.replace("*", stood_for))
        return content

    return passes


def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(_pattern(each).pattern for each in patterns), re.DOTALL) if patterns else None


def _pattern(text: str) -> re.Pattern[str]:
    """`*` stands for any characters."""
    return re.compile("(.*)".join(map(re.escape, text.split("*"))), re.DOTALL)


def flows_into(topology: Topology, home: str) -> dict[str, Passing]:
    """By the neighbour that messages come from: what passes."""
    found: dict[str, Passing] = {}
    for join in topology.joins:
        if home in join.between:
            neighbour = join.between[1] if home == join.between[0] else join.between[0]
            if (passes := passing(join.flow(neighbour))) is not None:
                found[neighbour] = passes
    return found
