"""No id is ever used twice, and every id leads back to a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.freeze import freeze
from isthmus.core.ids import LIFE, SLOT_BITS, Directory, ProcessName, incarnation_of, life_of, slot_of

NAMES = [ProcessName("madrid", "p1"), ProcessName("madrid", "p2"), ProcessName("valencia", "p1")]

slots = st.integers(0, (1 << SLOT_BITS) - 1)
incarnations = st.integers(0, 1 << 40)


@given(slots, incarnations)
def test_every_incarnation_keeps_its_slot(slot: int, incarnation: int) -> None:
    assert slot_of(incarnation_of(slot, incarnation)) == slot


@given(slots, incarnations, slots, incarnations)
def test_no_two_processes_share_an_id(slot: int, incarnation: int, other_slot: int, other_incarnation: int) -> None:
    same = incarnation_of(slot, incarnation) == incarnation_of(other_slot, other_incarnation)
    assert same == ((slot, incarnation) == (other_slot, other_incarnation))


@given(slots, incarnations)
def test_a_later_incarnation_has_a_higher_id(slot: int, incarnation: int) -> None:
    assert incarnation_of(slot, incarnation + 1) > incarnation_of(slot, incarnation)


@given(slots, st.integers(0, 1 << 20), st.integers(0, LIFE - 1))
def test_an_id_says_in_which_life_of_its_system_a_process_is(slot: int, life: int, returns: int) -> None:
    assert life_of(incarnation_of(slot, life * LIFE + returns)) == life


def test_a_process_may_return_tens_of_thousands_of_times_in_one_life_of_its_system() -> None:
    assert life_of(incarnation_of(3, 99_999)) == 0
    assert incarnation_of(3, 60_000) < 1 << 32, "and takes five bytes on the wire"


@pytest.mark.parametrize("slot", [-1, 1 << SLOT_BITS])
def test_a_slot_that_would_run_into_the_incarnation_is_refused(slot: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        incarnation_of(slot, 1)


@given(st.integers(0, len(NAMES) - 1), st.integers(0, 5))
def test_names_and_ids_lead_to_each_other(slot: int, incarnation: int) -> None:
    directory = Directory(NAMES)
    process = incarnation_of(slot, incarnation)
    assert directory.id(*directory.name(process)) == process


def test_a_process_that_came_back_has_a_name_of_its_own() -> None:
    directory = Directory(NAMES)
    assert str(directory.name(1)) == "madrid/p2"
    assert str(directory.name(incarnation_of(1, 2))) == "madrid/p2+2"
    assert str(directory.name(incarnation_of(1, 1))) == "madrid/p2+1"


def test_names_of_those_that_returned_do_not_pile_up() -> None:
    directory = Directory(NAMES)
    for incarnation in range(1, 10):
        directory.name(incarnation_of(1, incarnation))
    assert str(freeze(directory)).count("p2+") == 1


@pytest.mark.parametrize("process", ["p3", "p1+x", "p1+", "p1+-1", "p1+1+1", "p1+ 1", "", "+1"])
def test_an_unknown_name_is_a_key_error(process: str) -> None:
    with pytest.raises(KeyError):
        Directory(NAMES).id("madrid", process)


def test_two_slots_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Directory([NAMES[0], NAMES[0]])
