"""Does acknowledged mean what it says (TO/PO, Sect. 2)? Answered from the rows of one run, by its one virtual clock.

Who calls a message pre-acknowledged says that every member of its view has received it; who calls it acknowledged,
that every one has pre-acknowledged it. Both are looked up in the rows of those members. Like `stability_check` this
needs one clock for all, and so is no oracle for any trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from isthmus.trace.schema import Event

Claim: TypeAlias = tuple[str, str, str, str, str | None, int | None]
"""A process, a stage, a run and a message."""

_BEFORE: Final = {"pre-acknowledge": "receive", "acknowledge": "pre-acknowledge"}


def out_of_turn(events: Sequence[Event]) -> str:
    """Who called what acknowledged (or pre-acknowledged) too soon, in words; empty if nobody did.

    The sender of a PDU has it as soon as it has sent it, though on 1C its log gets it only from the medium. What comes
    from another system was sent here by one of the gateways; rows do not say by which. The rows of one step are in the
    order of the outbox, stages before the view, so a claim may be about the view that its own step ends with.
    """
    reached: dict[Claim, int] = {}
    views: dict[tuple[str, str], Event] = {}
    claims: list[tuple[Event, list[Event]]] = []
    of_this_step: dict[tuple[str, str, int], list[list[Event]]] = {}
    for row in events:
        if row.event == "view":
            views[row.system, row.process] = row
            for candidates in of_this_step.pop((row.system, row.process, row.time_ns), ()):
                candidates.append(row)
        elif row.event in ("receive", "pre-acknowledge", "acknowledge"):
            name = f"{row.system}/{row.process}"
            key = (name, row.event, row.run, str(row.origin_system), row.origin_process, row.origin_seq)
            reached.setdefault(key, row.time_ns)
            if row.event != "receive":
                view = views.get((row.system, row.process))
                candidates = [view] if view is not None else []
                claims.append((row, candidates))
                of_this_step.setdefault((row.system, row.process, row.time_ns), []).append(candidates)
    return _too_soon(claims, reached) or _before_its_time(events)


def _too_soon(claims: list[tuple[Event, list[Event]]], reached: dict[Claim, int]) -> str:
    for row, views in claims:
        late = [_late(row, view.destinations or (), reached) for view in views]
        if late and all(late):
            done = "pre-acknowledged" if row.event == "acknowledge" else "received"
            message = f"{row.origin_system}/{row.origin_process}/{row.origin_seq}"
            return (
                f"{row.system}/{row.process} has {message} as {row.event}d at {row.time_ns} ns, "
                f"before {late[0][0]} had {done} it"
            )
    return ""


def _late(row: Event, members: Sequence[str], reached: dict[Claim, int]) -> list[str]:
    """The members that had not come as far with a message as somebody claims of them."""
    before = _BEFORE[row.event]
    message = (row.run, str(row.origin_system), row.origin_process, row.origin_seq)
    late = [each for each in members if reached.get((each, before, *message), row.time_ns + 1) > row.time_ns]
    origin = f"{row.origin_system}/{row.origin_process}"
    excused = before == "receive" and (late == [origin] or (origin not in members and len(late) == 1))
    return [] if excused else late


def _before_its_time(events: Sequence[Event]) -> str:
    """Receipt condition (2): who received what before something that its sender had received when it sent it.

    What a view left over is delivered without having been received, so only what was received later is a witness. What
    comes from other systems was sent here by a gateway, which is not its sender.
    """
    had: dict[tuple[str, int], dict[str, int]] = {}
    received_at: dict[str, dict[tuple[str, int], int]] = {}
    latest: dict[str, dict[str, int]] = {}
    for row in events:
        name, origin = f"{row.system}/{row.process}", f"{row.origin_system}/{row.origin_process}"
        if row.origin_system != row.system:
            continue
        if row.event == "receive" and row.origin_seq is not None:
            latest.setdefault(name, {})[origin] = row.origin_seq
            received_at.setdefault(name, {}).setdefault((origin, row.origin_seq), row.index)
        elif row.event == "send" and row.origin_seq is not None:
            had[origin, row.origin_seq] = dict(latest.get(name, {}))
    for name, places in received_at.items():
        for message, place in places.items():
            for origin, seq in had.get(message, {}).items():
                if places.get((origin, seq), -1) > place:
                    return f"{name} received {message[0]}/{message[1]} before {origin}/{seq}, which its sender had"
    return ""
