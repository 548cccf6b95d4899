"""The estimators' way of rows from Parquet to a rank's batches, beside plain `pyarrow.dataset` batches, in turns.

    spark_rows.py [FOLDER] [--rounds 7] [--rows 400000] [--batch 32 256]

Writes FOLDER (default: a temporary one), of 65 numbers a row, unless it has been written. Each turn is several epochs.
Prints medians of rows a second, and the most memory that a rank needs beyond its imports. Needs pyarrow, fsspec, NumPy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_FILES = 8
_EPOCHS = 3
_WIDTH = 64
WAYS = ("plain", "shuffled", "in order")


def write(path: str, rows: int) -> None:
    """The data set."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    os.makedirs(path)
    rng = np.random.default_rng(0)
    for number in range(_FILES):
        some = rows // _FILES
        x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(some * _WIDTH)), _WIDTH)
        table = pa.table({"x": x, "y": rng.integers(0, 10, some)})
        pq.write_table(table, f"{path}/{number}.parquet", use_dictionary=False, row_group_size=25_000)


def read(way: str, folder: str, batch: int) -> int:
    """Goes through all rows in each epoch; says how many there were."""
    from horovod.spark.common.datasets import opened
    from horovod.spark.common.reading import Reading, batches
    from horovod.spark.common.store import Store

    store = Store.create(folder)
    path = store.get_train_data_path(1)
    if way == "plain":
        return sum(_plain(path, batch) for _ in range(_EPOCHS))
    made = batches(
        opened(store, path), Reading(store, ["x", "y"], batch, seed=1, shuffle=way == "shuffled"), rank=0, size=1
    )
    try:
        return sum(len(each["x"]) for _ in range(_EPOCHS) for each in made)
    finally:
        made.close()


def _plain(path: str, batch: int) -> int:
    import pyarrow.dataset as datasets

    rows = 0
    for each in datasets.dataset(path).to_batches(columns=["x", "y"], batch_size=batch):
        x, y = each.column(0).flatten().to_numpy().reshape(-1, _WIDTH), each.column(1).to_numpy()
        assert len(x) == len(y)
        rows += len(x)
    return rows


def _most_kb() -> int:
    """The most memory that this process has had; that of `getrusage` may be its parent's."""
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)


def memory_mb(way: str, folder: str, batch: int) -> float:
    """The most that a process of its own needs for it, beyond its imports."""
    words = [sys.executable, __file__, folder, "--batch", str(batch), "--memory-of", way]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def compare(folder: str, given: argparse.Namespace) -> None:
    """Prints what the head of the file says."""
    for batch in given.batch:
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(given.rounds + 1):
            for way in WAYS:
                start_s = time.monotonic()
                assert read(way, folder, batch) == _EPOCHS * given.rows
                if turn:
                    seconds[way].append(time.monotonic() - start_s)
        medians = {way: statistics.median(each) for way, each in seconds.items()}
        for way in WAYS:
            rate, ratio = _EPOCHS * given.rows / medians[way], medians["plain"] / medians[way]
            memory = memory_mb(way, folder, batch)
            print(f"batches of {batch}, {way}: {rate:.0f} rows/s, ratio {ratio:.2f}; {memory:.0f} MB", flush=True)


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--batch", type=int, nargs="+", default=(32, 256))
    parser.add_argument("--memory-of", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.memory_of:
        import pyarrow.dataset  # noqa: F401

        import horovod.spark.common.reading  # noqa: F401

        before = _most_kb()
        read(given.memory_of, given.folder, given.batch[0])
        print((_most_kb() - before) / 1024)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or name
        path = os.path.join(folder, "intermediate_train_data.1")
        if not os.path.exists(path):
            write(path, given.rows)
        compare(folder, given)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
