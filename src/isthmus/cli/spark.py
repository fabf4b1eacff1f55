"""The options that the commands on Spark share, how ShiViz logs are to be read, and the colours of verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.console import fail, rate_of
from isthmus.trace.files import Traces
from isthmus.trace.properties import PROPERTIES, expected_properties
from isthmus.trace.shiviz.expression import BadExpression
from isthmus.trace.shiviz.log import Expressions

if TYPE_CHECKING:
    from isthmus.trace.schema import Answer

TracesArgument = Annotated[
    list[str],
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
ShivizOption = Annotated[
    str | None,
    typer.Option("--shiviz", help="How to read ShiViz logs (*.log): a parser expression.", metavar="EXPRESSION"),
]
DelimiterOption = Annotated[
    str | None, typer.Option("--delimiter", help="What stands between executions in such logs.", metavar="EXPRESSION")
]
MasterOption = Annotated[str | None, typer.Option(help="Where Spark runs; all cores of this machine if not given.")]
MemoryOption = Annotated[str, typer.Option(help="For Spark's driver, as in 2g.")]

ScratchOption = Annotated[
    str | None,
    typer.Option(help="Below which place a table goes that is not kept: one that all workers see.", metavar="DIR"),
]

COLOURS: dict[Answer, str] = {"holds": "green", "violated": "red", "unknown": "yellow"}


def link_rate(text: str | None) -> int | None:
    """What the user says that a link can carry, in bits per second."""
    return None if text is None else rate_of("--link-rate", text, "give a rate such as 20Mbit")


def traces_to_read(paths: list[str], shiviz: str | None, delimiter: str | None) -> Traces:
    """The traces that a user names, with expressions that can be used."""
    expressions = Expressions(shiviz or "", delimiter or "")
    try:
        expressions.check()
    except BadExpression as error:
        fail(f"{error}; a parser is such as '(?<host>\\S+) (?<clock>{{.*}})\\n(?<event>.*)'")
    return Traces(paths, expressions)
