"""Train on scikit-learn's digits in Spark's executors, with the input pipeline running in a data service.

    worker_py=$(python -c "import horovod.spark.tensorflow.compute_worker as worker; print(worker.__file__)")
    spark-submit --master "local[4]" "$worker_py" /tmp/compute.json &
    spark-submit --master "local[2]" --py-files tensorflow2_mnist_data_service_train_fn_compute_side_dispatcher.py,\
tensorflow2_mnist_data_service_train_fn_training_side_dispatcher.py tensorflow2_mnist_data_service.py /tmp/compute.json

The compute job takes the same options as without Spark, and its end is the end of this script's training; see
examples/tensorflow2/tensorflow2_mnist_data_service.py.
"""

import argparse

from pyspark.sql import SparkSession

import horovod.spark


def train(configfile, steps, reuse_dataset, round_robin):
    """On every rank."""
    import tensorflow as tf
    from tensorflow2_mnist_data_service_train_fn_compute_side_dispatcher import train_fn as train_fn_compute_side
    from tensorflow2_mnist_data_service_train_fn_training_side_dispatcher import train_fn as train_fn_training_side

    import horovod.tensorflow as hvd
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig

    hvd.init()
    # One GPU per process.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    compute_config = TfDataServiceConfig.read(configfile, wait_for_file_creation=True)
    train_fn = train_fn_training_side if compute_config.dispatcher_side == "training" else train_fn_compute_side
    accuracies = hvd.allgather_object(train_fn(compute_config, steps, reuse_dataset, round_robin))
    # All ranks have read all that they need once they have all come here.
    if hvd.rank() == 0:
        compute_config.compute_client().shutdown()
    return accuracies


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configfile", help="written by the compute job")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--reuse-dataset", action="store_true", help="the ranks share one pass over the data")
    parser.add_argument("--round-robin", action="store_true", help="and take turns")
    args = parser.parse_args()
    session = SparkSession.builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    accuracies, *_ = horovod.spark.run(train, (args.configfile, args.steps, args.reuse_dataset, args.round_robin))
    print(f"test accuracy {accuracies[0]:.4f} equal on all ranks: {len(set(accuracies)) == 1}", flush=True)
    session.stop()


if __name__ == "__main__":
    main()
