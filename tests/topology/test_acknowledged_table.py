"""`[systems.NAME.acknowledged]`: what is taken, what is refused, and what such a system may be joined by."""

from __future__ import annotations

import pytest
from table_support import only_problem, refused

from isthmus.core.ids import MILLISECOND
from isthmus.topology.file import parse
from isthmus.topology.kinds.acknowledged import AcknowledgedTable

HALL = """
[systems.hall]
kind = "embedded"
order = "total"
processes = ["p1", "p2", "p3"]

[systems.hall.acknowledged]
protocol = "to"
act-on = "pre-acknowledged"
window = 4
answer-after = "5ms"
"""
JOINED = """
[systems.hall]
kind = "embedded"
order = "{order}"
processes = ["p1"]
gateways = 2
acknowledged = {{ protocol = "{protocol}" }}

[systems.office]
kind = "embedded"
order = "causal"
processes = ["p1"]
gateways = 2

[[joins]]
between = ["hall", "office"]
order = "{join}"
"""


def only(old: str, new: str) -> tuple[str, str, str]:
    return only_problem(HALL, old, new, allow_unsafe=False)


def test_all_that_the_table_can_say() -> None:
    (system,) = parse(HALL, "t.toml").systems
    expected = AcknowledgedTable(protocol="to", act_on="pre-acknowledged", window=4, answer_after=5 * MILLISECOND)
    assert system.table == expected
    assert (expected.settings().window, expected.settings().act_on) == (4, "pre-acknowledged")


def test_an_application_acts_on_what_is_acknowledged_unless_the_file_says_otherwise() -> None:
    (system,) = parse(HALL.replace('act-on = "pre-acknowledged"\n', ""), "t.toml").systems
    assert system.own(AcknowledgedTable).act_on == "acknowledged"


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ('order = "total"', 'order = "causal"', "systems.hall.order", "to keeps total order, not causal"),
        ('protocol = "to"', 'protocol = "po"', "systems.hall.order", "po keeps fifo order, not total"),
        ('"pre-acknowledged"', '"received"', "systems.hall.acknowledged.act-on", "may still change places"),
        ('"pre-acknowledged"', '"sent"', "systems.hall.acknowledged.act-on", "sent"),
        ("window = 4", "window = 0", "systems.hall.acknowledged.window", "0"),
        ("window = 4", "size = 4", "systems.hall.acknowledged.size", "unknown key"),
        ('"5ms"', '"soon"', "systems.hall.acknowledged.answer-after", "soon"),
        ("processes =", 'delivery = "fast"\nprocesses =', "systems.hall.delivery", "without [acknowledged]"),
        ("processes =", 'journal = "x"\nprocesses =', "systems.hall.journal", "without [acknowledged]"),
    ],
)
def test_what_is_refused(old: str, new: str, key: str, says: str) -> None:
    where, reason, way_out = only(old, new)
    assert where == key
    assert says in reason
    assert way_out


def test_without_a_protocol_there_is_one_complaint() -> None:
    key, reason, _ = only('protocol = "to"\n', "")
    assert key == "systems.hall.acknowledged.protocol"
    assert "missing" in reason


def test_clusters_are_no_groups() -> None:
    text = HALL.replace('order = "total"', 'order = "causal"') + '[systems.hall.clusters]\ndelivery = "rst"\n'
    assert [problem.key for problem in refused(text)] == ["systems.hall.acknowledged"]


def test_a_broker_acknowledges_in_its_own_way() -> None:
    text = '[systems.s]\nkind = "redis"\nurl = "redis://127.0.0.1"\nstream = "x"\nacknowledged = { protocol = "to" }\n'
    assert [problem.key for problem in refused(text)] == ["systems.s.acknowledged"]


def test_a_to_system_is_a_log_and_takes_causal_joins() -> None:
    topology = parse(JOINED.format(order="total", protocol="to", join="causal"), "t.toml")
    assert topology.promise() == "causal"


def test_a_po_system_takes_fifo_joins_only() -> None:
    assert parse(JOINED.format(order="fifo", protocol="po", join="fifo"), "t.toml").promise() == "fifo"
    (problem,) = refused(JOINED.format(order="fifo", protocol="po", join="causal"), allow_unsafe=False)
    assert "hall is only FIFO" in problem.reason
    assert problem.way_out == 'write joins[0].order = "fifo"'  # "causal" for the system would be refused in turn


def test_another_protocol_is_only_advised_where_it_keeps_that_order() -> None:
    (problem,) = refused(HALL.replace('order = "total"', 'order = "causal"'))
    assert problem.way_out == 'write order = "total"'
    (problem,) = refused(HALL.replace('order = "total"', 'order = "fifo"'))
    assert problem.way_out == 'write order = "total", or use protocol = "po"'
