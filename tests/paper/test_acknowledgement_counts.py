"""What TO/PO says of PDUs and rounds (Sect. 4), counted on the real protocol code."""

from __future__ import annotations

from fractions import Fraction

import pytest

from isthmus.lab.counts import acknowledged as counts_of_acknowledgements
from isthmus.lab.counts.acknowledged import SIZES, best_pdus, run, worst_pdus
from isthmus.lab.counts.sections import SECTIONS
from isthmus.ordering.acknowledged.member import Protocol

PROTOCOLS: tuple[Protocol, ...] = ("to", "po")
SMALL = (3, 4, 5, 8)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("n", [*SMALL, 12])
def test_at_best_2n_pdus(protocol: Protocol, n: int) -> None:
    """ "In the best case, every entity does not broadcast PDUs until a PDU g which finally pre-acknowledges p is
    received, every entity broadcasts a PDU which pre-acknowledges g. Here, 1+(n-1)+n=2n PDUs are broadcast."
    """
    assert run(protocol, n, "finally").medium.pdus == best_pdus(n) == 2 * n


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("n", [2, *SMALL])
def test_at_worst_n_squared_pdus(protocol: Protocol, n: int) -> None:
    """ "In the worst case, each time when a PDU g which pre-acknowledges p is received, every entity broadcasts a PDU
    which pre-acknowledges g. Here, 1+(n-1)+(n-1)*(n-1)=n²-n+1 PDUs are broadcast."
    """
    assert run(protocol, n, "each").medium.pdus == worst_pdus(n) == n * n - n + 1


@pytest.mark.parametrize("n", [2, *SMALL, 32])
def test_three_rounds_in_parallel(n: int) -> None:
    """ "In the best case, PDUs which pre-acknowledge p are broadcast in parallel. Here, the number of rounds is 3." """
    assert run("to", n, "finally").rounds == 3


@pytest.mark.parametrize("n", SMALL)
def test_one_at_a_time_every_pdu_is_a_round(n: int) -> None:
    """ "if PDUs cannot be broadcast in parallel like the Ethernet MAC service, 1+(n-1)+n=2n rounds at the best and
    1+(n-1)+(n-1)*(n-1)=n²-n+1 rounds at the worst are required."
    """
    assert run("to", n, "finally", serial=True).rounds == 2 * n
    assert run("to", n, "each", serial=True).rounds == n * n - n + 1


def test_for_two_entities_the_best_case_is_not_as_printed() -> None:
    """Of 2n = 4 PDUs the last would tell nobody anything; and 4 would be more than n² − n + 1 = 3, the worst."""
    assert run("to", 2, "finally").medium.pdus == 3 < best_pdus(2)


def test_the_table_has_every_count_up_to_32() -> None:
    sections = {section.name: section for section in SECTIONS}
    assert {"acknowledge-best", "acknowledge-worst", "acknowledge-rounds"} <= sections.keys()
    assert (min(SIZES), max(SIZES)) == (2, 32)


def test_the_rows_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts_of_acknowledgements, "SIZES", (2, 4))
    rows = [row for section in counts_of_acknowledgements.SECTIONS for row in section.count()]
    assert len(rows) == 2 * 2 + 2 * 2 + 3 * 2
    assert all(row.holds for row in rows)
    assert [row.printed for row in rows[:2]] == [Fraction(4), Fraction(8)]
