"""The log that an application writes beside its process, so that its messages can be read with what they said.

A trace tells who sent and delivered which message, never what it said: payloads are the application's. Where they are
wanted downstream, the application writes them itself: rows of the trace format with one more column, `payload`. The
source reads such logs like any other, and `isthmus audit` reads them too and does not mind the column.

A row must be written in the order in which things happened here: `sent` before anybody can deliver the message, if
that can be had, `delivered` before whatever the application sends because of it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self
from urllib.parse import quote

import msgspec

from isthmus.pipeline.source.files import DeliveryRow
from isthmus.trace.schema import EventName, TraceError


class DeliveryLog:
    """The history of one process, as its application tells it.

    It is one file that grows with every flush; with `parts`, every flush is a file of its own that appears when it is
    whole, for readers that take a file only once.
    """

    def __init__(
        self,
        directory: str | Path,
        run: str,
        system: str,
        process: str,
        *,
        parts: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.directory = Path(directory)
        self.run, self.system, self.process = run, system, process
        self.next_index = 0
        stem = ".".join(quote(name, safe="+") for name in (run, system, process))
        self._stem = re.sub(r"^[_.]", lambda match: f"%{ord(match[0]):02X}", stem)  # Spark skips files that begin so
        self._parts = 0 if parts else None
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._rows: list[DeliveryRow] = []
        first = self.directory / (f"{self._stem}-00000.jsonl" if parts else f"{self._stem}.jsonl")
        if first.exists():
            raise TraceError(first, f"there is already a log of {system}/{process} in run {run}", "name another run")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._row("start")

    def sent(self, seq: int, payload: str | None = None) -> None:
        """This process sent its message number `seq`."""
        self._row("send", (self.system, self.process, seq), payload)

    def delivered(self, origin_system: str, origin_process: str, seq: int, payload: str | None = None) -> None:
        """This process took message number `seq` of that process."""
        self._row("deliver", (origin_system, origin_process, seq), payload)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        data = self._encoder.encode_lines(rows)
        if self._parts is None:
            with open(self.directory / f"{self._stem}.jsonl", "ab", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
            return
        path = self.directory / f"{self._stem}-{self._parts:05}.jsonl"
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(data)
        os.replace(temporary, path)
        self._parts += 1

    def end(self) -> None:
        """Nothing will follow."""
        self._row("end")
        self.flush()

    def _row(self, event: EventName, message: tuple[str, str, int] | None = None, payload: str | None = None) -> None:
        origin_system, origin_process, origin_seq = message or (None, None, None)
        self._rows.append(
            DeliveryRow(
                run=self.run,
                system=self.system,
                process=self.process,
                role="app",
                index=self.next_index,
                event=event,
                origin_system=origin_system,
                origin_process=origin_process,
                origin_seq=origin_seq,
                payload_bytes=None if payload is None else len(payload.encode()),
                time_ns=self._clock(),
                payload=payload,
            )
        )
        self.next_index += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.flush()
