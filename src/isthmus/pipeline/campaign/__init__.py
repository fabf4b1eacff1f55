"""A campaign: thousands of simulated runs on Spark, each played and audited in the task that it was born in.

Seeds go to Spark a few seconds of work at a time, so that whoever called sees how far it is, and can stop it, in every
kind of session. See docs/design/campaign.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, overload

from msgspec import Struct
from pyspark.sql import SparkSession

from isthmus.pipeline.campaign.task import Player, play_seeds
from isthmus.pipeline.ingest import SPARK_FAILURES, spark_reason
from isthmus.pipeline.places import require_writable
from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.stores import use_settings_of
from isthmus.pipeline.tasks import arrivals
from isthmus.pipeline.workers import cores_of
from isthmus.trace.account import Account
from isthmus.trace.places import Place, StoreProblem
from isthmus.trace.schema import TraceError

SEEDS_PER_TASK = 8
"""About a second of work, beside some ten milliseconds that a task costs."""

TASKS_PER_CORE = 2
"""Of one query, which costs the driver some fifty milliseconds."""


class Progress(Struct, frozen=True):
    """How far a campaign is."""

    runs: int = 0
    failing: tuple[int, ...] = ()
    """Seeds, in the order in which they were found."""


Watch: TypeAlias = Callable[[Progress], object]


class _Answer(Struct):
    """What a task gives."""

    account: Account
    problem: str = ""
    """Why a trace could not be written."""


def campaign(
    spark: SparkSession, seeds: range, player: Player, *, trace: Place | None = None, watch: Watch | None = None
) -> Account:
    """Play and audit all seeds, which count up by one. `watch` is told the progress a few times a second.

    With `trace`, rows are kept there as Parquet; the directory must be new or empty, and one that all workers see.
    Interrupting it cancels what is under way.
    """
    use_settings_of(spark)
    directory = new_directory(trace) if trace is not None else None
    if directory is not None:
        require_writable(spark, directory, "traces")

    def play(some: range) -> _Answer:
        try:
            return _Answer(play_seeds(player, some, directory))
        except (TraceError, StoreProblem) as error:
            return _Answer(Account(), str(error).rpartition("; ")[0])  # without its advice

    seen = Progress()

    def look() -> None:
        if watch is not None:
            watch(seen)

    whole = Account()
    early: dict[int, list[_Answer]] = {}
    first = 0
    try:
        cores = cores_of(spark)
        jobs = Portions(seeds, seeds_per_task(len(seeds), cores))
        for arrived in arrivals(spark, play, jobs, _Answer, len(jobs), TASKS_PER_CORE * cores, look):
            early[arrived.first] = arrived.answers
            for answer in arrived.answers:
                if answer.problem:
                    raise SparkProblem(answer.problem, "choose a directory that all workers can write to")
                failing = tuple(each.seed for each in answer.account.failures)
                seen = Progress(seen.runs + answer.account.runs, seen.failing + failing)
            while first in early:  # accounts are added up in the order of seeds
                answers = early.pop(first)
                first += len(answers)
                for answer in answers:
                    whole.add(answer.account)
    except SPARK_FAILURES as error:
        raise SparkProblem(
            f"Spark gave up: {spark_reason(error)}", "see whether its workers have enough memory"
        ) from error
    look()
    return whole


def seeds_per_task(seeds: int, cores: int) -> int:
    """Even a short campaign should keep all cores busy until its end."""
    return max(1, min(SEEDS_PER_TASK, seeds // (8 * cores)))


class Portions(Sequence[range]):
    """A range in portions of one size, without a list of them: it travels with every task."""

    def __init__(self, whole: range, size: int) -> None:
        self._whole, self._size = whole, size

    def __len__(self) -> int:
        return (len(self._whole) + self._size - 1) // self._size

    @overload
    def __getitem__(self, place: int) -> range: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[range]: ...
    def __getitem__(self, place: int | slice) -> range | Sequence[range]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self._whole[place * self._size : (place + 1) * self._size]


def new_directory(trace: Place) -> Place:
    """Rows of two campaigns in one directory would claim the same places."""
    try:
        trace.mkdir(parents=True, exist_ok=True)
        if any(trace.iterdir()):
            raise TraceError(trace, "is there already and not empty", "choose another directory for the traces")
    except OSError as error:
        raise TraceError(
            trace, f"cannot be written: {error.strerror or error}", "choose another directory for the traces"
        ) from error
    return trace.absolute()
