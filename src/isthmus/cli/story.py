"""`isthmus story TRACE MESSAGE-ID`: everything that ever happened to one message, and why it was held."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, out, print_json
from isthmus.trace.reader import read_trace
from isthmus.trace.story import tell


def story(
    trace: Annotated[str, typer.Argument(help="A trace directory or file.")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE-ID", help="system/process/number, as in traces.")],
    output: OutputOption = Output.HUMAN,
) -> int:
    """Tell the story of one message: where it was sent, held (and for what), delivered, stable."""
    found = tell(read_trace([trace]), message)
    if output is Output.JSON:
        print_json(found)
    else:
        for line in found.lines():
            out.print(line, markup=False)
    return HOLDS
