"""The way of the rows from Parquet to a rank's batches, with no session of Spark: `make test-spark`.

By the name of the file, no other run of the tests collects it: pyarrow is not in the environment of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common import datasets, reading
from horovod.spark.common.columns import SparseRows, gathered
from horovod.spark.common.datamodule import ParquetDataModule
from horovod.spark.common.datasets import ColumnKind, Dataset
from horovod.spark.common.reading import Reading, batches
from horovod.spark.common.store import Store
from horovod.spark.common.writing import Writing

ROWS = 1000


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = Store.create(str(tmp_path))
    place = Path(made.get_train_data_path())
    place.mkdir()
    table = pa.table({"id": np.arange(ROWS), "x": pa.FixedSizeListArray.from_arrays(np.arange(2.0 * ROWS), 2)})
    pq.write_table(table, place / "a.parquet", row_group_size=50)
    return made


def test_every_row_once_in_whatever_way(store: Any) -> None:
    data = datasets.opened(store, store.get_train_data_path())
    for further in ({}, {"shuffle": False}, {"is_cached": True}, {"window_rows": 120}, {"pool": "dummy"}):
        seen: list[list[int]] = [[], []]
        for rank in range(3):
            made = batches(data, Reading(store, ["id", "x"], 7, **further), rank, 3)
            for found in seen:
                for batch in made:
                    assert (batch["x"] == 2 * batch["id"][:, None] + [0, 1]).all()
                    found += batch["id"].tolist()
            made.close()
        assert [sorted(found) for found in seen] == [list(range(ROWS))] * 2
        assert (seen[0] == seen[1]) == (further == {"shuffle": False})


def test_two_iterations_at_once_do_not_disturb_each_other(store: Any) -> None:
    """Windows of several row groups are gathered in memory that is used again, also by the next epoch."""
    data = datasets.opened(store, store.get_train_data_path())
    made = batches(data, Reading(store, ["id", "x"], 10, window_rows=200, pool="dummy"), 0, 1)
    for _ in range(2):
        pairs = list(zip(iter(made), iter(made)))
        for number in (0, 1):
            epoch = [pair[number] for pair in pairs]
            assert sorted(row for batch in epoch for row in batch["id"]) == list(range(ROWS))
            assert all((batch["x"] == 2 * batch["id"][:, None] + [0, 1]).all() for batch in epoch)


def test_an_epoch_reads_nothing_that_an_earlier_one_has_read(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = datasets.opened(store, store.get_train_data_path())
    read: list[Any] = []
    of_piece = reading._rows_of_piece
    monkeypatch.setattr(reading, "_rows_of_piece", lambda *given: (read.append(given[-1]), of_piece(*given))[1])
    for further in ({"shuffle": False}, {"window_rows": 100}):
        whole = list(batches(data, Reading(store, ["id"], 10, pool="dummy", **further), 0, 1))
        parts = batches(data, Reading(store, ["id"], 10, steps=20, pool="dummy", **further), 0, 1)
        read.clear()
        found = [batch for _ in range(5) for batch in parts]
        assert len(read) <= 20 + 5
        assert [each["id"].tolist() for each in found] == [each["id"].tolist() for each in whole]


def test_rows_of_parts_are_gathered_with_one_type_and_shape() -> None:
    def parts(*columns: Any) -> Iterator[Any]:
        return ({"x": column} for column in columns)

    mixed = gathered(parts(np.array([1, 2]), np.array([0.5])), 2, 3)["x"]
    assert mixed.tolist() == [1.0, 2.0, 0.5]
    words = gathered(parts(np.array(["a"], object), np.array(["long"], object)), 2, 2)["x"]
    assert words.tolist() == ["a", "long"]
    sparse = SparseRows.of(np.array([[1.0, 2.0]]))
    assert gathered(parts(sparse, SparseRows.of(np.array([[3.0, 4.0]]))), 2, 2)["x"][:].tolist() == [[1, 2], [3, 4]]
    rest = parts(np.zeros((2, 3)), np.zeros((1, 3)), np.ones((1, 3)))
    assert len(gathered(rest, 2, 3)["x"]) == 3 and next(rest)["x"][0, 0] == 1
    for one, other in ((np.zeros((2, 3)), np.zeros((1, 1))), (sparse, SparseRows.of(np.zeros((1, 3))))):
        with pytest.raises(InvalidArgumentError, match="Column 'x': its rows are not uniform"):
            gathered(parts(one, other), 2, 3)


def test_rows_are_as_large_as_in_memory(tmp_path: Path) -> None:
    few = np.arange(200_000) % 7
    pq.write_table(pa.table({"x": few}), tmp_path / "a.parquet")
    (group,) = datasets.groups_of("a", pq.read_metadata(tmp_path / "a.parquet"))
    assert group.size >= few.nbytes > 5 * pq.read_metadata(tmp_path / "a.parquet").row_group(0).total_byte_size


def test_a_rank_reads_what_the_driver_has_seen(store: Any) -> None:
    """Neither files that have come since, nor those of a list that is not to be seen yet."""
    seen = datasets.opened(store, store.get_train_data_path())
    pq.write_table(pa.table({"id": np.arange(5)}), f"{store.get_train_data_path()}/late.parquet")
    sets = {store.get_train_data_path(): seen}
    given = {"schema_fields": ["id"], "store": store, "has_val": False, "data_sets": sets}
    with ParquetDataModule(store.get_train_data_path(), "", **given) as module:
        assert sorted(row for batch in module.train_data() for row in batch["id"]) == list(range(ROWS))


def test_a_data_module_may_read_elsewhere(store: Any, tmp_path: Path) -> None:
    seen = {store.get_train_data_path(): datasets.opened(store, store.get_train_data_path())}
    pq.write_table(pa.table({"id": np.arange(5)}), tmp_path / "own.parquet")
    given = {"schema_fields": ["id"], "store": store, "has_val": False, "data_sets": seen}
    with ParquetDataModule(str(tmp_path / "own.parquet"), "", **given) as module:
        assert sum(len(batch["id"]) for batch in module.train_data()) == 5


@pytest.mark.parametrize("size", [1, 20])  # ranks: with all row groups each, and with one
def test_rows_that_stay_in_memory_cannot_be_changed(store: Any, size: int) -> None:
    data = datasets.opened(store, store.get_train_data_path())
    made = batches(data, Reading(store, ["id", "x"], 50, shuffle=False, is_cached=True), 0, size)
    for batch in made:
        assert not any(column.flags.writeable for column in batch.values())
    made.close()


def test_marks_without_a_value_are_refused(tmp_path: Path) -> None:
    writing = Writing(Store.create(str(tmp_path)), ["a", "b"], ["x"], 0.0, "mark", False)
    for marks in (pa.array([True, None]), pa.array([1.0, None])):
        found = writing._written([pa.RecordBatch.from_pydict({"x": pa.array([1, 2]), "mark": marks})])
        assert found == {"unfit": ["mark", "1 rows have no value"]}


def test_a_list_names_the_files(store: Any) -> None:
    path = store.get_train_data_path()
    data = datasets.opened(store, path)
    pq.write_table(pa.table({"id": np.arange(5)}), f"{path}/left-by-a-killed-task.parquet")
    datasets.finish(store, path, Dataset({"id": ColumnKind("bigint")}, data.groups))
    assert datasets.opened(store, path).rows == ROWS
