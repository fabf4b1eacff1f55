"""The page of the report: one HTML file that needs nothing else, from verdicts, figures and pictures. Knows no Spark.

It is also well-formed XML, so that tools can take it apart. There is no script in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from isthmus.core.units import count, duration
from isthmus.drawing.svg import Child, Markup, join, tag
from isthmus.pipeline.measure.rows import Figures
from isthmus.pipeline.report.run import figures_section
from isthmus.pipeline.report.spacetime import Picture, draw
from isthmus.trace.properties import PROPERTIES
from isthmus.trace.reader import Quarantined
from isthmus.trace.schema import Answer, Report, Verdict, Violation

_STYLE = Path(__file__).with_name("report.css")
_MOST_LISTED = 200
_SIGNS: dict[Answer, str] = {"holds": "✓", "violated": "✗", "unknown": "?"}


class Shown(Struct, frozen=True):
    """A violation and the picture of it."""

    violation: Violation
    picture: Picture


class Content(Struct, frozen=True):
    """All that is on the page. `figures` are of the runs that are shown; the report is of all."""

    traces: list[str]
    report: Report
    expected: Sequence[str]
    figures: Figures
    shown: list[Shown]
    quarantined: list[Quarantined]
    torn: list[str]


def page(content: Content) -> str:
    """The whole file."""
    failed = _failed(content)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"isthmus report: {'violated' if failed else 'holds'}"),
        tag("style", Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    runs = content.figures.runs
    body = tag(
        "body",
        tag(
            "main",
            _header(content, failed),
            _verdicts(content),
            _witnesses(content),
            *(
                figures_section(content.figures.of(each.run), place, alone=len(runs) == 1)
                for place, each in enumerate(runs)
            ),
            _left_out(content),
            _quarantine(content),
            _notes(),
        ),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _failed(content: Content) -> list[Verdict]:
    return [each for each in content.report.violated if each.property in content.expected]


def _header(content: Content, failed: list[Verdict]) -> Markup:
    report = content.report
    expected = [each for each in report.verdicts if each.property in content.expected]
    unknown = any(each.verdict == "unknown" for each in expected)
    if failed:
        kinds = dict.fromkeys(each.property for each in failed)
        total = sum(each.violations for each in failed)
        runs = len({each.run for each in failed})
        where = f" in {runs:,} of {report.runs:,} runs" if report.runs > 1 else ""
        answer: Answer = "violated"
        said = f"Violated: {', '.join(kinds)}. {total:,} violation{'s' if total != 1 else ''}{where}."
    elif unknown:
        answer = "unknown"
        said = "Nothing seen is wrong, but logs are incomplete where the answer depends on them."
    else:
        answer = "holds"
        said = f"Everything holds: {', '.join(content.expected)}."
    traces = ", ".join(content.traces[:3]) + (f" and {len(content.traces) - 3} more" if len(content.traces) > 3 else "")
    return tag(
        "header",
        tag("p", "isthmus report", class_="kicker"),
        tag("h1", tag("span", _SIGNS[answer], class_=f"sign {answer}", aria_hidden="true"), said, class_=answer),
        tag("p", "Trace: ", tag("code", traces), class_="source"),
        _tiles(content),
    )


def _tiles(content: Content) -> Markup:
    report, figures = content.report, content.figures
    tiles = [(count(report.runs), "run" if report.runs == 1 else "runs"), (count(report.events), "events")]
    if len(figures.runs) == report.runs:
        tiles.append((count(sum(each.messages for each in figures.runs)), "messages"))
        tiles.append((count(sum(each.deliveries for each in figures.runs)), "deliveries"))
    across = [each for each in figures.pairs if each.origin_system != each.system and each.latency_p50_ns is not None]
    if across:
        busiest = max(across, key=lambda each: each.timed)
        tiles.append((duration(busiest.latency_p50_ns), f"median latency {busiest.origin_system} → {busiest.system}"))
        tiles.append((duration(busiest.latency_p99_ns), "99 % within"))
    tiles.append((count(report.quarantined), "rows quarantined"))
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for value, name in tiles), class_="tiles")


# Verdicts -------------------------------------------------------------------------------------------------------------


def _verdicts(content: Content) -> Markup:
    verdicts = content.report.verdicts
    kinds = list(dict.fromkeys(each.property for each in verdicts))
    rows = []
    for kind in kinds:
        of_kind = [each for each in verdicts if each.property == kind]
        answers = Counter(each.verdict for each in of_kind)
        expected = kind in content.expected
        rows.append(
            tag(
                "tr",
                tag("th", kind, scope="row"),
                tag("td", _answers(answers, len(of_kind), expected)),
                tag("td", count(sum(each.checked for each in of_kind)), class_="figure"),
                tag("td", count(sum(each.violations for each in of_kind)), class_="figure"),
                tag("td", PROPERTIES[kind].meaning + ("" if expected else "; not asked for"), class_="meaning"),
                class_="verdict" if expected else "verdict aside",
            )
        )
    header = _head_row("property", "verdict", "checked", "violations", "what it means")
    return tag("section", tag("h2", "Verdicts"), tag("table", header, tag("tbody", *rows)), _bad_runs(content))


def _answers(answers: Counter[Answer], runs: int, expected: bool) -> Markup:
    shown: list[Child] = []
    for answer in ("violated", "unknown", "holds"):
        if answers[answer]:
            words = answer if runs == 1 else f"{answer} in {answers[answer]:,}"
            kind = answer if expected else "aside"
            shown.append(
                tag("span", tag("span", _SIGNS[answer], aria_hidden="true"), f" {words}", class_=f"pill {kind}")
            )
    return join(*shown)


def _bad_runs(content: Content) -> Markup | None:
    runs = sorted({each.run for each in content.report.violated})
    if content.report.runs == 1 or not runs:
        return None
    more = f" and {len(runs) - 20:,} more" if len(runs) > 20 else ""
    return tag("p", "Runs with violations: ", tag("code", ", ".join(runs[:20])), more)


def _head_row(*names: str, text: int = 2) -> Markup:
    cells = (
        tag("th", name, scope="col", class_=None if place < text else "figure") for place, name in enumerate(names)
    )
    return tag("thead", tag("tr", *cells))


# Witnesses ------------------------------------------------------------------------------------------------------------


def _witnesses(content: Content) -> Markup | None:
    violations = [each for each in content.report.violations if each.property in content.expected]
    if not violations:
        return None
    alone = content.report.runs == 1
    figures = [_witness(each, place, alone) for place, each in enumerate(content.shown)]
    chosen = [each.violation for each in content.shown]
    others = [each for each in violations if each not in chosen]
    total = sum(each.violations for each in _failed(content))
    some = f"{len(chosen)} of {total:,} violations, some of every kind. " if total > len(chosen) else ""
    return tag(
        "section",
        tag("h2", "Witnesses"),
        tag(
            "p",
            f"{some}Each line is a process, each arrow a message, time runs to the right; #14 is the place in the "
            "process’s own log. Marked in red: the deliveries that break the promise.",
            class_="lead",
        ),
        *figures,
        _other_witnesses(others, total - len(chosen)),
    )


def witness_drawing(violation: Violation, picture: Picture, name: str, *, alone: bool = True) -> Markup:
    title = violation.property if violation.second is None else f"{violation.property} order"
    return draw(picture, f"{title}, violated {_where(violation, alone)}", violation.why, name)


def _where(violation: Violation, alone: bool) -> str:
    return f"at {violation.process}" + ("" if alone else f" in run {violation.run}")


def _witness(shown: Shown, place: int, alone: bool) -> Markup:
    violation = shown.violation
    where = _where(violation, alone)
    drawn = witness_drawing(violation, shown.picture, f"witness-{place}", alone=alone)
    caption = tag(
        "figcaption",
        tag("span", tag("span", "✗", aria_hidden="true"), f" {violation.property}", class_="pill violated"),
        tag("strong", f" {where}"),
        tag("span", violation.why, class_="why"),
    )
    return tag("figure", caption, drawn, class_="witness")


def _other_witnesses(others: Sequence[Violation], total: int) -> Markup | None:
    if not others:
        return None
    rows = [
        tag("tr", tag("td", each.run), tag("td", each.property), tag("td", each.process), tag("td", each.why))
        for each in others[:_MOST_LISTED]
    ]
    listed = f"{total:,} more" if total <= len(rows) else f"{total:,} more, of which {len(rows):,} are listed"
    return tag(
        "details",
        tag("summary", listed),
        tag(
            "table",
            _head_row("run", "property", "process", "what happened", text=4),
            tag("tbody", *rows),
            class_="list",
        ),
    )


# The rest -------------------------------------------------------------------------------------------------------------


def _left_out(content: Content) -> Markup | None:
    left = content.report.runs - len(content.figures.runs)
    if left <= 0:
        return None
    words = (
        f"Figures of {left:,} more runs are not on this page; `isthmus measure --to DIR` writes all of them as Parquet."
    )
    return tag("p", words, class_="lead")


def _quarantine(content: Content) -> Markup | None:
    if not content.quarantined and not content.torn:
        return None
    rows = [
        tag("tr", tag("td", each.file), tag("td", count(each.line), class_="figure"), tag("td", each.reason))
        for each in content.quarantined
    ]
    listing = (
        tag("table", _head_row("file", "line", "reason", text=1), tag("tbody", *rows), class_="list") if rows else None
    )
    shown = f" The first {len(rows)}:" if content.report.quarantined > len(rows) else ""
    torn = f" Files whose last line a crash tore off: {', '.join(content.torn[:20])}." if content.torn else ""
    return tag(
        "section",
        tag("h2", "Quarantine"),
        tag("p", f"Rows that do not count: {content.report.quarantined:,}.{torn}{shown}", class_="lead"),
        listing,
    )


def _notes() -> Markup:
    notes = (
        "Order is judged by the processes’ own logs, never by clocks. Latency compares the clock of the receiver with "
        "that of the sender, and is as good as those agree; hold-back is measured by one clock.",
        "Only application processes count for verdicts, latency and throughput. A repeated delivery counts once.",
        "Throughput counts deliveries: one message that reaches three processes of a system is delivered three times.",
        "Bytes on links are those of the gateways’ transfer rows: payload and what ordering adds, no TCP and no TLS.",
    )
    return tag(
        "section", tag("h2", "How to read this"), tag("ul", *(tag("li", each) for each in notes)), class_="notes"
    )
