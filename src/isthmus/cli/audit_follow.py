"""`isthmus audit --follow DIR`: violations as they are found in traces that grow."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Any

import msgspec

from isthmus.cli.console import HOLDS, VIOLATED, Output, err, fail, out
from isthmus.cli.spark import COLOURS, Way
from isthmus.trace.files import SUFFIXES
from isthmus.trace.places import Place, place
from isthmus.trace.schema import TraceError, printable

if TYPE_CHECKING:
    from rich.status import Status

    from isthmus.pipeline.follow.record import BatchFindings, Summary
    from isthmus.trace.schema import Verdict

_MOST_RUNS = 20


def follow_traces(
    traces: list[str],
    expected: tuple[str, ...],
    *,
    checkpoint: str | None,
    trigger: float,
    once: bool,
    max_held: int,
    way: Way,
    output: Output,
) -> int:
    """Follow until Ctrl-C, or with `once` to the end of what is there. Returns the exit code."""
    places = [place(trace).absolute() for trace in traces]
    _check(trigger, max_held)
    _refuse_what_is_not_there([path for path in places if isinstance(path, Path)])
    from isthmus.pipeline.follow import follow
    from isthmus.pipeline.follow.judge import followed_properties
    from isthmus.pipeline.session import spark_session
    from isthmus.pipeline.stores import use_settings_of

    show = _Json() if output is Output.JSON else _Human()
    with _checkpoint(checkpoint) as directory:
        with show:
            for name, judged in followed_properties(expected).items():
                if judged is None:
                    show.warn(f"{name} is not judged while traces grow; audit them when they are finished")
            spark = spark_session(way.master, driver_memory=way.memory, settings=way.settings)
            use_settings_of(spark)
            _refuse_what_is_not_there(places)
            with _interrupts() as interrupted:

                def look(summary: Summary) -> bool:
                    show.look(summary)
                    return not interrupted.is_set()

                record = follow(
                    spark,
                    places,
                    directory,
                    show.batch,
                    trigger_seconds=trigger,
                    once=once,
                    max_held=max_held,
                    expected=expected,
                    look=look,
                )
        summary = record.summary
        if once and not summary.rows:
            reason = summary.bad.first[0] if summary.bad.first else "there is none"
            fail(printable(f"no row of the trace can be used: {reason}; check the files"))
        show.summary(summary)
        return VIOLATED if summary.violated(expected) else HOLDS


def _refuse_what_is_not_there(traces: Sequence[Place]) -> None:
    for path in traces:
        if not path.exists():
            raise TraceError(path, "no such file or directory", "give a directory that traces are written to")
        if path.is_file() and path.suffix not in SUFFIXES:
            raise TraceError(path, "not a trace file", "give *.jsonl or *.parquet files, or a directory of them")


def _check(trigger: float, max_held: int) -> None:
    if not 0 <= trigger <= 3600:
        raise TraceError("--trigger", f"{trigger} is not a number of seconds up to an hour", "give one such as 1")
    if max_held < 1:
        raise TraceError("--max-held", f"{max_held} leaves no room", "give a number of messages such as 1000000")


@contextmanager
def _checkpoint(given: str | None) -> Iterator[Place]:
    """Without a directory that is to be kept, one for this time."""
    if given is not None:
        yield place(given).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="isthmus-follow-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch, "checkpoint")


@contextmanager
def _interrupts() -> Iterator[Event]:
    """Ctrl-C, or SIGTERM to a service, asks for the end. An exception amid talk with Java would break that off."""
    asked = Event()
    signals = (signal.SIGINT, signal.SIGTERM) if current_thread() is main_thread() else ()
    before = {each: signal.signal(each, lambda *_: asked.set()) for each in signals}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _Human:
    """One line per violation, and on a terminal a line that says how it goes."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._batch = -1
        self._batch_at = self._since = time.monotonic()
        self._rows = self._rows_before = 0

    def __enter__(self) -> None:
        if err.is_terminal:
            self._status = err.status("starting Spark")
            self._status.start()

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def batch(self, batch: BatchFindings, summary: Summary) -> None:
        for bad in batch.bad_rows:
            err.print(printable(f"quarantined: {bad}"), markup=False)
        for each in batch.violations:
            out.print(printable(f"{each.run}: {each.property} at {each.process}: {each.why}"), markup=False)
        for verdicts in batch.finished:
            out.print(_verdict_line(verdicts))
        for warning in batch.warnings:
            self.warn(warning)

    def warn(self, why: str) -> None:
        err.print(printable(f"warning: {why}"), markup=False)

    def look(self, summary: Summary) -> None:
        if self._status is None:
            return
        now = time.monotonic()
        if summary.batch != self._batch:
            self._batch, self._batch_at = summary.batch, now
        if now - self._since >= 1:
            self._rows_before, self._rows, self._since = self._rows, summary.rows, now
        rate = max(0, self._rows - self._rows_before)
        self._status.update(
            f"{summary.rows:,} rows, {rate:,}/s, {summary.held:,} messages held, "
            f"{len(summary.runs):,} runs, last rows {now - self._batch_at:.0f} s ago; Ctrl-C ends"
        )

    def summary(self, summary: Summary) -> None:
        open_runs = [name for name, run in summary.runs.items() if not run.finished]
        for name in sorted(open_runs)[:_MOST_RUNS]:
            out.print(_verdict_line(summary.runs[name].verdicts, finished=False))
        if len(open_runs) > _MOST_RUNS:
            err.print(f"{len(open_runs) - _MOST_RUNS:,} more runs are not finished: -o json")
        violations = sum(each.violations for run in summary.runs.values() for each in run.verdicts)
        out.print(
            f"{len(summary.runs):,} runs, {summary.rows:,} rows, {summary.quarantined:,} quarantined, "
            f"{violations:,} violations, {summary.held:,} messages held"
        )


def _verdict_line(verdicts: list[Verdict], *, finished: bool = True) -> str:
    from rich.markup import escape

    answers = ", ".join(
        f"{each.property} [{COLOURS[each.verdict]}]{each.verdict}[/]"
        + (f" ({each.violations:,})" if each.violations else "")
        for each in verdicts
    )
    return f"{escape(printable(verdicts[0].run))} {'is finished' if finished else 'goes on'}: {answers}"


class _Json:
    """One object per line; `kind` says what it is."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def batch(self, batch: BatchFindings, summary: Summary) -> None:
        for bad in batch.bad_rows:
            self._print("quarantined", {"why": bad})
        for violation in batch.violations:
            self._print("violation", msgspec.to_builtins(violation))
        for verdicts in batch.finished:
            self._print("finished", {"run": verdicts[0].run, "verdicts": verdicts})
        for warning in batch.warnings:
            self.warn(warning)

    def warn(self, why: str) -> None:
        self._print("warning", {"why": why})

    def look(self, summary: Summary) -> None:
        pass

    def summary(self, summary: Summary) -> None:
        report = msgspec.to_builtins(summary.report([]))
        del report["violations"]
        self._print("summary", report | {"held": summary.held})

    def _print(self, kind: str, more: dict[str, Any]) -> None:
        sys.stdout.write(msgspec.json.encode({"kind": kind} | more).decode() + "\n")
        sys.stdout.flush()
