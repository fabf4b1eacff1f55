"""What a site goes on with after all its processes died: journals as one, and who broadcasts the rest."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.ids import LIFE, ProcessId, incarnation_of
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Marks, Opened, Segment
from isthmus.join.recovery import DoneMarks, Recovered, Replay, merge

G1, G2 = 10, 11


def segments(text: str) -> list[Segment]:
    """`1.1 2.1 | 1.2`: messages 1 of origin 1 and 1 of origin 2 in one segment, 2 of origin 1 in the next."""
    return [
        Segment.pack([(int(origin), int(seq), b"") for origin, seq in (each.split(".") for each in part.split())])
        for part in text.split("|")
    ]


def marks(text: str) -> Marks:
    (segment,) = segments(text)
    return segment.marks


def spelled(found: Iterable[Segment]) -> str:
    return " ".join(f"{origin}.{seq}" for segment in found for origin, seq in segment.ids())


def test_what_is_done_is_not_broadcast_again() -> None:
    recovered = merge([({1: 2}, segments("1.1 2.1 | 1.2 1.3"))])
    assert spelled(recovered.segments) == "2.1 1.3"
    assert recovered.done == {1: 2}


def test_the_latest_word_on_what_is_done_counts() -> None:
    recovered = merge([({1: 2}, segments("1.1 1.2 1.3")), ({1: 3, 2: 1}, segments("1.3 1.4"))])
    assert spelled(recovered.segments) == "1.4"
    assert recovered.done == {1: 3, 2: 1}


def test_what_only_a_later_journal_has_follows() -> None:
    recovered = merge([({}, segments("1.1 2.1")), ({}, segments("2.1 1.1 1.2"))])
    assert spelled(recovered.segments) == "1.1 2.1 1.2"


def test_a_message_behind_a_gap_was_never_delivered() -> None:
    assert spelled(merge([({}, segments("1.1 1.3"))]).segments) == "1.1"


@st.composite
def journals(draw: st.DrawFn) -> tuple[list[Opened], list[tuple[dict[int, int], list[Segment]]]]:
    """A causal history, and keepers that hold a prefix of it each; the first holds all that was delivered."""
    history: list[Opened] = []
    counts: dict[int, int] = {}
    for origin in draw(st.lists(st.integers(1, 3), max_size=12)):
        counts[origin] = counts.get(origin, 0) + 1
        history.append((origin, counts[origin], b"%d" % counts[origin]))
    held = []
    for _ in range(draw(st.integers(1, 3))):
        done_until = draw(st.integers(0, len(history)))
        dropped = draw(st.integers(0, done_until))
        cuts = sorted({dropped, *draw(st.sets(st.integers(dropped, len(history)))), len(history)})
        pieces = [Segment.pack(history[start:end]) for start, end in pairwise(cuts)]
        held.append((Recovered({}, (Segment.pack(history[:done_until]),)).last(), pieces))
    return history, held


@given(journals())
def test_merging_loses_nothing_and_keeps_the_order(
    drawn: tuple[list[Opened], list[tuple[dict[int, int], list[Segment]]]],
) -> None:
    history, held = drawn
    recovered = merge(held)
    expected = [message for message in history if message[1] > recovered.done.get(message[0], 0)]
    assert list(chain.from_iterable(recovered.segments)) == expected


def test_the_first_gateway_broadcasts_everything_once() -> None:
    recovered = Recovered({}, tuple(segments("1.1 | 2.1")))
    first, second = Replay(G1, recovered), Replay(G2, recovered)
    assert spelled(first.due([G1, G2])) == "1.1 2.1"
    assert first.due([G1, G2]) == ()
    assert second.due([G1, G2]) == ()


def test_the_next_gateway_goes_on_where_the_first_one_died() -> None:
    recovered = Recovered({}, tuple(segments("1.1 2.1 | 1.2")))
    second = Replay(G2, recovered)
    second.delivered(marks("1.1"))
    assert not second.over
    assert spelled(second.due([G2])) == "2.1 1.2"
    second.delivered(marks("2.1 1.2"))
    assert second.over


def test_what_former_lives_left_is_settled_when_everybody_has_the_last_of_it() -> None:
    replay = Replay(G2, Recovered({}, tuple(segments("1.1 2.1 | 1.2"))))
    replay.delivered(marks("1.1 2.1"), G1, 1)
    replay.have_settled(G1, 1)
    assert not replay.settled, "there is more to come"
    replay.delivered(marks("1.2"), G1, 2)
    replay.have_settled(G2, 9)
    assert not replay.settled
    replay.have_settled(G1, 2)
    assert replay.settled


def test_it_is_settled_too_when_everybody_is_in_a_view_behind_it() -> None:
    replay = Replay(G2, Recovered({}, tuple(segments("1.1"))))
    replay.delivered(marks("1.1"), G1, 1)
    replay.all_have_arrived()
    assert not replay.settled, "in a view in which some may lack it"
    replay.view()
    replay.all_have_arrived()
    assert replay.settled


def test_one_that_comes_replays_what_its_system_has_not_delivered() -> None:
    replay = Replay(G2, Recovered({}, tuple(segments("1.1 2.1 | 1.2"))))
    replay.was_delivered(SlotMarks([(1, 1), (incarnation_of(2, LIFE), 4)]))
    assert spelled(replay.due([G2])) == "1.2", "of 2 everything is over: somebody is there in a later life"


def test_nothing_is_left_for_one_that_comes_when_all_is_replayed() -> None:
    replay = Replay(G2, Recovered({}, tuple(segments("1.1"))))
    replay.was_delivered(SlotMarks([(1, 1)]))
    assert replay.over
    replay.all_have_arrived()
    assert replay.settled


def nothing_onward(origin: ProcessId) -> list[SlotMarks]:
    return []


def test_done_is_what_is_settled_and_confirmed_by_every_join() -> None:
    done = DoneMarks({1: 4})
    done.settled({1: 5, 2: 1})
    assert done.done(nothing_onward) == {1: 5, 2: 1}
    done.settled({1: 7})
    behind = SlotMarks([(1, 6)])
    assert done.done(lambda origin: [behind]) == {1: 6, 2: 1}
    behind.raise_to(1, 7)
    assert done.done(lambda origin: [behind]) == {1: 7, 2: 1}
