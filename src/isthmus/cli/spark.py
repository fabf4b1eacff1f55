"""What the commands on Spark share: options, what to read, the way to Spark, progress, and colours of verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from isthmus.cli.console import err, fail, progress_bar, rate_of
from isthmus.pipeline.mapping import Mapped, Traces
from isthmus.pipeline.mapping.model import load_mapping
from isthmus.pipeline.progress import Stage, watched_by
from isthmus.pipeline.settings import settings_of
from isthmus.trace.places import Place, place
from isthmus.trace.properties import PROPERTIES, expected_properties

if TYPE_CHECKING:
    from isthmus.trace.schema import Answer

TracesArgument = Annotated[
    list[str],
    typer.Argument(metavar="TRACE…", help="Trace directories or files, or one table: paths, or addresses as s3a://…."),
]
TracesOrNone = Annotated[
    list[str] | None,
    typer.Argument(metavar="TRACE…", help="Trace directories or files, or one table: paths, or addresses as s3a://…."),
]
ExpectOption = Annotated[
    str | None,
    typer.Option(
        help=f"Properties that must hold, of {', '.join(PROPERTIES)}. Without it: {', '.join(expected_properties())}.",
        metavar="LIST",
    ),
]
LinkRateOption = Annotated[
    str | None, typer.Option("--link-rate", help="What each link can carry, as in 20Mbit, for utilisation.")
]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table", help="A table or a path for --map; for one of several inputs, NAME=TABLE.", metavar="[NAME=]TABLE"
    ),
]
MapOption = Annotated[
    str | None,
    typer.Option(
        "--map", help="What the columns or lines of other tables mean: a mapping, or a template.", metavar="FILE"
    ),
]
RunOption = Annotated[
    str | None, typer.Option("--run", help="Only the run of this name; of a table, no other is read.", metavar="NAME")
]
MasterOption = Annotated[
    str | None,
    typer.Option(help="Where Spark runs: spark://…, sc://…, local[N]; all cores of this machine if not given."),
]
MemoryOption = Annotated[
    str | None, typer.Option(help="For Spark's driver; 2g if neither this nor Spark's own settings say it.")
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", help="A setting of Spark, as often as needed.", metavar="KEY=VALUE")
]

ScratchOption = Annotated[
    str | None,
    typer.Option(help="Below which place a table goes that is not kept: one that all workers see.", metavar="DIR"),
]

COLOURS: dict[Answer, str] = {"holds": "green", "violated": "red", "unknown": "yellow"}


class Way(NamedTuple):
    """Where Spark is, and what the user has set for it. `session_for` and `spark_session` take these."""

    master: str | None
    memory: str | None
    settings: dict[str, str]


def way_to_spark(master: str | None, memory: str | None, conf: list[str] | None) -> Way:
    return Way(master, memory, settings_of(conf or ()))


@contextmanager
def shown_progress(first: str = "starting Spark") -> Iterator[None]:
    """On a terminal, a bar with what is being done in this block: jobs, rows, time left. Elsewhere nothing."""
    if not err.is_terminal:
        yield
        return
    with progress_bar() as bar:
        line = bar.add_task(first, total=None)
        shown = first

        def show(stage: Stage) -> None:
            nonlocal shown
            rows = f", {stage.rows_done:,} of {stage.rows:,} rows" if stage.rows else ""
            now: dict[str, Any] = {"description": stage.name + rows, "completed": stage.done, "total": stage.of}
            if stage.name != shown:
                shown = stage.name
                bar.reset(line, **now)  # the time left is that of this stage
            bar.update(line, **now)

        with watched_by(show):
            yield


def link_rate(text: str | None) -> int | None:
    """What the user says that a link can carry, in bits per second."""
    return None if text is None else rate_of("--link-rate", text, "give a rate such as 20Mbit")


def places_of(traces: list[str]) -> list[Place]:
    """Where traces are. Relative paths are resolved here, because tasks have other working directories."""
    return [place(trace).absolute() for trace in traces]


def traces_to_read(paths: list[str] | None, tables: list[str] | None, mapping: str | None) -> Traces:
    """The traces that a user names, or the tables, with a mapping that can be used."""
    if mapping is None:
        if tables:
            fail("--table is for tables that a mapping explains; give --map as well, or traces as they are")
        return [place(path).absolute() for path in paths or ()] or fail(
            "Missing argument 'TRACE…'; give traces, or tables with --map"
        )
    known = load_mapping(mapping)
    named: dict[str, list[str]] = {}
    for each in tables or []:
        name, found, table = each.partition("=")
        if not found or name not in known.names:
            name, table = known.names[0], each
            if len(known.names) > 1:
                fail(f"--table {each}: the mapping has inputs {', '.join(known.names)}; write NAME=TABLE")
        named.setdefault(name, []).append(table)
    if paths:
        if len(known.names) > 1:
            fail(f"{paths[0]}: the mapping has several inputs; give --table NAME=TABLE for {', '.join(known.names)}")
        named.setdefault(known.names[0], []).extend(map(str, paths))
    for one in known.inputs:
        if not one.source and one.name not in named:
            fail(f"{known.label}: nothing says which table input '{one.name}' is; give --table or `from`")
    return Mapped(known, named)
