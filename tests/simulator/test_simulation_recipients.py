"""Daisies whose local groups send to recipients only: within the resilience nothing is lost, whoever crashes."""

from __future__ import annotations

from known_holes import news

from isthmus.lab.standard import standard
from isthmus.simulator.campaign import run_seed
from isthmus.simulator.run import Run
from isthmus.topology.file import parse

ONE_GROUP = """
[systems.shop]
kind = "embedded"
order = "causal"
heartbeat = "10ms"
suspect-after = "60ms"
processes = ["a1", "a2", "a3", "a4", "a5"]
[systems.shop.daisy]
inside = "recipients"
resilience = 2
[simulation]
duration = "300ms"
workload = { rate = 20, size = [16, 32], burst = 3, reply = 0.2, reply-depth = 5 }
network = { delay = { mean = "2ms" }, loss = 0.1, duplication = 0.05, reordering = 0.1 }
faults = { crashes = 2, partitions = 2, slow = 1 }
"""
"""Three hold a message; two may go at a time, also while a view of the others is not in force yet."""


def test_two_of_five_go_at_a_time_and_nothing_goes_with_them() -> None:
    """ "in order to be able to survive k failures" (daisy, Sect. 3.4)"""
    outcomes = [run_seed((ONE_GROUP, "five"), seed) for seed in range(1, 13)]
    assert not news(outcomes)
    reached = {case for each in outcomes for case in each.sometimes}
    assert {"crash", "view change", "exclusion", "held to be safe", "gap"} <= reached


def test_servers_crash_one_after_the_other_and_the_next_has_what_their_group_kept() -> None:
    outcomes = [run_seed(standard("recipients daisy", "causal"), seed) for seed in (1, 2)]
    assert not news(outcomes)
    reached = {case for each in outcomes for case in each.sometimes}
    assert {"server crashed", "crash inside a multicast", "view change", "relay", "held for a cause"} <= reached


def test_what_members_tell_each_other_in_a_flush_is_not_in_the_trace() -> None:
    run = Run(parse(ONE_GROUP, "five"), 1)
    assert "view change" in run.play().sometimes
    assert all(row.origin_seq for row in run.sink.events if row.event in ("hold", "deliver"))


def test_below_hyper_servers_too() -> None:
    text, name = standard("deep daisy", "causal")
    text = f'{text}[systems.shop.daisy]\ninside = "recipients"\n'
    assert not news([run_seed((text, name), 1)])
