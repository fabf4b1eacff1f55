"""Daisies in the simulator: causal order, exactly once and nothing lost, whoever crashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_holes import news
from simulation_support import example, together

from isthmus.core.endpoint import Outbox
from isthmus.core.message import Batch
from isthmus.core.wire.daisy import DaisyFrame
from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.lab.soak import DAISIES
from isthmus.lab.standard import standard, standard_daisy
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.run import Run, promised
from isthmus.simulator.systems.table import expected
from isthmus.topology.file import parse

SEEDS = (1, 2)


@pytest.mark.parametrize("name", DAISIES)
def test_no_run_of_a_sample_breaks_a_promise(name: str) -> None:
    source = example(name)
    topology = parse(*source)
    outcomes = [run_seed(source, seed) for seed in SEEDS]
    assert not news(outcomes, f"isthmus simulate {source[1]}")
    for outcome in outcomes:
        assert outcome.deliveries
        assert {each.property for each in outcome.report.verdicts} == set(promised(topology))


@pytest.mark.parametrize("name", [each for each in DAISIES if each != "daisy-joined"])
def test_no_run_of_messages_that_go_together_breaks_a_promise(name: str) -> None:
    """Whole runs through crashes and flushes; where everybody is meant, bursts are runs in any case."""
    outcomes = [run_seed(together(name, 6), seed) for seed in SEEDS]
    assert not news(outcomes)
    assert all(outcome.deliveries for outcome in outcomes)


def test_servers_crash_one_after_the_other_and_nothing_is_lost() -> None:
    """daisy, Theorem 4.4: "Every message that is sent by a process that does not crash is delivered to all its
    recipients that do not crash." """
    outcomes = [run_seed(standard("daisy", "causal"), seed) for seed in (1, 2)]
    assert not news(outcomes)
    reached = {case for outcome in outcomes for case in outcome.sometimes}
    assert {"server crashed", "crash inside a multicast", "view change", "relay", "loss", "reordering"} <= reached


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    topology = parse(*example("daisy-two-levels"))
    for directory in ("one", "two"):
        Run(topology, 5, trace=tmp_path / directory).play()
    one, two = (sorted((tmp_path / each).iterdir()) for each in ("one", "two"))
    assert [file.name for file in one] == [file.name for file in two]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


def test_a_message_is_seen_only_where_somebody_is_to_have_it() -> None:
    """daisy, Sect. 3.1: a server multicasts in its local group "if some of the intended recipients of this message
    belong to its local group"."""
    run = Run(parse(*example("daisy-two-levels")), 1)
    run.play()
    sent = {(row.origin_process, row.origin_seq): row.destinations for row in run.sink.events if row.event == "send"}
    delivered = [row for row in run.sink.events if row.event == "deliver"]
    assert delivered
    for row in delivered:
        destinations = sent[row.origin_process, row.origin_seq]
        assert destinations is not None
        assert f"shop/{row.process}" in destinations
    for row in run.sink.events:
        # Held, relayed or delivered in a group: then somebody of that group sent it or is to have it.
        if row.event in ("hold", "deliver") and row.origin_process is not None and row.process[1] != "1":
            group = row.process[0]
            meant = sent[row.origin_process, row.origin_seq] or ()
            assert row.origin_process[0] == group or any(each.startswith(f"shop/{group}") for each in meant)


def test_in_a_star_only_the_server_multicasts_and_headers_are_one_number() -> None:
    """daisy, Sect. 3.4: point-to-point to the server, "only a single integer to be added to each message"."""
    tree = tree_of(DaisyTable(processes=("a", "b", "c"), options=DaisyOptions(star=True)), ("a", "b", "c").index)
    processes = [DaisyProcess(each, tree) for each in range(3)]
    out = Outbox()
    processes[2].send((1,), [b"through the server"], 0, out)
    (((server,), offer),) = out.sends
    assert (server, type(offer)) == (0, DaisyFrame)
    batches: list[Batch] = []
    under_way = [(2, server, offer)]
    delivered: list[tuple[int, bytes]] = []
    while under_way:
        source, target, frame = under_way.pop(0)
        assert isinstance(frame, DaisyFrame)
        if isinstance(frame.pdu, Batch) and frame.pdu.segment:
            batches.append(frame.pdu)
        answer = Outbox()
        processes[target].receive(source, [frame], 0, answer)
        delivered += [(target, each.run.segment.data) for each in answer.addressed]
        under_way += [(target, each, pdu) for destinations, pdu in answer.sends for each in destinations]
    assert delivered == [(1, b"through the server")]
    assert [(batch.sender, batch.stamp) for batch in batches] == [(0, []), (0, [])]


def test_servers_of_stars_crash_one_after_the_other_and_nothing_is_lost() -> None:
    outcomes = [run_seed(standard("star daisy", "causal"), seed) for seed in (1, 2, 3)]
    assert not news(outcomes)
    assert any("server crashed" in outcome.sometimes for outcome in outcomes)


@pytest.mark.parametrize("deep", [False, True], ids=["two levels", "three levels"])
def test_servers_that_forward_on_receipt_crash_and_nothing_is_lost_or_out_of_order(deep: bool) -> None:
    outcomes = [run_seed(standard_daisy(deep, 'forward = "on-receipt"'), seed) for seed in (5, 6)]
    assert not news(outcomes)
    assert any("server crashed" in outcome.sometimes for outcome in outcomes)


def test_a_campaign_over_small_local_groups_does_not_wait_for_what_cannot_happen_in_them() -> None:
    """With three members, a second failure while the first is being dealt with takes the quorum: nothing follows."""
    text, file = example("daisy-two-levels")
    cases = set(expected(parse(text, file)))
    assert {"server crashed", "crash in a flush of servers", "view change"} <= cases
    assert not {"crash in a view change", "coordinators competed", "proposal taken over"} & cases


def test_servers_that_were_taken_for_dead_at_once_have_no_say() -> None:
    """Two of them had each formed a view with the successor of the other, and an effect came in before its cause."""
    outcome = run_seed(example("daisy-three-levels"), 100437)
    assert not outcome.violated, outcome.reasons


def test_a_group_that_has_lost_its_quorum_fails_its_run_and_is_named_as_the_cause() -> None:
    outcome = run_seed(example("daisy-two-levels"), 2)
    assert outcome.failed == ("agreement", "stuck")
    assert outcome.causes == {"lost-quorum": "group b of shop has lost its quorum"}
    assert outcome.faults["quorum lost"] == 1


@pytest.mark.parametrize("option", ["star = true", 'forward = "on-receipt"'])
def test_a_daisy_that_broadcasts_is_judged_like_a_group(option: str) -> None:
    """Servers crash; messages are for everybody, and views of local groups are virtually synchronous."""
    outcome = run_seed(standard_daisy(False, f'audience = "everybody"\n{option}'), 1)
    assert not news([outcome])
    assert "same-view" in {each.property for each in outcome.report.verdicts}
    assert outcome.sometimes["server crashed"]


def test_a_crash_just_before_a_change_and_one_in_it_do_not_come_together() -> None:
    """Both would count against the quorum of the group before the change (docs/design/daisy-changes.md, "Model")."""
    outcome = run_seed(example("daisy-changing"), 400269)
    assert not outcome.violated, outcome.reasons
