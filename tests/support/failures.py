"""A pytest plugin: a test that fails shows how, also where Python or a worker's end would hide it."""

from __future__ import annotations

import ast
import faulthandler
import gc
import os
import sys
from typing import Any

import pytest

STDERR = pytest.StashKey[int]()

parse = ast.parse


def undisturbed_parse(*arguments: Any, **options: Any) -> Any:
    """`ast.parse` without a garbage collection inside it.

    A collection may run a finaliser that fails, whose traceback is parsed, too, for the marks below its lines. Python
    3.11 then loses count in the outer parse: `SystemError: AST constructor recursion depth mismatch`. That met pytest
    while it wrote the report of a failing test, and an internal error was shown in place of the failure.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return parse(*arguments, **options)
    finally:
        if collecting:
            gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    ast.parse = undisturbed_parse
    if hasattr(config, "workerinput"):
        assert sys.__stderr__ is not None
        config.stash[STDERR] = os.dup(sys.__stderr__.fileno())


def pytest_unconfigure(config: pytest.Config) -> None:
    ast.parse = parse
    if STDERR in config.stash:
        os.close(config.stash[STDERR])


# pytest-timeout writes the stacks of a test that hangs to standard output, which a worker of xdist has not got. In a
# worker the interpreter itself writes them to standard error, and ends the process.


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if STDERR not in item.config.stash:
        return None
    faulthandler.dump_traceback_later(settings.timeout, file=item.config.stash[STDERR], exit=True)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    if STDERR not in item.config.stash:
        return None
    faulthandler.cancel_dump_traceback_later()
    return True
