"""Pictures of witnesses: what is on them, and where things stand."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from isthmus.pipeline.report.spacetime import Arrow, Happening, Picture, columns, draw, rows
from isthmus.pipeline.report.witness import Seen, chain_of, choose, key_of, picture_of
from isthmus.trace.schema import Violation


def seen(process: str, index: int, event: str, message: str, peer: str | None = None) -> Seen:
    return Seen("r", process, index, event, message, peer)


def violation(judged: str, process: str, first: str, second: str | None = None, why: str = "") -> Violation:
    return Violation("r", judged, process, first, second, why)


def drawn(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(draw(picture, "title", "description", "w"))


def marks(picture: Picture) -> list[tuple[str, str, str, str]]:
    return [
        (each.process, picture.messages[each.message], each.mark, each.caption)
        for each in picture.happenings
        if each.mark != "plain"
    ]


RELAYED = [
    seen("a/p1", 3, "send", "a/p1/1"),
    seen("a/p2", 5, "deliver", "a/p1/1"),
    seen("a/p2", 6, "send", "a/p2/1"),
    seen("b/q", 2, "deliver", "a/p2/1"),
    seen("b/q", 3, "deliver", "a/p1/1"),
    seen("b/g", 9, "accept", "a/p2/1", "link 0"),
    seen("b/g", 10, "accept", "a/p1/1", "link 1"),
]


def test_a_late_cause_is_shown_with_its_way_to_the_effect() -> None:
    picture = picture_of(violation("causal", "b/q", "a/p1/1", "a/p2/1"), RELAYED)
    assert marks(picture) == [("b/q", "a/p2/1", "wrong", "too early"), ("b/q", "a/p1/1", "wrong", "too late")]
    assert {each.process for each in picture.happenings} == {"a/p1", "a/p2", "b/q"}
    assert [each.via for each in picture.arrows] == ["", "link 0", "link 1"]
    assert not any(each.guess for each in picture.arrows)
    words = "".join(drawn(picture).itertext())
    for expected in ("too early, #2", "too late, #3", "link 1", "b/q delivers a/p1/1 at index 3"):
        assert expected in words


def test_a_cause_that_never_came_is_missing() -> None:
    without = [each for each in RELAYED if (each.process, each.index) != ("b/q", 3)]
    picture = picture_of(violation("causal", "b/q", "a/p1/1", "a/p2/1"), without)
    assert ("b/q", "a/p1/1", "missing", "") in marks(picture)
    assert [each.guess for each in picture.arrows].count(True) == 1
    assert "never delivered" in "".join(drawn(picture).itertext())


def test_a_chain_that_the_audit_tells_is_drawn_message_by_message() -> None:
    witness = replace(violation("causal", "d/d", "a/a/1", "c/c/1"), chain=("a/a/1", "b/b/1", "c/c/1"))
    log = [
        *(seen("a/a", 1, "send", "a/a/1"), seen("b/b", 1, "deliver", "a/a/1"), seen("b/b", 2, "send", "b/b/1")),
        *(seen("c/c", 1, "deliver", "b/b/1"), seen("c/c", 2, "send", "c/c/1"), seen("d/d", 1, "deliver", "c/c/1")),
        seen("d/d", 2, "deliver", "a/a/1"),
    ]
    picture = picture_of(witness, log)
    assert picture.messages == ["a/a/1", "b/b/1", "c/c/1"]
    assert len(picture.arrows) == 4
    places = columns(picture)
    assert max(places) == 6
    unknown = picture_of(violation("causal", "d/d", "a/a/1", "c/c/1"), log)
    assert [each.via for each in unknown.arrows if each.guess] == ["by way of others"]


def test_without_a_chain_the_messages_that_are_named_are_drawn() -> None:
    assert chain_of(violation("causal", "p", "a/b/1", "a/c/1")) == [
        "a/b/1",
        "a/c/1",
    ]
    assert chain_of(violation("agreement", "p", "a/b/1")) == ["a/b/1"]


def test_lost_repeated_and_invented_messages() -> None:
    log = [seen("a/p", 1, "send", "a/p/1"), seen("a/p", 2, "deliver", "a/p/1"), seen("b/q", 4, "deliver", "a/p/1")]
    lost = picture_of(violation("agreement", "c/r", "a/p/1"), log)
    assert marks(lost) == [("c/r", "a/p/1", "missing", "")]
    assert {each.process for each in lost.happenings} == {"a/p", "b/q", "c/r"}
    again = picture_of(
        violation("integrity", "b/q", "a/p/1", why="… and again at index 9"), [*log, seen("b/q", 9, "deliver", "a/p/1")]
    )
    assert marks(again) == [("b/q", "a/p/1", "wrong", "again")]
    invented = picture_of(violation("integrity", "b/q", "x/y/7"), [seen("b/q", 4, "deliver", "x/y/7")])
    assert marks(invented) == [("b/q", "x/y/7", "wrong", "x/y/7: nobody sent it")]
    assert invented.arrows == []
    stranger = picture_of(violation("integrity", "b/q", "a/p/1"), log)
    assert marks(stranger)[0][3] == "not for it"
    for picture in (lost, again, invented, stranger):
        assert drawn(picture) is not None


def test_two_orders_are_shown_at_the_processes_that_the_witness_names() -> None:
    log = [
        *(seen("a/p", 1, "send", "a/p/1"), seen("b/q", 1, "send", "b/q/1")),
        *(seen("a/p", 2, "deliver", "a/p/1"), seen("a/p", 3, "deliver", "b/q/1")),
        *(seen("a/x", 2, "deliver", "b/q/1"), seen("a/x", 3, "deliver", "a/p/1")),
        *(seen("b/q", 2, "deliver", "b/q/1"), seen("b/q", 3, "deliver", "a/p/1")),
    ]
    named = violation("total", "a/p", "a/p/1", "b/q/1", "… before …, but b/q delivered …")
    picture = picture_of(named, log)
    assert {each.process for each in picture.happenings} == {"a/p", "b/q"}
    assert [each[3] for each in marks(picture)] == ["first", "then", "first", "then"]


def test_pictures_of_logs_that_are_lost_are_pictures_all_the_same() -> None:
    for judged in ("integrity", "agreement", "fifo", "causal", "total"):
        second = None if judged in ("integrity", "agreement") else "a/p/2"
        assert drawn(picture_of(violation(judged, "b/q", "a/p/1", second), [])) is not None  # type: ignore[arg-type]


def test_columns_follow_logs_and_arrows() -> None:
    happenings = [
        Happening("a/p", 1, "send", 0),
        Happening("a/q", 7, "deliver", 0),
        Happening("a/q", 3, "send", 1),
        Happening("a/p", 2, "deliver", 1),
        Happening("b/r", None, "deliver", 0, "missing"),
    ]
    picture = Picture(["m", "n"], happenings, [Arrow(0, 1), Arrow(2, 3), Arrow(0, 4, guess=True)])
    assert columns(picture) == [0, 1, 0, 1, 2]


def test_a_delivery_before_its_send_is_drawn_backwards() -> None:
    happenings = [Happening("a/p", 2, "send", 0), Happening("a/p", 1, "deliver", 0)]
    picture = Picture(["m"], happenings, [Arrow(0, 1)])
    send, delivery = columns(picture)
    assert delivery < send
    assert drawn(picture) is not None


def test_an_arrow_goes_round_an_event_that_it_has_nothing_to_do_with() -> None:
    log = [seen("a/p", 1, "send", "a/p/1"), seen("b/q", 4, "deliver", "a/p/1")]
    picture = picture_of(violation("agreement", "c/r", "a/p/1"), log)
    paths = [each.get("d", "") for each in drawn(picture).iter() if "message" in each.get("class", "").split()]
    assert len(paths) == 2

    def bend(path: str) -> float:
        """How far the middle of the curve is from the straight line between its ends."""
        (x1, y1), (cx, cy), (x2, y2) = (map(float, part.split(",")) for part in path[1:].replace("Q", "").split())
        return abs((x2 - x1) * (y1 - cy) - (x1 - cx) * (y2 - y1)) / ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5

    assert bend(paths[0]) < 1
    assert bend(paths[1]) > 20


def test_processes_of_a_system_stand_together() -> None:
    heights = rows(["a/1", "b/1", "a/2", "b/1"])
    assert sorted(heights, key=lambda name: heights[name]) == ["a/1", "a/2", "b/1"]
    assert heights["b/1"] - heights["a/2"] > heights["a/2"] - heights["a/1"]


def test_some_of_every_kind_are_chosen() -> None:
    many = [violation("total", "p", f"a/b/{number}", "a/c/1") for number in range(1, 50)]
    one = violation("agreement", "p", "a/b/1")
    assert choose([*many, one], 3) == [many[0], many[1], one]
    assert choose([], 3) == []
    assert choose([one], 0) == []


@pytest.mark.parametrize("text", ["", "a", "a/b", "a/b/", "a/b/-1", "a/b/x", "/b/1", f"a/b/{'9' * 20}"])
def test_what_is_no_message_id_is_none(text: str) -> None:
    assert key_of(text) is None


def test_only_the_process_of_a_message_id_may_hold_slashes() -> None:
    assert key_of("a/b/c/3") == ("a", "b/c", 3)
