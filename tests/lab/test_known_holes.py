"""The list of known holes can only shrink: every entry still fails as it says, and explains nothing but that."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_holes import HOLES, ROOT

from isthmus.lab.holes import FAILURES, Hole, Holes, HolesError, load_holes
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.checks.causes import CAUSES

MENDED = (
    "epoch-livelock-fifo",
    "epoch-livelock-sets",
    "epoch-livelock-striped",
    "flush-swamps-lines",
    "full-logs",
    "gateway-without-a-join",
    "last-gateway-replaced",
    "last-keeper",
    "leaders-duel",
    "leaders-duel-at-once",
    "repeats-swamp-lines",
)

QUORUM = Hole("a.toml", (1, 2), ("agreement", "stuck"), "lost-quorum", "It stands still.")
LINK = Hole("b.toml", (1, 2), ("stable",), "last-link", "It forgets.")


@pytest.mark.parametrize("hole", HOLES.entries, ids=lambda hole: f"{Path(hole.topology).stem} {hole.cause}")
def test_an_entry_still_fails_by_its_cause_in_every_way_that_it_says(hole: Hole) -> None:
    open_yet = set(hole.properties)
    for seed in hole.range():
        outcome = run_seed(hole.played(ROOT), seed)
        if hole.cause in outcome.causes:
            open_yet -= set(outcome.failed)
        if not open_yet:
            return
    pytest.fail(
        f"{hole.topology}: no seed of {hole.seeds[0]}..{hole.seeds[1]} fails by {hole.cause} in {sorted(open_yet)}: "
        "if the hole is mended, remove the entry; if schedules have moved, find other seeds"
    )


def test_order_is_never_excused() -> None:
    """Whatever is lost or stands still, nothing comes out of nowhere, twice or in a wrong order."""
    assert {each for hole in HOLES.entries for each in hole.properties} <= {"agreement", "stuck", "stable"}


@pytest.mark.parametrize("finding", MENDED)
def test_what_is_mended_stays_so(finding: str) -> None:
    """Files that were on the list: of their first seeds none fails, unless by a hole that is still there."""
    path = ROOT / "tests" / "findings" / f"{finding}.toml"
    source = (path.read_text(encoding="utf-8"), str(path))
    for seed in range(1, 9):
        outcome = run_seed(source, seed)
        assert not outcome.failed or HOLES.explain(outcome.failed, outcome.causes), (
            seed,
            outcome.failed,
            outcome.stuck,
        )


def test_every_cause_has_an_entry_and_every_entry_a_reason() -> None:
    assert {hole.cause for hole in HOLES.entries} <= set(CAUSES)
    assert all(hole.reason.endswith(".") for hole in HOLES.entries)


@pytest.mark.parametrize(
    ("failed", "causes", "cause"),
    [
        (("stuck",), ["lost-quorum"], "lost-quorum"),
        (("agreement", "stuck"), ["last-link", "lost-quorum"], "lost-quorum"),
        (("agreement", "stable"), ["lost-quorum", "last-link"], "lost-quorum"),
        (("stable",), ["lost-quorum"], None),
        (("stuck", "causal"), ["lost-quorum"], None),
        (("stuck",), [], None),
        (("stuck",), ["epoch-livelock"], None),
        ((), ["lost-quorum"], None),
    ],
)
def test_a_run_is_known_if_its_causes_allow_all_that_is_wrong_with_it(
    failed: tuple[str, ...], causes: list[str], cause: str | None
) -> None:
    assert Holes((QUORUM, LINK)).explain(failed, causes) == cause


ENTRY = '[[hole]]\ntopology = "a.toml"\nseeds = [1, 2]\nproperties = ["stuck"]\ncause = "lost-quorum"\nreason = "So."\n'


def test_a_list_is_read_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "holes.toml"
    file.write_text(ENTRY)
    assert load_holes(file) == Holes((Hole("a.toml", (1, 2), ("stuck",), "lost-quorum", "So."),))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ENTRY.replace("lost-quorum", "bad-luck"), "there is no 'bad-luck'"),
        (ENTRY.replace('"stuck"', '"late"'), f"write some of {', '.join(FAILURES)}"),
        (ENTRY.replace('"stuck"', ""), "write some of"),
        (ENTRY.replace("seeds", "seed"), "write entries"),
        ("[[hole]", "write entries"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "holes.toml"
    file.write_text(text)
    with pytest.raises(HolesError) as refused:
        load_holes(file)
    assert words in str(refused.value)


def test_a_list_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HolesError, match="No such file"):
        load_holes(tmp_path / "nowhere.toml")
