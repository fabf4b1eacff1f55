"""Kafka in depth, on a real server: zombies, dead transactions, lost tails, partitions, refusals, secrets."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import kafka_holder
import pytest
from certificates import Authority
from confluent_kafka import KafkaException, Producer, TopicPartition
from patience import seconds

import isthmus
from isthmus.adapters.conformance import CHECKS, run_suite
from isthmus.adapters.kafka import KafkaLog
from isthmus.lab.brokers.kafka import KafkaServer, KafkaTrial, admin, consume, create, produce
from isthmus.lab.harness.os_process import Ports
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.driver import Options
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    LogProblem,
    LogSettings,
    Position,
    Recreated,
    Refused,
    Unavailable,
)
from isthmus.runtime.log.settings import settings_of
from isthmus.runtime.log.site import LogSite
from isthmus.topology.file import parse

pytestmark = pytest.mark.real

SECRET = "sesame-4711"
MUCH = 1 << 20
FAR = "far/clients"
Result = TypeVar("Result")
_numbers = count(1)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One for all tests that leave it as it was."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


def topic(server: KafkaServer, partitions: int = 1, **config: str) -> str:
    """A new one."""
    name = f"orders-{next(_numbers)}"
    create(server, name, partitions, **config)
    return name


def at(server: KafkaServer, *streams: str, **options: str) -> LogSettings:
    named = {key.replace("_", "-"): value for key, value in options.items()}
    state = f"isthmus-{streams[0].partition('[')[0]}"
    return LogSettings(system="shop", provider="kafka", url=server.url, streams=streams, state=state, options=named)


@asynccontextmanager
async def opened(settings: LogSettings) -> Any:
    log = KafkaLog(settings)
    try:
        await insist(log.open)
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def held(settings: LogSettings) -> Any:
    async with opened(settings) as log:
        while await insist(log.claim, "test", 600.0) is None:
            pass
        yield log


async def insist(call: Callable[..., Awaitable[Result]], *arguments: object) -> Result:
    """As whoever runs an adapter does: until the broker is available."""
    while True:
        try:
            return await call(*arguments)
        except Unavailable:
            await asyncio.sleep(0.05)


async def read(log: Any, wanted: int, after: Position = BEGINNING) -> tuple[list[Entry], Position]:
    found: list[Entry] = []
    while len(found) < wanted:
        entries, after = await insist(log.read, after, 1000, MUCH)
        found += entries
    return found, after


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(seconds(60)):
            return await work()

    return asyncio.run(bounded())


def foreign(first: int, last: int, part: int = 0) -> list[Entry]:
    return [Entry(Content(b"%d" % seq), FAR, seq, "far", part) for seq in range(first, last + 1)]


def seqs(entries: Sequence[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


def bodies(entries: Sequence[Entry]) -> list[bytes]:
    return [entry.content.body for entry in entries]


def transaction(server: KafkaServer, name: str) -> Any:
    """A plain client in the middle of one."""
    settings = {"bootstrap.servers": server.address, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(seconds(10))
    producer.begin_transaction()
    return producer


@pytest.mark.timeout(seconds(400))
@pytest.mark.parametrize("part", range(4))
def test_kafka_keeps_every_promise(part: int) -> None:
    outcomes = asyncio.run(run_suite(KafkaTrial(), CHECKS[part::4], part))
    wrong = [f"{each.name}: {each.why}" for each in outcomes if each.verdict == "broken"]
    assert not wrong, "; ".join(wrong)
    assert {each.name for each in outcomes if each.verdict == "not possible"} <= {"lost-tail"}


# Joins ----------------------------------------------------------------------------------------------------------------

JOINED = """
[systems.madrid]
kind = "kafka"
url = "{url}"
streams = ["{madrid}[0]", "{madrid}[1]"]
gateways = 1
link-address = "127.0.0.1:{port}"
[systems.valencia]
kind = "kafka"
url = "{url}"
stream = "{valencia}"
gateways = 1
link-address = "127.0.0.1:{next_port}"
[[joins]]
between = ["madrid", "valencia"]
order = "fifo"
links = 1
"""


def test_two_topics_are_joined_and_go_on_after_everything_that_was_read_was_removed(kafka: KafkaServer) -> None:
    madrid, valencia = topic(kafka, 2), topic(kafka)
    ports = Ports()
    port = ports.take(2)
    text = JOINED.format(url=kafka.url, madrid=madrid, valencia=valencia, port=port, next_port=port + 1)
    topology = parse(text, "kafka.toml")
    places = [(madrid, 0), (madrid, 1), (valencia, 0)]

    def write(word: str, number: int) -> None:
        for name, partition in places:
            contents = [Content(f"{word} {each} of {name}[{partition}]".encode()) for each in range(number)]
            produce(kafka, name, contents, partition)

    def everything() -> dict[str, list[bytes]]:
        return {
            name: [body for partition in partitions for body in bodies(consume(kafka, name, partition))]
            for name, partitions in ((madrid, (0, 1)), (valencia, (0,)))
        }

    async def joined(wanted: int) -> dict[str, list[bytes]]:
        """Run both sites until both logs have so many entries, and reading has come by them."""
        stop = asyncio.Event()
        sites = [
            LogSite(topology, system, KafkaLog(settings_of(topology, system, "run")), "run", Options())
            for system in topology.systems
        ]
        hosts = [asyncio.ensure_future(site.run(stop)) for site in sites]
        found: dict[str, list[bytes]] = {}
        while [len(each) for each in found.values()] != [wanted, wanted] or not all(map(is_by, sites)):
            for host in hosts:
                assert not host.done() or host.result()
            found = await asyncio.to_thread(everything)
            assert all(len(each) <= wanted for each in found.values())
        stop.set()
        await asyncio.gather(*hosts)
        return found

    def is_by(site: LogSite) -> bool:
        """It has come by the end of the last transaction, in the first partition, where all that came in is."""
        return site.driver is not None and not site.driver.reading.position.split(",")[0].endswith(":0")

    write("first", 100)
    found = run(lambda: joined(300))
    for entries in found.values():
        assert len(set(entries)) == 300
        for name, partition in places:
            mine = [body for body in entries if body.endswith(f" of {name}[{partition}]".encode())]
            assert mine == [f"first {each} of {name}[{partition}]".encode() for each in range(100)]
    operator = admin(kafka)
    for future in operator.delete_records([TopicPartition(name, partition, -1) for name, partition in places]).values():
        future.result(seconds(10))
    write("second", 10)
    found = run(lambda: joined(30))
    assert all(body.startswith(b"second") for entries in found.values() for body in entries)
    ports.release()


# Claim and fence ------------------------------------------------------------------------------------------------------


def test_a_process_that_is_stopped_in_the_middle_of_an_append_writes_nothing_when_it_goes_on(
    kafka: KafkaServer,
) -> None:
    name = topic(kafka)
    settings = at(kafka, name)
    paths = [str(Path(isthmus.__file__).parents[1]), str(Path(kafka_holder.__file__).parent)]
    with subprocess.Popen(
        [sys.executable, "-m", "kafka_holder", kafka.url, name, settings.state],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
    ) as zombie:
        assert zombie.stdout is not None
        try:
            while int(zombie.stdout.readline()) < 100:
                pass
            zombie.send_signal(signal.SIGSTOP)

            async def take_over() -> int:
                async with held(settings) as log:
                    done = int((await log.state()).record)
                    await log.append(foreign(done + 1, done + 5), b"%d" % (done + 5), b"%d" % done)
                    zombie.send_signal(signal.SIGCONT)
                    while zombie.poll() is None:
                        await insist(log.renew, 600.0)
                    await insist(log.append, foreign(done + 6, done + 9), b"%d" % (done + 9), b"%d" % (done + 5))
                    return done + 9

            last = run(take_over)
            assert zombie.stdout.read().split()[-1] == "superseded"
        finally:
            zombie.kill()
    assert seqs(consume(kafka, name)) == list(range(1, last + 1))


def test_whoever_claims_a_log_ends_the_transaction_in_whose_middle_the_former_holder_died(kafka: KafkaServer) -> None:
    name = topic(kafka)
    settings = at(kafka, name)
    dead = transaction(kafka, settings.state)
    dead.produce(name, b"never committed")
    assert dead.flush(seconds(10)) == 0

    async def work() -> None:
        async with held(settings) as log:
            await log.append(foreign(1, 3), b"3", b"")
            assert seqs((await read(log, 3))[0]) == [1, 2, 3]

    run(work)
    with pytest.raises(KafkaException):
        dead.commit_transaction(seconds(10))
    assert bodies(consume(kafka, name)) == [b"1", b"2", b"3"]


def test_a_holder_whose_epoch_was_taken_by_somebody_without_a_claim_goes_on(kafka: KafkaServer) -> None:
    name = topic(kafka)
    settings = at(kafka, name)

    async def work() -> None:
        async with held(settings) as log:
            await log.append(foreign(1, 3), b"3", b"")
            # As a former holder does that looks up what became of its last append.
            transaction(kafka, settings.state).abort_transaction(seconds(10))
            with pytest.raises(Unavailable):
                await log.append(foreign(4, 6), b"6", b"3")
            assert (await insist(log.state)).record == b"3"
            await log.append(foreign(4, 6), b"6", b"3")

    run(work)
    assert seqs(consume(kafka, name)) == [1, 2, 3, 4, 5, 6]


def test_what_isthmus_kept_and_the_broker_lost_is_not_taken_for_a_new_log(kafka: KafkaServer) -> None:
    name = topic(kafka)
    settings = at(kafka, name)

    async def work() -> None:
        async with held(settings) as log:
            await log.append(foreign(1, 3), b"3", b"")
            operator = admin(kafka)
            for future in operator.delete_topics([settings.state], operation_timeout=seconds(10)).values():
                future.result(seconds(10))
            create(kafka, settings.state, 1, cleanup_policy="compact")
            with pytest.raises(Recreated, match="has lost what isthmus kept"):
                await insist(log.state)

    run(work)


# Reading --------------------------------------------------------------------------------------------------------------


def test_what_was_aborted_is_never_read_and_its_gaps_are_none(kafka: KafkaServer) -> None:
    name = topic(kafka)
    for number in range(3):
        producer = transaction(kafka, f"plain-{name}")
        producer.produce(name, b"committed %d" % number)
        producer.commit_transaction(seconds(10))
        producer.begin_transaction()
        producer.produce(name, b"aborted")
        producer.flush(seconds(10))
        producer.abort_transaction(seconds(10))
    produce(kafka, name, [Content(b"plain")])

    async def work() -> list[Entry]:
        async with opened(at(kafka, name)) as log:
            found, _ = await read(log, 4)
            return found

    assert bodies(run(work)) == [b"committed 0", b"committed 1", b"committed 2", b"plain"]


def test_the_ends_of_transactions_that_were_passed_may_be_trimmed(kafka: KafkaServer) -> None:
    name = topic(kafka)

    async def work() -> list[Entry]:
        async with held(at(kafka, name)) as log:
            await log.append(foreign(1, 3), b"3", b"")
            _, after = await read(log, 3)
            nothing, after = await log.read(after, 1000, MUCH)
            assert not nothing
            operator = admin(kafka)
            for future in operator.delete_records([TopicPartition(name, 0, -1)]).values():
                future.result(seconds(10))
            produce(kafka, name, [Content(b"new")])
            async with opened(at(kafka, name)) as other:
                return (await read(other, 1, after))[0]

    assert bodies(run(work)) == [b"new"]


def test_a_log_that_lost_its_tail_is_not_read_on(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        name = topic(server)
        settings = at(server, name)

        def write(count_: int) -> None:
            produce(server, name, [Content(b"%d" % number) for number in range(count_)])

        async def where() -> Position:
            async with opened(settings) as log:
                return (await read(log, 20))[1]

        async def go_on(after: Position) -> None:
            async with opened(settings) as log:
                await read(log, 1, after)

        for _ in range(20):
            write(1)
        place = run(where)
        server.kill()
        (segment,) = (tmp_path / "data" / f"{name}-0").glob("*.log")
        os.truncate(segment, segment.stat().st_size // 2)
        server.start()
        with pytest.raises(Recreated):
            run(lambda: go_on(place))
        write(100)
        with pytest.raises(Recreated):
            run(lambda: go_on(place))


def test_partitions_are_parts_and_have_to_be_named(kafka: KafkaServer) -> None:
    name = topic(kafka, 3)
    for partition in range(3):
        produce(kafka, name, [Content(b"%d/%d" % (partition, number)) for number in range(5)], partition)

    async def whole() -> None:
        async with opened(at(kafka, name)):
            pass

    with pytest.raises(LogProblem, match=rf'write streams = \["{name}\[0\]", "{name}\[1\]", "{name}\[2\]"\]'):
        run(whole)

    async def two() -> tuple[Sequence[str], list[Entry]]:
        settings = at(kafka, f"{name}[2]", f"{name}[0]")
        log = KafkaLog(settings)
        warnings = await insist(log.open)
        while await insist(log.claim, "test", 600.0) is None:
            pass
        await log.append([*foreign(1, 2, 0), *foreign(3, 4, 1)], b"4", b"")
        found, after = await read(log, 4)
        found += (await read(log, 14 - len(found), after))[0] if len(found) < 14 else []
        await log.close()
        return warnings, found

    warnings, found = run(two)
    assert f"of {name} the partitions 1 are not joined" in warnings
    assert bodies([entry for entry in found if entry.part == 0]) == [*(b"2/%d" % n for n in range(5)), b"1", b"2"]
    assert bodies([entry for entry in found if entry.part == 1]) == [*(b"0/%d" % n for n in range(5)), b"3", b"4"]


# Content and refusals -------------------------------------------------------------------------------------------------


def test_keys_times_and_tombstones_arrive_as_they_were(kafka: KafkaServer) -> None:
    name = topic(kafka)
    sent = [
        Content(b"value", [(b"a", b"1")], "elsewhere", b"key\xff", 1_600_000_000_000),
        Content(b"", [], "", b"gone", 1_600_000_000_001, -1),
        Content(b"", [], "", b"empty", 1_600_000_000_002),
    ]

    async def work() -> list[Entry]:
        async with held(at(kafka, name)) as log:
            await log.append([Entry(each, FAR, seq, "far") for seq, each in enumerate(sent, 1)], b"3", b"")
            return (await read(log, 3))[0]

    found = run(work)
    for one, other in zip(sent, found, strict=True):
        assert (one.body, one.headers, one.key, one.time, one.place) == (
            other.content.body,
            other.content.headers,
            other.content.key,
            other.content.time,
            other.content.place,
        )
        assert other.content.subject == name
    assert [entry.content.place for entry in consume(kafka, name)] == [0, -1, 0]


def refused(server: KafkaServer, name: str, *entries: Entry) -> Refused:
    async def work() -> Refused:
        async with held(at(server, name)) as log:
            with pytest.raises(Refused) as caught:
                await log.append(entries, b"new", b"")
            assert (await log.state()).record == b""
            # It goes on behind it, and can put it aside.
            await log.park(entries[caught.value.index], caught.value.reason, b"aside", b"")
            (parked,) = await log.parked(10)
            assert parked.entry == entries[caught.value.index]
            await log.append(foreign(90, 90) if name not in compacted else keyed(90), b"90", b"aside")
            return caught.value

    found = run(work)
    assert seqs(consume(server, name)) == [90]
    return found


compacted: set[str] = set()


def keyed(seq: int) -> list[Entry]:
    return [Entry(Content(b"x", key=b"key"), FAR, seq, "far")]


def test_an_entry_that_is_larger_than_the_topic_takes_is_refused_by_its_index(kafka: KafkaServer) -> None:
    name = topic(kafka, max_message_bytes="5000")
    refusal = refused(kafka, name, *foreign(1, 50), Entry(Content(b"." * 6000), FAR, 51, "far"), *foreign(52, 53))
    assert refusal.index == 50
    assert "larger than max.message.bytes" in refusal.reason


def test_an_entry_without_a_key_is_refused_by_a_compacted_topic(kafka: KafkaServer) -> None:
    name = topic(kafka, cleanup_policy="compact")
    compacted.add(name)
    refusal = refused(kafka, name, *keyed(1), *keyed(2), *foreign(3, 3), *keyed(4))
    assert refusal.index == 2
    assert "without a key" in refusal.reason


def test_an_entry_whose_time_the_topic_does_not_take_is_refused(kafka: KafkaServer) -> None:
    name = topic(kafka, message_timestamp_before_max_ms="3600000")
    old = Entry(Content(b"old", time=1_000_000_000_000), FAR, 2, "far")
    refusal = refused(kafka, name, *foreign(1, 1), old)
    assert refusal.index == 1
    assert "no such time" in refusal.reason


def test_many_small_entries_go_into_a_topic_that_takes_small_batches(kafka: KafkaServer) -> None:
    name = topic(kafka, max_message_bytes="2000")

    async def work() -> None:
        async with held(at(kafka, name)) as log:
            await log.append(foreign(1, 2000), b"2000", b"")

    run(work)
    assert seqs(consume(kafka, name)) == list(range(1, 2001))


# Opening --------------------------------------------------------------------------------------------------------------


def opening(settings: LogSettings) -> Sequence[str]:
    async def work() -> Sequence[str]:
        log = KafkaLog(settings)
        try:
            return await insist(log.open)
        finally:
            await log.close()

    return run(work)


def test_settings_that_weaken_the_promises_are_told_of(kafka: KafkaServer) -> None:
    assert not opening(at(kafka, topic(kafka, flush_messages="1")))
    name = topic(kafka, cleanup_policy="compact,delete", retention_ms="1000", unclean_leader_election_enable="true")
    said = "\n".join(opening(at(kafka, name)))
    for words in ("one replica", "is compacted", "retention.ms=1000", "unclean.leader.election.enable"):
        assert words in said


def test_a_state_topic_that_would_lose_the_state_is_refused(kafka: KafkaServer) -> None:
    settings = at(kafka, topic(kafka))
    create(kafka, settings.state, 1, cleanup_policy="delete")
    with pytest.raises(LogProblem, match=r"--add-config cleanup\.policy=compact"):
        opening(settings)


def test_a_topic_that_is_not_there_is_named(kafka: KafkaServer) -> None:
    with pytest.raises(LogProblem, match="there is no topic missing at kafka://"):
        opening(at(kafka, "missing"))


def test_a_wrong_password_is_told_without_it(tmp_path: Path) -> None:
    with KafkaServer(tmp_path, users={"shop": SECRET}) as server:
        for options in ({"password": SECRET + "x"}, {"password": SECRET, "sasl_mechanism": "SCRAM-SHA-256"}):
            with pytest.raises(LogProblem) as caught:
                opening(at(server, "orders", username="shop", **options))
            assert SECRET not in str(caught.value)
            assert "sasl-mechanism" in str(caught.value)
        with pytest.raises(LogProblem, match="there is no topic orders"):
            opening(at(server, "orders", username="shop", password=SECRET))


def test_tls_trusts_whom_the_file_says(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path), Authority(tmp_path, "others")
    files = ours.issue("kafka", address="127.0.0.1")
    keystore = tmp_path / "kafka-keystore.pem"
    keystore.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    with KafkaServer(tmp_path / "server", keystore=keystore) as server:
        with pytest.raises(LogProblem, match="there is no topic orders"):
            opening(at(server, "orders", ca_file=str(ours.path)))
        with pytest.raises(LogProblem, match="look at ca-file"):
            opening(at(server, "orders", ca_file=str(others.path)))
        with pytest.raises(LogProblem, match="cannot be reached with these settings"):
            opening(at(server, "orders", ca_file=str(tmp_path / "missing.pem")))
