"""`isthmus check`: what the contract refuses is refused in one line that can be acted on, and the figures are taken.

`test_topology_refusals.py` holds every reason; here it is the whole line, as a user gets it, and the exit code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from cli_support import Finished, call, write
from example_files import EXAMPLES, example_file

Isthmus: TypeAlias = Callable[..., Finished]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Isthmus:
    return lambda *arguments: call(capsys, monkeypatch, *arguments)


def systems(names: str, order: str = "causal") -> str:
    return "".join(
        f'[systems.{name}]\nkind = "embedded"\norder = "{order}"\nprocesses = ["p1", "p2"]\ngateways = 2\n'
        for name in names
    )


def joins(*pairs: str, order: str = "causal") -> str:
    return "".join(f'[[joins]]\nbetween = ["{pair[0]}", "{pair[1]}"]\norder = "{order}"\n' for pair in pairs)


def path(process: str, *links: str) -> str:
    """`path("a/*", "ab", "bc")`: by the first gateways of a and b, and on to c."""
    pairs = ", ".join(f'["{link[0]}/g1", "{link[1]}/g1"]' for link in links)
    return f'[[paths]]\nprocess = "{process}"\nlinks = [{pairs}]\n'


def sets(*lines: str) -> str:
    return systems("ab") + joins("ab") + 'assign = "transfer-sets"\n[joins.transfer-sets]\n' + "\n".join(lines)


TRIANGLE = systems("abc", "fifo") + joins("ab", "bc", "ca", order="fifo")
OTHERS = path("b/*", "ba", "bc") + path("c/*", "cb", "ca")

REFUSED = {
    "an unknown key": (
        systems("ab") + joins("ab") + "asign = 'striped'\n",
        'joins[0].asign: unknown key; did you mean "assign"?',
    ),
    "a join to an unknown system": (
        systems("ab") + joins("ac"),
        'joins[0].between[1]: there is no system "c"; the systems are "a" and "b"',
    ),
    "a process in no transfer set": (
        sets('"a/g1" = ["p1"]', '"b/g1" = ["*"]'),
        'joins[0].transfer-sets: a/p2 is in no transfer set (parallel, Sect. 3); add it to one, or "*" for all others',
    ),
    "a process in two transfer sets": (
        sets('"a/g1" = ["p1"]', '"a/g2" = ["p1", "p2"]', '"b/g1" = ["*"]'),
        'joins[0].transfer-sets."a/g2"[0]: a/p1 is in two transfer sets, that of a/g1 and that of a/g2 '
        "(parallel, Sect. 3); remove it from one",
    ),
    "a causal join over a system that is only FIFO": (
        systems("a", "fifo") + systems("b") + joins("ab"),
        "joins[0].order: a causal join needs causal systems, and a is only FIFO (parallel, Sect. 5); "
        'set systems.a.order = "causal" if it is, or joins[0].order = "fifo"',
    ),
    "a cycle of causal joins": (
        systems("abc") + joins("ab", "bc", "ca"),
        "joins[2].between: closes the cycle c - b - a - c of causal joins (parallel, Lemma 1); "
        "remove one of these joins",
    ),
    "a path set that reaches a system twice": (
        TRIANGLE + OTHERS + path("a/*", "ab", "bc", "ac"),
        "paths[2].links[2]: reaches c twice (parallel, Sect. 4); ",
    ),
    "a path set that does not reach a system": (
        TRIANGLE + OTHERS + path("a/*", "ab"),
        "paths[2].links: does not reach c (parallel, Sect. 4); ",
    ),
    "a total join": (
        systems("ab", "total") + joins("ab", order="total"),
        "joins[0].order: totally ordered systems cannot be interconnected (message-passing, Theorem 1); "
        'use order = "causal"; inside each system the order stays total',
    ),
}


@pytest.mark.parametrize(("text", "line"), REFUSED.values(), ids=REFUSED)
def test_what_the_contract_refuses_is_refused_in_one_line(
    isthmus: Isthmus, tmp_path: Path, text: str, line: str
) -> None:
    """The file, the key, the reason and the way out."""
    file = write(tmp_path / "t.toml", text)
    refused = isthmus("check", file)
    assert refused.is_refusal(f"isthmus: {file}: {line}"), refused
    assert not refused.err.rstrip().endswith(";"), "there is a way out"


@pytest.mark.parametrize(("text", "line"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_the_same_for_programs(isthmus: Isthmus, tmp_path: Path, text: str, line: str) -> None:
    """With `-o json` there is no result to print either: one line on stderr, exit code 2."""
    file = write(tmp_path / "t.toml", text)
    assert isthmus("check", file, "-o", "json") == isthmus("check", file)


@pytest.mark.parametrize(
    ("text", "line"),
    [REFUSED[name] for name in ("a cycle of causal joins", "a total join", "a process in no transfer set")],
    ids=["cycle", "total", "no set"],
)
def test_unsafe_excuses_nothing_here(isthmus: Isthmus, tmp_path: Path, text: str, line: str) -> None:
    file = write(tmp_path / "t.toml", "unsafe = true\n" + text)
    assert isthmus("check", file).is_refusal(f"{file}: {line}")


# The examples


UNSAFE = {
    "theorem-2": "joins[0].assign: gateways that are not coordinated break causal order (parallel, Theorem 2)",
    "lemma-1": "joins[2].between: closes the cycle s2 - s1 - s0 - s2 of causal joins (parallel, Lemma 1)",
    "lemma-1-paths": "joins[0].order: paths keep FIFO order only, and joins[0], joins[1] and joins[2] are causal "
    "(parallel, Lemma 1)",
    "impossibility": "joins[0].order: totally ordered systems cannot be interconnected (message-passing, Theorem 1)",
}


@pytest.mark.parametrize(("name", "line"), UNSAFE.items(), ids=UNSAFE)
def test_an_example_of_what_cannot_work_is_refused_with_the_theorem(isthmus: Isthmus, name: str, line: str) -> None:
    file = example_file(name)
    refused = isthmus("check", file)
    assert refused.is_refusal(f"isthmus: {file}: {line}; "), refused


def test_these_are_all_examples_of_what_cannot_work() -> None:
    unsafe = {path.stem for path in EXAMPLES.rglob("*.toml") if tomllib.loads(path.read_text()).get("unsafe")}
    assert unsafe == set(UNSAFE)


@pytest.mark.parametrize("name", UNSAFE)
def test_an_example_of_what_cannot_work_is_never_run(isthmus: Isthmus, name: str) -> None:
    refused = isthmus("run", example_file(name), "--site", "s0", "--duration", "1s")
    assert refused.is_refusal(UNSAFE[name]), refused


@pytest.mark.parametrize(
    ("name", "processes"),
    [("message-passing-fig-2", [4, 4]), ("parallel-fig-3", [6, 6]), ("parallel-fig-4", [3, 2, 2, 2])],
)
def test_the_figures_of_the_papers_are_taken(isthmus: Isthmus, name: str, processes: list[int]) -> None:
    checked = isthmus("check", example_file(name), "-o", "json")
    assert (checked.code, checked.err) == (0, "")
    assert (checked.json["valid"], checked.json["promise"]) == (True, "fifo")
    assert all("is the only gateway" in warning for warning in checked.json["warnings"])
    assert [system["processes"] for system in checked.json["systems"]] == processes


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("parallel-fig-3", '["p3", "p4"]', '["p3", "p4", "p1"]', "s0/p1 is in two transfer sets"),
        ("parallel-fig-3", '["q5", "q6"]', '["q5"]', "s1/q6 is in no transfer set"),
        ("parallel-fig-4", ', ["s0/g1", "s3/g2"]]', "]", "does not reach s3"),
        ("parallel-fig-4", ', ["s1/g2", "s3/g2"]]', ', ["s1/g2", "s3/g2"], ["s2/g1", "s3/g1"]]', "reaches s3 twice"),
    ],
)
def test_a_slip_in_a_figure_is_found(
    isthmus: Isthmus, tmp_path: Path, name: str, old: str, new: str, reason: str
) -> None:
    text = example_file(name).read_text()
    assert old in text
    assert isthmus("check", write(tmp_path / "t.toml", text.replace(old, new, 1))).is_refusal(reason)
