"""The estimators' parameters: the table is the one that programs know, with its defaults and errors."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common.parameter_table import TABLE, checked, require_one_of, rows_of

HEAP = {"LIBHDFS_OPTS": "-Xms2048m -Xmx2048m"}
OF_ALL = str.split(
    """
num_proc backend model store optimizer loss loss_weights sample_weight_col feature_cols label_cols label_shapes
validation gradient_compression val_batch_size random_seed shuffle_buffer_size run_id train_steps_per_epoch
validation_steps_per_epoch transformation_fn mp_start_method data_module
"""
)
# name: default, frameworks
KNOWN: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(OF_ALL, (None, "KTL")),
    **dict.fromkeys(("loss_constructors", "input_shapes", "train_minibatch_fn"), (None, "TL")),
    **dict.fromkeys(("continuous_cols", "categorical_cols"), (None, "KT")),
    **dict.fromkeys(("transformation_edit_fields", "transformation_removed_fields"), (None, "L")),
    **dict.fromkeys(("num_gpus", "logger", "profiler", "trainer_args", "loader_num_epochs"), (None, "L")),
    **dict.fromkeys((f"{part}_async_data_loader_queue_size" for part in ("train", "val")), (None, "L")),
    **dict.fromkeys(("terminate_on_nan", "debug_data_loader"), (False, "L")),
    "log_every_n_steps": (50, "L"),
    "metrics": ([], "KTL"),
    "compress_sparse_cols": (False, "KTL"),
    "batch_size": (32, "KTL"),
    "epochs": (1, "KTL"),
    "verbose": (1, "KTL"),
    "callbacks": ([], "KL"),
    "shuffle": (True, "KTL"),
    "partitions_per_process": (10, "KTL"),
    "train_reader_num_workers": (2, "KTL"),
    "val_reader_num_workers": (2, "KTL"),
    "reader_pool_type": ("thread", "KTL"),
    "inmemory_cache_all": (False, "KTL"),
    "use_gpu": (True, "KTL"),
    "backward_passes_per_step": (1, "T"),
    "tensorflow_dataset_prefetch_buffer_size": (0, "K"),
    "custom_objects": ({}, "K"),
    "checkpoint_callback": (None, "K"),
    "backend_env": (HEAP, "K"),
}


def test_names_defaults_and_frameworks() -> None:
    assert {row.name: (row.default, "".join(sorted(row.owners, key="KTL".index))) for row in TABLE} == KNOWN
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert "callbacks" not in rows_of("T") and "backward_passes_per_step" in rows_of("T")


def test_accessors_have_the_names_that_programs_know() -> None:
    rows = rows_of("K")
    known = {"num_proc": "NumProc", "inmemory_cache_all": "InMemoryCacheAll", "use_gpu": "UseGpu", "run_id": "RunId"}
    assert {name: rows[name].accessor for name in known} == known
    odd = ("shuffle_buffer_size", "train_reader_num_workers", "val_reader_num_workers")
    assert [rows[name].setters[0] for name in odd] == [
        "ShufflingBufferSize",
        "TrainReaderNumWorker",
        "ValReaderNumWorker",
    ]


REFUSED: list[tuple[str, Any]] = [
    ("num_proc", 0),
    ("num_proc", True),
    ("epochs", 1.5),
    ("backward_passes_per_step", 0),
    ("partitions_per_process", 0),
    ("validation", 1.0),
    ("validation", -0.1),
    ("validation", True),
    ("loss_weights", ["a"]),
    ("loss_weights", 0.5),
    ("label_cols", "digit"),
    ("reader_pool_type", "fibre"),
    ("mp_start_method", "clone"),
    ("transformation_fn", 3),
    ("shuffle", 1),
    ("input_shapes", [3]),
    ("sample_weight_col", 4),
    ("custom_objects", []),
]


@pytest.mark.parametrize("name, value", REFUSED)
def test_bad_values_are_refused_with_the_parameters_name(name: str, value: Any) -> None:
    row = next(row for row in TABLE if row.name == name)
    with pytest.raises(InvalidArgumentError, match=f"^{name} must be .* Received: "):
        checked(row, value)


def test_good_values_come_back_and_none_is_always_good() -> None:
    rows = {row.name: row for row in TABLE}
    assert checked(rows["validation"], 0.25) == 0.25 and checked(rows["validation"], "marks") == "marks"
    assert checked(rows["input_shapes"], ((-1, 8, 8),)) == [[-1, 8, 8]]
    assert checked(rows["loss_weights"], (1, 2)) == [1.0, 2.0]
    assert all(checked(row, None) is None for row in TABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeprecationWarning, match="shuffle=False instead of 0"):
            checked(rows["shuffle_buffer_size"], 0)


def test_num_proc_and_backend_exclude_one_another() -> None:
    require_one_of(2, None)
    with pytest.raises(ValueError, match="num_proc and backend are both given"):
        require_one_of(2, object())
