"""The tap of a log: every entry is one row, in its order, through kills, with what it said; and the audit judges it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from log_sites import Logs, logs
from memory_log import MemoryLog

from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import Entry, LogProblem
from isthmus.runtime.log.outside import opened
from isthmus.runtime.log.place import place_of
from isthmus.runtime.log.tap import Keep, Row, Tap
from isthmus.runtime.problems import RuntimeProblem
from isthmus.trace.oracles import judge
from isthmus.trace.reader import read_trace

QUIET = 0.3


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def tapped(
    made: Logs,
    directory: Path,
    name: str = "b",
    keep: Keep = "body",
    start: str = "start",
    log: Callable[..., MemoryLog] = MemoryLog,
    end: bool = False,
) -> list[Row]:
    """Run a tap until nothing comes any more; all rows that are in its file then."""
    place = place_of(made.topology, made.topology.system(name))
    async with opened(place, log(made.brokers[name])) as outside:
        await Tap(outside, "run", "tap", directory, keep, start).run(asyncio.Event(), QUIET, end=end)
    return rows(directory, name)


def rows(directory: Path, name: str = "b") -> list[Row]:
    return msgspec.json.decode(
        b"[" + b",".join((directory / f"run.{name}.tap.jsonl").read_bytes().splitlines()) + b"]", type=list[Row]
    )


def seen(found: list[Row]) -> list[tuple[str, int, str | None]]:
    assert [row.index for row in found] == list(range(len(found)))
    return [(f"{row.origin_system}", row.origin_seq or 0, row.payload) for row in found if row.event == "deliver"]


def test_every_entry_is_one_row_in_the_order_of_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            for number in range(100):
                made.brokers["a"].write(b"a %d" % number)
                made.brokers["b"].write(b"b %d" % number)
            await made.until(lambda: len(made.brokers["b"].entries) == 200)
            found = seen(await tapped(made, tmp_path))
            assert [payload for _, _, payload in found] == [body.decode() for body in made.brokers["b"].bodies()]
            for name in "ab":
                assert [seq for system, seq, _ in found if system == name] == list(range(1, 101))
            assert len(await tapped(made, tmp_path)) == 201, "it goes on behind what it has seen"

    run(test())


class Died(Exception):
    """As `kill -9`."""


def test_a_tap_that_is_killed_anywhere_goes_on_without_a_gap_or_a_repeat(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            for turn in range(8):
                for number in range(40):
                    made.brokers["a"].write(b"a %d" % (40 * turn + number))
                    made.brokers["b"].write(b"b %d" % (40 * turn + number))
                await made.until(lambda: len(made.brokers["b"].entries) == 80 * (turn + 1))  # noqa: B023
                await tapped(made, tmp_path)
                # Whoever was killed while it wrote has left the beginning of what it had to write.
                file = tmp_path / "run.b.tap.jsonl"
                whole = file.read_bytes()
                lines = whole.splitlines(keepends=True)
                kept = len(whole) - sum(map(len, lines[-20:])) + 50 * turn
                file.write_bytes(whole[:kept])
            found = seen(await tapped(made, tmp_path))
            assert [payload for _, _, payload in found] == [body.decode() for body in made.brokers["b"].bodies()]

    run(test())


def test_what_was_put_aside_has_its_place_and_says_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs(more='on-refusal = "park"\n') as made:
            made.start("a")
            made.start("b")
            made.brokers["b"].refuses = lambda entry: "it is ugly" if entry.content.body == b"ugly" else ""
            made.brokers["a"].write(b"one", b"ugly", b"two", b"ugly")
            await made.until(lambda: len(made.brokers["b"].parked) == 2)
            found = seen(await tapped(made, tmp_path))
            assert found == [("a", 1, "one"), ("a", 2, None), ("a", 3, "two"), ("a", 4, None)]

    run(test())


def test_headers_that_clients_copied_are_entries_of_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            made.brokers["a"].write(b"one")
            b = made.brokers["b"]
            await made.until(lambda: len(b.entries) == 1)
            b.put(b.entries[0]._replace(content=Content(body=b"copied")))
            assert seen(await tapped(made, tmp_path)) == [("a", 1, "one"), ("b", 1, "copied")]

    run(test())


def test_it_keeps_all_that_an_entry_has_where_that_is_wanted(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            whole = Content(body=b"\xff", headers=[(b"h", b"1")], subject="ship.x", key=b"k", time=7)
            made.brokers["a"].put(Entry(whole))
            await made.until(lambda: len(made.brokers["b"].entries) == 1)
            (row,) = seen(await tapped(made, tmp_path / "all", keep="all"))
            assert msgspec.json.decode(row[2] or "") == {
                "body": "base64:/w==",
                "headers": [["h", "1"]],
                "subject": "ship.x",
                "key": "k",
                "time": 7,
            }
            assert seen(await tapped(made, tmp_path / "trace", keep="nothing")) == [("a", 1, None)]

    run(test())


def test_who_begins_now_counts_as_the_gateway_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs() as made:
            host = made.start("a")
            made.start("b")
            made.brokers["a"].write(*(b"%d" % number for number in range(10)))
            await made.until(lambda: len(made.brokers["b"].entries) == 10)
            await made.stop(host)
            made.start("a")
            found = await tapped(made, tmp_path, "a", start="")
            assert found[0].event == "join"
            made.brokers["a"].write(b"new")
            await made.until(lambda: len(made.brokers["b"].entries) == 11)
            assert seen(await tapped(made, tmp_path, "a"))[-1] == ("a", 11, "new")

    run(test())


def test_who_cannot_count_from_the_beginning_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs() as made:
            host = made.start("a")
            made.start("b")
            made.brokers["a"].write(*(b"%d" % number for number in range(10)))
            await made.until(lambda: len(made.brokers["b"].entries) == 10)
            await made.stop(host)
            made.brokers["a"].trim(4)
            with pytest.raises(LogProblem, match=r"a: the oldest entries .* are gone.*--from now"):
                await tapped(made, tmp_path, "a")
            made.brokers["a"].write(b"one more")
            with pytest.raises(LogProblem, match=r"a: the oldest entries .* are gone.*--from now"):
                await tapped(made, tmp_path, "a")
            assert seen(await tapped(made, tmp_path, "a", start="")) == [("a", 11, "one more")]

    run(test())


def test_a_tap_that_ended_or_is_written_by_another_is_not_continued(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs() as made:
            made.start("a")
            made.start("b")
            made.brokers["a"].write(b"one")
            await made.until(lambda: len(made.brokers["b"].entries) == 1)
            first = asyncio.ensure_future(tapped(made, tmp_path, end=True))
            await made.until((tmp_path / "run.b.tap.jsonl").exists)
            with pytest.raises(RuntimeProblem, match="another tap writes it"):
                await tapped(made, tmp_path)
            assert (await first)[-1].event == "end"
            with pytest.raises(RuntimeProblem, match="has ended"):
                await tapped(made, tmp_path)
            file = tmp_path / "run.a.tap.jsonl"
            row = msgspec.structs.replace((await first)[1], note=None)
            file.write_bytes(msgspec.json.encode(row) + b"\n")
            with pytest.raises(RuntimeProblem, match="no tap has written this"):
                await tapped(made, tmp_path, "a")

    run(test())


def test_the_audit_judges_logs_and_taps(tmp_path: Path) -> None:
    async def test() -> None:
        async with logs("abc", trace=tmp_path) as made:
            hosts = {name: made.start(name) for name in "abc"}
            for number in range(60):
                made.brokers["abc"[number % 3]].write(b"%d" % number)
            await made.until(lambda: all(len(broker.entries) == 60 for broker in made.brokers.values()))
            for name in "abc":
                await tapped(made, tmp_path, name, end=True)
            for host in hosts.values():
                await made.stop(host)

    run(test())
    report = judge(event for log in read_trace([tmp_path]).logs.values() for event in log.events)
    verdicts = {each.property: each.verdict for each in report.verdicts}
    # What two logs have of clients who knew nothing of each other may stand in any order.
    assert [verdicts[each] for each in ("integrity", "agreement", "fifo", "causal")] == ["holds"] * 4, report.violations


@pytest.mark.parametrize(("mistake", "broken"), [("swapped", "fifo"), ("dropped", "agreement"), ("again", "integrity")])
def test_the_audit_finds_a_mistake_that_is_made_by_hand(tmp_path: Path, mistake: str, broken: str) -> None:
    async def test() -> None:
        async with logs("ab", trace=tmp_path) as made:
            hosts = {name: made.start(name) for name in "ab"}
            made.brokers["a"].write(*(b"%d" % number for number in range(20)))
            await made.until(lambda: len(made.brokers["b"].entries) == 20)
            await tapped(made, tmp_path, "b", end=True)
            for host in hosts.values():
                await made.stop(host)

    run(test())
    file = tmp_path / "run.b.tap.jsonl"
    found = rows(tmp_path)
    said = [(row.origin_system, row.origin_process, row.origin_seq) for row in found]
    if mistake == "swapped":
        said[7], said[8] = said[8], said[7]
    elif mistake == "dropped":
        del said[7]
    else:
        said.insert(8, said[7])
    kinds = ["start"] + ["deliver"] * (len(said) - 2) + ["end"]
    file.write_bytes(
        b"".join(
            msgspec.json.encode(
                msgspec.structs.replace(
                    found[0], index=index, event=event, origin_system=a, origin_process=b, origin_seq=seq, note=None
                )
            )
            + b"\n"
            for index, (event, (a, b, seq)) in enumerate(zip(kinds, said, strict=True))
        )
    )
    report = judge(event for log in read_trace([tmp_path]).logs.values() for event in log.events)
    assert broken in {each.property for each in report.verdicts if each.verdict == "violated"}
