"""Records a process that runs in real time, off the hot path: `trace/recorder.py` with a clock and a timer around it.

A driver calls once per step, with references to what it has anyway; the log makes rows of them when it is flushed. It
flushes itself when much has gathered; the timer sees to it that the last rows of a quiet process do not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any

from isthmus.core.endpoint import Destinations, Outbox, View
from isthmus.core.ids import ProcessId
from isthmus.trace.recorder import Beginning, Ending, Recorder
from isthmus.trace.schema import TraceError
from isthmus.trace.writer import ProcessLog

log = logging.getLogger(__name__)

FLUSH_AFTER = 0.5
"""Seconds that a row may wait to be written."""
PART_AFTER = 5.0
"""The same where each flush makes a file of its own, as Parquet does: two a second would soon be thousands."""


class LiveRecorder:
    """Writes the history of one process to its log, from its first row to its last, each row with the time of day.

    A log that cannot be written any more (a full disk) is given up, with one line to say so: the reader of the trace
    will find it incomplete, and the process goes on. With `sync` every row is written before the step that it is about
    does anything, so that not even `kill -9` loses what others have seen of this process.
    """

    def __init__(
        self,
        process: ProcessId,
        process_log: ProcessLog,
        how: Beginning = "start",
        view: View | None = None,
        *,
        sync: bool = False,
        flush_after: float = FLUSH_AFTER,
    ) -> None:
        self._log = process_log
        self._recorder = Recorder(process, process_log)
        self._loop = asyncio.get_running_loop()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._lost = False
        self._sync = sync
        self._flush_after = flush_after
        self._record(self._recorder.began, how, view)

    def sent(self, first: int, payloads: Sequence[bytes], destinations: Destinations | None = None) -> None:
        """This process sent messages of its own, numbered from `first` on: to these processes, or to everybody."""
        self._record(self._recorder.sent, first, payloads, destinations)

    def step(self, out: Outbox) -> None:
        """Record what a step of the endpoint wants done; it is done right after."""
        self._record(self._recorder.step, out)

    def ended(self, how: Ending, why: str) -> None:
        """Record the end of the process, and close its log."""
        self._record(self._recorder.ended, how, why)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._or_give_up(self._log.close)

    def _record(self, record: Callable[..., None], *arguments: Any) -> None:
        self._or_give_up(record, *arguments, time_ns())
        if self._log.has_unwritten:
            if self._sync:
                self._flush()
            elif self._flush_timer is None:
                self._flush_timer = self._loop.call_later(self._flush_after, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self._or_give_up(self._log.flush)

    def _or_give_up(self, write: Callable[..., None], *arguments: Any) -> None:
        try:
            write(*arguments)
        except TraceError as error:
            if not self._lost:
                who = f"{self._log.system}/{self._log.process}"
                log.warning("the trace of %s is incomplete from here on: %s", who, error)
            self._lost = True
