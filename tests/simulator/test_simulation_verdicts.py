"""No run is left out: what is judged in every run, what nobody can promise, what happened, and what went round."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs
from simulation_support import example

from isthmus.core.ids import MILLISECOND, SECOND
from isthmus.core.wire.join import Epoch, Open
from isthmus.join.export import Export
from isthmus.lab.mutants.catalogue import committed
from isthmus.lab.soak import run_chunk, soak
from isthmus.lab.standard import standard_join
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.quorum import is_quorum
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.checks.causes import CAUSES, Causes
from isthmus.simulator.checks.holders import Unpromised, crashed_in, what_is_missing
from isthmus.simulator.checks.links import FEW_EPOCHS, MOST_EPOCHS, QUIET, EpochWatch, TooManyEpochs
from isthmus.simulator.checks.sometimes import CASES, FAULTS
from isthmus.simulator.systems.table import OFTEN, asked_for, never_happened
from isthmus.topology.file import parse
from isthmus.trace.schema import Event, EventName, Role

FINDINGS = Path(__file__).parents[1] / "findings"

LAST_GATEWAYS = standard_join("last gateways")
"""Two systems with one gateway each, and one crash in each."""


def finding(name: str) -> tuple[str, str]:
    path = FINDINGS / f"{name}.toml"
    return path.read_text(), str(path.relative_to(FINDINGS.parents[1]))


# What happened


def test_the_last_gateway_is_taken_like_any_other_process() -> None:
    outcomes = run_chunk(LAST_GATEWAYS, range(1, 21))
    faults = sum((Counter(outcome.faults) for outcome in outcomes), Counter())
    assert faults["crash"] >= 30
    assert faults["last gateway gone"] >= faults["gateway crashed"] > 5
    assert never_happened(faults, len(outcomes), parse(*LAST_GATEWAYS)) == []
    hit = [outcome for outcome in outcomes if "last gateway gone" in outcome.faults]
    assert all(not outcome.failed or "lost-quorum" in outcome.causes for outcome in hit), "it is replaced"


def test_a_nemesis_that_spares_the_last_gateway_is_found_by_the_count_of_faults() -> None:
    with committed("last-gateway-spared"):
        *_, (tally,) = soak([LAST_GATEWAYS], 1, 31, jobs=1)
    assert tally.sometimes["crash"] > 30
    assert tally.never_happened() == ["gateway crashed", "last gateway gone"]
    assert tally.failed


def test_what_a_file_asks_for_is_counted_on_as_often_as_it_is_drawn() -> None:
    topology = parse(LAST_GATEWAYS[0].replace("crashes = 1", "crashes = 3, link-cuts = 2, swarm = true"), "two")
    assert asked_for(topology) == pytest.approx(
        {"crash": 2.0, "link cut": 0.75, "gateway crashed": 2 / 3, "last gateway gone": 2 / 3}
    )
    assert never_happened({}, OFTEN // 2, topology) == ["crash"]
    assert never_happened({"crash": 1}, OFTEN // 2, topology) == []


def test_every_fault_is_a_case() -> None:
    assert set(FAULTS) <= set(CASES)


# What went round


def test_a_duel_of_leaders_over_links_without_delay_ends_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that answers every word of a later epoch, though its view is over, goes on for ever."""
    monkeypatch.setattr(Export, "on_behind", lambda self, epoch, now, out: self.renew(now, out))
    outcome = run_seed(finding("leaders-duel-at-once"), 21)
    assert outcome.stuck.startswith("went round at ")
    assert "epochs within a virtual second, opened by 2 of its gateways" in outcome.stuck
    assert list(outcome.causes) == ["leaders-duel"]


def test_a_world_in_which_time_does_not_pass_says_what_went_round(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = GroupMember.receive

    def echo(self: GroupMember, source: int, pdus: list[object], now: int, out: object) -> None:
        receive(self, source, pdus, now, out)  # type: ignore[arg-type]
        if source != self.id:
            out.sends.append(((source,), pdus[0]))  # type: ignore[attr-defined]

    monkeypatch.setattr(GroupMember, "receive", echo)
    text, file = example("causal-group")
    outcome = run_seed((text.replace('delay = { mean = "2ms" }', 'delay = "0ms"'), file), 1)
    assert outcome.failed[-1] == "stuck"
    assert "steps within a virtual millisecond, at the end of them site/p" in outcome.stuck
    assert " echo " in outcome.stuck


def test_epochs_are_too_many_when_they_follow_each_other_in_a_second_and_two_openers_are_a_duel() -> None:
    for slots, cause in (((7,), "epoch-livelock"), ((7, 9), "leaders-duel")):
        causes = Causes()
        watch = EpochWatch([0], causes)
        for number in range(MOST_EPOCHS):
            watch.sent(0, 0, Open(Epoch(1, number, slots[number % len(slots)])), number * MILLISECOND)
        with pytest.raises(TooManyEpochs, match=f"join 0 began {MOST_EPOCHS + 1} epochs within a virtual second"):
            watch.sent(0, 0, Open(Epoch(1, MOST_EPOCHS, slots[0])), MOST_EPOCHS * MILLISECOND)
        assert list(causes) == [cause]


def test_as_many_epochs_in_a_longer_time_are_fine() -> None:
    watch = EpochWatch([0], causes := Causes())
    for number in range(3 * MOST_EPOCHS):
        watch.sent(0, 0, Open(Epoch(1, number, 0)), number * 10 * MILLISECOND)
    assert not causes


def test_epochs_that_begin_when_all_is_over_are_a_livelock_unless_somebody_comes_or_goes() -> None:
    for disturbed in (False, True):
        watch = EpochWatch([0], causes := Causes())
        watch.settle(0)
        for number in range(FEW_EPOCHS + 1):
            now = QUIET + number * SECOND
            watch.sent(0, 0, Open(Epoch(1, number, 0)), now)
            if disturbed:
                watch.disturb(now)
        assert list(causes) == ([] if disturbed else ["epoch-livelock"])


def test_a_misspelt_cause_is_an_error() -> None:
    with pytest.raises(KeyError):
        Causes().note("bad-luck", "it rained")
    assert all(CAUSES.values())


def test_a_fault_that_falls_when_nobody_is_in_a_view_does_no_harm_to_the_run() -> None:
    """Once the nemesis looked for the latest view of a site that had just died, and there was none."""
    for seed in (52, 102, 174, 186):
        assert not run_seed(finding("death-before-a-view"), seed).broken


# What nobody can promise


def row(
    where: str, event: EventName, message: str | None = None, *, role: Role = "app", destinations: str = ""
) -> Event:
    system, _, process = where.partition("/")
    origin = message.split("/") if message else [None, None, None]
    return Event(
        run="r",
        system=system,
        process=process,
        role=role,
        index=0,
        event=event,
        origin_system=origin[0],
        origin_process=origin[1],
        origin_seq=int(origin[2]) if origin[2] else None,
        destinations=tuple(destinations.split()) if destinations else None,
        peer="1" if event == "view" else None,
        time_ns=0,
    )


def numbered(rows: list[Event]) -> list[Event]:
    return [structs.replace(each, index=index) for index, each in enumerate(rows)]


def log(where: str, *events: tuple[EventName, str | None], end: EventName = "end", role: Role = "app") -> list[Event]:
    inner = [row(where, *each, role=role) for each in events]
    return numbered([row(where, "start", role=role), *inner, row(where, end, role=role)])


def missing(
    *logs: list[Event], promise: str = "causal", journals: str = "", crashed: str = ""
) -> tuple[Unpromised, bool]:
    rows = [each for some in logs for each in some]
    return what_is_missing(
        rows, journals=journals.split(), promises={"r": promise}, crashed=crashed.split(), enough={"u": is_quorum}
    )


DEAD_SENDER = log("a/p", ("send", "a/p/1"), end="crash")
DEAD_WITNESS = log("a/q", ("deliver", "a/p/1"), end="crash")
EMPTY = log("a/r")


def test_a_message_all_of_whose_holders_are_gone_is_lost_and_no_violation() -> None:
    assert missing(DEAD_SENDER, DEAD_WITNESS, EMPTY) == (Unpromised(lost=1), False)


@pytest.mark.parametrize("event", ["deliver", "hold", "receive", "accept", "transfer"])
def test_who_had_it_in_any_way_and_lives_holds_it(event: EventName) -> None:
    holder = log("b/g", (event, "a/p/1"), role="gateway")
    assert missing(DEAD_SENDER, DEAD_WITNESS, EMPTY, holder) == (Unpromised(), True)
    gone = log("b/g", (event, "a/p/1"), role="gateway", end="leave")
    assert missing(DEAD_SENDER, DEAD_WITNESS, EMPTY, gone) == (Unpromised(lost=1), False)


def test_what_a_gateway_wrote_into_its_journal_is_not_lost() -> None:
    dead = log("b/g", ("accept", "a/p/1"), role="gateway", end="crash")
    assert missing(DEAD_SENDER, DEAD_WITNESS, EMPTY, dead, journals="b") == (Unpromised(), True)


def test_what_follows_a_lost_message_cannot_be_delivered_either() -> None:
    sender = log("a/p", ("send", "a/p/1"), ("send", "a/p/2"), end="crash")
    witness = log("a/q", ("deliver", "a/p/1"), end="crash")
    holder = log("a/s", ("hold", "a/p/2"))
    also = log("a/t", ("deliver", "a/p/2"), end="crash")
    found = missing(sender, witness, also, holder)
    assert found == (Unpromised(lost=1, following=1), False)


def test_by_fifo_only_messages_of_the_same_sender_follow() -> None:
    sender = log("a/p", ("send", "a/p/1"), end="crash")
    witness = log("a/q", ("deliver", "a/p/1"), ("send", "a/q/1"), end="crash")
    holder = log("a/s", ("hold", "a/q/1"))
    also = log("a/t", ("deliver", "a/q/1"), end="crash")
    assert missing(sender, witness, also, holder) == (Unpromised(lost=1, following=1), False)
    assert missing(sender, witness, also, holder, promise="fifo") == (Unpromised(lost=1), True)


def test_who_delivers_what_too_few_hold_has_given_it_away() -> None:
    """A quorum of the view has to hold it first; then it is lost with them, and that is no violation."""
    sender = log("u/p", ("send", "u/p/1"), end="crash")
    for members, found in (("u/p u/q u/r", (Unpromised(lost=1), False)), ("u/r u/q u/p u/s", (Unpromised(), True))):
        view = row("u/q", "view", destinations=members)
        deliverer = numbered([row("u/q", "start"), view, row("u/q", "deliver", "u/p/1"), row("u/q", "crash")])
        assert missing(sender, deliverer, log("u/r")) == found


def test_who_leaves_in_good_order_loses_nothing() -> None:
    assert missing(log("a/p", ("send", "a/p/1"), end="leave"), EMPTY) == (Unpromised(), True)


def test_where_nothing_is_promised_after_a_crash_what_is_missing_is_counted() -> None:
    living = log("a/p", ("send", "a/p/1"))
    relay = log("a/q", end="crash")
    rows = [*living, *relay, *EMPTY]
    assert crashed_in(rows, ["a", "b"]) == {"a"}
    assert crashed_in(rows, ["b"]) == set()
    assert missing(living, relay, EMPTY) == (Unpromised(), True)
    assert missing(living, relay, EMPTY, crashed="a") == (Unpromised(after_crash=1), False)
