"""The data service of Horovod's documentation, its dispatchers in the compute job.

horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /tmp/compute.json
horovodrun -np 2 python tensorflow2_mnist_data_service.py /tmp/compute.json
"""

import tensorflow as tf  # filled in
import horovod.tensorflow as hvd  # filled in
from filled_in import stream, train  # filled in

from horovod.tensorflow.data.compute_service import TfDataServiceConfig

hvd.init()
rank = hvd.rank()
size = hvd.size()

compute_config = TfDataServiceConfig.read('/tmp/compute.json', wait_for_file_creation=True)
dataset = stream(tf)  # filled in

dataset = dataset.repeat() \
    .shuffle(10000) \
    .batch(128) \
    .send_to_data_service(compute_config, rank, size) \
    .prefetch(tf.data.experimental.AUTOTUNE)
train(tf, dataset)  # filled in
