"""The code of isthmus for workers that do not have it: a zip of this package, and sources that find their way into it.

Spark takes the zip to the workers of every task, and to those that plan a batch. Spark 4.3 does not take it to two
places: to the worker that lives beside a streaming source in the driver, where a source says itself where the zip lies;
and, with Spark Connect, to functions that keep state in a stream, which carry what they need with them.
"""

from __future__ import annotations

import atexit
import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

import isthmus

_SUFFIXES = (".py", ".css", ".properties", ".toml")
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The same code gives the same zip, whatever the times of its files."""


@cache
def code_of_isthmus() -> Path:
    """The zip of this package, about a megabyte, made once and gone with this process."""
    data = _packed(("",))
    directory = Path(tempfile.mkdtemp(prefix="isthmus-code-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    # The name says what is in it: Spark refuses another file of a name that it has.
    target = directory / f"isthmus-{isthmus.__version__}-{sha256(data).hexdigest()[:12]}.zip"
    target.write_bytes(data)
    return target


def _packed(parts: tuple[str, ...]) -> bytes:
    """A zip of the package, or of the parts of it whose paths begin so."""
    package = Path(isthmus.__file__).parent
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*")):
            if file.suffix in _SUFFIXES and file.relative_to(package).as_posix().startswith(parts):
                name = zipfile.ZipInfo(file.relative_to(package.parent).as_posix(), _FIRST_DAY)
                packed.writestr(name, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the code of the pipeline for workers that do not have it: some 300 KB in every task."""
    code = _packed(("__init__.py", "pipeline/", "trace/", "core/"))
    pickled = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]

    def run(*arguments: Any) -> Any:
        import importlib.abc
        import importlib.util
        import io
        import sys
        import zipfile

        from pyspark import cloudpickle

        if importlib.util.find_spec("isthmus") is None:
            packed = zipfile.ZipFile(io.BytesIO(code))
            names = set(packed.namelist())

            def file_of(module: str) -> str:
                place = module.replace(".", "/")
                return next((file for file in (f"{place}/__init__.py", f"{place}.py") if file in names), "")

            class InMemory(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
                def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
                    file = file_of(name)
                    if not file:
                        return None
                    spec: Any = importlib.util.spec_from_loader(name, self, origin=file)
                    spec.has_location = True  # modules may ask for their `__file__`
                    return spec

                def is_package(self, fullname: str) -> bool:
                    return file_of(fullname).endswith("/__init__.py")

                def get_source(self, fullname: str) -> str:
                    return packed.read(file_of(fullname)).decode()

            sys.meta_path.append(InMemory())
        return cloudpickle.loads(pickled)(*arguments)

    return run


def _loader() -> Callable[[str, bytes, dict[str, str]], Any]:
    """A function that is carried as it is, not by the name of a module that may be missing where it arrives."""

    def load(place: str, source: bytes, options: dict[str, str]) -> Any:
        import importlib.util
        import sys

        from pyspark import cloudpickle

        if importlib.util.find_spec("isthmus") is None:
            sys.path.insert(1, place)
        return cloudpickle.loads(source)(options)

    return load


class CarriedSource(DataSource):
    """A source in Python that can be unpacked where isthmus is not installed, on a machine that has its zip.

    Its class goes in bytes of their own, which are opened only when isthmus can be found: what a class holds, such as
    settings of stores, may be of isthmus too.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        place = str(Path(isthmus.__file__).parent.parent)
        source = cloudpickle.dumps(type(self))  # type: ignore[no-untyped-call]
        return _loader(), (place, source, dict(self.options))
