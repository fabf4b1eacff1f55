"""The rows of the tables of figures as plain values: the columns of a table are the fields of its class. No Spark."""

from __future__ import annotations

from msgspec import Struct

BINS_PER_DECADE = 50
"""Of the histogram of latencies: every bin is 4.7 % wider than the one before."""

SHORTEST_BIN_NS = 1000
"""Latencies up to this are one bin: clocks are no better, and zero has no logarithm."""


def bin_edges(number: int) -> tuple[float, float]:
    """From and to which latency, in nanoseconds, a bin of the histogram reaches."""
    low, high = (float(10 ** (each / BINS_PER_DECADE)) for each in (number, number + 1))
    return low, high


class RunRow(Struct, frozen=True):
    """One run. Its time is cut into `slices` of `slice_ns` from `first_ns` on; null where nothing ever moved."""

    run: str
    systems: int
    processes: int
    events: int
    messages: int
    deliveries: int
    first_ns: int | None
    last_ns: int | None
    slice_ns: int | None
    slices: int | None


class PairRow(Struct, frozen=True):
    """First deliveries of the messages of one system at the processes of another, or of the same."""

    run: str
    origin_system: str
    system: str
    messages: int
    deliveries: int
    timed: int
    clocks_disagree: int
    latency_min_ns: int | None
    latency_p50_ns: int | None
    latency_p90_ns: int | None
    latency_p99_ns: int | None
    latency_max_ns: int | None
    latency_mean_ns: float | None
    held: int
    held_min_ns: int | None
    held_p50_ns: int | None
    held_p90_ns: int | None
    held_p99_ns: int | None
    held_max_ns: int | None
    held_mean_ns: float | None
    payload_bytes: int
    control_bytes: int
    seconds: float | None
    messages_per_second: float | None
    deliveries_per_second: float | None


class LatencyRow(Struct, frozen=True):
    """One bin of the histogram of a pair."""

    run: str
    origin_system: str
    system: str
    bin: int
    deliveries: int


class ThroughputRow(Struct, frozen=True):
    """One slice of time of a pair."""

    run: str
    origin_system: str
    system: str
    slice: int
    deliveries: int
    payload_bytes: int


class WaitRow(Struct, frozen=True):
    """What the processes of one system waited for. `unended`: the trace has no end of these."""

    run: str
    system: str
    role: str
    awaited: str | None
    reason: str
    waits: int
    unended: int
    waited_ns: int
    waited_min_ns: int | None
    waited_p50_ns: int | None
    waited_p90_ns: int | None
    waited_p99_ns: int | None
    waited_max_ns: int | None
    waited_mean_ns: float | None


class LinkRow(Struct, frozen=True):
    """One direction of one link. `to_system` is null where nothing ever came off it."""

    run: str
    link: str
    from_system: str
    to_system: str | None
    transfers: int
    accepted: int
    payload_bytes: int
    control_bytes: int
    share: float
    bytes_per_second: float | None
    peak_bytes_per_second: float | None
    busy: float
    utilisation: float | None


class ProcessRow(Struct, frozen=True):
    """What one process handled."""

    run: str
    system: str
    process: str
    role: str
    sent: int
    delivered: int
    held: int
    stable: int
    transferred: int
    accepted: int
    sequenced: int
    delivered_bytes: int
    first_ns: int
    last_ns: int


class Figures(Struct, frozen=True):
    """All figures of some runs but those of single messages."""

    runs: list[RunRow]
    pairs: list[PairRow]
    latencies: list[LatencyRow]
    throughput: list[ThroughputRow]
    waits: list[WaitRow]
    links: list[LinkRow]
    processes: list[ProcessRow]

    def of(self, run: str) -> Figures:
        """Those of one run."""
        return Figures(*([row for row in getattr(self, name) if row.run == run] for name in self.__struct_fields__))
