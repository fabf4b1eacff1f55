"""Space-time diagrams: one line per process, time to the right, an arrow per message. Knows no Spark.

Clocks of different processes prove nothing about order, so the place of an event is not its time. Events stand in
columns: each behind the one before it in its process, and a delivery behind its send. What is left of what in a picture
is therefore what the trace says, or nothing that matters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from isthmus.drawing.svg import Markup, drawing, drawn_width, join, label, number, shortened, tag

Mark: TypeAlias = Literal["plain", "wrong", "missing"]
"""`missing` is a delivery that the trace does not have: it is drawn hollow, at the end of its line."""

_LEFT = 150.0
_RIGHT = 46.0
_TOP = 0.0
_LINE = 64.0
_BETWEEN_SYSTEMS = 26.0
_NARROWEST, _WIDEST = 84.0, 250.0
_RADIUS = 6.0
_ALARM = 6.0
_BEND = 70.0
WIDTH = 1040.0


class Happening(Struct, frozen=True):
    """One event of the picture. `message` is a place in the list of messages."""

    process: str
    index: int | None
    event: Literal["send", "deliver"]
    message: int
    mark: Mark = "plain"
    caption: str = ""


class Arrow(Struct, frozen=True):
    """From one event to another, by their places in the list of events. `via` names the link that it took.

    A `guess` is drawn with dashes: a delivery that is missing, or a cause by way of messages that are not shown.
    """

    start: int
    end: int
    via: str = ""
    guess: bool = False


class Picture(Struct, frozen=True):
    """What a diagram shows. Processes are named `system/process`."""

    messages: list[str]
    happenings: list[Happening]
    arrows: list[Arrow]


def columns(picture: Picture) -> list[int]:
    """The column of every event: behind its predecessor in its process, and behind where its arrows come from.

    A trace can claim circles, such as a delivery before its send. Then an arrow points backwards, as it should.
    """
    before: list[set[int]] = [set() for _ in picture.happenings]
    for line in _lines(picture).values():
        for earlier, later in pairwise(line):
            before[later].add(earlier)
    along_lines = [set(each) for each in before]
    for arrow in picture.arrows:
        before[arrow.end].add(arrow.start)
    placed: dict[int, int] = {}
    waiting = set(range(len(before)))
    while waiting:
        free = [each for each in waiting if not before[each] & waiting]
        if not free:  # a circle: the order of the logs is all that is left to go by
            free = sorted(each for each in waiting if not along_lines[each] & waiting)[:1]
        for each in free:
            known = [placed[other] for other in before[each] if other in placed]
            placed[each] = max(known, default=-1) + 1
        waiting -= set(free)
    last = max(placed.values(), default=0)
    return [
        last + 1 if each.mark == "missing" and placed[place] <= last else placed[place]
        for place, each in enumerate(picture.happenings)
    ]


def _lines(picture: Picture) -> dict[str, list[int]]:
    """Process to its events in the order of its log; one without an index comes last."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(picture.happenings):
        found.setdefault(each.process, []).append(place)
    for line in found.values():
        line.sort(key=lambda place: (picture.happenings[place].index is None, picture.happenings[place].index or 0))
    return found


def rows(processes: Iterable[str]) -> dict[str, float]:
    """The height of each process: systems in order of appearance, and their processes together."""
    systems: dict[str, list[str]] = {}
    for process in processes:
        systems.setdefault(process.partition("/")[0], []).append(process)
    heights: dict[str, float] = {}
    y = _TOP
    for members in systems.values():
        y += _BETWEEN_SYSTEMS
        for member in dict.fromkeys(members):
            heights[member] = y + _LINE / 2
            y += _LINE
    return heights


def draw(picture: Picture, title: str, description: str, name: str) -> Markup:
    """The diagram of a picture. `name` makes its parts' ids unique in the page."""
    heights = rows(each.process for each in picture.happenings)
    places = columns(picture)
    wide = max(places, default=0)
    step = min(_WIDEST, max(_NARROWEST, (WIDTH - _LEFT - _RIGHT - 60) / max(1, wide)))
    width = max(WIDTH, _LEFT + _RIGHT + 60 + step * wide)
    xs = [_LEFT + 30 + step * place for place in places]
    ys = [heights[each.process] for each in picture.happenings]
    height = max(heights.values(), default=0.0) + _LINE / 2 + 8
    return drawing(
        width,
        height,
        title,
        description,
        _arrow_heads(picture, name),
        _system_bands(heights, width),
        *(_process_line(process, y, width) for process, y in heights.items()),
        *(_arrow(picture, arrow, xs, ys, name) for arrow in picture.arrows),
        *(_event(picture, place, xs[place], ys[place]) for place in range(len(picture.happenings))),
        name=name,
    )


def _arrow_heads(picture: Picture, name: str) -> Markup:
    kinds = [f"m{place % 8}" for place in range(min(8, len(picture.messages)))]
    heads = [
        tag(
            "marker",
            tag("path", d="M0,0 L9,4 L0,8 z", class_=f"head {kind}"),
            id=f"{name}-{kind}",
            viewBox="0 0 9 8",
            refX=9.0,
            refY=4.0,
            markerWidth=9.0,
            markerHeight=8.0,
            markerUnits="userSpaceOnUse",
            orient="auto",
        )
        for kind in kinds
    ]
    return tag("defs", *heads)


def _system_bands(heights: dict[str, float], width: float) -> Markup:
    bands: dict[str, list[float]] = {}
    for process, y in heights.items():
        bands.setdefault(process.partition("/")[0], []).append(y)
    drawn = []
    for system, ys in bands.items():
        top, bottom = min(ys) - _LINE / 2 - 20, max(ys) + _LINE / 2 - 2
        drawn.append(tag("rect", x=0.5, y=top, width=width - 1, height=bottom - top, rx=8.0, class_="band"))
        drawn.append(label(12, top + 17, shortened(system, width - 24), "system", title=system))
    return join(*drawn)


def _process_line(process: str, y: float, width: float) -> Markup:
    name = process.partition("/")[2]
    return join(
        label(_LEFT - 14, y + 4, shortened(name, _LEFT - 30), "process", "end", title=process),
        tag("line", x1=_LEFT, y1=y, x2=width - 14, y2=y, class_="lifeline"),
    )


def _arrow(picture: Picture, arrow: Arrow, xs: Sequence[float], ys: Sequence[float], name: str) -> Markup:
    x1, y1, x2, y2 = xs[arrow.start], ys[arrow.start], xs[arrow.end], ys[arrow.end]
    message = picture.happenings[arrow.end].message
    kind = f"m{message % 8}"
    classes = f"message {kind}" + (" guess" if arrow.guess else "")
    # The head ends where the mark around the event begins.
    clear = _RADIUS + (_ALARM if picture.happenings[arrow.end].mark != "plain" else 0) + 1
    if y1 == y2:  # to itself, or to the next of its own messages: an arc above the line
        tip = f"{number(x2 - clear * 0.6)},{number(y2 - clear * 0.8)}"
        path = f"M{number(x1)},{number(y1)} Q{number((x1 + x2) / 2)},{number(y1 - 46)} {tip}"
        middle = (x1 + x2) / 2, y1 - 26
    else:
        bend = _BEND if _passes_another(arrow, xs, ys) else 0.0
        length = math.hypot(x2 - x1, y2 - y1)
        # Bent towards the right, so that an event on the straight way does not look like a stop of this message.
        over = (
            (x1 + x2) / 2 + bend * abs(y2 - y1) / length,
            (y1 + y2) / 2 - bend * (x2 - x1) / length * (1 if y2 > y1 else -1),
        )
        last = math.hypot(x2 - over[0], y2 - over[1])
        end = x2 - (x2 - over[0]) * clear / last, y2 - (y2 - over[1]) * clear / last
        path = f"M{number(x1)},{number(y1)} Q{number(over[0])},{number(over[1])} {number(end[0])},{number(end[1])}"
        # Beside the last stretch, where no other process is near.
        share = max(0.68, 1 - (_LINE * 0.62) / abs(y2 - y1))
        middle = x1 + (x2 - x1) * share, y1 + (y2 - y1) * share
    drawn = tag("path", d=path, class_=classes, marker_end=f"url(#{name}-{kind})")
    if not arrow.via:
        return drawn
    return join(drawn, label(middle[0] + 8, middle[1] + (-5 if y2 > y1 else 13), shortened(arrow.via, 110), "via halo"))


def _passes_another(arrow: Arrow, xs: Sequence[float], ys: Sequence[float]) -> bool:
    """Whether the straight way of an arrow leads through an event that is none of its ends."""
    x1, y1, x2, y2 = xs[arrow.start], ys[arrow.start], xs[arrow.end], ys[arrow.end]
    for x, y in zip(xs, ys, strict=True):
        share = (y - y1) / (y2 - y1)
        if 0.01 < share < 0.99 and abs(x1 + (x2 - x1) * share - x) < 2 * _RADIUS:
            return True
    return False


def _event(picture: Picture, place: int, x: float, y: float) -> Markup:
    each = picture.happenings[place]
    message = picture.messages[each.message]
    kind = f"m{each.message % 8}"
    verb = "sends" if each.event == "send" else "never delivers" if each.mark == "missing" else "delivers"
    where = "" if each.index is None else f" at index {each.index}"
    title = tag("title", f"{each.process} {verb} {message}{where}")
    radius = _RADIUS if each.mark != "missing" else _RADIUS + 1
    dot = tag("circle", cx=x, cy=y, r=radius, class_=f"event {each.event} {each.mark} {kind}")
    parts: list[Markup] = [dot]
    if each.mark != "plain":
        parts.insert(0, tag("circle", cx=x, cy=y, r=radius + _ALARM, class_="alarm"))
    if each.event == "send":
        shown = shortened(message, 150)
        # Near the left end a label would run into the name of the process.
        anchor = "start" if x - drawn_width(shown) / 2 < _LEFT - 10 else "middle"
        parts.append(label(x - (8 if anchor == "start" else 0), y - 13, shown, f"name halo {kind}", anchor, message))
    place_in_log = "" if each.index is None else f"#{each.index}"
    caption = "never delivered" if each.mark == "missing" else each.caption
    below = f"{caption}, {place_in_log}" if caption and place_in_log else caption or place_in_log
    parts.append(label(x, y + 26, below, "caption halo" if caption else "index halo", "middle"))
    return tag("g", title, *parts)
