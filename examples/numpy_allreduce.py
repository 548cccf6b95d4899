"""Distributed statistics of real data with NumPy alone: every rank reads its share, sums are combined.

    horovodrun -np 2 python examples/numpy_allreduce.py

Each rank holds every size-th row of scikit-learn's breast cancer data. Mean and standard deviation of all 30 features
come from three allreduces (count, sum, squared deviations); rank 0 compares them with those of the whole.

Needs scikit-learn, for its data: pip install scikit-learn.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import horovod.numpy as hvd


def distributed_statistics(rows):
    """Mean and standard deviation of all ranks' rows, [features] each. Collective."""
    count = hvd.allreduce(np.array(float(len(rows))), op=hvd.Sum, name="count")
    mean = hvd.allreduce(rows.sum(axis=0), op=hvd.Sum, name="sum") / count
    squares = hvd.allreduce(((rows - mean) ** 2).sum(axis=0), op=hvd.Sum, name="squares")
    return mean, np.sqrt(squares / count)


def main():
    hvd.init()
    data = load_breast_cancer().data
    own = np.ascontiguousarray(data[hvd.rank() :: hvd.size()])
    mean, deviation = distributed_statistics(own)
    largest = hvd.allreduce(own.max(axis=0), op=hvd.Max)
    counts = hvd.allgather(np.array([len(own)]))
    everything = hvd.allgather(own)
    print(f"rank {hvd.rank()} of {hvd.size()} held {len(own)} of {counts.sum()} rows")
    if not (np.allclose(mean, data.mean(axis=0)) and np.allclose(deviation, data.std(axis=0))):
        raise SystemExit("The statistics differ from those of the whole.")
    if not (np.array_equal(largest, data.max(axis=0)) and len(everything) == len(data)):
        raise SystemExit("The maxima or the gathered rows differ from those of the whole.")
    if hvd.rank() == 0:
        print(
            f"mean radius {mean[0]:.4f} +- {deviation[0]:.4f}, as in the whole: {data[:, 0].mean():.4f} +- "
            f"{data[:, 0].std():.4f}"
        )


if __name__ == "__main__":
    main()
