"""`isthmus plan TOPOLOGY`: how many links, what latency and what bandwidth to expect, with the papers' expressions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import structs

from isthmus.cli.console import HOLDS, Output, OutputOption, duration_of, fail, out, print_json, rate_of, table
from isthmus.core.ids import MILLISECOND
from isthmus.core.segment import MAX_PAYLOAD
from isthmus.core.units import format_duration, format_rate
from isthmus.planner.forecast import DirectionForecast, Forecast, JoinForecast, forecast, load_of
from isthmus.planner.kinds import KINDS
from isthmus.topology.file import load

UNLIMITED = "unlimited"


def plan(
    topology: Annotated[Path, typer.Argument(help="A topology file (TOML).")],
    rate: Annotated[
        float | None, typer.Option(help="Messages per second born in each system.", min=0, max=1e9, metavar="N")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Bytes of a message.", min=1, max=MAX_PAYLOAD, metavar="BYTES")
    ] = None,
    link_delay: Annotated[str | None, typer.Option(help="How long a link takes, such as 25ms.")] = None,
    link_rate: Annotated[str | None, typer.Option(help="What one link carries, such as 20Mbit, or unlimited.")] = None,
    local_delay: Annotated[str | None, typer.Option(help="How long a hop inside a system takes.")] = None,
    local_rate: Annotated[str | None, typer.Option(help="What a system carries, or unlimited.")] = None,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Say what to expect of a topology. What no option says comes from its [simulation] table, or the defaults."""
    if rate is not None and not isfinite(rate):
        fail(f"--rate {rate}: must be a number of messages per second")
    loaded = load(topology)
    for system in loaded.systems:
        if refusal := KINDS[system.kind].refusal(system):
            fail(f"{topology}: systems.{system.name} {refusal}")
    assumed = load_of(loaded)
    model = structs.replace(
        assumed.model,
        message_bits=assumed.model.message_bits if size is None else 8 * size,
        link_delay=duration_of("--link-delay", link_delay) if link_delay is not None else assumed.model.link_delay,
        link_rate=_rate("--link-rate", link_rate) if link_rate is not None else assumed.model.link_rate,
        local_delay=duration_of("--local-delay", local_delay) if local_delay is not None else assumed.model.local_delay,
        local_rate=_rate("--local-rate", local_rate) if local_rate is not None else assumed.model.local_rate,
    )
    rates = assumed.rates if rate is None else dict.fromkeys(assumed.rates, Fraction(rate))
    found = forecast(loaded, structs.replace(assumed, model=model, rates=rates))
    if output is Output.JSON:
        print_json(_result(topology, found))
    else:
        _print(topology, found)
    return HOLDS


def _rate(option: str, text: str) -> int | None:
    return None if text == UNLIMITED else rate_of(option, text, f"write {UNLIMITED} for no limit")


# For programs


def _result(file: Path, found: Forecast) -> dict[str, Any]:
    model = found.load.model
    return {
        "topology": str(file),
        "assumed": {
            "message_bytes": model.message_bits / 8,
            "local_delay_ms": model.local_delay / MILLISECOND,
            "local_bits_per_second": model.local_rate,
            "link_delay_ms": model.link_delay / MILLISECOND,
            "link_bits_per_second": model.link_rate,
        },
        "systems": [
            {
                "name": system.name,
                "members": system.members,
                "messages_per_second": _figure(system.rate),
                "of_its_own": _figure(system.born),
                "limit_expression_1": _figure(system.limit),
                "latency_ms": _milliseconds(system.latency),
            }
            for system in found.systems
        ],
        "joins": [_join_result(join) for join in found.joins],
        "worst_route": {"systems": found.worst.systems, "latency_ms": _milliseconds(found.worst.latency)},
        "notes": list(_notes(found)),
    }


def _join_result(join: JoinForecast) -> dict[str, Any]:
    return {
        "between": join.between,
        "order": join.order,
        "links": join.links,
        "links_in_file": join.asked,
        "links_planned": join.planned,
        "links_needed_expression_2": join.needed,
        "links_best_expression_4": join.best or None,
        "links_possible": join.possible,
        "directions": [
            {
                "from": each.source,
                "to": each.target,
                "share": each.share,
                "messages_per_second": _figure(each.rate),
                "limit_expression_2": _figure(each.paper_limit),
                "limit_expected": _figure(each.limit),
                "latency_expression_3_ms": _milliseconds(each.paper_latency),
                "latency_expected_ms": _milliseconds(each.latency),
                "latency_worst_ms": _milliseconds(each.worst_latency),
            }
            for each in join.directions
        ],
    }


def _figure(value: Fraction | None) -> int | float | None:
    if value is None:
        return None
    return value.numerator if value.denominator == 1 else float(value)


def _milliseconds(nanos: Fraction) -> float:
    return round(float(nanos / MILLISECOND), 6)


# For people


def _print(file: Path, found: Forecast) -> None:
    model = found.load.model
    out.print(f"{file}: what to expect, without faults", markup=False, style="bold")
    inside = f"inside systems {format_duration(model.local_delay)}, {_bits(model.local_rate)}"
    links = f"links {format_duration(model.link_delay)}, {_bits(model.link_rate)}"
    out.print(f"messages of {_short(Fraction(model.message_bits, 8))} B; {inside}; {links}")
    systems = table("systems", "system", "members", "messages/s", "at most (1)", "latency ms")
    for system in found.systems:
        limit = _short(system.limit)
        systems.add_row(
            system.name, str(system.members), _short(system.rate), limit, _short(system.latency / MILLISECOND)
        )
    out.print(systems)
    if found.joins:
        _print_joins(found)
    else:
        out.print("nothing is joined, so there are no links to plan")
    for note in _notes(found):
        out.print(f"note: {note}", markup=False)


def _print_joins(found: Forecast) -> None:
    latencies = table("latency without load, ms", "from → to", "share", "paper (3)", "expected", "worst")
    for join in found.joins:
        for each in join.directions:
            figures = (each.paper_latency, each.latency, each.worst_latency)
            latencies.add_row(_way(each), each.share, *(_short(figure / MILLISECOND) for figure in figures))
    out.print(latencies)
    loads = table("messages a second", "from → to", "links", "load", "paper (2)", "expected limit", "used")
    for join in found.joins:
        for each in join.directions:
            used = "–" if each.limit is None else f"{float(each.rate / each.limit):.1%}"
            loads.add_row(
                _way(each), str(join.links), _short(each.rate), _short(each.paper_limit), _short(each.limit), used
            )
    out.print(loads)
    links = table("links", "join", "file", "used", "plan", "load (2)", "best (4)", "pairs")
    for join in found.joins:
        links.add_row(
            " – ".join(join.between),
            str(join.asked or "–"),
            *(str(number) for number in (join.links, join.planned, join.needed, join.best or "–", join.possible)),
        )
    out.print(links)
    worst = found.worst
    out.print(
        f"longest way: {' → '.join(worst.systems)}, at most {_short(worst.latency / MILLISECOND)} ms", markup=False
    )


def _way(direction: DirectionForecast) -> str:
    return f"{direction.source} → {direction.target}"


def _short(value: Fraction | None) -> str:
    if value is None:
        return "no limit"
    if value.denominator == 1 or value >= 1000:
        return f"{round(value):,}"
    return f"{float(value):.4g}"


def _bits(rate: int | None) -> str:
    return "no limit" if rate is None else f"{format_rate(rate)}/s"


def _notes(found: Forecast) -> Iterator[str]:
    """What its reader should not overlook."""
    if found.own_lines:
        yield "links that [[simulation.link]] gives lines of their own are taken for like the others"
    for system in found.systems:
        if system.overloaded:
            yield f"{system.name} cannot carry {_short(system.rate)} messages/s, whatever its joins do"
        if not system.born:
            yield f"{system.name} has no listed process that sends; --rate says how much comes from there"
    for join in found.joins:
        name = " – ".join(join.between)
        for each in join.directions:
            if each.overloaded:
                yield f"{_way(each)}: {_short(each.rate)} messages/s are too many; expect {_short(each.limit)}"
        if join.asked == "auto" and join.links != join.planned:
            yield f'{name}: links = "auto" is {join.links} now, one for each gateway; the plan is {join.planned}'
        if join.needed > join.possible:
            yield f"{name}: {join.needed} links are needed and there are gateways for {join.possible}; add gateways"
        elif join.needed > join.links:
            yield f"{name}: {join.needed} links are needed and {join.links} are in use; write links = {join.needed}"
