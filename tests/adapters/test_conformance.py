"""The suite that every adapter passes: green on Valkey, red on adapters with a mistake, by the check meant for it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from pathlib import Path

import broken_logs
import pytest
from cli_support import ENVIRONMENT, Finished, spawn

from isthmus.adapters.conformance import CHECKS, Check, Outcome, run_suite
from isthmus.adapters.conformance.room import Room, expect
from isthmus.lab.brokers.redis import DebianTrial, EverySecondTrial, RedisTrial
from isthmus.runtime.log.trial import NotPossible, Trial

OURS = str(Path(broken_logs.__file__).parent)
SEED = random.SystemRandom().randrange(1 << 32)
BY_NAME = {check.name: check for check in CHECKS}


def tried(trial: Trial, *names: str, seed: int = SEED) -> dict[str, Outcome]:
    checks = [BY_NAME[name] for name in names] or CHECKS
    return {outcome.name: outcome for outcome in asyncio.run(run_suite(trial, checks, seed))}


@pytest.mark.parametrize("part", range(4))
def test_valkey_keeps_every_promise(part: int) -> None:
    outcomes = tried(RedisTrial(), *list(BY_NAME)[part::4])
    wrong = [f"{each.name}: {each.why}" for each in outcomes.values() if each.verdict == "broken"]
    assert not wrong, f"seed {SEED}: " + "; ".join(wrong)
    assert {each.name for each in outcomes.values() if each.verdict == "not possible"} <= {"lost-tail"}


@pytest.mark.real
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("trial", [EverySecondTrial, DebianTrial])
def test_servers_that_flush_late_or_are_older_keep_every_promise(trial: type[RedisTrial], part: int) -> None:
    if trial is DebianTrial and shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server here")
    outcomes = tried(trial(), *list(BY_NAME)[part::4])
    wrong = [f"{each.name}: {each.why}" for each in outcomes.values() if each.verdict == "broken"]
    assert not wrong, f"seed {SEED}: " + "; ".join(wrong)


class Forgetful(RedisTrial):
    """A Valkey that keeps nothing on disk: kill -9 loses everything."""

    def __init__(self) -> None:
        super().__init__()
        self.server.settings["appendonly"] = "no"


def test_a_tail_that_a_server_lost_is_noticed() -> None:
    outcome = tried(Forgetful(), "lost-tail")["lost-tail"]
    assert outcome.verdict == "holds", outcome.why


def test_a_server_that_forgets_is_not_durable() -> None:
    outcome = tried(Forgetful(), "durable")["durable"]
    assert outcome.verdict == "broken"
    assert "50 are lost" in outcome.why


@pytest.mark.parametrize(
    ("trial", "check", "seen"),
    [
        (broken_logs.RecordLaterTrial, "holder-dies", "the record says"),
        (broken_logs.RecordFirstTrial, "holder-dies", "the record says"),
        (broken_logs.RecordLaterTrial, "broker-stalls", "stand there twice"),
        (broken_logs.UnfencedTrial, "stalled-holder", "was accepted"),
        (broken_logs.UnfencedTrial, "never-held", "was accepted"),
        (broken_logs.ByTimeTrial, "one-order", "nothing came"),
        (broken_logs.TrustingTrial, "trimmed-unread", "no Trimmed, but"),
        (broken_logs.TrustingTrial, "recreated", "no Recreated, but"),
        (broken_logs.GreedyTrial, "slices-bounded", "were asked for"),
    ],
)
def test_a_mistake_is_caught_by_the_check_that_is_meant_for_it(trial: type[RedisTrial], check: str, seen: str) -> None:
    outcome = tried(trial(), check)[check]
    assert outcome.verdict == "broken", f"seed {SEED}: {check} did not see it"
    assert seen in outcome.why


async def hangs(room: Room) -> None:
    """It never ends."""
    await asyncio.Event().wait()


async def breaks(room: Room) -> None:
    """It kills the broker and leaves it so."""
    await room.kill()
    expect(False, "seen")


async def fails(room: Room) -> None:
    """It has a mistake of its own."""
    raise KeyError("mine")


async def cannot(room: Room) -> None:
    """It cannot be."""
    raise NotPossible("no such thing")


def test_whatever_becomes_of_a_check_the_next_one_finds_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.adapters.conformance.LIMIT", 0.5)
    odd = [Check(run.__name__, run.__doc__ or "", run) for run in (breaks, hangs, fails, cannot)]
    heard: list[str] = []
    outcomes = asyncio.run(
        run_suite(RedisTrial(), [*odd, BY_NAME["never-held"]], 1, lambda outcome: heard.append(outcome.name))
    )
    assert [(each.verdict, each.why) for each in outcomes] == [
        ("broken", "seen"),
        ("broken", "it had not come to an end after 0 s"),
        ("broken", "KeyError: 'mine'"),
        ("not possible", "no such thing"),
        ("holds", ""),
    ]
    assert heard == [each.name for each in outcomes]


def test_every_check_says_what_it_promises() -> None:
    assert len(BY_NAME) == len(CHECKS) > 40
    for check in CHECKS:
        assert check.promise.endswith("."), check.name
        assert "\n" not in check.promise, check.name


def conformance(*arguments: str) -> Finished:
    """The command as somebody calls it who has an adapter in a folder of their own."""
    return spawn("conformance", *arguments, PYTHONPATH=os.pathsep.join((ENVIRONMENT["PYTHONPATH"], OURS)))


def test_an_adapter_from_elsewhere_is_tried_by_name() -> None:
    ended = conformance("broken_logs:SoundTrial", "--only", "in-order", "--seed", "5", "-o", "json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert (told["seed"], told["holds"]) == (5, True)
    assert [(each["name"], each["verdict"]) for each in told["checks"]] == [("in-order", "holds")]


def test_a_broken_adapter_from_elsewhere_ends_with_1_and_says_how_to_see_it_again() -> None:
    ended = conformance("broken_logs:UnfencedTrial", "--only", "never-held", "--only", "one-holder")
    assert ended.code == 1
    assert "1 holds, 1 broken, 0 not possible" in ended.out
    assert "--only never-held" in ended.out.splitlines()[-1]
    assert "--seed " in ended.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rediss"], "names no trial"),
        (["nowhere_to_be_found:Trial"], "cannot be imported"),
        (["broken_logs:Missing"], "has no class Missing"),
        (["broken_logs:__doc__"], "has no class __doc__"),
        (["broken_logs:Greedy"], "without arguments"),
        (["redis", "--only", "nothing"], "there is no check 'nothing'"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    ended = conformance(*arguments)
    assert ended.is_refusal(words), ended.err
