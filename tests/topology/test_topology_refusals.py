"""Every refusal that the contract promises, with its key and its reason, and the ones that isthmus adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.topology.check.rules import check
from isthmus.topology.file import MAX_FILE_BYTES, load, parse
from isthmus.topology.kinds.log import LogTable
from isthmus.topology.model import Topology
from isthmus.topology.problem import Problem, TopologyError

CONTRACT = """
[systems.madrid]
kind = "embedded"
order = "causal"
processes = ["p1", "p2", "p3"]
gateways = 3

[systems.valencia]
kind = "embedded"
order = "total"
processes = ["q1", "q2"]
gateways = 2

[[joins]]
between = ["madrid", "valencia"]
order = "causal"
links = 3
assign = "transfer-sets"
[joins.transfer-sets]
g1 = ["p1"]
g2 = ["p2", "p3"]
"""

BROKER = CONTRACT.replace(
    'kind = "embedded"\norder = "total"\nprocesses = ["q1", "q2"]',
    'kind = "redis"\nurl = "redis://127.0.0.1:6379/0"\nstream = "orders"',
)


def refused(text: str, allow_unsafe: bool = False) -> list[Problem]:
    with pytest.raises(TopologyError) as caught:
        parse(text, "t.toml", allow_unsafe)
    for problem in caught.value.problems:
        assert "\n" not in str(problem)
        assert problem.reason
        assert problem.way_out
    return caught.value.problems


def only(text: str) -> tuple[str, str, str]:
    """The key, the reason and the way out of the one problem that the text has."""
    problems = refused(text)
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0].key, problems[0].reason, problems[0].way_out


def changed(old: str, new: str, text: str = CONTRACT) -> str:
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


def embedded(name: str, order: str = "causal", processes: str = '["p1", "p2"]', gateways: str = "2") -> str:
    return f'[systems.{name}]\nkind = "embedded"\norder = "{order}"\nprocesses = {processes}\ngateways = {gateways}\n'


def join(one: str, other: str, order: str = "causal", more: str = "") -> str:
    return f'[[joins]]\nbetween = ["{one}", "{other}"]\norder = "{order}"\n{more}\n'


# What the contract lists.


def test_the_example_of_the_contract_is_taken() -> None:
    topology = parse(CONTRACT, "t.toml")
    assert check(topology) == []
    assert topology.system("valencia").order == "total"
    assert topology.system("valencia").gateways == ("g1", "g2")


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('stream = "orders"', "", "systems.valencia.stream", "which stream"),
        ('stream = "orders"', 'streams = ["a?", "a!"]', "systems.valencia.streams", "the same name"),
        ('stream = "orders"', 'stream = "a"\nstreams = ["b"]', "systems.valencia.streams", "there is a stream, too"),
        ('stream = "orders"', 'stream = "a"\non-refusal = "drop"', "systems.valencia.on-refusal", 'must be "stop"'),
        (
            'kind = "redis"\nurl = "redis://127.0.0.1:6379/0"',
            'kind = "nats"\nurl = "nats://127.0.0.1"\nbody-field = "data"',
            "systems.valencia.body-field",
            "only redis has such a thing, and this is nats",
        ),
        ('stream = "orders"', 'stream = "orders"\nbody-field = 3', "systems.valencia.body-field", "must be"),
        ("redis://127", "http://127", "systems.valencia.url", "no address of a redis broker"),
        ("gateways = 2", 'gateways = 2\nkey-column = "k"', "systems.valencia.key-column", "only postgres has"),
        ("redis://127", "redis://me:secret@127", "systems.valencia.url", "has a password in it"),
        ("gateways = 2", 'gateways = 2\nprocesses = ["p"]', "systems.valencia.processes", "the log is the one process"),
        (
            "gateways = 2",
            'gateways = 2\npassword-file = "x"\npassword-env = "X"',
            "systems.valencia.password-env",
            "there is a password-file, too",
        ),
    ],
)
def test_a_broken_table_of_a_broker_is_refused(old: str, new: str, key: str, reason: str) -> None:
    found = [(problem.key, problem.reason) for problem in refused(changed(old, new, BROKER))]
    assert any(each == key and reason in why for each, why in found), found
    assert "secret" not in str(refused(changed(old, new, BROKER)))


def test_the_body_field_of_redis_is_for_its_adapter() -> None:
    text = changed('stream = "orders"', 'stream = "orders"\nbody-field = "data"', BROKER)
    topology = parse(text.partition("assign")[0], "t.toml")
    assert topology.system("valencia").own(LogTable).options == {"body-field": "data"}


EMBEDDED = 'kind = "embedded"\norder = "causal"\nprocesses = ["p1", "p2", "p3"]'
TWO_LOGS = BROKER.replace(EMBEDDED, 'kind = "nats"\nurl = "nats://h"\nstream = "s"').partition("assign")[0]


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (TWO_LOGS + "[joins.of.paris]", "joins[0].of.paris", "none of the two systems"),
        (TWO_LOGS + '[joins.of.madrid]\nby = "value"', "joins[0].of.madrid.by", "must be"),
        (TWO_LOGS + "[joins.of.madrid]\nallow = [1]", "joins[0].of.madrid.allow[0]", ""),
        (TWO_LOGS + '[joins.of.madrid]\nmap = {"a.*.*" = "b"}', 'joins[0].of.madrid.map."a.*.*"', "one * in the first"),
        (TWO_LOGS + '[joins.of.madrid]\nonly = "b"', "joins[0].of.madrid.only", "unknown key"),
        (BROKER.partition("assign")[0] + "[joins.of.madrid]", "joins[0].of.madrid", "is no broker"),
        (BROKER.partition("assign")[0] + '[joins.of.valencia]\ndeny = ["x"]', "joins[0].of.valencia", "is embedded"),
    ],
)
def test_what_goes_over_a_join_is_said_of_its_logs_alone(text: str, key: str, reason: str) -> None:
    found = [(problem.key, problem.reason) for problem in refused(text)]
    assert any(each == key and reason in why for each, why in found), found


def test_a_log_is_read_once_for_all_its_joins() -> None:
    third = '[systems.paris]\nkind = "redis"\nurl = "redis://p"\nstream = "s"\ngateways = 1\n'
    joins = third + TWO_LOGS + '[joins.of.madrid]\nfrom = "now"\n' + join("madrid", "paris")
    key, reason, _ = only(joins)
    assert (key, reason) == (
        "joins[1].of.madrid.from",
        'joins[0].of.madrid.from is "now", and a log is read once for all joins',
    )


def test_several_streams_of_a_broker_keep_fifo_order_and_no_more() -> None:
    several = changed('stream = "orders"', 'streams = ["orders", "returns"]', BROKER)
    assert any("causal" in problem.reason for problem in refused(several))
    (problem,) = refused(changed('kind = "redis"', 'kind = "redis"\norder = "causal"', several))
    assert problem.key == "systems.valencia.order"
    assert problem.reason.startswith("each of several streams has an order of its own")


def test_several_tables_of_postgres_keep_one_order() -> None:
    several = changed('stream = "orders"', 'streams = ["orders", "returns"]\nbody-column = "words"', BROKER)
    topology = parse(several.replace("redis", "postgres"), "t.toml")
    assert [each for each in check(topology) if each.kind == "error"] == []
    assert topology.system("valencia").order == "total"
    assert topology.system("valencia").processes == ("orders", "returns")


def test_the_example_of_the_contract_as_printed_is_taken_with_a_warning() -> None:
    problems = check(parse(changed('"transfer-sets"', '"striped"'), "t.toml"))
    assert [(each.key, each.kind) for each in problems] == [("joins[0].transfer-sets", "warning")]


def test_one_line_names_file_key_reason_and_way_out() -> None:
    (problem,) = refused(changed("gateways = 3", "gateways = 3\nproceses = 1"))
    assert str(problem) == 't.toml: systems.madrid.proceses: unknown key; did you mean "processes"?'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("colour = 1\n" + CONTRACT, "colour"),
        (changed("gateways = 3", "gateways = 3\ncolour = 1"), "systems.madrid.colour"),
        (changed("links = 3", "links = 3\ncolour = 1"), "joins[0].colour"),
        (CONTRACT + "[simulation]\ncolour = 1", "simulation.colour"),
        (CONTRACT + "[simulation.workload]\ncolour = 1", "simulation.workload.colour"),
        (CONTRACT + "[simulation.network.delay]\nmean = '1ms'\ncolour = 1", "simulation.network.delay.colour"),
    ],
)
def test_an_unknown_key_is_refused(text: str, key: str) -> None:
    problems = refused(text)
    assert (problems[0].key, problems[0].reason) == (key, "unknown key")
    assert problems[0].way_out.startswith("remove it; the keys here are ")


def test_a_join_to_an_unknown_system_is_refused() -> None:
    assert only(changed('["madrid", "valencia"]', '["madrid", "valencai"]')) == (
        "joins[0].between[1]",
        'there is no system "valencai"',
        'did you mean "valencia"?',
    )


def test_a_process_in_no_transfer_set_is_refused() -> None:
    assert only(changed('g2 = ["p2", "p3"]', 'g2 = ["p2"]')) == (
        "joins[0].transfer-sets",
        "madrid/p3 is in no transfer set (parallel, Sect. 3)",
        'add it to one, or "*" for all others',
    )


def test_a_process_in_two_transfer_sets_is_refused() -> None:
    assert only(changed('g2 = ["p2", "p3"]', 'g2 = ["p2", "p3", "p1"]')) == (
        "joins[0].transfer-sets.g2[2]",
        "madrid/p1 is in two transfer sets, that of madrid/g1 and that of madrid/g2 (parallel, Sect. 3)",
        "remove it from one",
    )


def test_a_causal_join_over_a_fifo_system_is_refused() -> None:
    assert only(changed('order = "causal"', 'order = "fifo"')) == (
        "joins[0].order",
        "a causal join needs causal systems, and madrid is only FIFO (parallel, Sect. 5)",
        'set systems.madrid.order = "causal" if it is, or joins[0].order = "fifo"',
    )


def test_a_cycle_of_causal_joins_is_refused() -> None:
    text = "".join(map(embedded, ("a", "b", "c", "d"))) + join("a", "b") + join("b", "c") + join("c", "d")
    parse(text, "t.toml")
    assert only(text + join("d", "b")) == (
        "joins[3].between",
        "closes the cycle d - c - b - d of causal joins (parallel, Lemma 1)",
        "remove one of these joins",
    )


def test_a_cycle_with_one_causal_join_is_refused() -> None:
    text = "".join(map(embedded, ("a", "b", "c"))) + join("a", "b", "fifo") + join("b", "c") + join("c", "a", "fifo")
    key, reason, _ = only(text)
    assert key == "joins[2].between"
    assert reason == "closes the cycle c - b - a - c of joins, not all FIFO (parallel, Lemma 1)"


def test_a_cycle_of_fifo_joins_without_paths_is_refused() -> None:
    names = ("a", "b", "c")
    text = "".join(embedded(name, "fifo") for name in names) + join("a", "b", "fifo") + join("b", "c", "fifo")
    assert only(text + join("c", "a", "fifo")) == (
        "joins[2].between",
        "closes the cycle c - b - a - c of FIFO joins: a message would reach a system twice (parallel, Sect. 4)",
        "remove one of these joins, or add [[paths]] for every process",
    )


def test_a_total_join_is_refused() -> None:
    text = changed('order = "causal"\nlinks', 'order = "total"\nlinks')
    assert only(text) == (
        "joins[0].order",
        "totally ordered systems cannot be interconnected (message-passing, Theorem 1)",
        'use order = "causal"; inside each system the order stays total',
    )


TRIANGLE = "".join(embedded(name, "fifo", '["p"]') for name in ("a", "b", "c")) + "".join(
    join(one, other, "fifo") for one, other in ("ab", "bc", "ca")
)


def path(process: str, *links: str) -> str:
    """`path("a/p", "a1b1", "b1c1")`: from gateway 1 of a to gateway 1 of b, and on to c."""
    pairs = ", ".join(f'["{link[0]}/g{link[1]}", "{link[2]}/g{link[3]}"]' for link in links)
    return f'[[paths]]\nprocess = "{process}"\nlinks = [{pairs}]\n'


OTHER_PATHS = path("b/p", "b1a1", "b1c1") + path("c/*", "c2a2", "a2b2")


def test_a_path_set_that_reaches_every_system_once_is_taken() -> None:
    parse(TRIANGLE + OTHER_PATHS + path("a/p", "a1b1", "b1c1"), "t.toml")


@pytest.mark.parametrize(
    ("links", "key", "reason"),
    [
        (("a1b1", "b1c1", "a1c1"), "paths[2].links[2]", "reaches c twice (parallel, Sect. 4)"),
        (("a1b1",), "paths[2].links", "does not reach c (parallel, Sect. 4)"),
        (("a1b1", "b1c1", "c1a1"), "paths[2].links[2]", "leads back to a, where a/p is (parallel, Sect. 4)"),
        (
            ("a1b1", "b2c1"),
            "paths[2].links[1][0]",
            "uses g2 besides g1 in b: one gateway per system (parallel, Sect. 4)",
        ),
        (
            ("a1b1", "a2c1"),
            "paths[2].links[1][0]",
            "uses g2 besides g1 in a: one gateway per system (parallel, Sect. 4)",
        ),
        (("b1c1",), "paths[2].links[0][0]", "starts in b, which the path does not reach (parallel, Sect. 4)"),
        (("a1b1", "b1b2"), "paths[2].links[1]", "a link connects two different systems"),
        (("a1b9", "b1c1"), "paths[2].links[0][1]", 'b has no gateway "g9"'),
    ],
)
def test_a_path_set_that_is_no_tree_is_refused(links: tuple[str, ...], key: str, reason: str) -> None:
    assert only(TRIANGLE + OTHER_PATHS + path("a/p", *links))[:2] == (key, reason)


def test_a_ring_of_links_that_no_path_enters_is_refused() -> None:
    problems = refused(TRIANGLE + OTHER_PATHS + path("a/p", "b1c1", "c1b1"))
    assert [(each.key, each.kind) for each in problems] == [
        ("paths[2].links[0]", "protocol"),
        ("paths[2].links[1]", "protocol"),
    ]


def test_a_process_without_a_path_is_refused() -> None:
    key, reason, way_out = only(TRIANGLE + OTHER_PATHS)
    assert (key, reason) == ("paths", "a/p has no path (parallel, Sect. 4)")
    assert way_out == 'add [[paths]] with process = "a/p"'


def test_a_process_with_two_paths_is_refused() -> None:
    ours = path("a/p", "a1b1", "a1c1")
    assert only(TRIANGLE + OTHER_PATHS + ours + ours)[:2] == (
        "paths[3].process",
        "a/p has a path already, paths[2] (parallel, Sect. 4)",
    )


def test_a_path_off_the_joins_is_refused() -> None:
    text = TRIANGLE.replace(join("c", "a", "fifo"), "") + path("b/p", "b1a1", "b1c1") + path("c/p", "c1b1", "b1a1")
    assert only(text + path("a/p", "a1b1", "a1c1"))[:2] == ("paths[2].links[1]", "no join connects a and c")


def test_causal_joins_take_no_paths() -> None:
    text = embedded("a") + embedded("b") + join("a", "b") + path("a/*", "a1b1") + path("b/*", "b1a1")
    assert only(text) == (
        "joins[0].order",
        "paths keep FIFO order only, and joins[0] is causal (parallel, Lemma 1)",
        'use order = "fifo", or remove [[paths]] and every join that closes a cycle',
    )
    assert refused(text)[0].kind == "protocol"


# Unsafe topologies.


UNCOORDINATED = embedded("a") + embedded("b") + join("a", "b", more='assign = "uncoordinated"')
CYCLE = "".join(map(embedded, "abc")) + join("a", "b") + join("b", "c") + join("c", "a")


def test_gateways_without_coordination_are_refused() -> None:
    key, reason, _ = only(UNCOORDINATED)
    assert key == "joins[0].assign"
    assert reason == "gateways that are not coordinated break causal order (parallel, Theorem 2)"


@pytest.mark.parametrize(
    "text",
    [
        UNCOORDINATED,
        CYCLE,
        CYCLE.replace('order = "causal"', 'order = "fifo"'),
        changed('order = "causal"', 'order = "fifo"'),
        changed('order = "causal"\nlinks', 'order = "total"\nlinks'),
        changed('g2 = ["p2", "p3"]', 'g2 = ["p2"]'),
        TRIANGLE + OTHER_PATHS,
    ],
)
def test_an_unsafe_topology_is_taken_only_by_those_who_want_to_see_it_fail(text: str) -> None:
    assert refused("unsafe = true\n" + text)
    assert refused("unsafe = false\n" + text, allow_unsafe=True)
    topology = parse("unsafe = true\n" + text, "t.toml", allow_unsafe=True)
    assert {problem.kind for problem in check(topology)} - {"warning"} == {"protocol"}


def test_unsafe_excuses_no_broken_structure() -> None:
    text = "unsafe = true\n" + changed('["madrid", "valencia"]', '["madrid", "rome"]')
    assert [problem.key for problem in refused(text, allow_unsafe=True)] == ["joins[0].between[1]"]


# Structure.


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("", "systems", "there is no system"),
        (changed('"embedded"', '"embeded"'), "systems.madrid.kind", 'not "embeded"'),
        (changed('kind = "embedded"', ""), "systems.madrid.kind", "missing"),
        (changed('order = "causal"', ""), "systems.madrid.order", "missing"),
        (changed('processes = ["p1", "p2", "p3"]', ""), "systems.madrid.processes", "missing"),
        (changed('["p1", "p2", "p3"]', "[]"), "systems.madrid.processes", "an empty array"),
        (changed('["p1", "p2", "p3"]', '["p1", "p2", "p1"]'), "systems.madrid.processes[2]", '"p1" is there twice'),
        (changed('["p1", "p2", "p3"]', '["p1", "p2", "g1"]'), "systems.madrid.gateways", '"g1" is there twice'),
        (changed('["p1", "p2", "p3"]', '["p1", "p 2"]'), "systems.madrid.processes[1]", '"p 2" is not a name'),
        (changed('["p1", "p2", "p3"]', '["p1", 2]'), "systems.madrid.processes[1]", "a whole number is not a name"),
        (changed("[systems.madrid]", '[systems."ma\\ndrid"]'), 'systems."ma\\ndrid"', "is not a name"),
        (changed("gateways = 3", "gateways = true"), "systems.madrid.gateways", "not true or false"),
        (changed("gateways = 3", "gateways = -1"), "systems.madrid.gateways", "must be from 0 to 4096"),
        (changed("gateways = 3", "gateways = 1_000_000_000_000"), "systems.madrid.gateways", "must be from 0 to 4096"),
        (changed("gateways = 3", "gateways = 1979-05-27"), "systems.madrid.gateways", "a date or a time"),
        (
            changed("gateways = 3", 'gateways = 3\nurl = "x"'),
            "systems.madrid.url",
            "is for redis, nats, kafka and postgres",
        ),
        (
            changed("gateways = 2", 'gateways = 2\ndelivery = "fast"', BROKER),
            "systems.valencia.delivery",
            "is for embedded",
        ),
        (changed("redis://", "nats://", BROKER), "systems.valencia.url", "is no address of a redis broker"),
        (changed('url = "redis://127.0.0.1:6379/0"', "", BROKER), "systems.valencia.url", "missing"),
        (changed('stream = "orders"', "", BROKER), "systems.valencia.stream", "missing"),
        (changed("gateways = 3", 'address = "here"'), "systems.madrid.address", "is not host:port"),
        (changed("gateways = 3", 'address = "h:65535"'), "systems.madrid.address", "go beyond 65535"),
        (changed("gateways = 3", "heartbeat = 20"), "systems.madrid.heartbeat", "must be a string with a unit"),
        (changed("gateways = 3", 'heartbeat = "1 day"'), "systems.madrid.heartbeat", 'cannot read "1 day"'),
        (changed("gateways = 3", 'start-within = "0s"'), "systems.madrid.start-within", '"0s" is too small'),
        (changed("gateways = 3", 'heartbeat = "1s"'), "systems.madrid.suspect-after", "not longer than the heartbeat"),
        (changed('["madrid", "valencia"]', '["madrid"]'), "joins[0].between", "not 1 of them"),
        (changed('["madrid", "valencia"]', '"madrid"'), "joins[0].between", "not a string"),
        (changed('["madrid", "valencia"]', '["madrid", "madrid"]'), "joins[0].between", "madrid is joined with itself"),
        (changed("gateways = 2", ""), "joins[0].between[1]", "valencia has no gateway to join it by"),
        (changed("links = 3", "links = 0"), "joins[0].links", "must be from 1"),
        (changed("links = 3", 'links = "many"'), "joins[0].links", 'must be a number or "auto"'),
        (changed("links = 3", "links = 1025"), "joins[0].links", "more than any line needs"),
        (changed("links = 3", "links = 1"), "joins[0].links", "the transfer sets need 2 links, not 1"),
        (changed("g1 = [", "g9 = ["), "joins[0].transfer-sets.g9", 'madrid has no gateway "g9"'),
        (changed('g1 = ["p1"]', 'g1 = ["p1", "p9"]'), "joins[0].transfer-sets.g1[1]", 'madrid has no process "p9"'),
        (changed('g1 = ["p1"]', 'g1 = ["p1", "rome/p"]'), "joins[0].transfer-sets.g1[1]", 'no system "rome"'),
        (changed('assign = "transfer-sets"', 'assign = "paths"'), "joins[0].assign", "there are no paths"),
        (CONTRACT + join("valencia", "madrid"), "joins[1].between", "are joined already, by joins[0]"),
        (CONTRACT.replace("[[joins]]", "[joins]"), "joins", "must be an array of tables, not a table"),
        ("systems = 1", "systems", "must be a table, not a whole number"),
        ("unsafe = 1\n" + CONTRACT, "unsafe", "must be true or false"),
        (CONTRACT + "[simulation]\nduration = '0s'", "simulation.duration", "is too small"),
        (CONTRACT + "[simulation.workload]\nrate = nan", "simulation.workload.rate", "must be a number, not nan"),
        (CONTRACT + "[simulation.workload]\nreply = 1.5", "simulation.workload.reply", "must be from 0.0 to 1.0"),
        (CONTRACT + "[simulation.workload]\nsize = [9, 1]", "simulation.workload.size", "the smaller number first"),
        (CONTRACT + "[simulation.workload]\nsenders = ['p1']", "simulation.workload.senders[0]", "is not a name"),
        (CONTRACT + "[simulation.workload]\nsenders = ['madrid/x']", "simulation.workload.senders[0]", "no process"),
        (CONTRACT + "[simulation.network]\nloss = 1", "simulation.network.loss", "must be from 0.0 to 0.99"),
        (CONTRACT + "[simulation.network]\nbandwidth = '0bit'", "simulation.network.bandwidth", "is too small"),
        (
            CONTRACT + "[simulation.network]\ndelay = {min='2ms', max='1ms'}",
            "simulation.network.delay",
            "more than max",
        ),
        (CONTRACT + "[simulation.network]\ndelay = {min='2ms'}", "simulation.network.delay", 'made of "min"'),
        (CONTRACT + "[simulation.links]\nloss = 1.0", "simulation.links.loss", "must be from 0.0 to 0.99"),
        (CONTRACT + "[[simulation.link]]\ndelay = '1ms'", "simulation.link[0].between", "the two ends of a link"),
        (
            CONTRACT + "[[simulation.link]]\nbetween = ['madrid', 'paris']",
            "simulation.link[0].between",
            "no link runs between madrid and paris",
        ),
        (CONTRACT + "[simulation.faults]\ncrashes = 1.5", "simulation.faults.crashes", "must be a whole number"),
        (CONTRACT + f"[simulation.faults]\ncuts = 1{'0' * 500}", "simulation.faults.cuts", "more than 20 digits"),
    ],
)
def test_a_broken_structure_is_refused(text: str, key: str, reason: str) -> None:
    found = [(problem.key, problem.reason) for problem in refused(text)]
    assert any(each == key and reason in why for each, why in found), found
    assert len(found) == 1 or key.startswith(("systems", "joins[0].transfer-sets"))


def test_a_misspelt_kind_is_one_problem() -> None:
    assert only(changed('"redis"', '"rediss"', BROKER))[0] == "systems.valencia.kind"
    assert only(changed('"embedded"', '"embeded"'))[0] == "systems.madrid.kind"


def test_fast_delivery_is_refused_in_total_order() -> None:
    text = '[systems.a]\nkind = "embedded"\norder = "total"\nprocesses = ["p"]\ndelivery = "fast"'
    assert only(text)[0] == "systems.a.delivery"


def test_two_systems_on_the_same_ports_are_refused() -> None:
    text = embedded("a") + 'address = "127.0.0.1:7400"\n' + embedded("b") + 'address = "127.0.0.1:7403"\n'
    assert refused(text)[0].reason == "127.0.0.1:7403 is taken by a: everybody listens on a port of its own"


def test_uncoordinated_means_nothing_to_a_fifo_join() -> None:
    text = embedded("a", "fifo") + embedded("b", "fifo") + join("a", "b", "fifo", 'assign = "uncoordinated"')
    assert only(text)[0] == "joins[0].assign"


@pytest.mark.parametrize(
    ("sets", "key", "reason"),
    [
        ('from = "a/g1"\nto = "a/g2"\nprocesses = ["*"]', "joins[0].sets[0].to", "two different systems"),
        ('from = "c/g1"\nto = "a/g2"\nprocesses = ["*"]', "joins[0].sets[0].from", "c/g1 is in neither of a and b"),
        ('from = "g1"\nto = "b/g2"\nprocesses = ["*"]', "joins[0].sets[0].from", '"g1" names no gateway'),
        ('from = "a/g1"\nto = "b/g2"\nprocesses = ["b/p1", "*"]', "joins[0].sets[0].processes[0]", "the other side"),
        ('from = "a/g1"\nto = "b/g2"\nprocesses = ["p/q/r"]', "joins[0].sets[0].processes[0]", "is not a name"),
        ('to = "b/g2"\nprocesses = ["*"]', "joins[0].sets[0].from", "missing"),
        ('from = "a/g1"\nto = "b/g2"', "joins[0].sets[0].processes", "missing"),
        ('from = "a/g1"\nto = "b/g2"\nprocesses = ["p1"]', "joins[0].sets", "a/p2 is in no transfer set"),
    ],
)
def test_a_set_that_names_its_far_gateway_is_checked_as_well(sets: str, key: str, reason: str) -> None:
    names = ("a", "b", "c")
    text = "".join(embedded(name, "fifo") for name in names) + join("a", "b", "fifo", "[[joins.sets]]\n" + sets + "\n")
    found = [(problem.key, problem.reason) for problem in refused(text + join("b", "c", "fifo"))]
    assert [each for each, _ in found] == [key], found
    assert reason in found[0][1]


def test_all_problems_are_reported_at_once() -> None:
    text = CYCLE + "colour = 1\n" + embedded("d", "fifo") + join("d", "a") + join("d", "nowhere")
    text = text + '[simulation.network]\nloss = "much"\n'
    assert sorted(problem.key for problem in refused(text)) == [
        "joins[2].between",
        "joins[2].colour",
        "joins[3].order",
        "joins[4].between[1]",
        "simulation.network.loss",
    ]


def test_systems_that_nothing_joins_are_worth_a_warning() -> None:
    topology = parse(embedded("a") + embedded("b") + embedded("c") + join("a", "b"), "t.toml")
    (problem,) = check(topology)
    assert (problem.kind, problem.key) == ("warning", "joins")
    assert problem.reason == "nothing joins c to a, so no message goes from one to the other"


# Files.


def load_refused(path: Path) -> Problem:
    with pytest.raises(TopologyError) as caught:
        load(path)
    (problem,) = caught.value.problems
    assert problem.file == str(path)
    return problem


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert load_refused(tmp_path / "nothing.toml").reason == "there is no such file"
    assert load_refused(tmp_path).reason == "is not a file"
    assert load_refused(tmp_path / "a\0b").reason.startswith("cannot be read: ")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert load_refused(large).reason == "is larger than 1048576 bytes"
    latin = tmp_path / "latin.toml"
    latin.write_bytes("# one\n# Sé\n".encode("latin-1"))
    assert (load_refused(latin).key, load_refused(latin).reason) == ("line 2", "is not UTF-8")


def test_text_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("unsafe = true\nsystems\n")
    problem = load_refused(broken)
    assert problem.key.startswith("line 2, column ")
    assert problem.reason.startswith("is not TOML: ")
    assert refused("a = [1,\n2")[0].key == "line 2"
    assert refused("a = " + "[" * 100_000)[0].reason == "is nested too deeply"
    assert refused("a = " + "1" * 5000)[0].reason.startswith("is not TOML: ")


def test_a_byte_order_mark_and_windows_line_ends_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "windows.toml"
    file.write_bytes(b"\xef\xbb\xbf" + CONTRACT.replace("\n", "\r\n").encode())
    assert isinstance(load(str(file)), Topology)
