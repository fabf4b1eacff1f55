"""Founding members in OS processes of their own wait for each other, and in the end not for who will never come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from children import NAMES, Child, Children, children
from example_files import example_file
from msgspec.structs import replace
from patience import seconds
from runtime_support import run_with_children, soon

from isthmus.adapters.embedded import plan
from isthmus.core.ids import MILLISECOND, SECOND, Nanos
from isthmus.runtime.site import site_spec
from isthmus.runtime.systems.launch import to_each_peer
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import LOOPBACK, Address
from isthmus.runtime.transport.mesh import Mesh
from isthmus.runtime.transport.peer import DEFAULT_LIMITS
from isthmus.runtime.wan.emulator import CutKind, Wan
from isthmus.topology.file import parse
from isthmus.trace.reader import read_trace

SUSPECT_AFTER: Nanos = 300 * MILLISECOND


async def warning(child: Child) -> str:
    """The next line that a child has for people."""
    assert child.process.stderr is not None
    return (await soon(child.process.stderr.readline())).decode()


@asynccontextmanager
async def one_sided(spec: SystemSpec) -> AsyncIterator[tuple[Children, Wan, SystemSpec]]:
    """The system, and what p3 believes to be p1's address: nobody answers there until the way is mended."""
    async with await soon(Wan.start(spec.addresses[0])) as way, children(spec) as system:
        way.cut(CutKind.RESET)
        yield system, way, replace(spec, addresses=spec.addresses | {0: way.address})


def test_a_founder_that_finds_the_others_late_is_not_excluded_at_birth() -> None:
    """It can be reached by everybody, and does not reach one of them itself for longer than any silence is borne."""

    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3], suspect_after=SUSPECT_AFTER)
        async with one_sided(spec) as (system, way, detour):
            late = await system.start("p3", "quiet", listeners["p3"], spec=detour)
            sender = await system.start("p1", "steady", listeners["p1"])
            other = await system.start("p2", "quiet", listeners["p2"])
            await system.until(lambda: other.over or sender.over or other.delivered["p1"] >= 500)
            assert not other.over
            assert not sender.over
            way.mend()
            await system.until(lambda: late.over or late.delivered["p1"] >= 500)
            assert not late.over, await late.errors()

    run_with_children(scenario())


def test_a_founder_that_dies_before_the_system_was_whole_is_excluded_in_the_end() -> None:
    """p1 has never heard it. The message becomes stable only when nobody waits for the dead one any more."""

    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3], suspect_after=SUSPECT_AFTER, start_within=2 * SECOND)
        async with one_sided(spec) as (system, _, detour):
            victim = await system.start("p3", "quiet", listeners["p3"], spec=detour)
            sender = await system.start("p1", "careful", listeners["p1"])
            await system.start("p2", "quiet", listeners["p2"])
            await system.until(lambda: "up" in sender.lines)
            victim.process.kill()
            await system.until(lambda: sender.over or "stable" in sender.lines)
            assert not sender.over, await sender.errors()

    run_with_children(scenario())


def test_a_quorum_goes_on_without_a_founder_that_never_comes_and_tells_it_so() -> None:
    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3], suspect_after=SUSPECT_AFTER, start_within=SECOND)
        listeners["p3"].close()
        async with children(spec) as system:
            sender, other = [await system.start(name, "careful", listeners[name]) for name in NAMES[:2]]
            await system.until(lambda: all(child.over or "stable" in child.lines for child in (sender, other)))
            expected = f"WARNING embedded/p1 has waited 1 s for embedded/p3 ({spec.addresses[2]}) and goes on: a quorum"
            while not (words := await warning(sender)).startswith(expected):
                assert "and goes on waiting" in words, "p2 may have taken its time"
            too_late = await system.start("p3", "quiet")
            assert await too_late.ended() == 1
            assert "the others went on without this process" in await too_late.errors()

    run_with_children(scenario())


def test_without_a_quorum_a_founder_says_whom_it_waits_for_and_waits_on() -> None:
    patience = seconds(1)

    async def scenario() -> None:
        # The other two have to start within this time of each other: it grows with a slow machine.
        spec, listeners = plan(NAMES[:3], start_within=int(patience * SECOND))
        async with children(spec) as system:
            first = await system.start("p3", "quiet", listeners["p3"])
            words = await warning(first)
            assert words.startswith(f"WARNING embedded/p3 has waited {patience:g} s for embedded/p1")
            assert "and goes on waiting" in words
            assert not first.lines
            others = [await system.start(name, "careful", listeners[name]) for name in NAMES[:2]]
            await system.until(lambda: all("stable" in child.lines for child in others) and "up" in first.lines)

    run_with_children(scenario())


def test_a_founder_that_waits_for_others_can_be_told_to_stop(tmp_path: Path) -> None:
    """It ends at once, says so, and its trace is complete."""

    async def scenario() -> None:
        spec, listeners = plan(NAMES[:3], trace=str(tmp_path), start_within=SECOND)
        async with children(spec) as system:
            alone = await system.start("p3", "quiet", listeners.pop("p3"))
            for nobody in listeners.values():
                nobody.close()
            assert "goes on waiting" in await warning(alone)
            alone.process.terminate()
            assert await alone.ended() == 1
            assert "told to stop before all had come" in await alone.errors()
        assert [row.event for row in read_trace([tmp_path]).events()] == ["start", "view", "crash"]

    run_with_children(scenario())


def test_whoever_cannot_be_reached_is_called_again_faster_than_it_would_suspect_us() -> None:
    spec, listeners = plan(NAMES[:2], suspect_after=SUSPECT_AFTER)
    mesh = to_each_peer(spec, 0, listeners["p1"], DEFAULT_LIMITS)
    assert isinstance(mesh, Mesh)
    with_jitter = 1.5 * mesh.limits.longest_pause
    assert 4 * with_jitter <= SUSPECT_AFTER / SECOND + 1e-9
    for listener in listeners.values():
        listener.close()


@pytest.mark.parametrize("example", ["causal-group", "to-hall", "daisy-two-levels", "clusters-two-layers"])
def test_the_file_says_how_long_founders_wait(example: str) -> None:
    text = example_file(example).read_text().replace('kind = "embedded"', 'kind = "embedded"\nstart-within = "5s"')
    topology = parse(text, "t.toml")
    system = topology.systems[0]
    addresses = [Address(LOOPBACK, 1)] * len(system.members)
    assert site_spec(topology, system, addresses, "run").start_within == 5 * SECOND
