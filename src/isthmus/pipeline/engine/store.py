"""Where the passes of an audit leave arrays for each other: in memory, or as files that are mapped where they are read.

A mapped file is one copy per machine, whoever reads it; tasks on other machines need a directory that all of them see,
or an address: then each machine fetches what it reads once and maps its copy.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from isthmus.pipeline.engine.logs import Array
from isthmus.trace.places import Address


class Store(Protocol):
    def put(self, name: str, array: Array) -> None: ...

    def get(self, name: str) -> Array: ...

    def has(self, name: str) -> bool: ...

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array of zeros to be filled and read by this process alone."""
        ...


class InMemory:
    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def put(self, name: str, array: Array) -> None:
        self._arrays[name] = array

    def get(self, name: str) -> Array:
        return self._arrays[name]

    def has(self, name: str) -> bool:
        return name in self._arrays

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        array = self._arrays[name] = np.zeros(shape, dtype)
        return array


_MAPPED = 1 << 12
"""Files that are kept mapped in one process: opening one takes a tenth of a millisecond, and each is read often."""


class InFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mapped: dict[str, Array] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What travels to tasks."""
        return {"directory": self.directory, "_mapped": {}}

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.npy"

    def put(self, name: str, array: Array) -> None:
        np.save(self._path(name), array, allow_pickle=False)

    def get(self, name: str) -> Array:
        found = self._mapped.get(name)
        if found is None:
            if len(self._mapped) >= _MAPPED:
                self._mapped.clear()
            # A plain view: whatever is cut out of a memmap is a memmap again, at ten times the price.
            found = self._mapped[name] = np.load(self._path(name), mmap_mode="r", allow_pickle=False).view(np.ndarray)
        return found

    def has(self, name: str) -> bool:
        return name in self._mapped or self._path(name).exists()

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        if not all(shape):  # nothing can be mapped
            self.put(name, np.zeros(shape, dtype))
            return np.zeros(shape, dtype)
        return np.lib.format.open_memmap(self._path(name), "w+", dtype, shape)


class InStore(InFiles):
    """Files at an address, with a copy on each machine that reads or writes one. Every array is written once."""

    def __init__(self, address: Address) -> None:
        super().__init__(_copies(address))
        self.address = address

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["address"])  # type: ignore[misc]

    def _path(self, name: str) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        return super()._path(name)

    def put(self, name: str, array: Array) -> None:
        copy = self._path(name)
        with _whole(copy) as file:
            np.save(file, array, allow_pickle=False)
        with open(copy, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            self._there(name).write_bytes(data)

    def get(self, name: str) -> Array:
        copy = self._path(name)
        if name not in self._mapped and not copy.exists():
            with self._there(name).open() as source, _whole(copy) as file:
                shutil.copyfileobj(source, file, 4 << 20)
        return super().get(name)

    def has(self, name: str) -> bool:
        return super().has(name) or self._there(name).exists()

    def forget(self) -> None:
        """Remove the copies of this machine."""
        self._mapped.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _there(self, name: str) -> Address:
        return self.address / f"{name}.npy"


def _copies(address: Address) -> Path:
    """Where this machine has its copies: in a task, in a directory that Spark removes with the session."""
    directories = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return Path(directories.partition(",")[0], f"isthmus-{address.name.strip('.')}")


@contextmanager
def _whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that others see when it is complete; several may write the same one at the same time."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            yield file
        except BaseException:
            os.unlink(file.name)
            raise
    os.replace(file.name, path)
