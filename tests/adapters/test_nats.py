"""Logs on real NATS servers: what the suite for all adapters cannot know of JetStream."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import patience
import pytest

from isthmus.adapters.conformance import CHECKS, run_suite
from isthmus.adapters.conformance.room import bodies, foreign
from isthmus.adapters.nats import NatsLog
from isthmus.adapters.nats.messages import entry_of
from isthmus.lab.brokers.nats import NatsServer, NatsTrial
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    LogProblem,
    LogSettings,
    Position,
    Recreated,
    Refused,
    State,
    Superseded,
    TooMany,
    Trimmed,
    Unavailable,
)
from isthmus.runtime.loop import run

SEED = 20261118
MANY, MUCH = 1000, 1 << 20
Result = TypeVar("Result")


class Bench:
    """A server, and the logs that are open on it. Streams take `NAME.>` unless they are told otherwise."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.trial = NatsTrial(server)
        self.logs: list[NatsLog] = []

    async def stream(self, name: str = "orders", **more: Any) -> Mapping[str, Any]:
        settings = {"subjects": [f"{name}.>", f"isthmus.record.of-{name}"], "allow_atomic": True} | more
        answer = await self.trial.ask(f"STREAM.CREATE.{name}", name=name, **settings)
        assert "error" not in answer, answer
        return answer

    async def ask(self, what: str, **body: Any) -> Mapping[str, Any]:
        answer = await self.trial.ask(what, **body)
        assert "error" not in answer, answer
        return answer

    def settings(self, *names: str, **options: str) -> LogSettings:
        return LogSettings(
            system="valencia",
            provider="nats",
            url=options.pop("url", self.server.url),
            streams=names or ("orders",),
            state=f"of-{names[0] if names else 'orders'}",
            options={key.replace("_", "-"): value for key, value in options.items()},
        )

    def log(self, *names: str, **options: str) -> NatsLog:
        self.logs.append(NatsLog(self.settings(*names, **options)))
        return self.logs[-1]

    async def open(self, *names: str, **options: str) -> NatsLog:
        options.setdefault("default_subject", f"{names[0] if names else 'orders'}.in")
        log = self.log(*names, **options)
        await log.open()
        return log

    async def hold(self, *names: str, lease: float = 600.0, **options: str) -> tuple[NatsLog, State]:
        log = await self.open(*names, **options)
        state = await insist(log.claim, "tests", lease)
        assert state is not None
        return log, state

    async def write(self, *words: bytes, subject: str = "orders.x") -> None:
        await self.trial.write(self.settings(), [Content(word, [], subject) for word in words])

    async def stored(self, name: str = "orders") -> list[Entry]:
        return list(await self.trial.contents(self.settings(name)))


async def insist(call: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    while True:
        try:
            return await call(*arguments)
        except Unavailable:
            await asyncio.sleep(0.02)


async def read(log: NatsLog, count: int, after: Position = BEGINNING) -> tuple[list[Entry], Position]:
    found: list[Entry] = []
    while len(found) < count:
        some, after = await insist(log.read, after, MANY, MUCH)
        found += some
    return found, after


def lab(directory: Path, scene: Callable[[Bench], Coroutine[Any, Any, None]], **server: Sequence[str]) -> None:
    """Play this on a server of its own."""

    async def play() -> None:
        with NatsServer(directory / "server", **server) as running:
            bench = Bench(running)
            try:
                async with asyncio.timeout(patience.seconds(60)):
                    await scene(bench)
            finally:
                for log in bench.logs:
                    await log.close()

    run(play())


@pytest.mark.parametrize("part", range(4))
def test_nats_keeps_every_promise(part: int) -> None:
    outcomes = asyncio.run(run_suite(NatsTrial(), CHECKS[part::4], SEED))
    wrong = [f"{each.name}: {each.why}" for each in outcomes if each.verdict == "broken"]
    assert not wrong, "; ".join(wrong)
    assert {each.name for each in outcomes if each.verdict == "not possible"} <= {"lost-tail"}


# Settings -------------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_not_prepared_is_refused_with_the_command_that_prepares_it(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(subjects=["orders.>", "bills.*"], allow_atomic=False)
        with pytest.raises(LogProblem) as problem:
            await bench.open()
        command = str(problem.value).splitlines()[-1].strip()
        subjects = ["orders.>", "bills.*", "isthmus.record.of-orders"]
        assert command == f'nats stream edit orders --allow-batch --subjects="{",".join(subjects)}"'
        unchanged = (await bench.ask("STREAM.INFO.orders"))["config"]
        assert not unchanged.get("allow_atomic")
        await bench.ask("STREAM.UPDATE.orders", **unchanged | {"allow_atomic": True, "subjects": subjects})
        await bench.open()

    lab(tmp_path, scene)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retention": "workqueue"}, "its retention is workqueue"),
        ({"retention": "interest"}, "its retention is interest"),
        ({"mirror": {"name": "bills"}, "subjects": [], "allow_atomic": False}, "it is a mirror"),
        ({"no_ack": True, "allow_atomic": False}, "it has no_ack"),
        ({"subject_transform": {"src": ">", "dest": "x.>"}}, "it changes subjects"),
        ({"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}, "discard_new_per_subject"),
    ],
)
def test_a_stream_that_is_no_log_is_refused_in_words(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream("bills")
        await bench.stream(**settings)
        with pytest.raises(LogProblem, match=words):
            await bench.open()

    lab(tmp_path, scene)


def test_a_missing_stream_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream("bills")
        with pytest.raises(LogProblem, match="has no stream orders; there are bills"):
            await bench.open("orders")

    lab(tmp_path, scene)


def test_what_weakens_the_promises_is_said_when_a_log_is_opened(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(max_age=3600 * 10**9, max_msgs=1000, allow_msg_ttl=True)
        await bench.stream("bills", storage="memory", max_msgs_per_subject=3, max_bytes=10**6, discard="new")
        said = "\n".join(await bench.log("orders").open())
        for words in ("sync_interval", "for 60 minutes", "1,000 messages, and drops the oldest", "time to live"):
            assert words in said
        said = "\n".join(await bench.log("bills").open())
        for words in ("in memory", "keeps 3 messages of each subject", "1,000,000 bytes, and takes nothing"):
            assert words in said

    lab(tmp_path, scene)


def test_a_server_without_jetstream_is_refused_in_words(tmp_path: Path) -> None:
    class Bare(NatsServer):
        def command(self) -> Sequence[str]:
            binary, *_ = super().command()
            return [binary, "-a", "127.0.0.1", "-p", str(self.port)]

    async def scene() -> None:
        with Bare(tmp_path) as server, pytest.raises(LogProblem, match="has no JetStream"):
            await Bench(server).open()

    run(scene())


# Gaps, and logs that are not the same any more ------------------------------------------------------------------------


def test_an_entry_that_somebody_deletes_unread_stops_reading_and_says_where_it_goes_on(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        await bench.write(b"1", b"2")
        log = await bench.open()
        _, place = await read(log, 2)
        await log.close()
        await bench.write(b"3", b"4", b"5")
        await bench.ask("STREAM.MSG.DELETE.orders", seq=4)
        (entry,), place = await read(log, 1, place)
        assert entry.content.body == b"3"
        for _ in range(2):
            with pytest.raises(Trimmed, match="message 4 is gone") as gap:
                await insist(log.read, place, MANY, MUCH)
        assert gap.value.after is not None
        assert bodies((await read(log, 1, gap.value.after))[0]) == [b"5"]

    lab(tmp_path, scene)


def test_entries_that_were_gone_before_a_join_began_are_no_loss(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        await bench.write(*(b"%d" % number for number in range(1, 10)))
        for seq in (1, 4, 5):
            await bench.ask("STREAM.MSG.DELETE.orders", seq=seq)
        log = await bench.open()
        rest = [b"2", b"3", b"6", b"7", b"8", b"9"]
        assert bodies((await read(log, 6))[0]) == rest
        assert bodies((await read(log, 6, await log.find("start")))[0]) == rest
        assert bodies((await read(log, 4, await log.find("4")))[0]) == rest[2:]

    lab(tmp_path, scene)


def test_retention_that_comes_up_behind_an_old_gap_is_a_loss(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        await bench.write(*(b"%d" % number for number in range(1, 10)))
        await bench.ask("STREAM.MSG.DELETE.orders", seq=4)
        log = await bench.open()
        place = await log.find("2")
        await bench.ask("STREAM.PURGE.orders", keep=4)
        with pytest.raises(Trimmed, match="messages 3 to 5 are gone"):
            await insist(log.read, place, MANY, MUCH)

    lab(tmp_path, scene)


def test_a_stream_that_keeps_the_latest_of_each_subject_may_forget_the_others(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(max_msgs_per_subject=1)
        await bench.write(b"1")
        log = await bench.open()
        _, place = await read(log, 1)
        await bench.write(b"2", b"3")
        await bench.write(b"4", subject="orders.y")
        assert bodies((await read(log, 2, place))[0]) == [b"3", b"4"]

    lab(tmp_path, scene)


@pytest.mark.parametrize("again", [0, 5])
def test_a_server_that_is_set_back_is_noticed_even_if_it_gives_out_the_same_numbers(tmp_path: Path, again: int) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        await bench.write(b"1", b"2")
        data, copy = bench.server.directory / "data", tmp_path / "copy"
        bench.server.kill()
        shutil.copytree(data, copy)
        bench.server.start()
        log = await bench.open()
        await bench.write(b"3", b"4")
        _, place = await read(log, 4)
        bench.server.kill()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        bench.server.start()
        if again:
            await bench.write(*(b"new %d" % number for number in range(again)))
        for reader in (log, await bench.open()):
            with pytest.raises(Recreated, match="set back"):
                await insist(reader.read, place, MANY, MUCH)

    lab(tmp_path, scene)


def test_a_holder_from_before_a_set_back_writes_nothing_although_tokens_and_numbers_come_again(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        _, before = await bench.hold(lease=0.01)
        data, copy = bench.server.directory / "data", tmp_path / "copy"
        bench.server.kill()
        shutil.copytree(data, copy)
        bench.server.start()
        zombie, _ = await bench.hold(lease=0.01)
        await zombie.append(foreign(1, 1), b"1", b"")
        bench.server.kill()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        bench.server.start()
        # The same token and the same numbers of messages as the zombie's.
        holder, again = await bench.hold(lease=0.01)
        assert again.token > before.token
        await insist(holder.append, foreign(1, 1), b"1", b"")
        with pytest.raises(Superseded):
            await insist(zombie.append, foreign(2, 2), b"2", b"1")
        assert len(await bench.stored()) == 1

    lab(tmp_path, scene)


# Our message in the stream --------------------------------------------------------------------------------------------


def test_a_purge_costs_neither_the_claim_nor_the_record(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        log, before = await bench.hold()
        await log.append(foreign(1, 3), b"3", b"")
        await bench.ask("STREAM.PURGE.orders")
        await insist(log.renew, 600.0)
        assert await log.state() == before._replace(record=b"3")
        await bench.ask("STREAM.PURGE.orders")
        with pytest.raises(Unavailable):
            await log.append(foreign(4, 5), b"5", b"3")
        await log.append(foreign(4, 5), b"5", b"3")
        await log.release()
        await bench.ask("STREAM.PURGE.orders")
        _, after = await bench.hold()
        assert (after.record, after.token) == (b"5", before.token + 1)

    lab(tmp_path, scene)


def test_a_record_that_nobody_knows_any_more_is_not_guessed(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        log, _ = await bench.hold(lease=0.01)
        await log.append(foreign(1, 3), b"3", b"")
        await log.close()
        await bench.ask("STREAM.PURGE.orders")
        other = await bench.open()
        with pytest.raises(Trimmed, match="nats stream rm isthmus-of-orders"):
            await other.claim("tests", 1.0)
        await bench.ask("STREAM.DELETE.isthmus-of-orders")
        _, state = await bench.hold()
        assert state.record == b""

    lab(tmp_path, scene)


@pytest.mark.parametrize("limits", [{"max_msgs": 40}, {"max_age": 2 * 10**9}])
def test_a_holder_that_renews_keeps_the_record_ahead_of_limits(tmp_path: Path, limits: dict[str, int]) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(**limits)
        log, _ = await bench.hold()
        await log.append(foreign(1, 3), b"3", b"")
        first = 5

        async def passed() -> bool:
            return bool((await bench.ask("STREAM.INFO.orders"))["state"]["first_seq"] > 3 * first)

        while not await passed():
            await bench.write(b"local")
            await log.renew(600.0)
        assert (await log.state()).record == b"3"
        await log.append(foreign(4, 4), b"4", b"3")

    lab(tmp_path, scene)


def test_a_message_on_our_subject_that_is_not_ours_is_named(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        await bench.write(b"hello", subject="isthmus.record.of-orders")
        with pytest.raises(LogProblem, match="nats stream rmm orders 1"):
            await bench.hold()

    lab(tmp_path, scene)


# What is appended -----------------------------------------------------------------------------------------------------


def test_a_stream_that_is_full_has_what_comes_in_wait(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(max_msgs=10, discard="new")
        log, _ = await bench.hold()
        with pytest.raises(Unavailable, match="maximum messages exceeded"):
            await log.append(foreign(1, 20), b"20", b"")
        assert not await bench.stored()
        config = (await bench.ask("STREAM.INFO.orders"))["config"]
        await bench.ask("STREAM.UPDATE.orders", **config | {"max_msgs": 100})
        await log.append(foreign(1, 20), b"20", b"")
        assert len(await bench.stored()) == 20

    lab(tmp_path, scene)


def test_more_than_the_server_stores_in_one_step_is_given_back_whole(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        log, _ = await bench.hold()
        with pytest.raises(TooMany) as too_many:
            await log.append(foreign(1, 4096), b"all", b"")
        assert too_many.value.most == 999
        with pytest.raises(TooMany) as too_many:
            await log.append(foreign(1, 150), b"all", b"")
        most = too_many.value.most
        assert not await bench.stored()
        await log.append(foreign(1, most), b"all", b"")
        assert len(await bench.stored()) == most == 75

    lab(tmp_path, scene, jetstream=["limits { batch { max_msgs: 100 } }"])


def test_subjects_are_kept_where_the_stream_takes_them_and_else_go_to_the_default(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(subjects=["orders.*", "bills.>", "isthmus.record.of-orders"])
        log, _ = await bench.hold(default_subject="bills.other")
        wanted = ["orders.eu", "orders.eu.fr", "bills.a.b", "orders", "", "a b", "orders.*", "isthmus.record.of-orders"]
        entries = [
            Entry(Content(b"", [], subject), "far/clients", seq, "far") for seq, subject in enumerate(wanted, start=1)
        ]
        await log.append(entries, b"8", b"")
        other = "bills.other"
        there = ["orders.eu", other, "bills.a.b", other, other, other, other, other]
        assert [entry.content.subject for entry in await bench.stored()] == there
        strict = await bench.open(default_subject="")
        await log.release()
        await insist(strict.claim, "strict", 600.0)
        with pytest.raises(Refused, match=r"takes no subject 'orders\.eu\.fr', and there is no default-subject") as no:
            await strict.append(entries[:3], b"11", b"8")
        assert no.value.index == 1

    lab(tmp_path, scene)


def test_headers_that_are_orders_to_the_server_do_not_come_in(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(allow_rollup_hdrs=True, allow_msg_ttl=True)
        log, _ = await bench.hold()
        orders = [(b"Nats-Rollup", b"all"), (b"NATS-TTL", b"1s"), (b"nats-msg-id", b"1"), (b"kept", b"1")]
        await log.append([Entry(Content(b"%d" % seq, orders), "far/clients", seq) for seq in (1, 2)], b"2", b"")
        found, _ = await read(log, 2)
        assert [entry.content.headers for entry in found] == [[(b"kept", b"1")]] * 2

    lab(tmp_path, scene)


@pytest.mark.parametrize(
    ("lines", "headers", "said"),
    [
        ([b"a:1", b"b: 2", b"c:  3 "], [(b"a", b"1"), (b"b", b"2"), (b"c", b" 3 ")], ("", 0, "")),
        ([b"Nats-Batch-Id: 1", b"a: 1", b"isthmus-origin: b/c", b"isthmus-seq: 7"], [(b"a", b"1")], ("b/c", 7, "")),
        ([b"isthmus-seq: 7", b"isthmus-origin: b/c", b"a: 1"], [(b"a", b"1")], ("b/c", 7, "")),
        ([b"x-isthmus-origin: b/c", b"isthmus-seq: 7"], [(b"x-isthmus-origin", b"b/c")], ("", 7, "")),
        ([b"isthmus-origin: no", b"isthmus-origin: b/c", b"isthmus-seq: 7", b"isthmus-path: b"], [], ("b/c", 7, "b")),
        ([b"isthmus-origin: b/c", b"isthmus-seq: -7"], [], ("b/c", 0, "")),
        ([b"isthmus-origin: b/c", b"isthmus-seq: " + b"9" * 30], [], ("b/c", 0, "")),
        ([b"no colon", b"Nats-Msg-Id: 5"], [(b"Nats-Msg-Id", b"5")], ("", 0, "")),
    ],
)
def test_headers_are_read_as_they_are_written(
    lines: list[bytes], headers: list[tuple[bytes, bytes]], said: tuple[str, int, str]
) -> None:
    entry = entry_of(b"orders.x", b"\r\n".join([b"NATS/1.0", *lines, b"", b""]), b"body", 1000, 2)
    assert entry == Entry(Content(b"body", headers, "orders.x", None, 1000), *said, 2)


@pytest.mark.parametrize(
    "line", [b"isthmus-origin: a\r\nisthmus-seq: 1\r\n", b"Nats-Batch-Id: 1\r\n", b"\r\n", b":\r\n"]
)
def test_a_header_that_is_made_to_be_slow_to_read_is_not(line: bytes) -> None:
    begun = time.process_time()
    entry_of(b"a", b"NATS/1.0\r\n" + line * (65_000 // len(line)) + b"\r\n", b"", 0, 0)
    assert time.process_time() - begun < 0.5


def test_a_header_that_would_be_another_line_is_refused(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream()
        log, _ = await bench.hold()
        for header in (
            (b"a", b"1\r\nNats-Rollup: all"),
            (b"a\r\nb", b"1"),
            (b"a: b", b"1"),
            (b"", b"1"),
            (b"a", b"\n"),
        ):
            with pytest.raises(Refused):
                await log.append([Entry(Content(b"", [header]), "far/clients", 1)], b"1", b"")
        assert not await bench.stored()

    lab(tmp_path, scene)


def test_what_is_too_large_for_the_server_is_put_aside_whole(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream(max_msg_size=10_000)
        log, _ = await bench.hold()
        large = Entry(Content(bytes(range(256)) * 4000, [(b"a", b"1")]), "far/clients", 1, "far")
        with pytest.raises(Refused, match="fit into a message"):
            await log.append([large], b"1", b"")
        await log.park(large, "too large", b"1", b"")
        (parked,) = await log.parked(10)
        assert (parked.entry, parked.reason) == (large, "too large")
        # A gateway that died behind the first step puts it aside again.
        await log.park(large, "too large", b"1 again", b"1")
        assert len(await log.parked(10)) == 1
        await log.unpark(parked.id)
        assert not await log.parked(10)
        with pytest.raises(LogProblem):
            await log.unpark("*.>")

    lab(tmp_path, scene, lines=["max_payload: 64KB"])


def test_settings_that_change_while_a_holder_works_refuse_an_entry_by_its_index(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        config = (await bench.stream())["config"]
        log, _ = await bench.hold()
        await bench.ask("STREAM.UPDATE.orders", **config | {"max_msg_size": 2000})
        with pytest.raises(Refused) as refused:
            await log.append([*foreign(1, 2), *foreign(3, 3, 5000)], b"3", b"")
        assert refused.value.index == 2
        await bench.ask("STREAM.UPDATE.orders", **config | {"subjects": ["orders.>"]})
        with pytest.raises(LogProblem, match="--allow-batch"):
            await log.append(foreign(1, 2), b"2", b"")

    lab(tmp_path, scene)


def test_several_streams_are_read_each_in_its_order(tmp_path: Path) -> None:
    async def scene(bench: Bench) -> None:
        await bench.stream("orders")
        await bench.stream("bills", allow_atomic=False, subjects=["bills.>"])
        for number in range(0, 60, 3):
            await bench.write(*(b"%d" % each for each in range(number, number + 3)), subject="orders.x")
            await bench.write(*(b"%d" % each for each in range(number, number + 3)), subject="bills.x")
        log, _ = await bench.hold("orders", "bills")
        found, place = await read(log, 120)
        for part in (0, 1):
            assert bodies([entry for entry in found if entry.part == part]) == [b"%d" % each for each in range(60)]
        await log.append(foreign(1, 2), b"2", b"")
        await bench.write(b"last", subject="bills.x")
        more, _ = await read(await bench.open("orders", "bills"), 3, place)
        assert sorted((entry.part, entry.content.body) for entry in more) == [(0, b"1"), (0, b"2"), (1, b"last")]

    lab(tmp_path, scene)


# Servers that are not what they should be -----------------------------------------------------------------------------


@asynccontextmanager
async def pretender(*words: bytes) -> AsyncIterator[str]:
    """Says each of these, one more whenever it is told something, and then nothing more."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in words:
            writer.write(each)
            if not await reader.read(65536):
                break

    async with listening(talk) as url:
        yield url


@asynccontextmanager
async def listening(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> AsyncIterator[str]:
    talking: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.append(asyncio.create_task(talk(reader, writer)))
        writers.append(writer)

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        for writer in writers:
            writer.close()


HELLO = b'INFO {"version":"2.15.1","headers":true,"max_payload":1048576,"jetstream":true}\r\n'


@pytest.mark.parametrize(
    "words",
    [
        [b"SSH-2.0-OpenSSH_9.2\r\n"],
        [b"INFO {\r\n"],
        [b"INFO []\r\n"],
        [b"x" * 100_000],
        [HELLO, b"PONG\r\nMSG a 0 99999999999\r\n"],
        [HELLO, b"PONG\r\nMSG a 0 " + b"9" * 5000 + b"\r\n"],
        [HELLO, b"PONG\r\nMSG a 0 -1\r\n"],
        [HELLO, b"PONG\r\nMSG\r\n"],
        [HELLO, b"PONG\r\nMSG \r\n"],
        [HELLO, b"PONG\r\nHMSG a 0 10 5\r\nhello\r\n"],
        [HELLO, b"PONG\r\nHMSG a 0 x 5\r\nhello\r\n"],
        [HELLO, b"PONG\r\n" + b"\0" * 100_000],
        [HELLO, b"-ERR 'Maximum Connections Exceeded'\r\n"],
        [HELLO, b"PONG\r\n", b""],
    ],
)
def test_what_is_no_nats_server_is_unavailable_and_no_more(words: list[bytes]) -> None:
    async def scene() -> None:
        async with pretender(*words) as url, asyncio.timeout(patience.seconds(20)):
            log = NatsLog(LogSettings(system="a", provider="nats", url=url, streams=("orders",), state="s"))
            with pytest.raises(Unavailable):
                await log.open()
            await log.close()

    run(scene())


def test_a_server_that_cannot_do_atomic_batches_is_too_old(tmp_path: Path) -> None:
    async def scene() -> None:
        old = HELLO.replace(b"2.15.1", b"2.10.4")

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(old)
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                elif line.startswith(b"PUB $JS.API.INFO"):
                    body = b'{"memory":0,"storage":0,"api":{"total":1,"errors":0}}'
                    writer.write(b"MSG %b 0 %d\r\n%b\r\n" % (line.split()[2], len(body), body))

        async with listening(talk) as url:
            log = NatsLog(LogSettings(system="a", provider="nats", url=url, streams=("orders",), state="s"))
            with pytest.raises(LogProblem, match=r"runs nats-server 2\.10\.4, .* takes 2\.12 or newer"):
                await log.open()
            await log.close()

    run(scene())
