"""The simulator simulates what the file says: who is on standby comes later, and links may be unequal."""

from isthmus.core.ids import MILLISECOND
from isthmus.simulator.run import Run
from isthmus.topology.file import parse

SITES = """
[systems.a]
kind = "embedded"
order = "causal"
processes = ["p1", "p2", "p3"]
gateways = 2
standby = ["p3", "g2"]

[systems.b]
kind = "embedded"
order = "causal"
processes = ["p1", "p2"]
gateways = 2

[[joins]]
between = ["a", "b"]
order = "causal"
links = 4

[simulation]
duration = "400ms"

[simulation.workload]
rate = 50
"""

SLOW = """
[simulation.links]
delay = "5ms"

[[simulation.link]]
between = ["a", "b"]
delay = "10ms"

[[simulation.link]]
between = ["b/g2", "a/g1"]
delay = "40ms"
loss = 0.5
"""


def test_members_on_standby_come_later_and_the_others_begin_without_them() -> None:
    run = Run(parse(SITES, "t.toml"), 3)
    outcome = run.play()
    assert not outcome.violated, outcome
    first = {f"{row.system}/{row.process}": row for row in reversed(run.sink.events) if row.event in ("start", "join")}
    assert {name for name, row in first.items() if row.event == "join"} == {"a/p3", "a/g2"}
    assert first["a/p3"].time_ns > 0
    views = [row.destinations for row in run.sink.events if row.event == "view" and row.system == "a"]
    assert {"a/p1", "a/p2", "a/g1"} in map(set, views)  # type: ignore[arg-type]
    assert outcome.sometimes["join"] == 2


def test_a_newcomer_on_standby_delivers_what_is_sent_after_it_came() -> None:
    run = Run(parse(SITES, "t.toml"), 3)
    run.play()
    delivered = {f"{row.system}/{row.process}" for row in run.sink.events if row.event == "deliver"}
    assert "a/p3" in delivered


def test_links_have_lines_of_their_own() -> None:
    topology = parse(SITES + SLOW, "t.toml")
    near, far = (next(name for name in topology.directory().slots if str(name) == each) for each in ("a/g1", "b/g2"))
    other = next(name for name in topology.directory().slots if str(name) == "b/g1")
    assert topology.simulation.line(near, far).delay.delay == 40 * MILLISECOND  # type: ignore[union-attr]
    assert topology.simulation.line(near, far).loss == 0.5
    assert topology.simulation.line(near, other).delay.delay == 10 * MILLISECOND  # type: ignore[union-attr]


def test_a_message_takes_as_long_as_the_line_of_its_link() -> None:
    def crossing(text: str) -> int:
        run = Run(parse(SITES.replace('standby = ["p3", "g2"]', "") + text, "t.toml"), 1)
        assert not run.play().violated
        sent = {row.origin_seq: row.time_ns for row in run.sink.events if row.event == "send" and row.system == "a"}
        arrived = [row for row in run.sink.events if row.event == "accept" and row.system == "b"]
        return min(row.time_ns - min(sent.values()) for row in arrived)

    fast = '[[simulation.link]]\nbetween = ["a", "b"]\ndelay = "1ms"\n'
    slow = '[[simulation.link]]\nbetween = ["a", "b"]\ndelay = "80ms"\n'
    assert crossing(fast) < 40 * MILLISECOND < 80 * MILLISECOND <= crossing(slow)


def test_whoever_joins_is_let_in_when_all_founders_are_gone() -> None:
    """Somebody who came later lives in another place, and is asked as well."""
    text = """
[systems.a]
kind = "embedded"
order = "causal"
processes = ["p1", "p2", "p3", "p4", "p5"]
standby = ["p3", "p4", "p5"]

[simulation]
duration = "1s"

[simulation.workload]
rate = 20

[simulation.faults]
leaves = 3
"""
    topology = parse(text, "t.toml")
    stuck = {seed: outcome.stuck for seed in range(1, 31) if (outcome := Run(topology, seed).play()).stuck}
    assert {seed: said for seed, said in stuck.items() if "is not let in" in said} == {}
