"""Campaigns: the run of a seed is always the same run, the audit judges it, and nothing strange ends a campaign."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from isthmus.cli.seeds import account_of
from isthmus.lab.mutants.catalogue import committed
from isthmus.lab.mutants.mutant import Mutant, alive
from isthmus.lab.standard import standard_group, standard_join
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.pipeline.campaign import Portions, Progress, campaign, new_directory, seeds_per_task
from isthmus.pipeline.campaign.task import play_seeds
from isthmus.pipeline.problems import SparkProblem
from isthmus.pipeline.result import audit
from isthmus.simulator.campaign import SimulatedRun, SimulationPlayer, play_seed, run_seed
from isthmus.trace.account import Account, Failure
from isthmus.trace.rows import Stretch, read_rows
from isthmus.trace.schema import TraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = standard_group("causal")
JOIN = standard_join("striped")
SEEDS = range(1, 9)
CAUSES_IGNORED = partial(committed, "causes-ignored")


def by_oracle(player: SimulationPlayer, seeds: range) -> Account:
    """The same seeds, played here and judged by the simulator alone."""
    whole = Account()
    for seed in seeds:
        whole.add(account_of(run_seed(player.source, seed, player.mistake)))
    return whole


def without_words(account: Account) -> Account:
    """The two judges choose different witnesses."""
    failures = [Failure(each.seed, each.properties, [], each.beside, each.causes) for each in account.failures]
    return msgspec.structs.replace(account, failures=failures)


@pytest.mark.parametrize(
    "player", [SimulationPlayer(JOIN), SimulationPlayer(GROUP, CAUSES_IGNORED)], ids=["sound", "mutant"]
)
def test_a_campaign_finds_what_the_oracle_finds(spark: SparkSession, player: SimulationPlayer) -> None:
    account = campaign(spark, SEEDS, player)
    assert without_words(account) == without_words(by_oracle(player, SEEDS))
    assert account.runs == len(SEEDS)
    ignored = [failure for failure in account.failures if "causal" in failure.properties]
    assert bool(ignored) == (player.mistake is CAUSES_IGNORED)
    for failure in ignored:
        assert "before its cause site/" in failure.reasons[0]


def test_kept_traces_are_those_that_were_audited(spark: SparkSession, tmp_path: Path) -> None:
    account = campaign(spark, SEEDS, SimulationPlayer(GROUP, CAUSES_IGNORED), trace=tmp_path / "kept")
    report = audit(spark, tmp_path / "kept").report
    assert (report.runs, report.events, report.quarantined) == (len(SEEDS), account.events, 0)
    violated = {verdict.run for verdict in report.violated if verdict.property == "causal"}
    assert violated == {f"seed-{failure.seed}" for failure in account.failures}
    whys = {violation.why.partition(";")[0] for violation in report.violations}
    assert {failure.reasons[0] for failure in account.failures} <= whys


def test_a_seed_that_raises_is_one_failing_seed(spark: SparkSession) -> None:
    def player(seed: int) -> SimulatedRun:
        if seed == 3:
            raise ZeroDivisionError("seed three")
        return play_seed(GROUP, seed)

    account = campaign(spark, range(2, 6), player)
    assert account.runs == 4
    assert account.failures == [Failure(3, [], ["it could not be judged: ZeroDivisionError: seed three"], ["broken"])]


def test_an_interrupt_ends_the_job(spark: SparkSession) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.runs:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        campaign(spark, range(1, 100_000), SimulationPlayer(GROUP), watch=interrupt)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def test_a_trace_that_cannot_be_written_ends_the_campaign_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    directory = tmp_path / "gone"

    def player(seed: int) -> SimulatedRun:
        shutil.rmtree(directory, ignore_errors=True)
        return play_seed(GROUP, seed)

    with pytest.raises(SparkProblem, match=r"gone/seeds-[0-9].*: cannot write: No such file.*; choose a directory"):
        campaign(spark, range(1, 100_000), player, trace=directory)


# Without Spark --------------------------------------------------------------------------------------------------------


def test_the_run_of_a_seed_is_the_run_of_a_simulation(tmp_path: Path) -> None:
    play_seeds(SimulationPlayer(JOIN), [5, 6], tmp_path)
    rows = [row for part in read_rows(Stretch(str(tmp_path / "seeds-5-6.parquet"))) for row in part.events]
    assert rows == [event for seed in (5, 6) for event in play_seed(JOIN, seed).events]


def test_a_judge_that_is_wrong_is_found_by_the_other() -> None:
    def player(seed: int) -> SimulatedRun:
        played = play_seed(GROUP, seed)
        report = played.outcome.report
        verdicts = [msgspec.structs.replace(each, verdict="unknown") for each in report.verdicts]
        wrong = msgspec.structs.replace(report, verdicts=verdicts)
        return SimulatedRun(msgspec.structs.replace(played.outcome, report=wrong), played.events)

    [failure] = play_seeds(player, [1]).failures
    assert failure.properties == []
    assert "two judges differ about causal: holds says the audit, unknown says the simulator" in failure.reasons


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"stuck": "p1 waits"}, ["stuck: p1 waits"]),
        ({"broken": "an invariant"}, ["an invariant"]),
        ({"early": "p1/1 was called stable"}, ["p1/1 was called stable"]),
    ],
)
def test_what_no_trace_can_tell_comes_from_the_simulator(changed: dict[str, str], failing: list[str]) -> None:
    def player(seed: int) -> SimulatedRun:
        played = play_seed(GROUP, seed)
        return SimulatedRun(msgspec.structs.replace(played.outcome, **changed), played.events)

    account = play_seeds(player, [1])
    assert [each.reasons for each in account.failures] == [failing]


def test_a_protocol_that_raises_fails_with_its_place() -> None:
    def stamp(*_: Any) -> Any:
        raise LookupError("no stamp")

    mistake = partial(alive, Mutant("raises", "causal", "raises", ((CausalOrder, "stamp", stamp),)))
    outcome = run_seed(GROUP, 1, mistake)
    assert outcome.violated
    assert outcome.broken.startswith("raised LookupError: no stamp, in stamp, line ")
    assert play_seeds(SimulationPlayer(GROUP, mistake), [1]).failures == [Failure(1, [], [outcome.broken], ["broken"])]


def test_accounts_add_up() -> None:
    player = SimulationPlayer(GROUP, CAUSES_IGNORED)
    apart = Account()
    for seed in SEEDS:
        apart.add(play_seeds(player, [seed]))
    assert apart == play_seeds(player, SEEDS)


def test_short_campaigns_use_all_cores_and_long_ones_few_tasks() -> None:
    assert [seeds_per_task(seeds, 2) for seeds in (1, 3, 16, 40, 5000, 100_000_000)] == [1, 1, 1, 2, 8, 8]


@pytest.mark.parametrize(("seeds", "size"), [(range(1, 2), 8), (range(5, 22), 8), (range(3, 19), 8), (range(7, 10), 1)])
def test_portions_are_all_of_the_seeds_in_their_order(seeds: range, size: int) -> None:
    portions = Portions(seeds, size)
    assert [seed for portion in portions for seed in portion] == list(seeds)
    assert all(len(portion) == size for portion in portions[:-1])
    assert 0 < len(portions[len(portions) - 1]) <= size


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: (path.mkdir(), (path / "old.parquet").touch()), "not empty"),
        (lambda path: path.touch(), "cannot be written"),
    ],
)
def test_traces_are_kept_in_a_new_directory(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    make(tmp_path / "there")
    with pytest.raises(TraceError, match=f"there: .*{words}.*; choose another directory"):
        new_directory(tmp_path / "there")
