"""daisy, Sect. 3.4, the second optimisation: what sending to recipients only costs, counted; and Fig. 2 with it."""

from __future__ import annotations

import pytest
from test_daisy_fig_2 import NAMES, PA, PB, PC, Figure

from isthmus.hierarchy.daisy.options import DaisyOptions, DaisyTable
from isthmus.hierarchy.daisy.process import DaisyProcess
from isthmus.hierarchy.daisy.tree import tree_of
from isthmus.lab.counts.recipients import SECTIONS, inside
from isthmus.lab.counts.table import Section


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_copies_words_and_numbers_are_as_the_formulas_say(section: Section) -> None:
    """ "only to their intended recipients, instead of broadcasting it to the entire group. This requires the use of
    matrices of size m² for groups of size m, instead of just a vector of length m" """
    rows = section.count()
    assert rows
    assert not [f"{row.setting}: {row.counted}, not {row.expected}" for row in rows if not row.holds]


def test_a_message_takes_one_hop_inside_its_group() -> None:
    """For k = 1 a recipient knows by itself that two hold it. For more the sender has to say so: three hops."""
    assert inside(8, 1, 1).at[0] < inside(8, 1, 2).at[0] == 3 * inside(8, 1, 1).at[0]


def recipients(process: int) -> DaisyProcess:
    options = DaisyOptions(inside="recipients", resilience=1)
    return DaisyProcess(process, tree_of(DaisyTable(processes=NAMES, options=options), NAMES.index))


def test_in_the_figure_what_follows_from_a_lost_message_is_lost_with_it_and_nobody_is_blocked() -> None:
    """m1 never left pa, so m2 never became safe, and pc never had it: no effect outlives its cause (Lemma 4.2)."""
    figure = Figure(recipients)
    assert figure.delivered == []
    figure.write(PC, PB, b"m4")
    figure.world.run_until(figure.world.now + figure.world.now // 10)
    assert figure.delivered == [(PB, b"m4")]
    assert not figure.world.hosts[PA].alive
