"""Where the passes of an audit leave arrays for each other: in memory, or as files that are mapped where they are read.

A mapped file is one copy per machine, whoever reads it; tasks on other machines need a directory that all of them see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from isthmus.pipeline.engine.logs import Array


class Store(Protocol):
    def put(self, name: str, array: Array) -> None: ...

    def get(self, name: str) -> Array: ...

    def has(self, name: str) -> bool: ...

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array of zeros to be filled, which `get` finds afterwards."""
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
