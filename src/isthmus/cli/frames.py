"""`isthmus frames FILE`: what is in a capture of the wire format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from isthmus.cli.console import HOLDS, Output, OutputOption, fail, out, print_json
from isthmus.core.codec import FrameError, decode_all
from isthmus.core.message import Batch
from isthmus.core.wire.pdu import Pdu

MAX_CAPTURE = 1 << 30


def frames(
    capture: Annotated[Path, typer.Argument(help="Bytes as they went over one connection, after the hello.")],
    output: OutputOption = Output.HUMAN,
) -> int:
    """Print the PDUs in a capture, one per line, without payloads."""
    try:
        if capture.stat().st_size > MAX_CAPTURE:
            fail(f"{capture}: larger than {MAX_CAPTURE} bytes; cut the capture into pieces at frame boundaries")
        pdus = decode_all(capture.read_bytes())
    except OSError as error:
        fail(f"{capture}: {error.strerror or error}; give a file that can be read")
    except FrameError as error:
        fail(f"{capture}: {error}; capture the whole stream, from its first frame on")
    if output is Output.JSON:
        print_json([_summary(pdu) for pdu in pdus])
        return HOLDS
    for pdu in pdus:
        fields = _summary(pdu)
        out.print(" ".join(f"{name}={value}" for name, value in fields.items()), markup=False)
    return HOLDS


def _summary(pdu: Pdu) -> dict[str, object]:
    fields: dict[str, object] = {"pdu": type(pdu).__name__}
    for name in pdu.__struct_fields__:
        fields[name] = getattr(pdu, name)
    if isinstance(pdu, Batch):
        del fields["segment"]
        described = zip(pdu.segment.ids(), pdu.segment.sizes(), strict=True)
        fields["messages"] = [f"{origin}:{seq} ({size} B)" for (origin, seq), size in described]
    return {name: msgspec.to_builtins(value) for name, value in fields.items()}
