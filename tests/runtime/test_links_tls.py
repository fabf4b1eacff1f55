"""TLS of links: who gets in, who does not, and what the logs say about it."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from certificates import Authority, Files
from link_support import (
    GROUP,
    LINK,
    MADRID_SLOT,
    QUICK,
    VALENCIA_SLOT,
    block,
    closing,
    dialling,
    listening,
    pair,
    pair_over_a_line,
    up,
)
from runtime_support import run_test, soon, until

from isthmus.core.ids import MILLISECOND
from isthmus.core.segment import Segment
from isthmus.core.wire.join import Block, first_epoch
from isthmus.runtime.link.wire import LinkHello, encode_hello
from isthmus.runtime.transport.address import Address
from isthmus.runtime.transport.tls import LinkTls, TlsUnusable
from isthmus.runtime.wan.emulator import CutKind

NAMES = {"madrid": "isthmus://madrid/g1", "valencia": "isthmus://valencia/g1"}


class Site:
    """An authority, and the files of both gateways."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.madrid = self.authority.issue("madrid", uri=NAMES["madrid"])
        self.valencia = self.authority.issue("valencia", uri=NAMES["valencia"])

    def tls(self, files: Files, *allow: str, authority: Authority | None = None) -> LinkTls:
        return LinkTls(files.certificate, files.key, (authority or self.authority).path, allow)

    def secrets(self) -> list[str]:
        """Lines of all keys."""
        lines = [line for path in self.directory.glob("*.key") for line in path.read_text().splitlines()]
        return [line for line in lines if not line.startswith("---")]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def warnings(caplog: pytest.LogCaptureFixture, site: Site) -> list[str]:
    """All warnings; on the way it is seen to that no record, of whatever level, holds a line of a key."""
    for record in caplog.records:
        assert not any(secret in record.getMessage() for secret in site.secrets())
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_gateways_with_the_right_names_meet(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tls = {"madrid_tls": site.tls(site.madrid), "valencia_tls": site.tls(site.valencia)}
        async with pair(**tls) as (madrid, valencia):
            sent = [block(number, size=30_000) for number in range(1, 40)]
            for each in sent:
                madrid.link.send(each)
                valencia.link.send(each)
            await until(lambda: madrid.pdus == valencia.pdus == sent)

    caplog.set_level(logging.DEBUG)
    run_test(scenario())
    assert warnings(caplog, site) == []


def readable_on_the_line(
    secrets: Sequence[bytes], madrid_tls: LinkTls | None = None, valencia_tls: LinkTls | None = None
) -> list[bool]:
    """Send the first secret from Madrid and the second from Valencia, through a relay that keeps every byte.

    Returns of each whether it was seen, or any eight bytes of it in a row. The last answer is for the link's own hello.
    """
    seen = bytearray()

    async def scenario() -> None:
        valencia, address = listening(tls=valencia_tls)

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there_reader, there = await asyncio.open_connection(*address)

            async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                try:
                    while data := await source.read(1 << 16):
                        seen.extend(data)
                        sink.write(data)
                except ConnectionError:
                    pass
                sink.transport.abort()

            await asyncio.gather(pump(reader, there), pump(there_reader, writer))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        madrid = dialling(Address(*server.sockets[0].getsockname()), tls=madrid_tls)
        async with closing(madrid, valencia):
            await up(madrid, valencia)
            for end, secret in zip((madrid, valencia), secrets, strict=True):
                end.link.send(Block(first_epoch(), 1, Segment.of(MADRID_SLOT, 1, [secret])))
            await until(lambda: madrid.numbers == valencia.numbers == [1])
        server.close()
        await until(lambda: len(asyncio.all_tasks()) <= 2)

    run_test(scenario())
    words = [[secret[at : at + 8] for at in range(len(secret) - 7)] for secret in secrets]
    return [any(word in seen for word in each) for each in (*words, [b"ISLK"])]


SECRETS = [b"the numbers of Madrid: " + os.urandom(1000), b"the answer of Valencia: " + os.urandom(1000)]


def test_what_is_on_the_line_is_not_to_be_read(site: Site) -> None:
    readable = readable_on_the_line(SECRETS, site.tls(site.madrid), site.tls(site.valencia))
    assert readable == [False, False, False]


def test_what_is_on_a_plain_line_is_seen_by_the_same_relay() -> None:
    assert readable_on_the_line(SECRETS) == [True, True, True]


def test_exactly_once_across_cuts_with_tls(site: Site) -> None:
    async def scenario() -> None:
        tls = {"madrid_tls": site.tls(site.madrid), "valencia_tls": site.tls(site.valencia)}
        async with pair_over_a_line(delay=MILLISECOND, rate=200_000_000, **tls) as (madrid, valencia, wan):
            sent = 0

            def produce() -> None:
                nonlocal sent
                if madrid.link.metrics.reconnects < 5:
                    sent += 1
                    madrid.link.send(block(sent, size=20_000))

            madrid.when_ready = produce
            produce()
            for cuts in range(5):
                progress = len(valencia.pdus) + 17 * cuts
                await until(lambda: madrid.link.metrics.reconnects >= cuts and len(valencia.pdus) >= progress)  # noqa: B023
                wan.cut(CutKind.RESET)
                wan.mend()
            await until(lambda: madrid.link.metrics.reconnects >= 5 and not madrid.link.metrics.kept_frames)
            assert valencia.numbers == list(range(1, sent + 1))
            assert madrid.events == [("up", VALENCIA_SLOT)]

    run_test(scenario())


def test_a_record_that_takes_long_to_arrive_is_a_sign_of_life(site: Site) -> None:
    """TLS hands up whole records of 16 KiB. This line takes more than `dead_after` for each."""

    async def scenario() -> None:
        tls = {"madrid_tls": site.tls(site.madrid), "valencia_tls": site.tls(site.valencia)}
        limits = QUICK._replace(dead_after=0.3)
        async with pair_over_a_line(limits=limits, **tls) as (madrid, valencia, wan):
            wan.set(rate=300_000)
            madrid.link.send(block(1, size=30_000))
            valencia.link.send(block(1, size=30_000))
            await until(lambda: madrid.numbers == valencia.numbers == [1])
            assert madrid.events == [("up", VALENCIA_SLOT)]
            assert valencia.events == [("up", MADRID_SLOT)]

    run_test(scenario())


# Refusals. Each end says why in one line, and says it once however often the other tries.


def refused_calls(
    site: Site, caplog: pytest.LogCaptureFixture, madrid_tls: LinkTls | None, valencia_tls: LinkTls | None
) -> tuple[set[str], set[str]]:
    """Let Madrid call three times in vain. Returns what Madrid and what Valencia logged, without addresses."""

    async def scenario() -> None:
        valencia, address = listening(tls=valencia_tls)
        madrid = dialling(address, tls=madrid_tls)
        async with closing(madrid, valencia):
            await until(lambda: valencia.links.refused >= 3)
            assert madrid.events == valencia.events == []

    caplog.set_level(logging.DEBUG)
    run_test(scenario())
    lines = warnings(caplog, site)
    madrids = [line for line in lines if line.startswith("madrid/g1, link 5 to valencia/g1, cannot be opened")]
    valencias = [line for line in lines if line.startswith("valencia/g1 refused a call from 127.0.0.1:")]
    assert len(lines) == len(madrids) + len(valencias)
    assert len(madrids) == len(set(madrids)) == 1
    assert len(valencias) >= 3
    return set(madrids), {line.partition(": ")[2] for line in valencias}


def test_a_caller_of_another_authority_is_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    stranger = Authority(site.directory, "other authority").issue("stranger", uri=NAMES["madrid"])
    madrids, valencias = refused_calls(site, caplog, site.tls(stranger), site.tls(site.valencia))
    assert valencias == {"its certificate was not accepted: unable to get local issuer certificate"}
    assert len(madrids) == 1


def test_a_caller_does_not_talk_to_another_authority(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    stranger = Authority(site.directory, "other authority").issue("stranger", uri=NAMES["valencia"])
    madrids, _ = refused_calls(site, caplog, site.tls(site.madrid), site.tls(stranger))
    (line,) = madrids
    assert "its certificate was not accepted: unable to get local issuer certificate" in line


def test_a_caller_with_an_expired_certificate_is_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    expired = site.authority.issue("expired", uri=NAMES["madrid"], expired=True)
    madrids, valencias = refused_calls(site, caplog, site.tls(expired), site.tls(site.valencia))
    assert valencias == {"its certificate was not accepted: certificate has expired"}
    assert len(madrids) == 1


def test_a_caller_does_not_accept_an_expired_certificate(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    expired = site.authority.issue("expired", uri=NAMES["valencia"], expired=True)
    madrids, _ = refused_calls(site, caplog, site.tls(site.madrid), site.tls(expired))
    (line,) = madrids
    assert "its certificate was not accepted: certificate has expired" in line


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"uri": "isthmus://madrid/g2"}, "isthmus://madrid/g2"),
        ({"uri": "https://madrid/g1"}, "https://madrid/g1"),
        ({"host": "madrid/g1"}, "nobody"),
        ({"host": "isthmus://madrid/g1"}, "nobody"),
        ({}, "nobody"),
    ],
    ids=["another gateway", "another scheme", "a host", "a host that looks like it", "no name"],
)
def test_a_caller_with_another_name_is_refused(
    names: dict[str, str], shown: str, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = site.authority.issue("wrong", **names)  # type: ignore[arg-type]
    _, valencias = refused_calls(site, caplog, site.tls(wrong), site.tls(site.valencia))
    (line,) = valencias
    assert line.startswith(f"its certificate is for {shown}")
    assert line.endswith("not for isthmus://madrid/g1")


def test_a_caller_hangs_up_on_another_name_before_it_says_hello(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    wrong = site.authority.issue("wrong", uri="isthmus://valencia/g2")
    madrids, valencias = refused_calls(site, caplog, site.tls(site.madrid), site.tls(wrong))
    (line,) = madrids
    assert line.endswith("its certificate is for isthmus://valencia/g2, not for isthmus://valencia/g1")
    assert all("it hung up" in line for line in valencias)


def test_who_is_allowed_can_be_said(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    other = site.authority.issue("other", uri="isthmus://madrid/standby")

    async def scenario() -> None:
        valencia_tls = site.tls(site.valencia, "madrid/g1", "madrid/standby")
        async with pair(madrid_tls=site.tls(other), valencia_tls=valencia_tls):
            pass

    run_test(scenario())
    assert warnings(caplog, site) == []


def test_plain_text_is_refused_where_tls_is_configured(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    madrids, valencias = refused_calls(site, caplog, None, site.tls(site.valencia))
    assert len(madrids) == 1
    assert valencias == {"wrong version number"}


def test_tls_gets_no_answer_in_plain_text(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    madrids, valencias = refused_calls(site, caplog, site.tls(site.madrid), None)
    assert len(madrids) == 1
    assert valencias == {"it does not begin with the hello of a link"}


def test_a_caller_without_a_certificate_is_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        valencia, address = listening(tls=site.tls(site.valencia))
        context = ssl.create_default_context(cafile=str(site.authority.path))
        context.check_hostname = False
        async with closing(valencia):
            reader, writer = await soon(asyncio.open_connection(*address, ssl=context))
            writer.write(encode_hello(LinkHello(GROUP, LINK, MADRID_SLOT, 1, 0, 0)))
            try:
                assert await soon(reader.read()) == b""
            except (ssl.SSLError, ConnectionError):
                pass
            writer.transport.abort()
            await until(lambda: valencia.links.refused == 1)
            assert valencia.events == []

    run_test(scenario())
    (line,) = warnings(caplog, site)
    assert "peer did not return a certificate" in line


def test_an_older_tls_is_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        valencia, address = listening(tls=site.tls(site.valencia))
        context = ssl.create_default_context(cafile=str(site.authority.path))
        context.check_hostname = False
        context.load_cert_chain(*site.madrid)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with closing(valencia):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await soon(asyncio.open_connection(*address, ssl=context))
            await until(lambda: valencia.links.refused == 1)

    run_test(scenario())
    (line,) = warnings(caplog, site)
    assert "unsupported protocol" in line


def test_a_caller_that_never_begins_tls_is_hung_up_on(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        valencia, address = listening(tls=site.tls(site.valencia), limits=QUICK._replace(connect=0.05))
        async with closing(valencia):
            reader, writer = await soon(asyncio.open_connection(*address))
            try:
                assert await soon(reader.read()) == b""
            except ConnectionError:
                pass
            writer.transport.abort()
            await until(lambda: valencia.links.refused == 1)

    run_test(scenario())
    (line,) = warnings(caplog, site)
    assert "no answer in time" in line


# Files.


def test_a_renewed_certificate_needs_no_restart(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    expired = site.authority.issue("expired", uri=NAMES["madrid"], expired=True)

    async def scenario() -> None:
        valencia, address = listening(tls=site.tls(site.valencia))
        madrid = dialling(address, tls=site.tls(expired))
        async with closing(madrid, valencia):
            await until(lambda: valencia.links.refused >= 1)
            renewed = site.authority.issue("renewed", uri=NAMES["madrid"])
            os.replace(renewed.key, expired.key)
            os.replace(renewed.certificate, expired.certificate)
            await up(madrid, valencia)

    run_test(scenario())
    for line in warnings(caplog, site):
        assert "BEGIN" not in line


@pytest.mark.parametrize("broken", ["missing", "empty", "encrypted", "other key"])
def test_files_that_cannot_be_used_are_reported_at_the_start(broken: str, site: Site) -> None:
    files = site.madrid
    if broken == "missing":
        files.certificate.unlink()
    elif broken == "empty":
        site.authority.path.write_bytes(b"")
    elif broken == "encrypted":
        files = site.authority.issue("encrypted", uri=NAMES["madrid"], password=b"open sesame")
    else:
        files = Files(site.madrid.certificate, site.valencia.key)
    with pytest.raises(TlsUnusable, match="three PEM files") as problem:
        site.tls(files)
    assert not any(secret in str(problem.value) for secret in site.secrets())
    expected = {"missing": "No such file", "empty": "no certificate", "encrypted": "encrypted", "other key": "together"}
    assert expected[broken] in str(problem.value)


def test_a_representation_shows_no_key(site: Site) -> None:
    assert repr(site.tls(site.madrid, "valencia/g1")) == (
        f"LinkTls(certificate='{site.madrid.certificate}', authority='{site.authority.path}', allow=('valencia/g1',))"
    )
