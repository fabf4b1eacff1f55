"""`isthmus bench acknowledged`: TO and PO over real sockets, and the long run that the audit judges."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, Output, OutputOption, err, out, progress_bar, table, tracked

if TYPE_CHECKING:
    from rich.table import Table

    from isthmus.lab.benchmarks.acknowledged import Endurance, Endurer, Figure
    from isthmus.trace.schema import Report

MEMORY = "2g"


def bench(
    pdus: Annotated[int, typer.Option(help="PDUs of the long run of TO and of PO.", min=0)] = 20_000,
    within: Annotated[float, typer.Option(help="Seconds for each of them to send.", min=1)] = 1800,
    traces: Annotated[Path | None, typer.Option(help="Keep the traces in this directory.", metavar="DIR")] = None,
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """TO and PO over real sockets with loss, beside a sequencer; then a long run of each, which the audit judges."""
    from isthmus.lab.benchmarks import acknowledged

    figures = list(tracked(acknowledged.measure(), acknowledged.count(), "TO, PO and a sequencer"))
    if output is Output.HUMAN:
        out.print(_table("against loss", figures, [(acknowledged.USUAL_SIZE, loss) for loss in acknowledged.LOSSES]))
        out.print(_table("against the number of entities", figures, [(size, 0.0) for size in acknowledged.SIZES]))
        out.print(
            "PDUs/s: of one message, delivered by everybody; ms: from send to acknowledged at the sender, p50 and p99;"
        )
        out.print(
            "a sequencer's: to its delivery, over TCP without loss; share: of the sequencer's PDUs/s at the same n"
        )
    runs, worst = [], HOLDS
    for protocol in acknowledged.KEPT if pdus else ():
        endured, report, code = _endure(protocol, pdus, within, traces, output)
        runs.append({"run": endured, "verdicts": report.verdicts, "events": report.events})
        worst = max(worst, code)
    return {"figures": figures, "runs": runs}, worst


def _endure(
    protocol: Endurer, pdus: int, within: float, traces: Path | None, output: Output
) -> tuple[Endurance, Report, int]:
    from isthmus.lab.benchmarks import acknowledged
    from isthmus.simulator.run import promised_by

    with tempfile.TemporaryDirectory(prefix="isthmus-acknowledged-") as temporary:
        trace = (traces or Path(temporary)) / protocol
        with progress_bar() as progress:
            task = progress.add_task(f"{protocol}: {pdus:,} PDUs", total=pdus)
            endured = acknowledged.endure(
                protocol,
                pdus,
                trace,
                within=within,
                progress=lambda done: progress.update(task, completed=done),
            )
        err.print(f"{protocol}: {endured.pdus:,} PDUs took {endured.seconds:.0f} s; now the audit")
        report = _audit(trace)
    expected = promised_by(acknowledged.KEPT[protocol], views=False)
    held = {each.property: each.verdict for each in report.verdicts}
    if output is Output.HUMAN:
        _show(endured, report, held, expected)
    return endured, report, HOLDS if all(held[each] == "holds" for each in expected) else VIOLATED


def _audit(trace: Path) -> Report:
    from isthmus.pipeline.ingest import session_for
    from isthmus.pipeline.result import audit

    with audit(session_for([trace], None, MEMORY), trace) as result:
        return result.report


def _show(endured: Endurance, report: Report, held: dict[Any, Any], expected: tuple[Any, ...]) -> None:
    out.print(
        f"{endured.protocol} on {endured.medium}, {endured.entities} entities, {endured.loss:.0%} lost: "
        f"{endured.pdus:,} PDUs in {endured.seconds:,.1f} s ({endured.pdus / endured.seconds:,.0f}/s); "
        f"{endured.lost:,} of {endured.carried:,} arrivals missed, {endured.views:,} views"
    )
    share = endured.used / endured.buffers
    out.print(f"  buffers in use, the most at any entity: {endured.used} of {endured.buffers} ({share:.0%})")
    verdicts = ", ".join(f"{each} {held[each]}" for each in expected)
    out.print(f"  audit of {report.events:,} rows, {report.quarantined:,} in quarantine: {verdicts}")


def _table(title: str, figures: list[Figure], cases: list[tuple[int, float]]) -> Table:
    from isthmus.lab.benchmarks.acknowledged import CONTENDERS

    by_case = {(figure.contender, figure.entities, figure.loss): figure for figure in figures}
    columns = [f"{name} {column}" for name in CONTENDERS for column in ("PDUs/s", "ms")]
    listing = table(title, "n", "loss", *columns, "to share", "po share")
    for entities, loss in cases:
        base = by_case["sequencer", entities, 0.0]
        cells: list[str] = []
        shares: list[str] = []
        for contender in CONTENDERS:
            figure = by_case.get((contender, entities, loss))
            if figure is None:
                cells += ["", ""]
                continue
            cells += [f"{figure.pdus_per_second:,.0f}", f"{figure.p50:.1f}, {figure.p99:.1f}"]
            if contender != "sequencer":
                shares.append(f"{figure.pdus_per_second / base.pdus_per_second:.2f}")
        listing.add_row(str(entities), f"{loss:.0%}", *cells, *shares)
    return listing
