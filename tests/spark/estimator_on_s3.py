"""`TorchEstimator` with a store on S3, which moto's server plays on the loopback: `make test-spark`. See `sessions`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from estimator_torch import ROWS, accuracy, digits, estimator, read_ids  # noqa: F401 - a fixture
from moto.server import ThreadedMotoServer
from pyspark import cloudpickle as cloudpickle_of_spark
from pyspark.sql import DataFrame
from sessions import context, nothing_is_left  # noqa: F401 - fixtures

from horovod.spark.common.store import FilesystemStore, Store
from horovod.spark.common.util import prepare_data

for each in (cloudpickle, cloudpickle_of_spark):  # the executors do not have this module
    each.register_pickle_by_value(sys.modules[__name__])
SECRET = "hush-hush"  # noqa: S105 - of nobody


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Of fsspec, for a server with an empty bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    at = "http://{}:{}".format(*server.get_host_and_port())
    made = {"key": "a-key", "secret": SECRET, "endpoint_url": at, "client_kwargs": {"region_name": "eu-central-1"}}
    Store.create("s3://bucket", storage_options=made).fs.mkdir("bucket")
    yield made
    server.stop()


def killed_at(call: int) -> Any:
    """A loss that kills its rank when it is called so many times."""
    calls = 0

    def loss(output: Any, label: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.nn.functional.cross_entropy(output, label.long())

    return loss


def test_fit_transform_and_resume_after_a_kill(
    digits: tuple[DataFrame, DataFrame],  # noqa: F811
    options: dict[str, Any],
    tmp_path: Path,
) -> None:
    store = Store.create("s3://bucket/fits", storage_options=options)
    steps = -(-ROWS // 2 // 32)  # of an epoch and a rank
    with pytest.raises(RuntimeError, match="SIGKILL"):
        estimator(tmp_path, store=store, run_id="r", epochs=4, loss=killed_at(2 * steps + 5)).fit(digits[0])
    before = json.loads(store.read(f"{store.get_logs_path('r')}/history.json"))
    assert [report["epoch"] for report in before] == [0, 1]
    again = estimator(tmp_path, store=store, run_id="r", epochs=4)
    model = again.fit(digits[0])
    assert [report["epoch"] for report in model.getHistory()] == [0, 1, 2, 3] and model.getHistory()[:2] == before
    assert accuracy(model.transform(digits[1])) > 0.8
    again.write().overwrite().save(str(tmp_path / "written"))
    texts = [each.read_bytes() for each in (tmp_path / "written").rglob("*") if each.is_file()]
    assert texts and not any(SECRET.encode() in text for text in texts)


def test_two_fits_at_once(
    digits: tuple[DataFrame, DataFrame],  # noqa: F811
    options: dict[str, Any],
    tmp_path: Path,
) -> None:
    store = Store.create("s3://bucket/two", storage_options=options)
    with ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(estimator(tmp_path, store=store, num_proc=1, epochs=n).fit, digits[0]) for n in (1, 2)]
    models = [each.result() for each in fits]
    assert [len(model.getHistory()) for model in models] == [1, 2]
    assert len(store.fs.ls(store.path_in_fs(store.get_runs_path()), refresh=True)) == 2


class Dying(FilesystemStore):
    """The worker of partition 1 is killed in its first attempt: it leaves a broken file, and half of an upload."""

    def path_in_fs(self, path: str) -> str:
        from pyspark import TaskContext

        task, place = TaskContext.get(), super().path_in_fs(path)
        if task and task.partitionId() == 1 and task.attemptNumber() == 0:
            self.fs.pipe_file(f"{place}/part-broken.parquet", b"PAR1 and no more")
            half = self.fs.open(f"{place}/part-half.parquet", "wb", block_size=5 << 20)
            half.write(bytes(11 << 20))
            os.kill(os.getpid(), signal.SIGKILL)
        return place


def test_a_task_that_is_killed_while_it_writes(
    digits: tuple[DataFrame, DataFrame],  # noqa: F811
    options: dict[str, Any],
) -> None:
    store = Dying("s3://bucket/dying", storage_options=options)
    with prepare_data(2, store, digits[1], ["digit"], ["pixels", "id"], partitions_per_process=1) as index:
        path = store.get_train_data_path(index)
    names = [name.rpartition("/")[2] for name in store.fs.ls(store.path_in_fs(path), refresh=True)]
    assert "part-broken.parquet" in names and "part-half.parquet" not in names
    assert sorted(read_ids(store, path)) == list(range(ROWS, 1797))  # by three ranks
    with prepare_data(2, store, digits[1], ["digit"], ["pixels", "id"], partitions_per_process=1) as found:
        assert found == index
