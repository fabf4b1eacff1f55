"""What all commands share: output formats, exit codes, progress, and one way to fail.

Results go to standard output, everything else to standard error, so that `-o json` can be piped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

HOLDS = 0
VIOLATED = 1
BAD_INPUT = 2

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

Item = TypeVar("Item")


class Output(StrEnum):
    HUMAN = "human"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print the result.")]


class CommandError(Exception):
    """Bad input or usage. Its text is the one line that the user sees."""


def fail(message: str) -> NoReturn:
    raise CommandError(message)


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are figures."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right", no_wrap=index == 0)
    return made


def tracked(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Show progress on standard error while `items` come. Silent where nobody watches."""
    with progress_bar() as progress:
        yield from progress.track(items, total=total, description=what)


def progress_bar() -> Progress:
    """For work whose steps come in another way than one by one; see `tracked`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
