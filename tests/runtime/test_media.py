"""Media for real: parcels, the hub's one order, multicast, injected loss, and strangers who talk nonsense."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_support import run_test, soon, until

from isthmus.core.codec import FrameError
from isthmus.core.ids import Directory, ProcessId, ProcessName
from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.core.wire.pdu import Pdu
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.systems.acknowledged import decide
from isthmus.runtime.systems.spec import AcknowledgedSpec
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen
from isthmus.runtime.transport.carrier import Receive
from isthmus.runtime.transport.hello import Hello, encode_hello
from isthmus.runtime.transport.hub import Hub, HubMedium, HubUnreachable
from isthmus.runtime.transport.medium import Losses, Medium
from isthmus.runtime.transport.multicast import PART, MulticastMedium, NoMulticast, group_address, try_out
from isthmus.runtime.transport.parcel import HERE, ParcelReader, pack, unpack

GROUP = 7
NAMES = Directory([ProcessName("hall", f"p{place}") for place in range(1, 5)])
EVERYBODY = (0, 1, 2, 3)

ids = st.integers(0, (1 << 62))
parcels = st.lists(st.tuples(ids, st.lists(ids, max_size=5), st.binary(min_size=1, max_size=40)), max_size=6)


def batch(sender: ProcessId, number: int, payload: bytes = b"x") -> Batch:
    return Batch(1, sender, number, [1, 1, 1, 1, 9], 0, Segment.of(sender, number, [payload]))


class Hall:
    """Four entities on one medium, and what each has heard."""

    def __init__(self, ends: Sequence[Medium], hub: Hub | None = None) -> None:
        self.ends = ends
        self.hub = hub
        self.heard: list[list[tuple[int, int]]] = [[] for _ in ends]
        for place, end in enumerate(ends):
            end.receive = self._taker(place)

    def _taker(self, place: int) -> Receive:
        def take(source: ProcessId, pdus: Sequence[Pdu]) -> None:
            for pdu in pdus:
                assert isinstance(pdu, Batch)
                assert pdu.sender == source
                self.heard[place].append((pdu.sender, pdu.number))

        return take

    async def open(self) -> Hall:
        await asyncio.gather(*(end.open() for end in self.ends))
        unheard = await asyncio.gather(
            *(soon(end.reach(set(EVERYBODY) - {place}, 10)) for place, end in enumerate(self.ends))
        )
        assert unheard == [[]] * len(self.ends)
        return self

    async def close(self) -> None:
        await asyncio.gather(*(end.close() for end in self.ends))
        if self.hub is not None:
            self.hub.close()


async def hub_hall(loss: float = 0.0, seed: int = 0) -> Hall:
    hub = await Hub(listen(Address(LOOPBACK, 0)), EVERYBODY, group=GROUP, label="hall").open()
    ends = [
        HubMedium(place, hub.address, NAMES, group=GROUP, returns_own=True, losses=Losses(loss, seed))
        for place in EVERYBODY
    ]
    return await Hall(ends, hub).open()


async def multicast_hall(loss: float = 0.0) -> Hall:
    where = try_out(group_address(GROUP, 0))
    ends = [
        MulticastMedium(place, where, NAMES, group=GROUP, returns_own=False, losses=Losses(loss)) for place in EVERYBODY
    ]
    return await Hall(ends).open()


@given(parcels, st.integers(1, 50))
def test_parcels_survive_being_cut_anywhere(sent: list[tuple[int, list[int], bytes]], step: int) -> None:
    stream = b"".join(pack(*each) for each in sent)
    reader = ParcelReader()
    pieces = [reader.feed(stream[start : start + step]) for start in range(0, len(stream), step)]
    got = [(each.source, list(each.destinations), each.body) for piece in pieces for each in unpack(piece)]
    assert got == sent
    assert reader.pending == 0


@given(st.binary(max_size=80))
def test_whatever_the_bytes_there_come_parcels_or_a_frame_error(data: bytes) -> None:
    try:
        for parcel in unpack(ParcelReader().feed(data)):
            parcel.pdu()
    except FrameError:
        pass


def test_a_parcel_that_is_too_long_is_refused_before_it_is_kept() -> None:
    with pytest.raises(FrameError, match="out of bounds"):
        ParcelReader().feed(struct.pack(">IQH", 1 << 31, 0, 0))


def test_a_hub_shows_everything_to_everybody_in_one_order() -> None:
    """TO/PO, Sect. 2: 1C. Senders get their own PDUs back in their place."""

    async def scenario() -> None:
        hall = await hub_hall()
        for number in range(1, 51):
            for place, end in enumerate(hall.ends):
                end.send(EVERYBODY, batch(place, number))
            await asyncio.sleep(0)
        await until(lambda: all(len(heard) == 200 for heard in hall.heard))
        assert hall.heard[0] == hall.heard[1] == hall.heard[2] == hall.heard[3]
        await hall.close()

    run_test(scenario())


def test_what_is_for_one_is_taken_by_one() -> None:
    async def scenario() -> None:
        hall = await hub_hall()
        hall.ends[0].send((2,), batch(0, 1))
        hall.ends[0].send(EVERYBODY, batch(0, 2))
        await until(lambda: all((0, 2) in heard for heard in hall.heard))
        assert [len(heard) for heard in hall.heard] == [1, 1, 2, 1]
        await hall.close()

    run_test(scenario())


def test_losses_are_drawn_per_pdu_and_entity_by_a_seed_and_never_hit_a_sender() -> None:
    async def heard(seed: int) -> list[list[tuple[int, int]]]:
        hall = await hub_hall(loss=0.3, seed=seed)
        for number in range(1, 201):
            hall.ends[0].send(EVERYBODY, batch(0, number))
        await until(lambda: len(hall.heard[0]) == 200 and all(end.carried == 200 for end in hall.ends[1:]))
        lost = [end.lost for end in hall.ends]
        assert lost[0] == 0
        assert all(30 < each < 90 for each in lost[1:])
        await hall.close()
        return hall.heard

    first, again, other = (run_test(heard(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first[1] != first[2], "one datagram's worth of PDUs was lost as a whole, or by everybody"


def test_multicast_keeps_the_order_of_each_sender_and_carries_what_no_datagram_holds() -> None:
    """TO/PO, Sect. 2: MC."""

    async def scenario() -> None:
        hall = await multicast_hall()
        for number in range(1, 31):
            for place, end in enumerate(hall.ends):
                end.send(EVERYBODY, batch(place, number, bytes(3 * PART if number == 7 else 10)))
            await asyncio.sleep(0)
        await until(lambda: all(len(heard) == 90 for heard in hall.heard))
        for place, heard in enumerate(hall.heard):
            for sender in set(EVERYBODY) - {place}:
                assert [number for source, number in heard if source == sender] == list(range(1, 31))
        await hall.close()

    run_test(scenario())


def test_nonsense_on_a_multicast_group_is_counted_and_ignored() -> None:
    async def scenario() -> None:
        hall = await multicast_hall()
        end = hall.ends[0]
        assert isinstance(end, MulticastMedium)
        header = struct.pack(">QQIHH", GROUP, 9, 1, 0, 1)
        for nonsense in (
            b"",
            b"x" * 30,
            header + b"nonsense",
            header + pack(1, (0,), b"no frame"),
            header[:-2] + b"\0\0x",
        ):
            end.heard(nonsense)
        assert end.refused == 3
        hall.ends[1].send(EVERYBODY, batch(1, 1))
        await until(lambda: (1, 1) in hall.heard[0])
        await hall.close()

    run_test(scenario())


def test_a_hub_hangs_up_on_who_talks_nonsense_or_for_others() -> None:
    async def scenario() -> None:
        hub = await Hub(listen(Address(LOOPBACK, 0)), EVERYBODY, group=GROUP, label="hall").open()
        for words in (b"GET / HTTP/1.1\r\n\r\n" * 2, encode_hello(Hello(GROUP, 1)) + pack(2, (), HERE)):
            reader, writer = await soon(asyncio.open_connection(*hub.address))
            writer.write(words)
            try:
                while await soon(reader.read(1 << 10)):
                    pass
            except ConnectionError:
                pass
            writer.close()
        assert hub.refused == 2
        hub.close()

    run_test(scenario())


def test_who_loses_the_hub_is_told() -> None:
    async def scenario() -> None:
        hall = await hub_hall()
        reasons: list[str] = []
        for end in hall.ends:
            end.on_lost = reasons.append
        assert hall.hub is not None
        hall.hub.close()
        await until(lambda: len(reasons) == 4)
        assert all("lost the hub" in why for why in reasons)
        await hall.close()

    run_test(scenario())


def test_a_hub_that_never_comes_is_one_clear_sentence() -> None:
    async def scenario() -> None:
        with listen(Address(LOOPBACK, 0)) as taken:
            where = address_of(taken)
        end = HubMedium(0, where, NAMES, group=GROUP, returns_own=True, losses=Losses(), within=0.2)
        with pytest.raises(HubUnreachable, match=rf"hall/p1 waited 0.2 s for the hub at {where}"):
            await end.open()
        end.abort()

    run_test(scenario())


def test_to_is_not_put_on_multicast_and_po_falls_back_to_a_hub(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RuntimeProblem, match="multicast is none"):
        decide(AcknowledgedSpec(protocol="to", medium="multicast"), "run/hall")
    assert decide(AcknowledgedSpec(protocol="to"), "run/hall").medium == "hub"
    assert decide(AcknowledgedSpec(protocol="po"), "run/hall").medium == "multicast"
    with pytest.raises(NoMulticast, match="Use the hub instead"):
        try_out(Address("127.0.0.1", 0))

    def not_here(where: Address) -> Address:
        raise NoMulticast(where, "no such device")

    monkeypatch.setattr("isthmus.runtime.systems.acknowledged.try_out", not_here)
    assert decide(AcknowledgedSpec(protocol="po"), "run/hall").medium == "hub"
    assert "there will be a hub instead" in caplog.text
    with pytest.raises(NoMulticast, match="no such device"):
        decide(AcknowledgedSpec(protocol="po", medium="multicast"), "run/hall")
