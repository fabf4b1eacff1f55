"""The options that the commands on Spark share, and the colours of verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from isthmus.trace.schema import Answer

TracesArgument = Annotated[
    list[Path], typer.Argument(metavar="TRACE…", help="Trace directories or files, or one table.")
]
ExpectOption = Annotated[
    str | None,
    typer.Option(help="Properties that must hold, such as fifo,causal. Without it: all but total.", metavar="LIST"),
]
LinkRateOption = Annotated[
    str | None, typer.Option("--link-rate", help="What each link can carry, as in 20Mbit, for utilisation.")
]
MasterOption = Annotated[str | None, typer.Option(help="Where Spark runs; all cores of this machine if not given.")]
MemoryOption = Annotated[str, typer.Option(help="For Spark's driver, as in 2g.")]

COLOURS: dict[Answer, str] = {"holds": "green", "violated": "red", "unknown": "yellow"}
