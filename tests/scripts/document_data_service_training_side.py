"""The data service of Horovod's documentation, its dispatchers in the training job.

horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker --dispatcher-side training /tmp/compute.json
horovodrun -np 2 python tensorflow2_mnist_data_service.py /tmp/compute.json
"""

import tensorflow as tf  # filled in
import horovod.tensorflow as hvd  # filled in
from filled_in import option, stream, train  # filled in
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service  # filled in

hvd.init()
rank = hvd.rank()
size = hvd.size()

compute_config = TfDataServiceConfig.read('/tmp/compute.json', wait_for_file_creation=True)
dataset = stream(tf)  # filled in
reuse_dataset, round_robin = option('--reuse-dataset'), option('--round-robin')  # filled in

with tf_data_service(compute_config, rank) as dispatcher_address:

    dataset = dataset.repeat() \
        .shuffle(10000) \
        .batch(128) \
        .apply(tf.data.experimental.service.distribute(
            processing_mode="distributed_epoch",
            service=dispatcher_address,
            job_name='job' if reuse_dataset else None,
            consumer_index=rank if round_robin else None,
            num_consumers=size if round_robin else None)) \
        .prefetch(tf.data.experimental.AUTOTUNE)
    train(tf, dataset)  # filled in
