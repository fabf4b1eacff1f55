"""What traces say of a standstill: when it counts, and when it is over."""

from __future__ import annotations

from isthmus.core.ids import MILLISECOND
from isthmus.lab.harness.deaths import flowing_again
from isthmus.trace.schema import Event


def deliveries(system: str, *milliseconds: int, origin: str = "elsewhere") -> list[Event]:
    return [
        Event(
            run="r",
            system=system,
            process="p1",
            role="app",
            index=index,
            event="deliver",
            origin_system=origin,
            origin_process="p1",
            origin_seq=index + 1,
            time_ns=time * MILLISECOND,
        )
        for index, time in enumerate(milliseconds)
    ]


def flowing(events: list[Event], at: int, until: int) -> int:
    return flowing_again(events, ("a", "b"), at * MILLISECOND, until * MILLISECOND) // MILLISECOND


def test_a_pause_as_there_are_many_is_no_standstill() -> None:
    assert flowing(deliveries("a", 0, 30, 90, 120, 200), at=100, until=200) == 100


def test_the_longest_standstill_counts_in_whichever_system() -> None:
    a = deliveries("a", 90, 300, 310, 500)
    b = deliveries("b", 90, 450, 460, 600)
    assert flowing(a, at=100, until=600) == 300
    assert flowing(a + b, at=100, until=600) == 450


def test_what_lies_before_the_death_is_no_part_of_it() -> None:
    assert flowing(deliveries("a", 0, 190, 350), at=100, until=600) == 350


def test_a_standstill_that_outlasts_the_load_is_one() -> None:
    assert flowing(deliveries("a", 90, 900), at=100, until=300) == 900
    assert flowing(deliveries("a", 90, 120, 310, 900), at=100, until=300) == 310, "the next began after it"


def test_what_a_system_says_to_itself_is_not_what_flows() -> None:
    events = deliveries("a", 90, 400) + deliveries("a", 100, 200, 300, origin="a")
    assert flowing(events, at=100, until=500) == 400
