"""One drawing of the report by itself: in a notebook, which shows it as it is, or in a file."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

from isthmus.drawing.svg import Markup, tag
from isthmus.pipeline.measure.rows import Figures
from isthmus.pipeline.report.page import witness_drawing
from isthmus.pipeline.report.run import latency_drawing, throughput_drawing
from isthmus.pipeline.report.witness import Witness
from isthmus.trace.places import Place, place, write_whole
from isthmus.trace.schema import TraceError

_DRAWN: dict[str, Callable[[Figures, str], Markup | None]] = {
    "latency": latency_drawing,
    "throughput": throughput_drawing,
}


class Drawing:
    """An SVG with its style inside. Notebooks show it."""

    def __init__(self, markup: Markup) -> None:
        sheet = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
        style = tag("style", Markup(f"{sheet}svg {{ background: var(--paper); }}\n"))
        opened, _, rest = markup.partition(">")
        self.svg = f"{opened}>{style}{rest}\n"

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, path: str | Place) -> None:
        """Write it to a file."""
        write_whole(place(path), self.svg.encode())


def plot(figures: Figures, what: str) -> Drawing:
    """The plot of this name, of a trace with one run."""
    if what not in _DRAWN:
        raise TraceError("plot", f"there is no plot of {what}", f"there are {', '.join(_DRAWN)}")
    if len(figures.runs) != 1:
        raise TraceError("plot", f"it is of one run, and there are {len(figures.runs)}", "measure one, with run=NAME")
    drawn = _DRAWN[what](figures, what)
    if drawn is None:
        raise TraceError("plot", f"the trace has no deliveries that tell its {what}", "look at the tables")
    return Drawing(drawn)


def picture(witness: Witness) -> Drawing:
    """The diagram of one violation."""
    return Drawing(witness_drawing(witness.violation, witness.picture, "witness"))
