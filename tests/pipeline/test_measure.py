"""Figures against a straightforward computation in Python, on small random traces of every kind of mischief."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow.parquet as pq
import pytest
from trace_files import write_jsonl

from isthmus.pipeline.measure.rows import (
    BINS_PER_DECADE,
    SHORTEST_BIN_NS,
    Figures,
    LinkRow,
    PairRow,
    WaitRow,
    bin_edges,
)
from isthmus.trace.schema import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Key: TypeAlias = tuple[str, str, int]
RATE = 8e6
TIMES = 1_700_000_000_000_000_000


def random_run(run: str, random: Random) -> list[Event]:
    """Two or three systems with gateways and links; messages are held, lost, repeated, and some clocks run behind."""
    systems = ["a", "b", "c"][: random.choice([2, 3])]
    apps = [(system, f"p{number}") for system in systems for number in range(random.randint(1, 3))]
    skew = {app: random.choice([0, 0, -5_000_000]) for app in apps}
    logs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)

    def write(place: tuple[str, str], event: str, key: Key | None, at: int, **more: Any) -> None:
        origin = dict(zip(("origin_system", "origin_process", "origin_seq"), key or (None, None, None), strict=True))
        logs[place].append({"event": event, "time_ns": TIMES + at, **origin, **more})

    now = 0
    for number in range(random.randint(1, 30)):
        sender = random.choice(apps)
        key = (*sender, number + 1)
        now += random.randint(0, 40_000_000)
        size = random.choice([None, 0, 10, 100])
        if random.random() < 0.9:
            write(sender, "send", key, now + skew[sender], payload_bytes=size, control_bytes=0)
        for system in systems:
            if system != sender[0] and random.random() < 0.9:
                link = f"link {random.randrange(2)}"
                write(
                    (sender[0], "g"),
                    "transfer",
                    key,
                    now,
                    peer=link,
                    payload_bytes=size,
                    control_bytes=random.randrange(9),
                )
                if random.random() < 0.9:
                    write((system, "g"), "accept", key, now + 1000, peer=link, payload_bytes=size, control_bytes=0)
        for app in apps:
            at = now + random.choice([0, 300, 70_000, 3_000_000]) + skew[app]
            for _ in range(random.choice([0, 0, 1, 2])):
                awaited = random.choice([None, "a/p0", "b/g"])
                note = random.choice([None, f"waits until batch {number} of a/p0 is safe"])
                write(app, "hold", key, at, peer=awaited, note=note, payload_bytes=size)
                at += random.randint(0, 900_000)
            for _ in range(random.choice([0, 1, 1, 1, 1, 2])):
                write(app, "deliver", key, at, payload_bytes=size, control_bytes=random.choice([None, 7, 20]))
                at += 10
    return [
        Event(
            run=run, system=place[0], process=place[1], role="gateway" if place[1] == "g" else "app", index=index, **row
        )
        for place, log in logs.items()
        for index, row in enumerate(log)
    ]


RUNS = {f"r{seed}": random_run(f"r{seed}", Random(seed)) for seed in range(6)}


LARGEST = (1 << 63) - 1


def extreme_run() -> list[Event]:
    """Clocks and sizes at the ends of what the schema allows: differences and sums do not fit it any more."""
    log = [
        ("send", -LARGEST, None),
        ("hold", -LARGEST, "a/p"),
        ("deliver", LARGEST, None),
        ("transfer", LARGEST, "link 0"),
        ("transfer", -LARGEST, "link 0"),
    ]
    return [
        Event(
            run="extreme", system="a", process="p", role="app", index=index, event=event,  # type: ignore[arg-type]
            origin_system="a", origin_process="p", origin_seq=1, peer=peer, payload_bytes=LARGEST,
            control_bytes=LARGEST, time_ns=time,
        )
        for index, (event, time, peer) in enumerate(log)
    ]  # fmt: skip


class Measured(NamedTuple):
    figures: Figures
    directory: Path


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    from isthmus.pipeline.ingest import ingest
    from isthmus.pipeline.measure import measured

    directory = tmp_path_factory.mktemp("measure")
    rows = [event for run in [*RUNS.values(), extreme_run()] for event in run]
    Random(1).shuffle(rows)
    table = ingest(spark, [write_jsonl(directory / "trace.jsonl", rows)], directory / "table")
    with measured(spark, table.rows(spark), bits_per_second=RATE) as tables:
        tables.write(directory / "figures")
        return Measured(tables.figures(), directory / "figures")


# By hand --------------------------------------------------------------------------------------------------------------


def key_of(event: Event) -> Key:
    return event.origin_system or "", event.origin_process or "", event.origin_seq or 0


class Arrival(NamedTuple):
    """The first delivery of a message at a process."""

    event: Event
    sent: int | None
    held_since: int | None


def arrivals(events: Sequence[Event]) -> list[Arrival]:
    sent = {key_of(event): event.time_ns for event in events if event.event == "send"}
    found: dict[tuple[str, str, Key], Arrival] = {}
    held: dict[tuple[str, str, Key], int] = {}
    for event in sorted(events, key=lambda each: each.index):
        if event.event in ("hold", "deliver") and event.role == "app":
            place = (event.system, event.process, key_of(event))
            if event.event == "hold" and place not in found:
                held.setdefault(place, event.time_ns)
            elif event.event == "deliver":
                found.setdefault(place, Arrival(event, sent.get(key_of(event)), held.get(place)))
    return list(found.values())


def spread(values: Iterable[int], prefix: str) -> dict[str, float | None]:
    ordered = sorted(values)
    names = ["min", "p50", "p90", "p99", "max", "mean"]
    if not ordered:
        return {f"{prefix}_{name}_ns": None for name in names}
    ranks = [ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9, 0.99)]
    figures = [ordered[0], *ranks, ordered[-1], sum(ordered) / len(ordered)]
    return {f"{prefix}_{name}_ns": value for name, value in zip(names, figures, strict=True)}


def grouped(values: Iterable[Any], by: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for each in values:
        groups[by(each)].append(each)
    return groups


def latencies(of: Iterable[Arrival]) -> list[int]:
    return [each.event.time_ns - each.sent for each in of if each.sent is not None and each.event.time_ns >= each.sent]


def pairs_by_hand(run: str) -> list[dict[str, Any]]:
    pairs = []
    by_pair = grouped(arrivals(RUNS[run]), lambda each: (each.event.origin_system, each.event.system))
    for (origin, system), found in sorted(by_pair.items()):
        sends = [each.sent for each in found if each.sent is not None]
        seconds = (max(each.event.time_ns for each in found) - min(sends)) / 1e9 if sends else 0
        messages = len({key_of(each.event) for each in found})
        held = [each.event.time_ns - each.held_since for each in found if each.held_since is not None]
        pairs.append(
            {
                "run": run, "origin_system": origin, "system": system, "messages": messages, "deliveries": len(found),
                "timed": len(latencies(found)),
                "clocks_disagree": sum(each.sent is not None and each.event.time_ns < each.sent for each in found),
                **spread(latencies(found), "latency"),
                "held": len(held),
                **spread(held, "held"),
                "payload_bytes": sum(each.event.payload_bytes or 0 for each in found),
                "control_bytes": sum(each.event.control_bytes or 0 for each in found),
                "seconds": seconds if seconds > 0 else None,
                "messages_per_second": messages / seconds if seconds > 0 else None,
                "deliveries_per_second": len(found) / seconds if seconds > 0 else None,
            }
        )  # fmt: skip
    return pairs


def waits_by_hand(run: str) -> dict[tuple[str, str | None], tuple[int, int, int]]:
    """System and awaited process to how many waits, how many without end, and their time."""
    found: dict[tuple[str, str | None], list[int | None]] = defaultdict(list)
    logs = grouped(RUNS[run], lambda each: (each.system, each.process, each.origin_system and key_of(each)))
    for log in logs.values():
        rows = sorted((each for each in log if each.event in ("hold", "deliver")), key=lambda each: each.index)
        for place, row in enumerate(rows):
            if row.event == "deliver":
                break
            after = rows[place + 1].time_ns - row.time_ns if place + 1 < len(rows) else None
            found[row.system, row.peer].append(after)
    return {place: (len(waits), waits.count(None), sum(each or 0 for each in waits)) for place, waits in found.items()}


# Tests ----------------------------------------------------------------------------------------------------------------


def as_dict(row: PairRow | LinkRow | WaitRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


@pytest.mark.parametrize("run", RUNS)
def test_latency_throughput_hold_back_and_bytes_of_every_pair(measured: Measured, run: str) -> None:
    found = [as_dict(each) for each in measured.figures.of(run).pairs]
    expected = pairs_by_hand(run)
    assert len(found) == len(expected)
    for pair, wanted in zip(found, expected, strict=True):
        for name, value in wanted.items():
            assert pair[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name
        assert pair.keys() == wanted.keys()


def test_the_random_traces_have_what_the_figures_are_about(measured: Measured) -> None:
    """A comparison that never meets a case proves nothing about it."""
    pairs = measured.figures.pairs
    assert sum(each.clocks_disagree for each in pairs) > 10
    assert sum(each.deliveries - each.timed - each.clocks_disagree for each in pairs) > 10
    assert sum(each.unended for each in measured.figures.waits) > 10
    assert any(event.event == "deliver" and event.control_bytes is None for run in RUNS.values() for event in run)


@pytest.mark.parametrize("run", RUNS)
def test_what_was_waited_for_and_how_long(measured: Measured, run: str) -> None:
    found: dict[tuple[str, str | None], tuple[int, int, int]] = {}
    for each in measured.figures.of(run).waits:
        before = found.get((each.system, each.awaited), (0, 0, 0))
        more = (each.waits, each.unended, each.waited_ns)
        found[each.system, each.awaited] = (before[0] + more[0], before[1] + more[1], before[2] + more[2])
    assert found == waits_by_hand(run)
    reasons = {each.reason for each in measured.figures.of(run).waits}
    assert reasons <= {"", "waits until batch N of a/p0 is safe"}


@pytest.mark.parametrize("run", RUNS)
def test_bytes_shares_and_rates_of_links(measured: Measured, run: str) -> None:
    moves = [each for each in RUNS[run] if each.event in ("send", "deliver", "transfer", "accept")]
    first = min(each.time_ns for each in moves)
    seconds = (max(each.time_ns for each in moves) - first) / 1e9
    [about] = measured.figures.of(run).runs
    assert about.slice_ns is not None
    assert about.slices is not None
    transfers = grouped((each for each in moves if each.event == "transfer"), lambda each: (each.peer, each.system))
    found = {(each.link, each.from_system): each for each in measured.figures.of(run).links}
    assert found.keys() == transfers.keys()
    for (link, system), rows in transfers.items():
        row = found[link, system]
        off = [each for each in moves if each.event == "accept" and each.peer == link and each.system != system]
        total = sum((each.payload_bytes or 0) + (each.control_bytes or 0) for each in rows)
        slices = grouped(rows, lambda each: (each.time_ns - first) // about.slice_ns)
        peak = max(
            sum((each.payload_bytes or 0) + (each.control_bytes or 0) for each in some) for some in slices.values()
        )
        assert (row.transfers, row.accepted) == (len(rows), len(off))
        assert row.to_system == (", ".join(sorted({each.system for each in off})) or None)
        assert row.payload_bytes + row.control_bytes == total
        assert row.bytes_per_second == pytest.approx(total / seconds)
        assert row.utilisation == pytest.approx(total * 8 / seconds / RATE)
        assert row.peak_bytes_per_second == pytest.approx(peak * 1e9 / about.slice_ns)
        assert row.busy == pytest.approx(len(slices) / about.slices)
    for alike in grouped(found.values(), lambda each: (each.from_system, each.to_system)).values():
        assert sum(each.share for each in alike) == pytest.approx(1.0)


@pytest.mark.parametrize("run", RUNS)
def test_histogram_and_slices_hold_every_delivery(measured: Measured, run: str) -> None:
    figures = measured.figures.of(run)
    [about] = figures.runs
    assert about.slice_ns is not None
    assert about.first_ns is not None
    assert about.slices is not None
    assert about.slices <= 61
    by_pair = grouped(arrivals(RUNS[run]), lambda each: (each.event.origin_system, each.event.system))
    for (origin, system), found in by_pair.items():
        bins = {
            row.bin: row.deliveries for row in figures.latencies if (row.origin_system, row.system) == (origin, system)
        }
        expected: dict[int, int] = defaultdict(int)
        for latency in latencies(found):
            expected[math.floor(math.log10(max(latency, SHORTEST_BIN_NS)) * BINS_PER_DECADE)] += 1
        assert bins == expected
        slices = {
            row.slice: row.deliveries
            for row in figures.throughput
            if (row.origin_system, row.system) == (origin, system)
        }
        places = [(each.event.time_ns - about.first_ns) // about.slice_ns for each in found]
        assert slices == {place: places.count(place) for place in places}


def test_edges_of_bins_meet() -> None:
    low, high = bin_edges(150)
    assert low == pytest.approx(1000)
    assert high == bin_edges(151)[0]


@pytest.mark.parametrize("run", RUNS)
def test_counts_of_processes_and_runs(measured: Measured, run: str) -> None:
    events = RUNS[run]
    for each in measured.figures.of(run).processes:
        own = [event for event in events if (event.system, event.process) == (each.system, each.process)]
        kinds = [event.event for event in own]
        assert (each.sent, each.delivered, each.held) == tuple(map(kinds.count, ("send", "deliver", "hold")))
        assert (each.transferred, each.accepted) == (kinds.count("transfer"), kinds.count("accept"))
        assert each.delivered_bytes == sum(event.payload_bytes or 0 for event in own if event.event == "deliver")
    [about] = measured.figures.of(run).runs
    assert (about.events, about.processes) == (len(events), len({(each.system, each.process) for each in events}))
    assert about.messages == sum(each.event == "send" for each in events)


def test_payload_and_control_bytes_of_every_message_are_in_parquet(measured: Measured) -> None:
    table = {
        (row["run"], (row["origin_system"], row["origin_process"], row["origin_seq"])): row
        for row in pq.read_table(measured.directory / "messages").to_pylist()
    }
    for run, events in RUNS.items():
        about = [each for each in events if each.event in ("send", "deliver", "hold")]
        for key, rows in grouped(about, key_of).items():
            row = table.pop((run, key))
            assert row["payload_bytes"] == max(
                (each.payload_bytes for each in rows if each.payload_bytes is not None), default=None
            )
            assert row["control_bytes"] == max(
                (each.control_bytes for each in rows if each.control_bytes is not None), default=None
            )
            found = [each for each in arrivals(events) if key_of(each.event) == key]
            assert row["deliveries"] == len(found)
            assert row["control_bytes_all"] == sum(each.event.control_bytes or 0 for each in found)
    assert {run for run, _ in table} == {"extreme"}
    assert sorted(path.name for path in measured.directory.iterdir()) == sorted(
        [*Figures.__struct_fields__, "messages"]
    )


def test_clocks_and_sizes_beyond_all_measure_stop_nothing(measured: Measured) -> None:
    figures = measured.figures.of("extreme")
    [pair] = figures.pairs
    assert (pair.latency_max_ns, pair.held_max_ns, pair.payload_bytes) == (LARGEST, LARGEST, LARGEST)
    [link] = figures.links
    assert (link.transfers, link.to_system, link.share) == (2, None, 1.0)
