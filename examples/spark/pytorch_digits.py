"""Fit a PyTorch model to scikit-learn's handwritten digits in a Spark DataFrame, and predict with it.

    spark-submit --master "local-cluster[2,1,1024]" examples/spark/pytorch_digits.py --store /tmp/digits

Needs pyspark, pyarrow, fsspec, pandas, torch and scikit-learn. The store is a folder or URL that all machines reach.
"""

import argparse

import torch
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator


def cross_entropy(output, label):
    return torch.nn.functional.cross_entropy(output, label.long())


def accuracy(output, label):
    return (output.argmax(1) == label).float().mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--store", required=True)
    args = parser.parse_args()
    spark = SparkSession.builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    images, digits = load_digits(return_X_y=True)
    rows = [(Vectors.dense(image / 16), int(digit)) for image, digit in zip(images, digits)]
    training, testing = spark.createDataFrame(rows, ["pixels", "digit"]).randomSplit([0.8, 0.2], seed=1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    estimator = TorchEstimator(
        num_proc=args.num_proc,
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9),
        loss=cross_entropy,
        metrics=[accuracy],
        feature_cols=["pixels"],
        label_cols=["digit"],
        validation=0.1,
        epochs=args.epochs,
        store=Store.create(args.store),
    )
    model = estimator.fit(training)
    found = model.transform(testing).select("digit", vector_to_array("digit__output").alias("scores")).collect()
    right = sum(row.digit == max(range(10), key=row.scores.__getitem__) for row in found)
    print(f"{right} of {len(found)} digits are right")
    spark.stop()


if __name__ == "__main__":
    main()
