"""Markup and scales.

Text becomes markup in one place, `tag`, which escapes everything that is not markup already; so a process whose name
is a script stays a name. Colours are classes (`s0` … `s7` for series), because light, dark and print are the style
sheet's business.
"""

from __future__ import annotations

import math
from html import escape

from isthmus.trace.schema import printable

SERIES = 8
"""Colours that can be told apart, by everyone. What has more series shows the largest of them."""

_DRAWN_WIDTH = 6.6
"""Of one character of 12 px sans serif, on average: enough to know what fits where."""


class Markup(str):
    """Text that is markup already, and goes into a page as it is."""

    __slots__ = ()


Child = str | Markup | None


def text_of(text: str) -> Markup:
    """Any text as markup. What cannot be printed is shown escaped: much of it must not stand in XML at all."""
    return Markup(escape(text if "\n" not in text and text.isprintable() else printable(text), quote=True))


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """One element. `class_` is `class`, other underscores are hyphens; attributes that are None are left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = number(value) if isinstance(value, int | float) else str(text_of(value))
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{shown}"')
    inside = join(*children)
    opened = " ".join(parts)
    # An empty element of HTML that is not void must be closed by a tag of its own.
    return Markup(f"<{opened}/>" if not inside and name in _VOID else f"<{opened}>{inside}</{name}>")


_VOID = frozenset({"meta", "link", "br", "hr", "line", "rect", "circle", "path", "polyline"})


def join(*children: Child) -> Markup:
    return Markup("".join(each if isinstance(each, Markup) else text_of(each) for each in children if each is not None))


def number(value: float) -> str:
    """A coordinate: two digits are more than a screen shows."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value == value else "0"


def drawing(width: float, height: float, title: str, description: str, *children: Child, name: str) -> Markup:
    """An SVG that scales with the page, and says what it shows to those who do not see it."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        style=f"max-width:{number(width)}px",
    )


def label(x: float, y: float, text: str, class_: str = "", anchor: str = "start", title: str | None = None) -> Markup:
    shown = join(tag("title", title), text) if title else text
    return tag("text", shown, x=x, y=y, class_=class_ or None, text_anchor=None if anchor == "start" else anchor)


def shortened(text: str, width: float) -> str:
    """As much of a name as fits, with the end kept: names of processes differ there."""
    text = printable(text)
    fits = max(4, int(width / _DRAWN_WIDTH))
    if len(text) <= fits:
        return text
    tail = (fits - 1) * 2 // 3
    return f"{text[: fits - 1 - tail]}…{text[-tail:]}"


def drawn_width(text: str) -> float:
    return len(text) * _DRAWN_WIDTH


# Scales ---------------------------------------------------------------------------------------------------------------


class Scale:
    """Values to coordinates, linear or logarithmic. Values beyond the ends are drawn at the ends."""

    def __init__(self, low: float, high: float, start: float, end: float, *, logarithmic: bool = False) -> None:
        assert not logarithmic or low > 0
        self._logarithmic = logarithmic
        self._low, self._high = self._place(low), self._place(high)
        if self._high <= self._low:
            self._high = self._low + 1
        self.start, self.end = start, end

    def _place(self, value: float) -> float:
        return math.log10(value) if self._logarithmic else value

    def __call__(self, value: float) -> float:
        if self._logarithmic and value <= 0:
            return self.start
        share = (self._place(value) - self._low) / (self._high - self._low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def nice_step(span: float, most: int) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50 … that cuts a span into no more than so many parts."""
    rough = span / max(1, most)
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= rough * (1 - 1e-9))


def ticks(high: float, most: int) -> list[float]:
    """Round values from 0 to at least `high`."""
    step = nice_step(high, most)
    return [step * place for place in range(math.ceil(high / step - 1e-9) + 1)] if high > 0 else [0.0, 1.0]


def powers_of_ten(low: float, high: float) -> list[float]:
    """Those around a range of positive values; two at least."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values around a range of positive ones: 1, 2 and 5 of every power of ten, or fewer if those are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        every = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        below = max((each for each in every if each <= low * (1 + 1e-9)), default=every[0])
        above = min((each for each in every if each >= high * (1 - 1e-9)), default=every[-1])
        found = [each for each in every if below <= each <= above]
        if len(found) <= most:
            break
    return found if len(found) > 1 else [found[0], found[0] * 10]
