"""What all commands share: output formats, exit codes, progress, and one way to fail.

Results go to standard output, everything else to standard error, so that `-o json` can be piped. Rich is imported when
something is printed: a third of the time that a usage error takes would be spent on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import msgspec
import typer

from isthmus.core.ids import Nanos
from isthmus.core.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.status import Status
    from rich.table import Table

    from isthmus.trace.schema import Report

HOLDS = 0
VIOLATED = 1
BAD_INPUT = 2

Item = TypeVar("Item")


class Stream:
    """Standard output or standard error, with colours where somebody watches."""

    def __init__(self, *, stderr: bool = False) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(stderr=self._stderr, soft_wrap=True, highlight=False)

    @property
    def is_terminal(self) -> bool:
        return self.console.is_terminal

    def print(self, *what: Any, markup: bool = True, style: str | None = None) -> None:
        """Text, in which [green]…[/] is a colour unless `markup` is off, or a table."""
        self.console.print(*what, markup=markup, style=style)

    def status(self, what: str) -> Status:
        """A line that moves while something takes its time."""
        return self.console.status(what)


out = Stream()
err = Stream(stderr=True)


class Output(StrEnum):
    HUMAN = "human"
    JSON = "json"


HolesOption = Annotated[
    Path | None,
    typer.Option(
        "--known-holes", help="Runs that fail by an entry of this list are counted, and do not fail.", metavar="FILE"
    ),
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]


class CommandError(Exception):
    """Bad input or usage. Its text is the one line that the user sees."""


def fail(message: str) -> NoReturn:
    raise CommandError(message)


def duration_of(option: str, text: str) -> Nanos:
    """What the user has written for an option that takes a duration."""
    try:
        return parse_duration(text)
    except ValueError as error:
        fail(f"{option} {text}: {error}")


def rate_of(option: str, text: str, way_out: str) -> int:
    """What the user has written for an option that takes bits per second, of which there must be some."""
    try:
        return parse_rate(text) or fail(f"{option} {text}: nothing would ever arrive; {way_out}")
    except ValueError as error:
        fail(f"{option} {text}: {error}")


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are figures."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right", no_wrap=index == 0)
    return made


def verdicts_of(report: Report) -> str:
    """All verdicts on one run, in a cell of a table."""
    verdicts = {verdict.verdict for verdict in report.verdicts}
    return "[green]all hold[/green]" if verdicts == {"holds"} else f"[red]{', '.join(sorted(verdicts))}[/red]"


def show_witnesses(reports: Iterable[Report]) -> None:
    """Why the first few promises of some runs were broken."""
    for violation in [each for report in reports for each in report.violations][:5]:
        out.print(f"  {violation.why}", markup=False)


def tracked(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Show progress on standard error while `items` come. Silent where nobody watches."""
    with progress_bar() as progress:
        yield from progress.track(items, total=total, description=what)


def progress_bar() -> Progress:
    """For work whose steps come in another way than one by one; see `tracked`."""
    from rich import progress
    from rich.text import Text

    class Count(progress.MofNCompleteColumn):
        """How many of how many; nothing where nobody knows of how many."""

        def render(self, task: progress.Task) -> Text:
            return Text() if task.total is None else super().render(task)

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        Count(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    return progress.Progress(*columns, console=err.console, transient=True, disable=not err.is_terminal)
