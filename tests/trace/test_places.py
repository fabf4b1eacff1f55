"""Places: paths of this machine and addresses in stores, which read and write alike."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import ObjectStore

from isthmus.trace import stores
from isthmus.trace.files import find_files, log_sizes, open_file, size_of
from isthmus.trace.parquet import open_parquet, write_part
from isthmus.trace.places import Address, Place, StoreProblem, address_for_spark, place, remove_tree, write_whole
from isthmus.trace.reader import read_trace
from isthmus.trace.schema import Event, TraceError
from isthmus.trace.stores import StoreSettings


@pytest.fixture
def store(object_store: ObjectStore) -> Iterator[ObjectStore]:
    stores.use(StoreSettings(object_store.settings))
    yield object_store
    stores.use(StoreSettings())


@pytest.fixture(params=["path", "file", "s3a"])
def directory(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> Place:
    """The same tests hold for every kind of place."""
    where = {"path": str(tmp_path), "file": f"file://{tmp_path}", "s3a": f"{store.address}/{tmp_path.name}"}
    return place(where[request.param])


def _row(index: int) -> Event:
    return Event(run="r", system="a", process="p", index=index, role="app", event="view", time_ns=0,
                 destinations=("a/p",), peer="1")  # fmt: skip


def test_what_is_written_is_read_again(directory: Place) -> None:
    target = directory / "part.bin"
    assert not target.exists()
    assert size_of(target) is None
    write_whole(target, b"one\ntwo\n")
    assert (target.read_bytes(), size_of(target), target.is_file()) == (b"one\ntwo\n", 8, True)
    with open_file(str(target)) as file:
        file.seek(4)
        assert file.read(3) == b"two"
    write_whole(target, b"three")
    assert target.read_bytes() == b"three"
    assert [each.name for each in directory.iterdir()] == ["part.bin"]
    target.unlink()
    assert not target.exists()
    target.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        target.read_bytes()


def test_a_tree_is_removed_and_nothing_beside_it(directory: Place) -> None:
    for name in ("mine", "mine2"):
        (directory / name).mkdir(parents=True)
        write_whole(directory / name / "file", b"x")
    remove_tree(directory / "mine")
    assert not (directory / "mine" / "file").exists()
    assert (directory / "mine2" / "file").read_bytes() == b"x"
    remove_tree(directory / "never was there")


def test_a_trace_is_found_and_read_wherever_it_is(directory: Place) -> None:
    (directory / "deep" / "_hidden").mkdir(parents=True)
    write_part(directory / "deep" / "rows.parquet", [_row(0), _row(1)])
    for name in ("notes.txt", ".part.jsonl", "deep/_hidden/more.jsonl"):
        write_whole(directory / name, b"\n")
    assert [str(file) for file in find_files([directory])] == [str(directory / "deep" / "rows.parquet")]
    assert [event.index for event in read_trace(directory).events()] == [0, 1]
    assert list(log_sizes([str(directory)]).values()) == [size_of(directory / "deep" / "rows.parquet")]
    assert log_sizes([str(directory / "comes later")]) == {}


def test_a_wrong_path_is_refused_in_one_line(directory: Place) -> None:
    with pytest.raises(TraceError, match="no such file or directory; give a directory"):
        find_files([directory / "nothing"])


def test_a_damaged_file_is_a_bad_trace_and_no_bad_store(directory: Place) -> None:
    target = directory / "damaged.parquet"
    write_whole(target, b"PAR1 and then nothing PAR1")
    with pytest.raises(TraceError, match="not a readable Parquet file"), open_parquet(target):
        pass


def test_a_wrong_key_is_said_and_is_no_empty_trace(store: ObjectStore) -> None:
    store.put("keys/log.jsonl", b"\n")
    for wrong in ({"spark.hadoop.fs.s3a.secret.key": "guessed"}, {"spark.hadoop.fs.s3a.access.key": "AKIANOBODY"}):
        stores.use(StoreSettings(store.settings | wrong))
        for refused in (
            lambda: find_files([f"{store.address}/keys"]),
            lambda: log_sizes([f"{store.address}/keys"]),
            lambda: place(f"{store.address}/keys/new").write_bytes(b"x"),  # type: ignore[arg-type]
        ):
            with pytest.raises(StoreProblem, match="refuses the keys") as told:
                refused()
            assert store.secret not in str(told.value)
            assert "guessed" not in str(told.value)
            assert "\n" not in str(told.value)


def test_a_store_that_is_away_is_said_and_is_no_empty_trace(store: ObjectStore, away: str) -> None:
    stores.use(StoreSettings(store.settings | {"spark.hadoop.fs.s3a.endpoint": away}))
    for refused in (
        lambda: log_sizes([f"{store.address}/keys"]),
        lambda: read_trace(f"{store.address}/log.jsonl"),
    ):
        with pytest.raises(StoreProblem, match=f"the store does not answer at {away}"):
            refused()


def test_a_bucket_that_is_not_there_is_said(store: ObjectStore) -> None:
    with pytest.raises(StoreProblem, match="no such bucket: nobody"):
        place("s3a://nobody/file").write_bytes(b"x")
    with pytest.raises(TraceError, match="no such file or directory"):
        find_files(["s3a://nobody/traces"])


def test_addresses_are_hadoops() -> None:
    def parts(given: str | Path) -> tuple[str, str, str]:
        found = place(given)
        assert isinstance(found, Address)
        return found.scheme, found.authority, str(found)

    assert parts("s3a://bucket/a/b/") == ("s3a", "bucket", "s3a://bucket/a/b")
    assert parts(Path("s3a://bucket/a")) == ("s3a", "bucket", "s3a://bucket/a")
    assert parts("hdfs://host:8020/a") == ("hdfs", "host:8020", "hdfs://host:8020/a")
    assert parts("hdfs:/a") == ("hdfs", "", "hdfs:///a")
    where = "box@account.dfs.core.windows.net"
    assert parts(f"abfss://{where}/a") == ("abfss", where, f"abfss://{where}/a")
    assert place("file:///a/b") == place("file:/a/b") == place(Path("file:///a/b")) == Path("/a/b")
    assert place("a/b") == Path("a/b")
    assert address_for_spark(Path("/a/b")) == "file:///a/b"
    copy = pickle.loads(pickle.dumps(place("s3a://bucket/a")))
    assert copy == place("s3a://bucket/a")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("s3://bucket/a", "no kind of store that is known: s3; write s3a://"),
        ("ftp://host/a", "no kind of store that is known: ftp; there are s3a, hdfs, abfss, file"),
        ("s3a:///a", "an address without a bucket"),
        ("file://host/a", "a file of another machine"),
        ("s3a://AKIA:secret@bucket/a", "an address with keys in it"),
    ],
)
def test_what_is_no_address_of_ours_is_refused(given: str, said: str) -> None:
    with pytest.raises(TraceError, match=said) as told:
        place(given)
    assert "secret" not in str(told.value)


def test_settings_win_over_the_environment_and_those_of_a_bucket_over_both() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "e",
        "AWS_SECRET_ACCESS_KEY": "e2",
        "AWS_SESSION_TOKEN": "e3",
        "AWS_REGION": "r",
    }
    settings = StoreSettings({"spark.hadoop.fs.s3a.endpoint": "here", "fs.s3a.bucket.b.endpoint": "there"}, environment)
    assert settings.get("fs.s3a.endpoint", "a") == "here"
    assert settings.get("fs.s3a.endpoint", "b") == "there"
    assert settings.get("fs.s3a.access.key") == "e"
    assert settings.get("fs.s3a.endpoint.region") == "r"
    own = StoreSettings({"fs.s3a.access.key": "mine", "fs.s3a.secret.key": "mine2"}, environment)
    assert (own.get("fs.s3a.access.key"), own.get("fs.s3a.session.token")) == ("mine", None)


def test_settings_are_never_printed() -> None:
    settings = StoreSettings({"fs.s3a.access.key": "AKIA1", "fs.s3a.secret.key": "hush"})
    assert "hush" not in f"{settings!r} {settings}"
    assert "AKIA1" not in repr(settings)
    assert "fs.s3a.secret.key" in repr(settings)
