"""Refusals of tables in the topology file, as tests ask for them."""

from __future__ import annotations

import pytest

from isthmus.topology.file import parse
from isthmus.topology.problem import Problem, TopologyError

OTHER = """
[systems.depot]
kind = "embedded"
order = "causal"
processes = ["p"]
gateways = 1
"""
"""A system that others might be joined to."""


def refused(text: str, *, allow_unsafe: bool = True) -> list[Problem]:
    with pytest.raises(TopologyError) as caught:
        parse(text, "t.toml", allow_unsafe=allow_unsafe)
    return caught.value.problems


def only_problem(text: str, old: str, new: str, *, allow_unsafe: bool = True) -> tuple[str, str, str]:
    """The key, the reason and the way out of the one problem that a change makes."""
    assert old in text
    problems = refused(text.replace(old, new, 1), allow_unsafe=allow_unsafe)
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0].key, problems[0].reason, problems[0].way_out
