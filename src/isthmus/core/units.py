"""Durations and bit rates as people write them, and as whole numbers inside; and measured figures as people read them.

Inside, time is integer nanoseconds and a rate is integer bits per second, so that equal files give equal runs. At
the edges people write `5ms` and `20Mbit`. Reading is exact (no floating point: `0.1ms` is 100,000 ns, not
99,999), and formatting is its inverse: what is printed can be pasted back into a file. Figures that were measured are
rounded instead, to three digits with a unit that suits them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from isthmus.core.ids import Nanos

MAX_VALUE = 1 << 62
"""146 years in nanoseconds; anything above is a slip of the pen, and would not fit a 64-bit column of a trace."""

_DURATIONS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}

# Twenty digits hold every value below MAX_VALUE; more would only make the conversion slow.
_QUANTITY = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,20}))? ?([A-Za-zµ]+)")


def parse_duration(text: str) -> Nanos:
    """Nanoseconds of a duration such as `5ms`, `1.5s` or `2min`; `ValueError` says what is wrong with it."""
    return _parse(text, _DURATIONS, 'a duration is a number with ns, us, ms, s, min or h, such as "5ms"')


def parse_rate(text: str) -> int:
    """Bits per second of a rate such as `20Mbit`, also written `20Mbit/s` or `20Mbps`, in any case."""
    rate = text.strip().lower()
    for spelling in ("bit/s", "bps"):
        if rate.endswith(spelling):
            rate = rate.removesuffix(spelling) + "bit"
    return _parse(rate, _RATES, 'a rate is a number with bit, kbit, Mbit, Gbit or Tbit, such as "20Mbit"')


def format_duration(nanos: Nanos) -> str:
    """The shortest exact way to write a duration: `1.5ms`, `90s`, `2min`, `0s`."""
    if nanos > 0:
        for unit in ("h", "min"):
            if nanos % _DURATIONS[unit] == 0:
                return f"{nanos // _DURATIONS[unit]}{unit}"
    return _format(nanos, (("s", 9), ("ms", 6), ("us", 3), ("ns", 0)), zero="0s")


def format_rate(bits_per_second: int) -> str:
    """The shortest exact way to write a rate: `20Mbit`, `1.5Gbit`."""
    return _format(bits_per_second, (("Tbit", 12), ("Gbit", 9), ("Mbit", 6), ("kbit", 3), ("bit", 0)), zero="0bit")


def _parse(text: str, units: dict[str, int], expected: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    factor = units.get(match[3]) if match else None
    if match is None or factor is None:
        raise ValueError(expected)
    decimals = match[2] or ""
    value, remainder = divmod(int(match[1] + decimals) * factor, int("1" + "0" * len(decimals)))
    if remainder:
        raise ValueError(f"finer than one {min(units, key=units.__getitem__)}")
    if value > MAX_VALUE:
        raise ValueError("too large")
    return value


def _format(value: int, units: tuple[tuple[str, int], ...], zero: str) -> str:
    if value < 0:
        raise ValueError(f"{value} is negative")
    for unit, exponent in units:
        whole, rest = divmod(value, 10**exponent)
        if whole:
            decimals = str(rest).zfill(exponent).rstrip("0")
            return f"{whole}.{decimals}{unit}" if decimals else f"{whole}{unit}"
    return zero


# Measured figures, for people.


def _scaled(value: float, units: Sequence[tuple[float, str]], digits: int = 3) -> str:
    size, unit = next((each for each in units if abs(value) >= each[0] * 0.9995), units[-1])
    shown = value / size
    places = max(0, digits - 1 - math.floor(math.log10(abs(shown)))) if shown else 0
    text = f"{shown:,.{min(places, 3)}f}"
    text = re.sub(r"\.?0+$", "", text) if "." in text else text
    return f"{text} {unit}"


def duration(nanoseconds: float | None) -> str:
    """Three digits with the unit that suits them, as in `26.6 ms`. What cannot be known is a dash."""
    if nanoseconds is None:
        return "–"
    units = ((3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
    return _scaled(nanoseconds, units) if nanoseconds else "0"


def size(bytes_: float | None) -> str:
    if bytes_ is None:
        return "–"
    return _scaled(bytes_, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))) if bytes_ else "0 B"


def bit_rate(bytes_per_second: float | None) -> str:
    if bytes_per_second is None:
        return "–"
    units = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
    return _scaled(bytes_per_second * 8, units) if bytes_per_second else "0 bit/s"


def count(value: float | None) -> str:
    """A number of things, or a rate of them."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return re.sub(r"\.?0+$", "", f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.5f}")


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{share * 100:.0f} %" if share >= 0.0995 or not share else f"{share * 100:.2g} %"
