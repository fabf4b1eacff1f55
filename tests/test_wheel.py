"""The wheel: what is in it, and that it works in an environment with nothing but what it says it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from example_files import example_file
from packaging.requirements import Requirement
from patience import seconds

ROOT = Path(__file__).resolve().parent.parent
DATA = (
    "isthmus/py.typed",
    "isthmus/pipeline/log4j2.properties",
    "isthmus/pipeline/mapping/templates/redis.toml",
    "isthmus/pipeline/report/report.css",
)
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees neither this repository nor this environment's packages; it has to succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ended = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=seconds(60),
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, because a build leaves files beside its sources."""
    directory = tmp_path_factory.mktemp("wheel")
    sources = directory / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copytree(ROOT / "tests", sources / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "examples", sources / "examples")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    run(sys.executable, "-c", BUILD, directory, cwd=sources)
    (built,) = directory.glob("*.whl")
    return built


def provide(needing: metadata.Distribution, packages: Path) -> None:
    """Put what a distribution needs without extras, and what that needs in turn, from this environment into another."""
    for requirement in map(Requirement, needing.requires or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        distribution = metadata.distribution(requirement.name)
        assert distribution.version in requirement.specifier, requirement
        entries = {Path(file.parts[0]) for file in distribution.files or () if file.parts[0] != ".."}
        new = [entry for entry in entries if not (packages / entry).exists()]
        for entry in new:
            (packages / entry).symlink_to(Path(str(distribution.locate_file(entry))))
        if new:
            provide(distribution, packages)


def install(wheel: Path, home: Path) -> Path:
    """Make an environment with the wheel, what its metadata ask for, and no other package. Returns its commands.

    No index of packages is asked: what the wheel needs is taken from this environment, where it is by its pin. So a
    dependency that pyproject.toml does not name is missing there, too. `make extras` installs by pip alone.
    """
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--no-index", "--no-deps")
    run(*pip, "--no-compile", wheel, cwd=home)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    (installed,) = metadata.distributions(name="isthmus", path=[str(packages)])
    provide(installed, packages)
    return home / "bin"


def test_the_wheel_has_its_data_and_nothing_but_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert set(DATA) <= set(names)
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"isthmus"}


def test_the_wheel_checks_and_simulates_with_nothing_but_what_it_says_it_needs(wheel: Path, tmp_path: Path) -> None:
    commands = install(wheel, tmp_path)
    foreign = "import importlib.util as u; print([n for n in ('numpy', 'pyarrow', 'pytest') if u.find_spec(n)])"
    assert run(commands / "python", "-c", foreign, cwd=tmp_path).stdout == "[]\n", "it is not empty otherwise"
    run(commands / "isthmus", "check", example_file("theorem-1"), cwd=tmp_path)
    run(commands / "isthmus", "simulate", example_file("theorem-1"), "--jobs", 1, "--trace", "trace", cwd=tmp_path)
    assert list(tmp_path.glob("trace/**/*.jsonl"))
