"""Joined sites for real: gateways over links, TLS, gateways that come and go, a site that dies and starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority
from runtime_support import run_test, soon, until
from site_support import JoinedPair

from isthmus.ordering.group.member import GroupMember
from isthmus.runtime.ends import NoAddress
from isthmus.runtime.site import Site, site_spec
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import LOOPBACK, Address, listen
from isthmus.topology.file import load

PROCESSES = ("madrid/p1", "madrid/p2", "valencia/p1", "valencia/p2")


async def assert_holds(pair: JoinedPair) -> None:
    report = await pair.verdicts()
    assert not report.violations, report.violations[0].why
    assert {verdict.verdict for verdict in report.verdicts} == {"holds"}


async def flood(pair: JoinedPair, names: tuple[str, ...], count: int, until_then: Callable[[], bool]) -> None:
    """Keep everybody sending until something has happened, then `count` more from each."""
    sent = 0
    while not until_then():
        for name in names:
            await pair.send(name, f"{name} {sent}")
        sent += 1
        await asyncio.sleep(0)
    for name in names:
        await pair.send(name, *(f"{name} {number}" for number in range(sent, sent + count)))


@pytest.mark.parametrize(
    ("order", "join"),
    [
        ("causal", 'assign = "striped"'),
        ("causal", 'assign = "transfer-sets"'),
        ("fifo", ""),
        ("causal", 'assign = "striped"\nlinks = 4'),
    ],
)
def test_what_is_sent_anywhere_is_delivered_everywhere(tmp_path: Path, order: str, join: str) -> None:
    async def main() -> None:
        async with JoinedPair(tmp_path, order=order, join=join) as pair:
            for name in PROCESSES:
                await pair.send(name, *(f"{name} {number}" for number in range(200)))
            for name in PROCESSES:
                await until(lambda name=name: len(pair.delivered[name]) == 800)  # type: ignore[misc]
            await pair.until_stable()
            await assert_holds(pair)

    run_test(main())


def test_stable_waits_for_the_other_site(tmp_path: Path) -> None:
    """`stable` means: everywhere. A site that is not there yet keeps it waiting."""

    async def main() -> None:
        pair = JoinedPair(tmp_path)
        await pair.start("madrid")
        await pair.send("madrid/p1", "early")
        await pair.until_delivered("madrid/p2", "early")
        stable = asyncio.ensure_future(pair["madrid/p1"].stable(1))
        await pair.send("madrid/p2", "later")
        await pair.until_delivered("madrid/p1", "later")
        assert not stable.done()
        async with pair:
            await soon(stable)
            assert b"early" in pair.delivered["valencia/p1"]

    run_test(main())


def test_links_are_encrypted_where_the_file_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for site in ("madrid", "valencia"):
        for gateway in ("g1", "g2"):
            authority.issue(f"{site}-{gateway}", uri=f"isthmus://{site}/{gateway}")

    async def main() -> None:
        pair = JoinedPair(tmp_path)
        text = pair.file.read_text()
        for site in ("madrid", "valencia"):
            files = f'certificate = "{site}-{{gateway}}.pem", key = "{site}-{{gateway}}.key"'
            text = text.replace(
                f"[systems.{site}]", f'[systems.{site}]\ntls = {{ {files}, authority = "authority.pem" }}'
            )
        pair.file.write_text(text)
        async with pair:
            await pair.send("madrid/p1", "a secret")
            await pair.until_delivered("valencia/p2", "a secret")

    run_test(main())


def test_a_gateway_dies_under_load_and_comes_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with JoinedPair(tmp_path, join="links = 2") as pair:
            await pair.send("madrid/p1", "first")
            await pair.until_delivered("valencia/p1", "first")
            pair.kill("madrid/g1")
            survivor = pair["madrid/p1"].member
            assert isinstance(survivor, GroupMember)
            await flood(pair, PROCESSES, 20, lambda: len(survivor.view.members) == 3)
            await pair.start("madrid", ["g1+1"], joining=True)
            back = pair.gateway("madrid/g1+1").gateway.gateway
            await flood(pair, PROCESSES, 20, lambda: back.is_caught_up)
            await pair.until_stable()
            await assert_holds(pair)

    run_test(main())


def test_a_gateway_on_standby_is_added_and_another_one_removed_while_messages_flow(tmp_path: Path) -> None:
    async def main() -> None:
        async with JoinedPair(tmp_path, gateways=3, near='standby = ["g3"]') as pair:
            assert sorted(pair.living("madrid")) == ["madrid/g1", "madrid/g2", "madrid/p1", "madrid/p2"]
            await pair.send("madrid/p1", "first")
            await pair.until_delivered("valencia/p1", "first")
            await pair.start("madrid", ["g3"], joining=True)
            newcomer = pair.gateway("madrid/g3")
            await flood(pair, PROCESSES, 20, lambda: newcomer.links[2].metrics.frames_out > 5)
            leaving = asyncio.ensure_future(pair["madrid/g1"].stop())
            await flood(pair, PROCESSES, 20, leaving.done)
            assert pair["madrid/g1"].stopped.ended.how == "leave"
            await pair.until_stable()
            await assert_holds(pair)

    run_test(main())


def test_a_site_dies_as_a_whole_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Twice in a row, the second time before the first life's rest can have been seen to by much."""

    async def main() -> None:
        async with JoinedPair(tmp_path, near='journal = "journal"') as pair:
            await pair.send("madrid/p1", "first")
            await pair.until_delivered("valencia/p1", "first")
            for life in (1, 2):
                for name in pair.living("madrid"):
                    if "/p" in name:
                        await pair.send(name, *(f"{name} {life} {number}" for number in range(50)))
                await pair.send("valencia/p1", *(f"{life} {number}" for number in range(50)))
                await until(lambda: any(b"49" in each for each in pair.delivered["valencia/p1"]))
                pair.kill(*pair.living("madrid"))
                await pair.start("madrid")
            await pair.send("madrid/p1+200000", "last")
            await pair.until_delivered("valencia/p2", "last")
            await pair.until_stable()
            await assert_holds(pair)

    run_test(main())


def test_a_message_that_only_the_dead_had_seen_arrives_after_all(tmp_path: Path) -> None:
    """Delivered at home while the far site was not reachable; then all who had it died."""

    async def main() -> None:
        pair = JoinedPair(tmp_path, near='journal = "journal"')
        await pair.start("madrid")
        await pair.send("madrid/p1", "seen at home only")
        await pair.until_delivered("madrid/p2", "seen at home only")
        pair.kill(*pair.living("madrid"))
        async with pair:
            await pair.until_delivered("valencia/p1", "seen at home only")
            await pair.until_delivered("madrid/p2+100000", "seen at home only")
            await pair.until_stable()
            await assert_holds(pair)

    run_test(main())


def test_without_a_link_address_nobody_can_be_found(tmp_path: Path) -> None:
    pair = JoinedPair(tmp_path)
    pair.ports.release()
    lines = pair.file.read_text().splitlines()
    pair.file.write_text("\n".join(line for line in lines if not line.startswith("link-address")))
    topology = load(pair.file)
    spec: SystemSpec = site_spec(topology, topology.system("valencia"), [("127.0.0.1", 1)] * 4, "run")  # type: ignore[list-item]
    with (
        listen(Address(LOOPBACK, 0)) as listener,
        pytest.raises(NoAddress, match=r"systems\.valencia\.link-address is missing: where its gateways wait"),
    ):
        run_test(Site(topology, "valencia", spec).start(6, listener))
