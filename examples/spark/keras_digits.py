"""Fit a Keras model to scikit-learn's handwritten digits in a Spark DataFrame, and predict with it.

    spark-submit --master "local-cluster[2,1,1024]" examples/spark/keras_digits.py --store /tmp/digits

Needs pyspark, pyarrow, fsspec, pandas, scikit-learn, Keras 3 and its backend, which KERAS_BACKEND chooses. The store is
a folder or URL that all machines reach.
"""

import argparse

import keras
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--store", required=True)
    args = parser.parse_args()
    spark = SparkSession.builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    images, digits = load_digits(return_X_y=True)
    rows = [((image / 16).tolist(), int(digit)) for image, digit in zip(images, digits)]
    training, testing = spark.createDataFrame(rows, ["pixels", "digit"]).randomSplit([0.8, 0.2], seed=1)
    layers = [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")]
    estimator = KerasEstimator(
        num_proc=args.num_proc,
        model=keras.Sequential(layers),
        optimizer=keras.optimizers.Adam(0.005),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        feature_cols=["pixels"],
        label_cols=["digit"],
        validation=0.1,
        epochs=args.epochs,
        store=Store.create(args.store),
        verbose=2,
    )
    model = estimator.fit(training)
    found = model.transform(testing).select("digit", "digit__output").collect()
    right = sum(row.digit == max(range(10), key=row.digit__output.toArray().__getitem__) for row in found)
    print(f"{right} of {len(found)} digits are right")
    spark.stop()


if __name__ == "__main__":
    main()
