"""The drawing kit: nothing that comes from a trace becomes markup, and axes and figures are round."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from isthmus.core.units import bit_rate, count, duration, percent, size
from isthmus.drawing.svg import Markup, Scale, drawing, label, log_ticks, nice_step, shortened, tag, ticks
from isthmus.pipeline.measure.rows import bin_edges
from isthmus.pipeline.report.charts import (
    Bar,
    Distribution,
    Part,
    RateSeries,
    bar_chart,
    latency_chart,
    merged_bins,
    throughput_chart,
)

HOSTILE = [
    '<script>alert("x")</script>',
    "a&b",
    "'\"><svg onload=x>",
    "\x00\x1b[31m",
    "line\nbreak",
    "\ud800",
    "\u202eevil",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text: str) -> None:
    element = ElementTree.fromstring(tag("p", text, title=text))
    assert len(element) == 0
    assert element.text is not None
    assert "".join(element.itertext()).isprintable()


def test_markup_stays_and_attributes_that_are_none_go() -> None:
    assert tag("p", tag("b", "x"), class_="c", id=None) == '<p class="c"><b>x</b></p>'
    assert tag("line", x1=1.0, stroke_width=0.126) == '<line x1="1" stroke-width="0.13"/>'
    assert tag("td") == "<td></td>"
    assert tag("p", Markup("<i/>"), None, "<") == "<p><i/>&lt;</p>"


def test_a_drawing_says_what_it_shows() -> None:
    svg = ElementTree.fromstring(drawing(10, 20, "A title", "A description", label(1, 2, "x"), name="n"))
    title, description, text = svg
    assert (title.text, description.text, text.text) == ("A title", "A description", "x")
    assert svg.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert svg.get("role") == "img"


@pytest.mark.parametrize(
    ("span", "most", "step"), [(10, 5, 2), (100, 5, 20), (7, 7, 1), (0.3, 3, 0.1), (0, 3, 1), (11, 5, 5)]
)
def test_steps_are_round(span: float, most: int, step: float) -> None:
    assert nice_step(span, most) == pytest.approx(step)


def test_ticks_reach_beyond_the_largest_value() -> None:
    assert ticks(7, 5) == [0, 2, 4, 6, 8]
    assert ticks(0, 5) == [0, 1]
    assert ticks(1e12, 4)[-1] >= 1e12


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (3.0, 4.0), (1e3, 9e9), (2.0, 5.0), (999.0, 1001.0), (1e3, 9.3e18)]
)
def test_logarithmic_ticks_enclose_their_range(low: float, high: float) -> None:
    found = log_ticks(low, high, 11)
    assert found[0] <= low * 1.001
    assert found[-1] >= high * 0.999
    assert len(found) >= 2
    assert found == sorted(found)


def test_scales_map_ends_to_ends_and_keep_what_is_beyond() -> None:
    x = Scale(1, 100, 10, 30, logarithmic=True)
    assert [x(value) for value in (1, 10, 100, 1000, 0)] == [10, 20, 30, 30, 10]
    assert Scale(5, 5, 0, 1)(5) == 0


def test_figures_read_well() -> None:
    assert [duration(value) for value in (0, 7, 1500, 26_579_278, 2e9, 90e9, None)] == [
        *("0", "7 ns", "1.5 µs", "26.6 ms", "2 s", "1.5 min", "–"),
    ]
    assert [size(value) for value in (0, 999, 1000, 59_700, 123e9)] == ["0 B", "999 B", "1 kB", "59.7 kB", "123 GB"]
    assert [bit_rate(value) for value in (125.0, 2.5e6, None)] == ["1 kbit/s", "20 Mbit/s", "–"]
    assert [count(value) for value in (3, 12345, 0.25, 12.345, 12345.6)] == ["3", "12,345", "0.25", "12.3", "12,346"]
    assert [percent(value) for value in (0, 0.5, 0.0123, 1, None)] == ["0 %", "50 %", "1.2 %", "100 %", "–"]


def test_long_names_keep_their_end() -> None:
    assert shortened("madrid/p1", 200) == "madrid/p1"
    short = shortened("a-very-long-name-of-a-system/process-17", 100)
    assert short.endswith("process-17"[-6:])
    assert len(short) <= 15


def test_every_delivery_is_in_a_bar_of_the_histogram() -> None:
    assert merged_bins({150: 2, 151: 3, 160: 1}, 5) == {150: 5, 160: 1}
    distribution = Distribution("a → <b>", {150: 5, 151: 3, 400: 1}, bin_edges(150)[0], bin_edges(400)[0])
    svg = ElementTree.fromstring(latency_chart([distribution], "n"))
    bars = [each for each in svg.iter() if each.tag.endswith("rect")]
    assert len(bars) >= 2
    assert all(float(each.get("width", 0)) > 0 for each in bars)
    assert "half within 1 µs" in "".join(svg.itertext())


@pytest.mark.parametrize("rates", [[1.0], [0.0, 0.0], [3.0, 5.5, 0.0]])
def test_throughput_is_drawn_whatever_its_length(rates: list[float]) -> None:
    lines = [RateSeries(f"line {number} with a rather long name <&>", rates) for number in range(8)]
    svg = ElementTree.fromstring(throughput_chart(lines, 1_000_000, "n"))
    words = "".join(svg.itertext())
    assert all(f"line {number}" in words for number in range(8))


def test_bars_fill_their_length_and_name_their_parts() -> None:
    parts = [Part("link 0", 75, "link 0 75 %"), Part("link 1", 25, "link 1 25 %"), Part("link 2", 0, "link 2 0 %")]
    svg = ElementTree.fromstring(
        bar_chart([Bar("a → b", parts, "100 B")], "n", "Shares", "Bytes.", whole=True, labelled=True)
    )
    widths = [float(each.get("width", 0)) for each in svg.iter() if each.tag.endswith("rect")]
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.02)
    assert widths[2] == 0
    assert "link 1 25 %" in "".join(svg.itertext())
    assert ElementTree.fromstring(bar_chart([Bar("a", [Part("", 0, "0")], "0")], "n", "t", "d")) is not None
