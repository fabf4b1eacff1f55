"""Durations and rates: exact in, exact out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.units import MAX_VALUE, format_duration, format_rate, parse_duration, parse_rate


@given(st.integers(0, MAX_VALUE))
def test_what_is_printed_can_be_read_back(value: int) -> None:
    assert parse_duration(format_duration(value)) == value
    assert parse_rate(format_rate(value)) == value


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0s", 0),
        ("1ns", 1),
        ("5us", 5_000),
        ("5µs", 5_000),
        ("0.1ms", 100_000),
        ("5 ms", 5_000_000),
        (" 2s ", 2_000_000_000),
        ("1.5min", 90_000_000_000),
        ("1h", 3_600_000_000_000),
    ],
)
def test_durations_are_read(text: str, nanos: int) -> None:
    assert parse_duration(text) == nanos


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "-1ms", "5 days", "1.ms", ".5ms", "\u0665ms", "0.1ns", "1e3ms", "9" * 20 + "h"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["20Mbit", "20mbit/s", "20Mbps", "20000 kbit", "0.02Gbit", "20000000bit", "20000000 bps"]
)
def test_rates_are_read(text: str) -> None:
    assert parse_rate(text) == 20_000_000


@pytest.mark.parametrize("text", ["", "20", "20MB", "20Mbit/min", "fast", "0.5bit"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_rate(text)


def test_people_get_the_shortest_exact_form() -> None:
    assert [format_duration(each) for each in (0, 1, 1_500_000, 90_000_000_000, 120_000_000_000, 1_234_567_891)] == [
        "0s",
        "1ns",
        "1.5ms",
        "90s",
        "2min",
        "1.234567891s",
    ]
    assert [format_rate(each) for each in (0, 999, 20_000_000, 1_500_000_000)] == [
        "0bit",
        "999bit",
        "20Mbit",
        "1.5Gbit",
    ]
    with pytest.raises(ValueError, match="negative"):
        format_duration(-1)
