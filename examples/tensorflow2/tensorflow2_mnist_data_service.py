"""Train on scikit-learn's digits (pip install scikit-learn), with the input pipeline running in a data service.

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /tmp/compute.json &
    horovodrun -np 2 python tensorflow2_mnist_data_service.py /tmp/compute.json

Start the compute job with --dispatchers 2 for a dispatcher per training rank, or with --dispatcher-side training to
run the dispatchers in the training job: this script serves all three. Its end is the end of the compute job. What the
two sides need differs in a few lines: diff -w tensorflow2_mnist_data_service_train_fn_*
"""

import argparse

import tensorflow as tf
from tensorflow2_mnist_data_service_train_fn_compute_side_dispatcher import train_fn as train_fn_compute_side
from tensorflow2_mnist_data_service_train_fn_training_side_dispatcher import train_fn as train_fn_training_side

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configfile", help="written by the compute job")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--reuse-dataset", action="store_true", help="the ranks share one pass over the data")
    parser.add_argument("--round-robin", action="store_true", help="and take turns")
    args = parser.parse_args()
    hvd.init()
    # One GPU per process.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    compute_config = TfDataServiceConfig.read(args.configfile, wait_for_file_creation=True)
    train_fn = train_fn_training_side if compute_config.dispatcher_side == "training" else train_fn_compute_side
    accuracy = train_fn(compute_config, args.steps, args.reuse_dataset, args.round_robin)
    # All ranks have read all that they need once they have all come here.
    accuracies = hvd.allgather_object(accuracy)
    if hvd.rank() == 0:
        compute_config.compute_client().shutdown()
        print(f"test accuracy {accuracies[0]:.4f} equal on all ranks: {len(set(accuracies)) == 1}", flush=True)


if __name__ == "__main__":
    main()
