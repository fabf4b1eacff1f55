"""The journal on disk: what comes back, what a killed writer leaves, what is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from msgspec import structs

from isthmus.core.message import Batch
from isthmus.core.segment import Segment
from isthmus.join.recovery import Recovered
from isthmus.runtime import journal as journal_module
from isthmus.runtime.journal import VERSION, Head, Journal, JournalUnusable, begin_life, read_former


def head(gateway: str = "g1", life: int = 0, since: int = 1, run: str = "r", system: str = "madrid") -> Head:
    return Head(VERSION, run, system, gateway, life, since)


def batch(*ids: tuple[int, int], payload: bytes = b"x") -> Batch:
    return Batch(1, 7, 1, [], 0, Segment.pack([(*each, payload) for each in ids]))


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Journal]]:
    """Makes journals in the directory of the test, and closes them."""
    made: list[Journal] = []

    def make(whose: Head | None = None, done: dict[int, int] | None = None) -> Journal:
        made.append(Journal(tmp_path, whose or head(), done or {}))
        return made[-1]

    yield make
    for journal in made:
        journal.close()


def ids(directory: Path, life: int = 1) -> list[tuple[int, int]]:
    return [each for segment in read_former(directory, life, "r", "madrid").segments for each in segment.ids()]


def test_what_was_stored_comes_back_in_order(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    journal = keep()
    journal.store([batch((1, 1), (1, 2)), batch((2, 1))])
    journal.store([batch((1, 3))])
    assert ids(tmp_path) == [(1, 1), (1, 2), (2, 1), (1, 3)]


def test_payloads_come_back(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    keep().store([batch((1, 1), payload=b"\x00order 7")])
    (segment,) = read_former(tmp_path, 1, "r", "madrid").segments
    assert list(segment) == [(1, 1, b"\x00order 7")]


def test_what_is_done_is_left_out_and_remembered(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    journal = keep(done={5: 9})
    journal.store([batch((1, 1), (1, 2))])
    journal.note({1: 1})
    recovered = read_former(tmp_path, 1, "r", "madrid")
    assert recovered.done == {5: 9, 1: 1}
    assert [list(segment.ids()) for segment in recovered.segments] == [[(1, 2)]]


def test_the_life_that_is_running_is_not_the_past(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    keep(head(life=1)).store([batch((1, 1))])
    assert ids(tmp_path, life=1) == []
    assert ids(tmp_path, life=2) == [(1, 1)]


def test_who_comes_later_in_a_life_learns_what_those_before_it_were_done_with(
    tmp_path: Path, keep: Callable[..., Journal]
) -> None:
    keep(done={1: 3}).store([batch((1, 4))])
    began = read_former(tmp_path, 1, "r", "madrid")
    heir = keep(structs.replace(head(life=1), former=sorted(began.done.items())), began.done)
    assert read_former(tmp_path, 1, "r", "madrid") == began
    heir.store([batch((1, 4))])
    heir.note({1: 4})
    heir.forget_former()
    assert read_former(tmp_path, 1, "r", "madrid") == Recovered({1: 3}, ()), "not what is done since"
    assert read_former(tmp_path, 2, "r", "madrid") == Recovered({1: 4}, ())


def test_a_volume_that_is_removed_while_others_are_read_is_not_missed(
    tmp_path: Path, keep: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep().store([batch((1, 1))])
    keep(head("g2", life=1)).store([batch((1, 1))])
    read_bytes = Path.read_bytes

    def removed_before(path: Path) -> bytes:
        path.unlink()
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", removed_before)
    assert ids(tmp_path) == []


def test_who_came_first_comes_first(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    """A gateway that joined later lacks causes that only those before it hold."""
    keep(head("g1+1", since=65537)).store([batch((2, 1))])
    keep(head("g2")).store([batch((1, 1)), batch((2, 1))])
    assert ids(tmp_path) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("torn", range(1, 40))
def test_half_a_record_at_the_end_was_never_acknowledged(
    tmp_path: Path, keep: Callable[..., Journal], torn: int
) -> None:
    journal = keep()
    journal.store([batch((1, 1))])
    path = next(tmp_path.glob("*.journal"))
    whole = path.stat().st_size
    journal.store([batch((1, 2), payload=bytes(64))])
    path.write_bytes(path.read_bytes()[: whole + torn])
    assert ids(tmp_path) == [(1, 1)]


def test_damage_elsewhere_is_refused(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    journal = keep()
    journal.store([batch((1, 1), payload=bytes(64))])
    journal.store([batch((1, 2))])
    path = next(tmp_path.glob("*.journal"))
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalUnusable, match="is damaged at byte"):
        ids(tmp_path)


def test_the_journal_of_another_site_is_refused(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    keep(head(system="valencia"))
    with pytest.raises(JournalUnusable, match="belongs to valencia of run r, not to madrid of r"):
        ids(tmp_path)


def test_the_journal_of_another_version_is_refused_as_such(tmp_path: Path) -> None:
    """Version 1 kept a list of messages. It is not damaged, so nobody is told to restore it."""
    entries = ("head", 1, "r", "madrid", "g1", 0, 1), ("done", []), ("kept", [(1, 1, b"x")])
    bodies = [msgspec.msgpack.encode(entry) for entry in entries]
    records = [struct.pack(">II", len(body), crc32(body)) + body for body in bodies]
    (tmp_path / "g1.0.000001.journal").write_bytes(b"".join(records))
    with pytest.raises(JournalUnusable, match="is not a journal of this version; start with an empty directory"):
        ids(tmp_path)


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "g1.0.000001.journal").write_bytes(b"\x00\x00\x00\x01\xd2\x02\xef\x8d\x00")
    with pytest.raises(JournalUnusable):
        ids(tmp_path)


def test_volumes_go_when_nothing_in_them_is_needed(
    tmp_path: Path, keep: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "VOLUME_BYTES", 1000)
    journal = keep()
    for seq in range(1, 31):
        journal.store([batch((1, seq), payload=bytes(200))])
        journal.note({1: seq - 5})
    assert len(list(tmp_path.glob("*.journal"))) <= 4
    assert ids(tmp_path) == [(1, seq) for seq in range(26, 31)]


def test_a_volume_stays_while_one_message_in_it_is_needed(
    tmp_path: Path, keep: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "VOLUME_BYTES", 1000)
    journal = keep()
    journal.store([batch((2, 1))])
    for seq in range(1, 31):
        journal.store([batch((1, seq), payload=bytes(200))])
        journal.note({1: seq})
    assert ids(tmp_path) == [(2, 1)]


def test_former_lives_can_be_forgotten(tmp_path: Path, keep: Callable[..., Journal]) -> None:
    keep(head(life=0)).store([batch((1, 1))])
    journal = keep(head(life=1))
    journal.store([batch((1, 1))])
    journal.forget_former()
    assert ids(tmp_path, life=1) == []
    assert ids(tmp_path, life=2) == [(1, 1)]


def test_lives_count(tmp_path: Path) -> None:
    assert [begin_life(tmp_path / "new") for _ in range(3)] == [0, 1, 2]
    assert begin_life(tmp_path / "new", 2) == 2
    assert begin_life(tmp_path / "new", 7) == 7


def test_a_life_that_is_over_cannot_begin(tmp_path: Path) -> None:
    begin_life(tmp_path, 3)
    with pytest.raises(JournalUnusable, match=r"life 2 is over: the site is in life 3; use --life 4"):
        begin_life(tmp_path, 2)


def test_a_life_that_is_no_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "life").write_text("many")
    with pytest.raises(JournalUnusable, match="does not hold a number"):
        begin_life(tmp_path)
