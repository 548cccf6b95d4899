"""A store on S3, which moto's server plays on the loopback, with no session of Spark: `make test-spark`.

By the name of the file, no other run of the tests collects it: s3fs and moto are not in the environment of the rest.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

from horovod.spark.common import datasets
from horovod.spark.common.datasets import ColumnKind, Dataset
from horovod.spark.common.reading import Reading, batches
from horovod.spark.common.row_plan import RowGroup
from horovod.spark.common.store import Store
from horovod.spark.common.writing import Writing

COUNTS = (1, 500, 37)  # rows that tasks have


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Of fsspec, for a server with an empty bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    at = "http://{}:{}".format(*server.get_host_and_port())
    region = {"region_name": "eu-central-1"}
    made = {"key": "a-key", "secret": "hush-hush", "endpoint_url": at, "client_kwargs": region}
    Store.create("s3://bucket", storage_options=made).fs.mkdir("bucket")
    yield made
    server.stop()


def prepared(store: Any, idx: int) -> Dataset:
    """A data set that tasks have written, of COUNTS rows each."""
    path = store.get_train_data_path(idx)
    groups: list[RowGroup] = []
    for first, count in zip(np.cumsum((0, *COUNTS)), COUNTS):
        ids = np.arange(first, first + count)
        batch = pa.RecordBatch.from_pydict({"id": ids, "x": list(np.stack([ids, 2.0 * ids], 1))})
        travelled = pickle.loads(pickle.dumps(store))
        (written,) = Writing(travelled, [path], ["id", "x"], 0.0, "", False).of_partition([batch])
        (found,) = json.loads(written.column(0)[0].as_py())["groups"]
        groups += [RowGroup(*each) for each in found]
    data = Dataset({"id": ColumnKind("bigint"), "x": ColumnKind("array<double>", [2])}, groups)
    datasets.finish(store, path, data)
    return data


def read_ids(store: Any, idx: int) -> list[int]:
    """What three ranks read in an epoch."""
    data, found = datasets.opened(store, store.get_train_data_path(idx)), []
    for rank in range(3):
        made = batches(data, Reading(store, ["id", "x"], 16), rank, 3)
        for batch in made:
            assert (batch["x"] == batch["id"][:, None] * [1, 2]).all()
            found += batch["id"].tolist()
        made.close()
    return found


def test_every_row_once_also_of_two_at_once(options: dict[str, Any]) -> None:
    stores = [Store.create("s3://bucket/rows", storage_options=options) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(prepared, stores, (1, 2)))
    assert [each.rows for each in made] == [sum(COUNTS)] * 2
    stores[0].fs.pipe_file("bucket/rows/intermediate_train_data.1/part-left.parquet", b"PAR1 and no more")
    for idx in (1, 2):
        assert sorted(read_ids(stores[0], idx)) == list(range(sum(COUNTS)))
    assert stores[0].is_parquet_dataset(stores[0].get_train_data_path(2))


def test_half_of_an_upload_is_no_file(options: dict[str, Any]) -> None:
    store = Store.create("s3://bucket/half", storage_options=options)
    path = store.get_checkpoint_path("r")
    store.write(path, b"old")
    killed = """
import os, pickle, signal, sys
fs, path = pickle.loads(sys.stdin.buffer.read())
file = fs.open(path, "wb", block_size=5 << 20)
file.write(bytes(11 << 20))
os.kill(os.getpid(), signal.SIGKILL)
"""
    given = pickle.dumps((store.fs, store.path_in_fs(path)))
    assert subprocess.run([sys.executable, "-c", killed], input=given, timeout=60).returncode == -9
    assert store.fs.s3 is not None and store.read(path) == b"old"
    store.settle(path)
    store.write(path, b"new")
    assert store.read(path) == b"new" and store.exists(path)
    store.remove(store.get_run_path("r"))
    assert not store.exists(path)


def test_what_others_write_is_seen(options: dict[str, Any]) -> None:
    """Their file systems are not this one, whose listings s3fs keeps."""
    store = Store.create("s3://bucket/seen", storage_options=options)
    other = fsspec.filesystem("s3", skip_instance_cache=True, **options)
    assert store.get_checkpoints("r") == [] and not store.exists(store.get_run_path("r"))
    store.write(f"{store.get_checkpoint_path('r')}/1.ckpt", b"")
    assert len(store.get_checkpoints("r")) == 1
    other.pipe_file("bucket/seen/runs/r/checkpoint/2.ckpt", b"")
    assert [each.rpartition("/")[2] for each in store.get_checkpoints("r")] == ["1.ckpt", "2.ckpt"]
    assert "hush" not in repr(store)
