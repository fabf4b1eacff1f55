"""Where files are: a path of this machine, or an address in a store. The one place that reads and writes at addresses.

A place is written as Hadoop writes it: `s3a://bucket/traces`, `hdfs://host:port/traces`,
`abfss://container@account.dfs.core.windows.net/traces`, `file:///traces`, or a plain path. A path stays a `Path`, and
is used as such: mapped into memory, without pyarrow. Anything else is an `Address`, which has those methods of a `Path`
that traces and tables need, and goes through pyarrow; `stores` says with which settings.

Promises, for addresses:
- What is not there is a `FileNotFoundError`. Whatever else goes wrong is a `StoreProblem` in one line: a store that is
  away or refuses the keys says nothing of a file, so nobody may take the file for a bad or an empty one.
- A file appears whole or not at all, and is there when `write_bytes` returns.
- Directories are not made: a store has none, and one that has makes them when a file is written.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

from isthmus.trace import stores
from isthmus.trace.schema import TraceError, printable

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)([^/]*)(.*)", re.DOTALL)
"""A letter alone would be a drive of Windows. One slash is what `Path` makes of two."""

_UNTOLD = re.compile(
    r" \(Request ID: [^)]*\)|^When [^:]*: |AWS Error \w+ |during \w+ operation|No response body\.?|curlCode: \d+,"
)
"""What helps nobody in the words of a store."""
_OF_STORES = re.compile(r"AWS Error|HDFS|Azure")


class StoreProblem(Exception):
    """A store that cannot be used, and why, in one line. No `TraceError`: it is no reason to leave a file out."""

    def __init__(self, where: object, reason: str, way_out: str) -> None:
        super().__init__(printable(f"{where}: {reason}; {way_out}"))


class Address:
    """A file or directory in a store. Two with the same text are the same."""

    __slots__ = ("_path", "authority", "scheme")

    def __init__(self, scheme: str, authority: str, path: str) -> None:
        self.scheme, self.authority = scheme, authority
        self._path = path.strip("/")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}/{self._path}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: Address) -> bool:
        return str(self) < str(other)

    def __truediv__(self, below: str) -> Address:
        return Address(self.scheme, self.authority, f"{self._path}/{below}")

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    @property
    def parent(self) -> Address:
        return Address(self.scheme, self.authority, self._path.rpartition("/")[0])

    def with_name(self, name: str) -> Address:
        return self.parent / name

    def absolute(self) -> Address:
        return self

    # What is there

    def exists(self) -> bool:
        return bool(self._info().type.name != "NotFound")

    def is_dir(self) -> bool:
        return bool(self._info().type.name == "Directory")

    def is_file(self) -> bool:
        return bool(self._info().type.name == "File")

    def size(self) -> int | None:
        """How many bytes a file has now; None if it is not there."""
        info = self._info()
        return int(info.size) if info.type.name == "File" else None

    def iterdir(self) -> Iterator[Address]:
        """What is directly below. Nothing, where nothing is."""
        for info in self._listed(recursive=False):
            yield self / info.base_name

    def files(self) -> list[tuple[str, int]]:
        """All files below at any depth: their paths from here, in order, and their sizes, from one listing."""
        below = len(self._key) + 1
        infos = [info for info in self._listed(recursive=True) if info.type.name == "File"]
        return sorted((info.path[below:], int(info.size)) for info in infos)

    # Files

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """A file to read from any place in it. What the store does wrong while it is read is told as well."""
        with self._told():
            opened = self._system().open_input_file(self._key)
        try:
            with opened as file:
                yield file
        except OSError as error:
            if _OF_STORES.search(str(error)):  # pyarrow has the same class for a damaged file
                raise problem_of(self, error) from error
            raise

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return file.read()

    def write_bytes(self, data: Any) -> None:
        """Write a file whole or not at all. `data` is anything with the bytes of one piece of memory."""
        with self._told():
            if self.scheme != "hdfs":  # the others show a file when it is complete
                self._write(self._key, data)
                return
            scratch = self.with_name(f".{self.name}.{os.getpid()}.part")
            self._write(scratch._key, data)
            self.unlink(missing_ok=True)
            self._system().move(scratch._key, self._key)

    def _write(self, key: str, data: Any) -> None:
        with self._system().open_output_stream(key) as file:
            file.write(data)

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Nothing: whoever writes a file makes what it needs above it."""

    def unlink(self, missing_ok: bool = False) -> None:
        with self._told():
            try:
                self._system().delete_file(self._key)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def remove_tree(self) -> None:
        """Everything at and below this address."""
        with self._told(), suppress(FileNotFoundError):
            self._system().delete_dir(self._key)

    # How it is reached

    @property
    def _key(self) -> str:
        """The name by which the file system of pyarrow knows it."""
        if self.scheme == "hdfs":
            return f"/{self._path}"
        return f"{self.authority.partition('@')[0]}/{self._path}".rstrip("/")

    def _system(self) -> Any:
        try:
            return stores.file_system(self.scheme, self.authority)
        except ImportError:
            raise StoreProblem(
                self, "addresses need pyarrow, which is not installed", "pip install 'isthmus[parquet]'"
            ) from None
        except ValueError as error:
            raise problem_of(self, error) from error

    def _info(self) -> Any:
        with self._told():
            return self._system().get_file_info(self._key)

    def _listed(self, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        with self._told():
            selector = FileSelector(self._key, allow_not_found=True, recursive=recursive)
            return list(self._system().get_file_info(selector))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever pyarrow raises, as this module promises it."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, NotImplementedError) as error:
            raise problem_of(self, error) from error


Place: TypeAlias = Path | Address


def problem_of(address: Address, error: Exception) -> StoreProblem:
    """What went wrong in a store, in one line. Only of s3a is it known what is said when."""
    said = str(error)
    text = " ".join(_UNTOLD.sub("", said.partition("\n")[0]).split()).strip(" :")
    text = text.partition("; Details")[0].replace(";", ",")
    if "NO_SUCH_BUCKET" in said:
        return StoreProblem(address, f"no such bucket: {address.authority}", "check the address")
    if "NETWORK_CONNECTION" in said or "REQUEST_TIMEOUT" in said:
        host = stores.endpoint_of(address.authority) if address.scheme == "s3a" else address.authority
        reason = f"the store does not answer{f' at {host}' if host else ''}: {text}"
        return StoreProblem(address, reason, "check fs.s3a.endpoint, or wait until it is back")
    denied = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "HTTP status 403", "credentials")
    if any(word in said for word in denied):
        reason = f"the store refuses the keys: {text}"
        return StoreProblem(address, reason, "check fs.s3a.access.key and fs.s3a.secret.key, or AWS_ACCESS_KEY_ID")
    return StoreProblem(address, f"the store cannot be used: {text}", "check the address and the settings of its store")


def place(given: str | Path | Address) -> Place:
    """A path of this machine, or the address of something in a store."""
    if isinstance(given, Address):
        return given
    found = _ADDRESS.fullmatch(str(given))
    if found is None:
        return Path(given)
    scheme, authority, path = found[1].lower(), found[3], found[4]
    if scheme in ("file", "hdfs") and isinstance(given, str) and not found[2]:
        authority, path = "", f"/{authority}{path}"  # one slash, and nothing but a path after it
    if scheme == "file":
        if isinstance(given, str) and authority not in ("", "localhost"):
            raise TraceError(given, f"a file of another machine: {authority}", "write file:///PATH")
        return Path(path if isinstance(given, str) else f"/{authority}{path}")
    if scheme not in stores.SCHEMES:
        way_out = "write s3a://" if scheme in ("s3", "s3n") else f"there are {', '.join(stores.SCHEMES)}"
        raise TraceError(printable(str(given)), f"no kind of store that is known: {scheme}", way_out)
    if "@" in authority and scheme != "abfss":
        # The address itself stays unsaid: what stands before the @ is a secret.
        raise TraceError(f"{scheme}://…", "an address with keys in it", "put them into settings or the environment")
    if not authority and scheme != "hdfs":
        raise TraceError(given, "an address without a bucket", f"write {scheme}://BUCKET/PATH")
    return Address(scheme, authority, path)


# What a `Path` cannot do, or does otherwise ---------------------------------------------------------------------------


def write_whole(target: Place, data: bytes) -> None:
    """Write a file whole or not at all; when this returns it is there after a crash of the machine too."""
    if isinstance(target, Address):
        target.write_bytes(data)
        return
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(scratch, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def remove_tree(directory: Place) -> None:
    """Everything at and below a place; what cannot be removed stays."""
    if isinstance(directory, Address):
        with suppress(StoreProblem):
            directory.remove_tree()
    else:
        shutil.rmtree(directory, ignore_errors=True)


def address_for_spark(where: Place) -> str:
    """How Spark is told of a place: without a scheme it would look in its default file system, which may be another."""
    return str(where) if isinstance(where, Address) else f"file://{where.absolute()}"
