"""The parameters of the estimators, as one table: names, defaults, checks, who has them. Imports nothing of pyspark.

`params` makes Spark ML's `Param`s, setters, getters and the constructors' signatures of it. An estimator of another
framework is a letter here.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError

KERAS, TORCH, LIGHTNING = "K", "T", "L"

Check = Callable[[str, Any], Any]


class Row(NamedTuple):
    """A parameter.

    Attributes:
        name: as of the constructor.
        default: see there. A list or dictionary is copied for each estimator.
        owners: the letters of the frameworks whose estimators have it.
        check: takes name and value and returns the value; None is always taken.
        doc: what it means.
        setters: further names of its setter, without "set".
    """

    name: str
    default: Any
    owners: str
    check: Check
    doc: str
    setters: Sequence[str] = ()

    @property
    def accessor(self) -> str:
        """What stands after "set" and "get"."""
        return _ACCESSORS.get(self.name) or "".join(part.capitalize() for part in self.name.split("_"))


_ACCESSORS: Final = {"inmemory_cache_all": "InMemoryCacheAll", "outputCols": "OutputCols"}


def any_value(name: str, value: Any) -> Any:
    """Takes everything."""
    del name
    return value


def _refused(name: str, value: Any, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name} must be {what}. Received: {value!r}.")


def whole(least: int) -> Check:
    """A whole number from `least` on."""

    def check(name: str, value: Any) -> int:
        try:
            found = operator.index(value)
        except TypeError:
            raise _refused(name, value, "a whole number") from None
        if isinstance(value, bool) or found < least:
            raise _refused(name, value, f"a whole number, {least} or more")
        return found

    return check


def truth(name: str, value: Any) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    raise _refused(name, value, "True or False")


def text(name: str, value: Any) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    raise _refused(name, value, "a text")


def names(name: str, value: Any) -> list[str]:
    """A list of texts."""
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return list(value)
    raise _refused(name, value, "a list of column names")


def weights(name: str, value: Any) -> list[float]:
    """A list of numbers."""
    numbers = isinstance(value, (list, tuple)) and all(
        isinstance(each, (int, float)) and not isinstance(each, bool) for each in value
    )
    if numbers:
        return [float(each) for each in value]
    raise _refused(name, value, "a list of numbers, one for each label")


def shapes(name: str, value: Any) -> list[list[int]]:
    """A list of shapes."""
    try:
        return [[operator.index(length) for length in shape] for shape in value]
    except TypeError:
        raise _refused(name, value, "a list of shapes, as [[-1, 1, 8, 8]]") from None


def several(name: str, value: Any) -> list[Any]:
    """A list of anything."""
    if isinstance(value, (list, tuple)):
        return list(value)
    raise _refused(name, value, "a list")


def a_call(name: str, value: Any) -> Any:
    """A function."""
    if callable(value):
        return value
    raise _refused(name, value, "a function")


def a_dictionary(name: str, value: Any) -> dict[Any, Any]:
    """A dictionary."""
    if isinstance(value, dict):
        return value
    raise _refused(name, value, "a dictionary")


def one_of(*values: str) -> Check:
    """One of these texts."""

    def check(name: str, value: Any) -> str:
        if value in values:
            return str(value)
        raise _refused(name, value, f"one of {', '.join(map(repr, values))}")

    return check


def share_or_column(name: str, value: Any) -> Any:
    """A share in [0, 1), or the name of a column."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1:
        return float(value)
    raise _refused(name, value, "a share in [0, 1) or the name of a column")


def old_buffer(name: str, value: Any) -> int:
    """How many rows are shuffled as one; a warning that 0 has a successor."""
    found = whole(0)(name, value)
    if not isinstance(found, int):
        raise _refused(name, value, "a whole number")
    warnings.warn(
        f"{name} is deprecated: leave it out, and write shuffle=False instead of 0.", DeprecationWarning, stacklevel=4
    )
    return found


_ALL: Final = KERAS + TORCH + LIGHTNING
_HEAP: Final = {"LIBHDFS_OPTS": "-Xms2048m -Xmx2048m"}

TABLE: Final[tuple[Row, ...]] = (
    Row("num_proc", None, _ALL, whole(1), "number of ranks; default: spark.default.parallelism"),
    Row("backend", None, _ALL, any_value, "a Backend, which runs the ranks, instead of num_proc"),
    Row("model", None, _ALL, any_value, "the model to train"),
    Row("store", None, _ALL, any_value, "where rows, checkpoints and logs lie, of Store.create"),
    Row("optimizer", None, _ALL, any_value, "an optimizer; its learning rate is multiplied by the number of ranks"),
    Row("loss", None, _ALL, any_value, "a loss function, or one for each label"),
    Row("loss_constructors", None, TORCH + LIGHTNING, any_value, "functions that make the losses, on the ranks"),
    Row("metrics", [], _ALL, several, "functions of outputs and labels that are reported"),
    Row("loss_weights", None, _ALL, weights, "weights of the losses, one for each label"),
    Row("sample_weight_col", None, _ALL, text, "column of the rows' weights"),
    Row("feature_cols", None, _ALL, names, "columns that the model takes, in order; default: all others"),
    Row("label_cols", None, _ALL, names, "columns that the model learns, in the order of its outputs"),
    Row("continuous_cols", None, KERAS + TORCH, names, "columns, for a data module of the user's"),
    Row("categorical_cols", None, KERAS + TORCH, names, "columns, for a data module of the user's"),
    Row("input_shapes", None, TORCH + LIGHTNING, shapes, "shape of each feature's batch, -1 first"),
    Row("label_shapes", None, _ALL, shapes, "shape of each label's batch, -1 first"),
    Row("validation", None, _ALL, share_or_column, "a random share of the rows, or a column that marks them"),
    Row("gradient_compression", None, _ALL, any_value, "of hvd.Compression"),
    Row("compress_sparse_cols", False, _ALL, truth, "sparse vectors stay sparse in the store"),
    Row("batch_size", 32, _ALL, whole(1), "rows of a batch of a rank"),
    Row("val_batch_size", None, _ALL, whole(1), "the same in validation; default: batch_size"),
    Row("epochs", 1, _ALL, whole(1), "passes over the rows"),
    Row("verbose", 1, _ALL, whole(0), "0 says nothing; 1 a line an epoch, on rank 0; 2 more"),
    Row("callbacks", [], KERAS + LIGHTNING, several, "of the framework"),
    Row("random_seed", None, _ALL, whole(0), "of the framework and of the order of the rows"),
    Row(
        "shuffle_buffer_size", None, _ALL, old_buffer, "deprecated: how many rows are shuffled as one; 0: none",
        ("ShufflingBufferSize",),
    ),
    Row("shuffle", True, _ALL, truth, "another order of the rows in every epoch"),
    Row("partitions_per_process", 10, _ALL, whole(1), "files that are written for each rank"),
    Row("run_id", None, _ALL, text, "the run's name; a run that has a checkpoint goes on from it"),
    Row("train_steps_per_epoch", None, _ALL, whole(1), "batches of an epoch; default: all rows"),
    Row("validation_steps_per_epoch", None, _ALL, whole(1), "the same in validation"),
    Row("transformation_fn", None, _ALL, a_call, "from a frame of pandas to one, before rows are batched"),
    Row("transformation_edit_fields", None, LIGHTNING, several, "(name, type, shape, nullable) of changed columns"),
    Row("transformation_removed_fields", None, LIGHTNING, names, "columns that transformation_fn removes"),
    Row(
        "train_reader_num_workers", 2, _ALL, whole(1), "how many read at once on a rank", ("TrainReaderNumWorker",),
    ),
    Row("val_reader_num_workers", 2, _ALL, whole(1), "the same in validation", ("ValReaderNumWorker",)),
    Row("reader_pool_type", "thread", _ALL, one_of("thread", "process", "dummy"), "where they read"),
    Row("inmemory_cache_all", False, _ALL, truth, "all rows of a rank stay in its memory"),
    Row("use_gpu", True, _ALL, truth, "use GPUs where all ranks have one"),
    Row(
        "mp_start_method", None, _ALL, one_of("fork", "forkserver", "spawn"), "how processes of readers start",
    ),
    Row("data_module", None, _ALL, a_call, "a class like DataModule, which gives the ranks their batches"),
    Row("train_minibatch_fn", None, TORCH + LIGHTNING, a_call, "does what is done with a batch in training"),
    Row("backward_passes_per_step", 1, TORCH, whole(1), "batches whose gradients are added up for a step"),
    Row("num_gpus", None, LIGHTNING, whole(0), "0: the ranks use no GPU; 1: as use_gpu says"),
    Row("logger", None, LIGHTNING, any_value, "a logger of Lightning, or several; it logs on rank 0"),
    Row("log_every_n_steps", 50, LIGHTNING, whole(1), "how often it logs"),
    Row("profiler", None, LIGHTNING, any_value, "of Lightning's Trainer"),
    Row("trainer_args", None, LIGHTNING, a_dictionary, "further arguments of the Trainer, which win over the others"),
    Row("terminate_on_nan", False, LIGHTNING, truth, "a loss that is not finite ends the fit"),
    Row("loader_num_epochs", None, LIGHTNING, whole(1), "for how many epochs there is data; epochs at least"),
    Row("debug_data_loader", False, LIGHTNING, truth, "log how long each batch was waited for"),
    Row("train_async_data_loader_queue_size", None, LIGHTNING, whole(0), "batches that a thread prepares; 0: none"),
    Row("val_async_data_loader_queue_size", None, LIGHTNING, whole(0), "the same in validation"),
    Row("tensorflow_dataset_prefetch_buffer_size", 0, KERAS, whole(0), "batches that tf.data prepares; 0: none"),
    Row("custom_objects", {}, KERAS, a_dictionary, "of the user's own classes, by name, to load the model"),
    Row("checkpoint_callback", None, KERAS, any_value, "a callback that writes checkpoints"),
    Row("backend_env", _HEAP, KERAS, a_dictionary, "variables of the ranks"),
)  # fmt: skip


def rows_of(owner: str) -> dict[str, Row]:
    """The parameters of a framework's estimator, by name."""
    return {row.name: row for row in TABLE if owner in row.owners}


def checked(row: Row, value: Any) -> Any:
    """A value for a parameter.

    Raises:
        InvalidArgumentError: it is none.
    """
    return None if value is None else row.check(row.name, value)


def require_one_of(num_proc: Optional[int], backend: Any) -> None:
    """Raises:
    InvalidArgumentError: both are given.
    """
    if num_proc is not None and backend is not None:
        raise InvalidArgumentError(
            "num_proc and backend are both given, and a backend has its own number of processes. Give one of them."
        )
