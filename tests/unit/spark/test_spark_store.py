"""Stores: which one is made for a path, where things lie, and that nobody sees half a file. Needs fsspec."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common import store as stores
from horovod.spark.common.datasets import ColumnKind, Dataset, finish, is_finished, opened
from horovod.spark.common.row_plan import RowGroup
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, HDFSStore, LocalStore, Store
from horovod.spark.common.util import columns_of, require_shared

pytest.importorskip("fsspec", reason="fsspec is not installed")


class Remembered(FilesystemStore):
    """What a store would ask fsspec for."""

    @property
    def fs(self) -> Any:
        return None


def test_create_chooses_by_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HDFSStore, "fs", None)
    assert type(Store.create(str(tmp_path))) is FilesystemStore
    assert type(Store.create("memory://here")) is FilesystemStore
    found = Store.create("hdfs://namenode:8020/user/me", user="me", storage_options={"replication": 2})
    assert type(found) is HDFSStore and found.prefix_path == "hdfs:///user/me"
    assert found._storage_options == {"user": "me", "host": "namenode", "port": 8020, "replication": 2}
    assert type(Store.create("/dbfs/me")) is FilesystemStore
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    for path in ("/dbfs/me", "dbfs:/me", "file:///dbfs/me"):
        on_databricks = Store.create(path)
        assert type(on_databricks) is DBFSLocalStore and on_databricks.prefix_path == "/dbfs/me"
        assert on_databricks.get_checkpoint_path("a") == "/dbfs/me/runs/a/checkpoint.tf"


def test_bad_urls_are_refused() -> None:
    with pytest.raises(ValueError, match="'hdfs://a:b:c' is no place in HDFS"):
        HDFSStore("hdfs://a:b:c")
    with pytest.raises(InvalidArgumentError, match="nosuch://a cannot be reached"):
        Store.create("nosuch://a")
    with pytest.raises(InvalidArgumentError, match="driver 'libhdfs3' is gone"):
        HDFSStore("hdfs://a/b", driver="libhdfs3")
    with pytest.raises(InvalidArgumentError, match="lives in one process.*Use a shared folder"):
        require_shared(Store.create("memory://here"))
    with pytest.raises(InvalidArgumentError, match="store must be a store"):
        require_shared("/a/path")


def test_the_layout(tmp_path: Path) -> None:
    store = FilesystemStore(str(tmp_path), val_path=str(tmp_path / "other"))
    assert store.get_train_data_path() == f"{tmp_path}/intermediate_train_data"
    assert store.get_train_data_path(3) == f"{tmp_path}/intermediate_train_data.3"
    assert store.get_val_data_path(3) == f"{tmp_path}/other.3"
    assert store.get_test_data_path() == f"{tmp_path}/intermediate_test_data"
    assert store.get_checkpoint_path("r") == f"{tmp_path}/runs/r/checkpoint"
    assert store.get_logs_path("r") == f"{tmp_path}/runs/r/logs"
    with pytest.warns(DeprecationWarning, match="FilesystemStore is the same"):
        LocalStore(str(tmp_path))


def test_a_file_is_written_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FilesystemStore(str(tmp_path))
    path = store.get_checkpoint_path("r")
    store.write(path, b"one")
    assert store.exists(path) and store.read(path) == b"one"
    moved = store.fs.mv

    def fails(*args: Any, **kwargs: Any) -> None:
        raise OSError("the power is gone")

    monkeypatch.setattr(type(store.fs), "mv", fails)
    with pytest.raises(OSError, match="power"):
        store.write(path, b"two")
    monkeypatch.undo()
    assert store.read(path) == b"one" and [each.name for each in (tmp_path / "runs/r").iterdir()] == ["checkpoint"]
    store.write(path, b"three")
    assert store.read(path) == b"three" and moved is not None
    store.remove(path)
    assert not store.exists(path)


def test_output_of_a_run_is_copied(tmp_path: Path) -> None:
    remote = FilesystemStore(str(tmp_path)).to_remote("r", 4)
    assert remote.train_data_path.endswith("train_data.4") and remote.saving_runs
    with remote.get_local_output_dir() as folder:
        (Path(folder) / "logs").mkdir()
        (Path(folder) / "logs" / "events").write_text("x")
        remote.sync(folder)
    assert not Path(folder).exists() and (tmp_path / "runs/r/logs/events").read_text() == "x"


def test_checkpoints_are_found_by_their_ends(tmp_path: Path) -> None:
    store = FilesystemStore(str(tmp_path))
    assert store.get_checkpoints("r") == []
    store.write(f"{store.get_checkpoint_path('r')}/epoch=1.ckpt", b"")
    store.write(f"{store.get_checkpoint_path('r')}/notes.txt", b"")
    assert [Path(each).name for each in store.get_checkpoints("r")] == ["epoch=1.ckpt"]


def test_options_travel_but_are_not_shown_nor_saved() -> None:
    store = Remembered("s3://bucket/folder", storage_options={"secret": "hush"})
    assert pickle.loads(pickle.dumps(store))._storage_options == {"secret": "hush"}
    assert "hush" not in repr(store) and store.without_options()._storage_options == {}


def test_a_data_set_is_there_when_its_list_is(tmp_path: Path) -> None:
    store = FilesystemStore(str(tmp_path))
    path = store.get_train_data_path(5)
    with pytest.raises(InvalidArgumentError, match="There are no rows at"):
        opened(store, path)
    (tmp_path / "intermediate_train_data.5" / "_temporary").mkdir(parents=True)
    with pytest.raises(InvalidArgumentError, match="still being written"):
        opened(store, path)
    made = Dataset({"x": ColumnKind("array<double>", [3])}, [RowGroup("a", 0, 4, 32), RowGroup("a", 1, 3, 24)])
    finish(store, path, made)
    assert is_finished(store, path) and opened(store, path) == made and made.rows == 7


def test_databricks_files_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS", "0.3")
    monkeypatch.setenv("DATABRICKS_FILE_AVAILABILITY_CHECK_INTERVAL_SECS", "0.01")
    store = DBFSLocalStore(str(tmp_path))
    looked = []
    exists = stores.AbstractFilesystemStore.exists

    def late(self: Any, path: str) -> bool:
        looked.append(path)
        if len(looked) == 3:
            Path(path).write_bytes(b"late")
        return exists(self, path)

    monkeypatch.setattr(stores.AbstractFilesystemStore, "exists", late)
    assert store.read(str(tmp_path / "file")) == b"late" and len(looked) == 3
    with pytest.raises(FileNotFoundError):
        store.read(str(tmp_path / "never"))


def test_columns_that_are_not_there_are_refused() -> None:
    there = ["a", "b", "y", "w", "marks"]
    assert columns_of(there, ["y"], None, "marks", "w") == ["a", "b", "y", "w"]
    assert columns_of(there, ["y"], ["b"], 0.1, None) == ["b", "y"]
    for given, fact in (
        ((["z"], None, None, None), "There is no column 'z'"),
        ((["y"], ["a", "c"], None, None), "There is no column 'c'"),
        ((["y"], ["a"], "m", None), "there is no column 'm'"),
        ((["y"], ["a"], 1.5, None), r"a share in \[0, 1\)"),
        (([], ["a"], None, None), "label_cols is missing"),
    ):
        with pytest.raises(InvalidArgumentError, match=fact):
            columns_of(there, *given)  # type: ignore[arg-type]
