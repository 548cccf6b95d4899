"""Stores: where prepared rows, checkpoints and logs lie, on any file system that fsspec reaches.

Used by estimators on the driver, by Spark's tasks and by ranks, which all must reach the same place. A store travels
with its `storage_options`, inside Spark's own messages. Importing this imports neither fsspec nor pyarrow.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Callable, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.frameworks import require
from horovod.spark.common import whole_files
from horovod.spark.common.store_layout import StoreLayout

__all__ = ["AbstractFilesystemStore", "DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]

_HDFS: Final = re.compile(r"(?:hdfs://(?:(?P<host>[^/:]+)(?::(?P<port>\d+))?)?)?(?P<path>/.*)")
_ON_DATABRICKS: Final = "DATABRICKS_RUNTIME_VERSION"
_DBFS: Final = ("file:///dbfs/", "dbfs:/", "/dbfs/")
# Where files of one process reach the others after a while: how long to wait for one, and how often to look.
_WAIT_S: Final = ("DATABRICKS_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS", 30.0)
_NAMES: Final = {
    "train": "intermediate_train_data",
    "val": "intermediate_val_data",
    "test": "intermediate_test_data",
    "runs": "runs",
}
_LOOK_S: Final = ("DATABRICKS_FILE_AVAILABILITY_CHECK_INTERVAL_SECS", 0.1)


class Store:
    """What the estimators ask of a store. Make one with `Store.create`."""

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """The store for a path or URL: HDFSStore for hdfs://, DBFSLocalStore for DBFS on Databricks, else
        FilesystemStore.

        Args:
            prefix_path: the folder below which everything lies.
            *args, **kwargs: of that class, as `storage_options`.
        """
        path = str(prefix_path)
        if path.startswith("hdfs://"):
            return HDFSStore(path, *args, **kwargs)
        if _ON_DATABRICKS in os.environ and path.startswith(_DBFS):
            return DBFSLocalStore(path, *args, **kwargs)
        return FilesystemStore(path, *args, **kwargs)

    def settle(self, path: str) -> None:
        """Before a file is read by its next writer: undoes what a killed one has left. Nothing by default."""


class AbstractFilesystemStore(StoreLayout, Store):
    """A folder of a file system.

    Args:
        prefix_path: of the folder; a path, or a URL that fsspec knows.
        train_path, val_path, test_path, runs_path: other places for these; default: below the prefix.
        save_runs: checkpoints and logs are kept.
        storage_options: of fsspec, as keys or an endpoint.
        checkpoint_filename: default "checkpoint".

    Raises:
        InvalidArgumentError: fsspec does not know such URLs, or lacks a package for them.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: Optional[str] = None,
        val_path: Optional[str] = None,
        test_path: Optional[str] = None,
        runs_path: Optional[str] = None,
        save_runs: bool = True,
        storage_options: Optional[Mapping[str, Any]] = None,
        checkpoint_filename: Optional[str] = None,
    ) -> None:
        self.prefix_path = self._normal(str(prefix_path)).rstrip("/") or "/"
        self._storage_options = dict(storage_options or {})
        places = {"train": train_path, "val": val_path, "test": test_path, "runs": runs_path}
        self._paths = {name: path or self._below(_NAMES[name]) for name, path in places.items()}
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or self._checkpoint_filename
        self.fs  # noqa: B018 - a bad URL is an error here

    def _normal(self, path: str) -> str:
        return path if "://" in path or "::" in path else os.path.abspath(os.path.expanduser(path))

    def _below(self, name: str) -> str:
        return f"{self.prefix_path.rstrip('/')}/{name}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.prefix_path!r})"  # the options may have keys of an account

    def without_options(self) -> AbstractFilesystemStore:
        """The same place without `storage_options`, in which there may be keys: what is written to a file."""
        found = copy.copy(self)
        found._storage_options = {}
        return found

    @property
    def fs(self) -> Any:
        """The file system, of fsspec."""
        fsspec = require("fsspec", "fsspec", "A store of horovod.spark")
        try:
            return fsspec.core.url_to_fs(self.prefix_path, **self._storage_options)[0]
        except (ValueError, ImportError) as error:
            raise InvalidArgumentError(f"The store {self.prefix_path} cannot be reached: {error}.") from error

    @property
    def in_one_process(self) -> bool:
        """Nobody but this process sees it (memory://)."""
        return "memory" in whole_files.protocols(self.fs)

    @property
    def is_local(self) -> bool:
        """It is a folder of this machine, or one that is mounted on it."""
        return "file" in whole_files.protocols(self.fs)

    def path_in_fs(self, path: str) -> str:
        """A path or URL as the file system wants it."""
        return str(self.fs._strip_protocol(path))

    # ---- files

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """All files below the checkpoint's path whose names end so."""
        try:
            found = self.fs.find(self.path_in_fs(self.get_checkpoint_path(run_id)))
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name.endswith(suffix))

    def exists(self, path: str) -> bool:
        """There is such a file or folder."""
        fs = self.fs
        fs.invalidate_cache()
        return bool(fs.exists(self.path_in_fs(path)))

    def read(self, path: str) -> bytes:
        """A file's bytes."""
        return bytes(self.fs.cat_file(self.path_in_fs(path)))

    def write_text(self, path: str, text: str) -> None:
        """Writes a file as a whole."""
        self.write(path, text.encode())

    def write(self, path: str, data: bytes) -> None:
        """Writes a file as a whole: nobody reads half of it, nor does a killed writer leave half of it."""
        fs, target = self.fs, self.path_in_fs(path)
        fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        whole_files.write(fs, target, data)

    def settle(self, path: str) -> None:
        """Before a file is read by its next writer: puts it back if a killed one had moved it aside, and removes what
        such have left beside it."""
        whole_files.settle(self.fs, self.path_in_fs(path))

    def remove(self, path: str) -> None:
        """Removes a file or a folder, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.path_in_fs(path), recursive=True)

    # ---- data sets

    def is_parquet_dataset(self, path: str) -> bool:
        """Parquet files can be read there."""
        try:
            return self.get_parquet_dataset(path) is not None
        except (OSError, ValueError):
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        """The files there as a `pyarrow.dataset.Dataset`."""
        from horovod.spark.common.columns import arrow

        return arrow().dataset.dataset(self.path_in_fs(path), filesystem=self.arrow_fs(), format="parquet")

    def arrow_fs(self) -> Any:
        """The file system, as pyarrow reads from it."""
        from horovod.spark.common.columns import arrow

        fs = arrow().fs
        return fs.LocalFileSystem() if self.is_local else fs.PyFileSystem(fs.FSSpecHandler(self.fs))

    # ---- what ranks use

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], Any]:
        """What makes a folder of this machine for a run's output: a context manager, after which it is gone."""
        del run_id

        @contextlib.contextmanager
        def local_output_dir() -> Iterator[str]:
            with tempfile.TemporaryDirectory(prefix="horovod-") as folder:
                yield folder

        return local_output_dir

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """What copies such a folder to the store."""

        def sync(local_run_path: str) -> None:
            for folder, _, names in os.walk(local_run_path):
                for name in names:
                    source = os.path.join(folder, name)
                    with open(source, "rb") as file:
                        below = os.path.relpath(source, local_run_path).replace(os.sep, "/")
                        self.write(f"{self.get_run_path(run_id)}/{below}", file.read())

        return sync

    def to_remote(self, run_id: str, dataset_idx: Optional[int] = None) -> Any:
        """All of this for one run, as attributes."""
        return SimpleNamespace(
            train_data_path=self.get_train_data_path(dataset_idx),
            val_data_path=self.get_val_data_path(dataset_idx),
            test_data_path=self.get_test_data_path(dataset_idx),
            saving_runs=self.saving_runs(),
            runs_path=self.get_runs_path(),
            run_path=self.get_run_path(run_id),
            checkpoint_path=self.get_checkpoint_path(run_id),
            checkpoint_filename=self.get_checkpoint_filename(),
            logs_path=self.get_logs_path(run_id),
            logs_subdir=self.get_logs_subdir(),
            get_local_output_dir=self.get_local_output_dir_fn(run_id),
            sync=self.sync_fn(run_id),
        )


class FilesystemStore(AbstractFilesystemStore):
    """A folder of this machine or behind a URL: s3://, gs://, abfs:// and all others that fsspec knows."""


class LocalStore(FilesystemStore):
    """Deprecated: FilesystemStore."""

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        warnings.warn("LocalStore is deprecated; FilesystemStore is the same.", DeprecationWarning, stacklevel=2)
        super().__init__(prefix_path, *args, **kwargs)


class HDFSStore(AbstractFilesystemStore):
    """A folder of HDFS, reached by pyarrow's libhdfs.

    Args:
        prefix_path: hdfs://HOST:PORT/PATH, or a path of the default file system.
        host, port, user, kerb_ticket, extra_conf: as of `pyarrow.fs.HadoopFileSystem`; they override those of the URL.
        driver: "libhdfs", the only one.
        **kwargs: of `AbstractFilesystemStore`.

    Raises:
        InvalidArgumentError: no such URL, or another driver.
    """

    def __init__(
        self,
        prefix_path: str,
        host: Optional[str] = None,
        port: Optional[int] = None,
        user: Optional[str] = None,
        kerb_ticket: Optional[str] = None,
        driver: str = "libhdfs",
        extra_conf: Optional[Mapping[str, str]] = None,
        **kwargs: Any,
    ) -> None:
        found = _HDFS.fullmatch(prefix_path)
        if found is None:
            raise InvalidArgumentError(
                f"HDFSStore: {prefix_path!r} is no place in HDFS. Write hdfs://HOST:PORT/PATH, or /PATH."
            )
        if driver != "libhdfs":
            raise InvalidArgumentError(f"HDFSStore: driver {driver!r} is gone from pyarrow. Leave it out.")
        options: dict[str, Any] = {
            "user": user,
            "kerb_ticket": kerb_ticket,
            "extra_conf": extra_conf and dict(extra_conf),
        }
        options = {name: value for name, value in options.items() if value is not None}
        host, port = host or found["host"] or "default", int(port or found["port"] or 0)
        options |= {"host": host, "port": port, **(kwargs.pop("storage_options", None) or {})}
        super().__init__(f"hdfs://{found['path']}", storage_options=options, **kwargs)


class DBFSLocalStore(AbstractFilesystemStore):
    """A folder of Databricks' file system, through its mount at /dbfs. What one machine writes, others see after a
    while: a file that is not there is waited for (DATABRICKS_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS, 30)."""

    _checkpoint_filename = "checkpoint.tf"

    def _normal(self, path: str) -> str:
        for start in _DBFS:
            if path.startswith(start):
                return "/dbfs/" + path.removeprefix(start).lstrip("/")
        return super()._normal(path)

    def read(self, path: str) -> bytes:
        """A file's bytes, as soon as it is there."""
        deadline_s = time.monotonic() + float(os.environ.get(*map(str, _WAIT_S)))
        while not self.exists(path) and time.monotonic() < deadline_s:
            time.sleep(float(os.environ.get(*map(str, _LOOK_S))))
        return super().read(path)
