"""`isthmus bench topologies`: random topologies of all kinds, simulated under every fault; failures are made small.

Prints what was tried, by shape, which faults took place, failures by known cause, and for each finding the file that it
was reduced to and the command that replays it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.console import HOLDS, VIOLATED, HolesOption, Output, OutputOption, err, fail, out, table

if TYPE_CHECKING:
    from isthmus.lab.topologies.hunt import FailingTopology, Harvest

SAY_EVERY = 20.0
"""Seconds between two words on how it goes."""


def bench(
    seed: Annotated[int, typer.Option(help="The number of the first topology.", min=0)] = 1,
    minutes: Annotated[float, typer.Option(help="Begin nothing new after this long.", min=0)] = 5,
    jobs: Annotated[int, typer.Option(help="Worker processes; 0 is one per core.", min=0)] = 0,
    to: Annotated[Path, typer.Option(help="Where reduced files of findings go.", metavar="DIR")] = Path("findings"),
    known_holes: HolesOption = Path("tests/known-holes.toml"),
    output: OutputOption = Output.HUMAN,
) -> tuple[Any, int]:
    """Draw topologies and simulate each under faults. Exit code 1: a run failed as no known hole makes it."""
    from isthmus.cli.seeds import holes_of
    from isthmus.lab.topologies.hunt import hunt

    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--to {to}: {error.strerror or error}; choose a directory that can be written")
    began = said = time.monotonic()
    harvest: dict[str, Harvest] = {}
    for harvest in hunt(seed, 60 * minutes, jobs or os.cpu_count() or 1, holes_of(known_holes)):
        if time.monotonic() > said + SAY_EVERY:
            said = time.monotonic()
            tried = sum(each.topologies for each in harvest.values())
            found = sum(len(each.findings) for each in harvest.values())
            err.print(f"{said - began:6.0f} s  {tried:,} topologies, {found} findings")
    findings = [finding for each in harvest.values() for finding in each.findings]
    files = [_kept(to, finding) for finding in findings]
    if output is Output.HUMAN:
        _print(harvest, list(zip(findings, files, strict=True)), time.monotonic() - began)
    left_out = sum(each.runs - each.judged for each in harvest.values())
    figures = {
        "shapes": {
            shape: {
                "topologies": each.topologies,
                "runs": each.runs,
                "deliveries": each.deliveries,
                "faults": each.faults,
                "known": each.known,
                "findings": len(each.findings),
            }
            for shape, each in sorted(harvest.items())
        },
        "left_out": left_out,
        "findings": [
            {"file": str(file), "seed": each.seed, "failed": each.failed, "causes": each.causes, "why": each.reasons}
            for each, file in zip(findings, files, strict=True)
        ],
    }
    return figures, VIOLATED if findings or left_out else HOLDS


def _kept(directory: Path, finding: FailingTopology) -> Path:
    file = directory / f"topology-{finding.topology}-{'-'.join(finding.failed)}.toml"
    file.write_text(f"# Reduced from random topology {finding.topology}: {', '.join(finding.failed)}.\n{finding.text}")
    return file


def _print(harvest: dict[str, Harvest], findings: list[tuple[FailingTopology, Path]], seconds: float) -> None:
    listing = table("random topologies", "shape", "topologies", "runs", "deliveries", "known failures", "findings")
    faults: Counter[str] = Counter()
    known: Counter[str] = Counter()
    for shape, each in sorted(harvest.items()):
        counts = (each.topologies, each.runs, each.deliveries, each.known.total(), len(each.findings))
        listing.add_row(shape, *(f"{count:,}" for count in counts))
        faults.update(each.faults)
        known.update(each.known)
    out.print(listing)
    for kind, times in faults.most_common():
        out.print(f"  {times:>9,}  {kind}")
    for cause, count in known.most_common():
        out.print(f"  {count:>9,}  runs failed by a known hole: {cause}")
    for finding, file in findings:
        out.print(f"{file}: {'; '.join(finding.reasons)}", markup=False)
        out.print(f"  replay: isthmus simulate {file} --seed {finding.seed} --runs 1 --trace DIR", markup=False)
    runs = sum(each.runs for each in harvest.values())
    judged = sum(each.judged for each in harvest.values())
    out.print(f"{len(findings)} findings in {runs:,} runs, verdicts left out: {runs - judged}, in {seconds:,.0f} s")
