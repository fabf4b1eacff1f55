"""The gateway of a log over real links, on logs in memory that keep every promise and can be told to make trouble."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import patience
import pytest
from log_sites import logs

from isthmus.core.ids import LIFE
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, LogProblem
from isthmus.simulator.run import promised_by
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def body(number: int) -> bytes:
    return b"%d" % number


def test_what_a_client_writes_stands_in_the_other_log_once_with_our_three_headers_and_no_loop() -> None:
    async def test() -> None:
        async with logs(links=2) as made:
            a, b = made.brokers["a"], made.brokers["b"]
            made.start("a")
            made.start("b")
            a.put(Entry(Content(body=b"first", headers=[(b"h", b"1"), (b"h", b"2")], key=b"k", time=7)))
            b.write(b"second")
            await made.until(lambda: len(a.entries) == len(b.entries) == 2)
            there = b.entries[-1] if b.entries[-1].origin else b.entries[0]
            assert there == Entry(a.entries[0].content, "a/orders", 1, "a,b")
            for number in range(500):
                a.write(body(number))
            await made.until(lambda: len(b.entries) == 502)
            assert len(a.entries) == 502, "nothing came back"

    run(test())


def test_an_answer_stands_behind_what_it_answers() -> None:
    async def test() -> None:
        async with logs("abc", links=3) as made:
            for name in "abc":
                made.start(name)
            for number in range(50):
                made.brokers["a"].write(b"question %d" % number)
                await made.until(lambda: b"question %d" % number in made.brokers["b"].bodies())  # noqa: B023
                made.brokers["b"].write(b"answer %d" % number)
            for name in "abc":
                await made.until(lambda name=name: len(made.brokers[name].entries) == 100)  # type: ignore[misc]
                order = made.brokers[name].bodies()
                for number in range(50):
                    assert order.index(b"question %d" % number) < order.index(b"answer %d" % number)

    run(test())


def test_gateways_that_die_at_any_moment_are_replaced_and_nothing_is_lost_or_twice() -> None:
    async def test() -> None:
        async with logs(links=2) as made:
            hosts = {name: made.start(name) for name in "ab"}
            for turn in range(12):
                for number in range(100):
                    made.brokers["a"].write(body(100 * turn + number))
                    made.brokers["b"].write(body(100_000 + 100 * turn + number))
                victim = "ab"[turn % 2]
                made.brokers[victim].breaks = turn % 3 == 0
                wanted = 100 * (turn + 1) + 100 * turn + 37
                await made.until(lambda: len(made.brokers[victim].entries) >= wanted)  # noqa: B023
                await made.kill(hosts[victim])
                hosts[victim] = made.start(victim)
            await made.until(lambda: all(len(each.entries) >= 2400 for each in made.brokers.values()))
            for name, other in ("ab", "ba"):
                came = [entry.content.body for entry in made.brokers[name].entries if entry.origin]
                wrote = [entry.content.body for entry in made.brokers[other].entries if not entry.origin]
                assert came == wrote

    run(test())


def test_a_standby_takes_over_and_the_old_holder_that_comes_to_again_writes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with logs() as made:
            first = made.start("a")
            made.start("b")
            made.brokers["b"].write(b"one")
            await made.until(lambda: len(made.brokers["a"].entries) == 1)
            made.start("a")
            await made.until(lambda: "this one is a standby" in caplog.text)
            await made.kill(first)
            made.brokers["b"].write(b"two")
            await made.until(lambda: len(made.brokers["a"].entries) == 2)
            assert made.brokers["a"].state.token == 2
            # Its lease runs out while it does not get its turn; somebody else claims; then it goes on.
            made.brokers["a"].state = made.brokers["a"].state._replace(token=9)
            made.brokers["a"].lease_over = 0
            made.brokers["b"].write(b"three")
            await made.until(lambda: len(made.brokers["a"].entries) == 3)
            assert made.brokers["a"].bodies() == [b"one", b"two", b"three"]
            assert "another host has taken the claim" in caplog.text

    run(test())


def test_a_log_that_was_claimed_more_often_than_a_system_has_processes_in_a_life_still_carries_messages() -> None:
    async def test() -> None:
        async with logs() as made:
            made.brokers["a"].state = made.brokers["a"].state._replace(token=3 * LIFE)
            host = made.start("a")
            made.start("b")
            for turn in range(2):
                made.brokers["a"].write(b"one")
                made.brokers["b"].write(b"two")
                await made.until(lambda: all(len(each.entries) == 2 * turn + 2 for each in made.brokers.values()))  # noqa: B023
                await made.kill(host)
                host = made.start("a")

    run(test())


def test_a_broker_that_is_away_costs_time_and_no_message(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            made.brokers["a"].write(b"one")
            await made.until(lambda: len(made.brokers["b"].entries) == 1)
            made.brokers["b"].away = True
            for number in range(300):
                made.brokers["a"].write(body(number))
            await made.until(lambda: "b cannot be written" in caplog.text)
            made.brokers["b"].away = False
            await made.until(lambda: len(made.brokers["b"].entries) == 301)
            assert made.brokers["b"].bodies() == made.brokers["a"].bodies()
            assert caplog.text.count("b cannot be written") == 1

    run(test())


def test_nothing_is_carried_before_it_is_durable_so_a_crash_of_the_broker_takes_back_nothing_that_others_have() -> None:
    async def test() -> None:
        async with logs() as made:
            host = made.start("a")
            made.start("b")
            a, b = made.brokers["a"], made.brokers["b"]
            a.write(b"one")
            await made.until(lambda: len(b.entries) == 1)
            a.fill_disk()
            a.write(b"lost")
            driver = made.sites["a"].driver
            assert driver is not None
            await made.until(lambda: driver.messages_ahead == 1)
            await made.kill(host)
            a.crash()
            a.write(b"two", b"three")
            made.start("a")
            await made.until(lambda: b.bodies() == [b"one", b"two", b"three"])

    run(test())


def test_where_a_user_says_so_entries_are_carried_at_once() -> None:
    async def test() -> None:
        async with logs(more='carry = "at-once"\n') as made:
            made.start("a")
            made.start("b")
            made.brokers["a"].fill_disk()
            made.brokers["a"].write(b"one")
            await made.until(lambda: made.brokers["b"].bodies() == [b"one"])

    run(test())


def test_what_a_broker_loses_before_it_is_durable_is_brought_in_again() -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            a, b = made.brokers["a"], made.brokers["b"]
            a.write(b"one")
            await made.until(lambda: len(b.entries) == 1)
            b.fill_disk()
            a.write(b"two", b"three")
            await made.until(lambda: len(b.entries) == 3)
            b.crash()
            assert b.bodies() == [b"one"]
            await made.until(lambda: b.bodies() == [b"one", b"two", b"three"])
            assert a.bodies() == [b"one", b"two", b"three"]

    run(test())


def test_an_old_holder_takes_nothing_for_a_clients_that_its_successor_brought_in() -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            a, b = made.brokers["a"], made.brokers["b"]
            a.write(b"one")
            await made.until(lambda: len(b.entries) == 1)
            # Somebody else has claimed b and brought something in; the holder has not tried to write since.
            b.state = b.state._replace(token=7, record=b.state.record.replace(b'"a/orders",1', b'"a/orders",2'))
            b.put(Entry(Content(body=b"two"), "a/orders", 2, "a,b"))
            b.write(b"own")
            await made.until(lambda: made.sites["b"].driver.gateway.id >> 16 == 8)  # type: ignore[union-attr]
            a.write(b"two", b"three")  # of which b has the first already
            await made.until(lambda: b.bodies() == [b"one", b"two", b"own", b"three"])
            await made.until(lambda: b"own" in a.bodies())
            assert sorted(a.bodies()) == [b"one", b"own", b"three", b"two"]

    run(test())


def test_headers_that_clients_copy_do_no_harm() -> None:
    async def test() -> None:
        async with logs("abc") as made:
            for name in "abc":
                made.start(name)
            a, b, c = (made.brokers[name] for name in "abc")
            a.write(b"one")
            await made.until(lambda: len(c.entries) == 1)
            # From its own log, from another one, and made up.
            b.put(b.entries[0]._replace(content=Content(body=b"copied")))
            c.put(b.entries[0]._replace(content=Content(body=b"from b")))
            b.put(
                Entry(Content(body=b"made up"), "a/orders", 2, "a,b"), Entry(Content(body=b"nobody"), "x/y", 1, "x,b")
            )
            a.write(b"two")
            for log in (a, b, c):
                await made.until(lambda log=log: len(log.entries) == 6)  # type: ignore[misc]
                assert sorted(log.bodies()) == sorted([b"one", b"copied", b"from b", b"made up", b"nobody", b"two"])

    run(test())


def test_a_filter_lets_pass_what_it_names_under_new_names_and_keeps_everybody_in_order() -> None:
    flow = (
        '[joins.of.b]\ndeny = ["*"]\n[joins.of.c]\nallow = ["ship.*"]\ndeny = ["*.test"]\nmap = {"ship.*" = "far.*"}\n'
    )

    async def test() -> None:
        async with logs("abc", join=flow) as made:
            hosts = {name: made.start(name) for name in "abc"}
            a, b, c = (made.brokers[name] for name in "abc")
            c.put(*(Entry(Content(body=body(i), subject=("ship.x", "ship.test", "rest")[i % 3])) for i in range(300)))
            b.write(b"stays out of c, but reaches a")
            await made.until(lambda: len(a.entries) == 101)
            assert {entry.content.subject for entry in b.entries} == {"", "far.x"}
            came = [int(entry.content.body) for entry in a.entries if entry.origin == "c/orders"]
            assert came == list(range(0, 300, 3))
            await made.kill(hosts["b"])
            made.start("b")
            c.put(Entry(Content(body=b"last", subject="ship.y")))
            a.write(b"to everybody but c")
            await made.until(lambda: len(b.entries) == 103 and len(a.entries) == 103)
            # Everything is confirmed, what did not pass as well: nothing of it is read again.
            await made.until(lambda: made.sites["c"].driver.gateway.confirmed.total() >= 301)  # type: ignore[union-attr]
            assert c.bodies()[:-1] == [body(i) for i in range(300)]

    run(test())


@pytest.mark.parametrize("accepted", [False, True])
def test_a_log_that_was_trimmed_stops_the_join_until_the_loss_is_accepted(accepted: bool) -> None:
    async def test() -> None:
        async with logs() as made:
            first = made.start("a")
            made.start("b")
            a, b = made.brokers["a"], made.brokers["b"]
            a.write(b"one", b"two")
            await made.until(lambda: len(b.entries) == 2)
            await made.stop(first)
            a.write(b"lost", b"lost too", b"three")
            a.trim(1)
            again = made.start("a", accept_loss=accepted)
            if not accepted:
                await asyncio.wait((again,), timeout=patience.seconds(10))
                with pytest.raises(LogProblem, match=r"a: 2 entries are gone.*--accept-loss"):
                    again.result()
                made.hosts.remove(again)
                assert b.bodies() == [b"one", b"two"]
                return
            await made.until(lambda: len(b.entries) == 3)
            assert b.bodies() == [b"one", b"two", b"three"]
            assert b.entries[-1][1:4] == ("a/orders+1", 1, "a,b")
            b.write(b"answer")
            await made.until(lambda: len(a.entries) == 6)

    run(test())


def test_a_log_that_is_another_one_stops_the_join() -> None:
    async def test() -> None:
        async with logs() as made:
            host = made.start("a")
            made.start("b")
            made.brokers["a"].write(b"one")
            await made.until(lambda: len(made.brokers["b"].entries) == 1)
            made.brokers["a"].identity += 1
            await asyncio.wait((host,), timeout=patience.seconds(10))
            with pytest.raises(LogProblem, match="a: it is another log"):
                host.result()
            made.hosts.remove(host)

    run(test())


def test_more_than_a_broker_stores_in_one_step_goes_there_in_parts_also_around_what_it_refuses() -> None:
    async def test() -> None:
        async with logs(more='on-refusal = "park"\n') as made:
            a, b = made.brokers["a"], made.brokers["b"]
            b.most = 30
            b.refuses = lambda entry: "no" if entry.content.body in (b"45", b"46", b"199") else ""
            for number in range(400):
                a.write(body(number))
            b.breaks = 2
            made.start("a")
            made.start("b")
            await made.until(lambda: len(b.entries) == 397)
            assert b.bodies() == [body(number) for number in range(400) if number not in (45, 46, 199)]
            assert [entry.seq for entry, _ in b.parked] == [46, 47, 200]

    run(test())


@pytest.mark.parametrize("policy", ["stop", "park"])
def test_a_message_that_the_far_broker_never_takes_is_parked_or_stops_the_join(policy: str) -> None:
    async def test() -> None:
        async with logs("abc", more=f'on-refusal = "{policy}"\n') as made:
            hosts = {name: made.start(name) for name in "abc"}
            a, b, c = (made.brokers[name] for name in "abc")
            b.refuses = lambda entry: "it is ugly" if entry.content.body == b"ugly" else ""
            a.write(b"one", b"ugly", b"two")
            if policy == "stop":
                await asyncio.wait((hosts["b"],), timeout=patience.seconds(10))
                with pytest.raises(LogProblem, match=r"refuses message 2 of a/orders: it is ugly.*on-refusal"):
                    hosts["b"].result()
                made.hosts.remove(hosts["b"])
                return
            await made.until(lambda: len(b.entries) == 2)
            assert [(entry.content.body, entry.seq, reason) for entry, reason in b.parked] == [
                (b"ugly", 2, "it is ugly")
            ]
            await made.until(lambda: c.bodies() == [b"one", b"ugly", b"two"])
            await made.kill(hosts["b"])
            made.start("b")
            a.write(b"three")
            await made.until(lambda: c.bodies() == [b"one", b"ugly", b"two", b"three"])
            assert b.bodies() == [b"one", b"two", b"three"]

    run(test())


def test_the_trace_of_logs_goes_on_through_kills_and_holds(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs(trace=tmp_path) as made:
            hosts = {name: made.start(name) for name in "ab"}
            a, b = made.brokers["a"], made.brokers["b"]
            for turn in range(3):
                for number in range(50):
                    a.write(body(100 * turn + number))
                    b.write(body(1000 + 100 * turn + number))
                await made.until(lambda: len(a.entries) == len(b.entries) == 100 * (turn + 1))  # noqa: B023
                await made.kill(hosts["a"])
                hosts["a"] = made.start("a")
            await made.until(lambda: made.sites["a"].driver is not None)
            await made.until(lambda: made.sites["a"].driver.reading.marks.total() == 300)  # type: ignore[union-attr]
            for host in hosts.values():
                await made.stop(host)

    run(test())
    trace = read_trace([tmp_path])
    assert not trace.quarantined
    for name in "ab":
        log = next(log for log in trace.logs.values() if log.events[0].system == name and log.role == "app")
        assert [event.index for event in log.events] == list(range(452))
        assert [log.events[0].event, log.events[-1].event] == ["start", "end"]
        assert sum(event.event == "send" for event in log.events) == 150
        assert sum(event.event == "deliver" for event in log.events) == 300, "its own as well"
    report = judge(trace.events(), promised_by("causal", views=False))
    assert {verdict.verdict for verdict in report.verdicts} == {"holds"}
