"""Style, kept by a test: what ruff, mypy and the import contracts cannot say about this repository.

Every rule is a small function from one file to its findings, and has two tests: that the repository keeps it, and
that the function catches a bad example, so that a rule that has stopped looking does not pass for a clean tree.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = Path("src/isthmus")
PROTOCOLS = (SRC / "core", SRC / "ordering", SRC / "join", SRC / "hierarchy")

Findings: TypeAlias = Iterator[tuple[int, str]]
"""Line and what is wrong there."""

MAX_LINES = 900
LONG_FILES: dict[str, str] = {}
"""Files that may be longer, each with the reason why it is one file all the same."""

# fmt: off
IMPURE_MODULES = {
    "asyncio", "concurrent", "datetime", "multiprocessing", "os", "random", "secrets", "select", "selectors",
    "signal", "socket", "ssl", "subprocess", "threading", "time", "uuid",
}
# fmt: on
PURE_PACKAGES = {"isthmus", "msgspec"} | sys.stdlib_module_names
NAMED_TUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}
"""Public, although they look private: a field could have the name otherwise."""
UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}

# Written so that no pattern matches its own source.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users)/")
REGISTRY_HOST = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|pypi\.python\.org|npmjs\.(?:org|com)|repo1?\.maven(?:\.apache)?\.org"
    r"|crates\.io|rubygems\.org|conda\.anaconda\.org)\b|\bindex-url\b"
)
MENTIONED = re.compile(r"`([A-Za-z_/]+\.py)`")


# The rules ------------------------------------------------------------------------------------------------------------


def long_file(source: str) -> Findings:
    lines = len(source.splitlines())
    if lines > MAX_LINES:
        yield lines, f"{lines} lines, more than {MAX_LINES}: make it two files, or give a reason in LONG_FILES"


def missing_docstring(source: str) -> Findings:
    if not ast.get_docstring(ast.parse(source)):
        yield 1, "the module has no docstring"


def prints(source: str) -> Findings:
    for line, function in called_names(source):
        if function == "print":
            yield line, "print() outside cli: return the result, and let a command print it"


def unsafe_code(source: str) -> Findings:
    for line, module in imported_modules(source):
        if module in UNSAFE_MODULES:
            yield line, f"imports {module}, which runs what it reads"
    for line, function in called_names(source):
        if function in {"eval", "exec"}:
            yield line, f"{function}() runs data as code"


def impure_imports(source: str) -> Findings:
    for line, module in imported_modules(source):
        if module in IMPURE_MODULES:
            yield line, f"protocol code imports {module}: time, chance and bytes come in as arguments"


def foreign_imports(source: str) -> Findings:
    for line, module in imported_modules(source):
        if module not in PURE_PACKAGES:
            yield line, f"protocol code imports {module}: the standard library and msgspec have to do"


def sleeps(source: str) -> Findings:
    nodes = list(ast.walk(ast.parse(source)))
    aliases = {"time"}
    for node in nodes:
        if isinstance(node, ast.Import):
            aliases |= {name.asname for name in node.names if name.name == "time" and name.asname}
    for node in nodes:
        match node:
            case ast.ImportFrom(module="time", names=names) if any(name.name == "sleep" for name in names):
                yield node.lineno, "imports time.sleep: use virtual time, or wait for a condition"
            case ast.Attribute(value=ast.Name(id=module), attr="sleep") if module in aliases:
                yield node.lineno, "time.sleep: use virtual time, or wait for a condition"


def private_names(source: str) -> Findings:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if is_private(name) and name not in NAMED_TUPLE:
                yield node.lineno, f"uses `{ast.unparse(node)}`: test what others can see, or make the name public"
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "isthmus":
                for name in (*module.split("."), *(alias.name for alias in names)):
                    if is_private(name):
                        yield node.lineno, f"imports {name} of {module}: test what others can see, or make it public"


def unfinished_work(text: str) -> Findings:
    return matches(UNFINISHED, text, "unfinished work: finish it, or say in the documentation what is missing")


def machine_paths(text: str) -> Findings:
    return matches(MACHINE_PATH, text, "a path that exists on one machine only")


def registry_hosts(text: str) -> Findings:
    return matches(REGISTRY_HOST, text, "names a package registry: that is each user's own setting")


def lost_files(text: str) -> Findings:
    """Sources that a text names and that are not there. `NAME` stands for a file that somebody will write."""
    for number, line in enumerate(text.splitlines(), start=1):
        for name in MENTIONED.findall(line):
            if "NAME" not in name and not any(f"/{path}".endswith(f"/{name}") for path in repository_files()):
                yield number, f"`{name}`: there is no such file"


# What the rules are made of -------------------------------------------------------------------------------------------


def matches(pattern: re.Pattern[str], text: str, why: str) -> Findings:
    for number, line in enumerate(text.splitlines(), start=1):
        for match in pattern.finditer(line):
            yield number, f"`{match.group()}`: {why}"


def imported_modules(source: str) -> Findings:
    """Top-level names of all imports of a file, those inside functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def called_names(source: str) -> Findings:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


@cache
def repository_files() -> tuple[Path, ...]:
    """All files that are or would be under version control, relative to the top; without git, all but the hidden."""
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True, text=True).stdout.split("\0")
        paths = [Path(name) for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        everything = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        paths = [
            path
            for path in everything
            if not any(part.startswith(".") or part.endswith(".egg-info") for part in path.parts)
        ]
    return tuple(sorted({path for path in paths if (ROOT / path).is_file()}))


def python_files(*folders: Path) -> list[Path]:
    return [
        path
        for path in repository_files()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in folders)
    ]


def text_files() -> Iterator[Path]:
    for path in repository_files():
        try:
            (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        yield path


def assert_kept(rule: Callable[[str], Findings], paths: Iterable[Path]) -> None:
    found = [
        f"{path}:{line}: {what}" for path in paths for line, what in rule((ROOT / path).read_text(encoding="utf-8"))
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


# The repository keeps them --------------------------------------------------------------------------------------------


def test_there_is_something_to_look_at() -> None:
    assert SRC / "__init__.py" in python_files(SRC)
    assert SRC / "core/endpoint.py" in python_files(*PROTOCOLS)
    assert Path("tests/test_tidy.py") in python_files(Path("tests"))
    assert {Path("pyproject.toml"), Path("Makefile")} <= set(text_files())


def test_no_source_file_is_too_long() -> None:
    assert_kept(long_file, [path for path in python_files(SRC) if str(path) not in LONG_FILES])


def test_every_exception_for_length_is_still_needed() -> None:
    for name, reason in LONG_FILES.items():
        assert reason, f"LONG_FILES gives no reason for {name}"
        assert list(long_file((ROOT / name).read_text("utf-8"))), f"{name} is short enough: take it out of LONG_FILES"


def test_every_module_has_a_docstring() -> None:
    assert_kept(missing_docstring, python_files(SRC))


def test_only_the_cli_prints() -> None:
    assert_kept(prints, [path for path in python_files(SRC) if not path.is_relative_to(SRC / "cli")])


def test_nothing_runs_data_as_code() -> None:
    assert_kept(unsafe_code, python_files(SRC))


def test_protocols_meet_no_clock_no_chance_and_no_io() -> None:
    assert_kept(impure_imports, python_files(*PROTOCOLS))


def test_protocols_need_nothing_but_the_standard_library_and_msgspec() -> None:
    assert_kept(foreign_imports, python_files(*PROTOCOLS))


def test_tests_never_sleep() -> None:
    assert_kept(sleeps, python_files(Path("tests")))


def test_tests_use_no_private_names() -> None:
    assert_kept(private_names, python_files(Path("tests")))


def test_nothing_is_left_unfinished() -> None:
    assert_kept(unfinished_work, text_files())


def test_no_file_depends_on_one_machine() -> None:
    assert_kept(machine_paths, text_files())


def test_no_file_names_a_package_registry() -> None:
    assert_kept(registry_hosts, text_files())


def test_every_source_that_is_mentioned_is_there() -> None:
    pages = [path for path in text_files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    assert_kept(lost_files, [*pages, *python_files(SRC)])


# The rules can fail ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (long_file, "x = 1\n" * (MAX_LINES + 1)),
        (missing_docstring, "x = 1\n"),
        (missing_docstring, ""),
        (prints, "def f():\n    print('hello')\n"),
        (unsafe_code, "import pickle\n"),
        (unsafe_code, "def f():\n    from pickle import loads\n"),
        (unsafe_code, "eval('1 + 1')\n"),
        (unsafe_code, "exec('x = 1')\n"),
        (impure_imports, "import asyncio\n"),
        (impure_imports, "import os.path\n"),
        (impure_imports, "from time import monotonic_ns\n"),
        (impure_imports, "def f():\n    import random\n"),
        (foreign_imports, "import numpy as np\n"),
        (foreign_imports, "from rich.table import Table\n"),
        (sleeps, "import time\ntime.sleep(1)\n"),
        (sleeps, "import time as clock\nclock.sleep(1)\n"),
        (sleeps, "from time import sleep\n"),
        (private_names, "assert driver._timer is None\n"),
        (private_names, "member.group._clock += 1\n"),
        (private_names, "from isthmus.core.codec import _decode\n"),
        (private_names, "def f():\n    from isthmus._version import number\n"),
        (unfinished_work, "x = 1  # TO" + "DO: more\n"),
        (unfinished_work, "FIX" + "ME\n"),
        (machine_paths, "see /" + "home/ana/traces\n"),
        (machine_paths, 'path = "/' + 'root/x"\n'),
        (lost_files, "see `core/nowhere.py`\n"),
        (registry_hosts, "https://pypi" + ".org/simple\n"),
        (registry_hosts, "--extra-index" + "-url x\n"),
    ],
)
def test_a_rule_catches_what_it_is_for(rule: Callable[[str], Findings], bad: str) -> None:
    assert list(rule(bad))


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (long_file, "x = 1\n" * MAX_LINES),
        (missing_docstring, '"""What it is for."""\n'),
        (prints, "console.print('hello')\n"),
        (unsafe_code, "model.eval()\n"),
        (impure_imports, "from isthmus.core.ids import Nanos\nimport heapq\n"),
        (foreign_imports, "import heapq\nfrom msgspec import Struct\nfrom isthmus.core import ids\n"),
        (sleeps, "await asyncio.sleep(0)\n"),
        (private_names, "class Hall:\n    def f(self):\n        self._out = super()._out\n"),
        (private_names, "limits._replace(first_pause=0)\nx.__dict__\nfrom _thread import lock\n"),
        (unfinished_work, "todos = []\n"),
        (machine_paths, "https://example.com/work/x and ./home/x\n"),
        (lost_files, "see `core/endpoint.py`, `endpoint.py` and `cli/NAME.py`\n"),
        (registry_hosts, "a message in the pypi of things\n"),
    ],
)
def test_a_rule_lets_good_code_pass(rule: Callable[[str], Findings], good: str) -> None:
    assert not list(rule(good))


def test_a_failure_names_file_line_and_reason(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("\nprint('hello')\n", encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match=r"bad\.py:2: print\(\) outside cli"):
        assert_kept(prints, [bad])
