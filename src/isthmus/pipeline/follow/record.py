"""What a streaming audit has told, on disk: so that after any restart nothing is told twice and nothing is lost.

Beside Spark's checkpoint stand `findings/N.json`, what batch N has found if anything, and `summary.json`, the state of
all runs. Both are written whole or not at all, and before anything is printed; `mark` says which batches were printed.
Batch N is the same whenever it is repeated, so writing it again changes nothing. Only a kill between the printing of a
line and the writing of `mark` makes a restart print the lines of one batch again; the record itself is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from isthmus.pipeline.follow.state import Findings
from isthmus.trace.places import Place, write_whole
from isthmus.trace.schema import Report, TraceError, Verdict, Violation

SHOWN = 5
"""Bad rows that are kept to be shown. All are counted."""


class Quarantine(Struct):
    """Rows that do not fit the schema: how many, and the first few with file, place and reason."""

    count: int = 0
    first: list[str] = []


class BatchFindings(Struct):
    """What one batch has found."""

    number: int
    violations: list[Violation] = []
    finished: list[list[Verdict]] = []
    """The verdicts of runs whose logs are all complete now."""
    warnings: list[str] = []
    bad_rows: list[str] = []

    def is_empty(self) -> bool:
        return not (self.violations or self.finished or self.warnings or self.bad_rows)


class RunSummary(Struct):
    rows: int
    held: int
    finished: bool
    """All logs are complete, and nobody is named that has none."""
    verdicts: list[Verdict]
    not_counted: int


class Summary(Struct):
    """All that was found up to and with a batch."""

    batch: int = -1
    runs: dict[str, RunSummary] = {}
    bad: Quarantine = msgspec.field(default_factory=Quarantine)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs.values())

    @property
    def held(self) -> int:
        return sum(run.held for run in self.runs.values())

    @property
    def quarantined(self) -> int:
        return self.bad.count + sum(run.not_counted for run in self.runs.values())

    def violated(self, expected: Iterable[str]) -> bool:
        wanted = set(expected)
        return any(
            each.verdict == "violated" and each.property in wanted
            for run in self.runs.values()
            for each in run.verdicts
        )

    def report(self, violations: list[Violation]) -> Report:
        """As the batch audit reports it."""
        runs = [self.runs[name] for name in sorted(self.runs)]
        verdicts = [each for run in runs for each in run.verdicts]
        events = self.rows - sum(run.not_counted for run in runs)
        return Report(len(runs), events, verdicts, violations, self.quarantined)


class _Setting(Struct):
    version: int
    paths: list[str]
    max_held: int


class Record:
    """The record in one checkpoint directory."""

    def __init__(self, directory: Place, paths: list[str], max_held: int) -> None:
        self._directory = directory
        setting = _Setting(1, paths, max_held)
        mark = directory / "follow.json"
        try:
            if mark.exists():
                known = msgspec.json.decode(mark.read_bytes(), type=_Setting)
                if known != setting:
                    raise TraceError(
                        directory,
                        f"belongs to an audit of {', '.join(known.paths)} with --max-held {known.max_held}",
                        "choose another directory for this one",
                    )
            else:
                if directory.exists() and any(directory.iterdir()):
                    raise TraceError(
                        directory, "is not empty and no checkpoint of an audit", "choose another directory"
                    )
                (directory / "findings").mkdir(parents=True, exist_ok=True)
                _write(mark, setting)
            summary = directory / "summary.json"
            self.summary = msgspec.json.decode(summary.read_bytes(), type=Summary) if summary.exists() else Summary()
            mark = directory / "told"
            self._last_printed = int(mark.read_bytes()) if mark.exists() else -1
        except (OSError, ValueError) as error:
            raise TraceError(
                directory, f"cannot be used as a checkpoint: {error}", "choose another directory"
            ) from error

    def add(self, number: int, found: list[Findings], bad: Quarantine | None) -> BatchFindings:
        """Write down what a batch has found."""
        before = self.summary
        batch = BatchFindings(number)
        runs = dict(before.runs)
        for each in found:
            known = runs.get(each.run)
            batch.violations += each.violations
            batch.warnings += each.warnings
            finished = each.finished and not each.awaited
            if finished and (known is None or not known.finished or known.verdicts != each.verdicts):
                batch.finished.append(each.verdicts)
            runs[each.run] = RunSummary(each.rows, each.held, finished, each.verdicts, each.not_counted)
        if bad is not None:
            batch.bad_rows = bad.first[len(before.bad.first) :]
        path = self._findings(number)
        if path.exists():  # the batch was repeated, and the summary may have been there before
            batch = msgspec.json.decode(path.read_bytes(), type=BatchFindings)
        elif not batch.is_empty():
            _write(path, batch)
        # A new one, because others look at the one before while this is made.
        self.summary = Summary(number, runs, bad or before.bad)
        _write(self._directory / "summary.json", self.summary)
        return batch

    def unprinted(self) -> Iterator[BatchFindings]:
        """What is written down and was not printed before the end came."""
        for number in self._numbers():
            if number > self._last_printed:
                yield msgspec.json.decode(self._findings(number).read_bytes(), type=BatchFindings)

    def is_printed(self, number: int) -> bool:
        return number <= self._last_printed

    def mark_printed(self, number: int) -> None:
        self._last_printed = number
        write_whole(self._directory / "told", str(number).encode())

    def violations(self) -> list[Violation]:
        """All that were described, in the order in which they were found."""
        files = map(self._findings, self._numbers())
        batches = (msgspec.json.decode(file.read_bytes(), type=BatchFindings) for file in files)
        return [violation for batch in batches for violation in batch.violations]

    def _numbers(self) -> list[int]:
        """Of the batches that have found anything."""
        files = (self._directory / "findings").iterdir()
        return sorted(int(path.stem) for path in files if path.suffix == ".json" and path.stem.isdecimal())

    def _findings(self, number: int) -> Place:
        return self._directory / "findings" / f"{number}.json"


def _write(path: Place, value: object) -> None:
    write_whole(path, msgspec.json.encode(value))
