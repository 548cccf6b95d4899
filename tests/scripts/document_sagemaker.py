"""A SageMaker script: the eight changes of a guide to distributed training with tf.keras.

horovodrun -np 2 python train.py --epochs 3 --learning-rate 0.02 --batch-size 32
"""

import argparse  # filled in
import tensorflow as tf  # filled in
from tensorflow.keras.optimizers import SGD  # filled in
from filled_in import digits, keras_model, report  # filled in

# Change 1  # filled in
import horovod.tensorflow.keras as hvd
import tensorflow.keras.backend as K

# Change 8: hyper-parameters are arguments  # filled in
parser = argparse.ArgumentParser()  # filled in
parser.add_argument('--epochs', type=int, default=3)  # filled in
parser.add_argument('--learning-rate', type=float, default=0.02)  # filled in
parser.add_argument('--batch-size', type=int, default=32)  # filled in
parser.add_argument('--weight-decay', type=float, default=2e-4)  # filled in
parser.add_argument('--momentum', type=float, default=0.9)  # filled in
args = parser.parse_args()  # filled in
lr, weight_decay, momentum = args.learning_rate, args.weight_decay, args.momentum  # filled in

# Change 2  # filled in
hvd.init()  # filled in
size = hvd.size()

# Change 3  # filled in
# was: config = tf.ConfigProto()
config = tf.compat.v1.ConfigProto()  # changed: TensorFlow 2 keeps it here
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
for gpu in tf.config.list_physical_devices('GPU')[hvd.local_rank():][:1]:  # filled in: no session takes the config
    tf.config.set_visible_devices(gpu, 'GPU')  # filled in
    tf.config.experimental.set_memory_growth(gpu, True)  # filled in

K.set_image_data_format('channels_last')  # filled in: the backend's module is there
model = keras_model(tf)  # filled in

# Change 4  # filled in
# was: opt = SGD(lr=lr * size, decay=weight_decay, momentum=momentum)
rate = tf.keras.optimizers.schedules.InverseTimeDecay(lr * size, 1, weight_decay)  # changed: what decay= meant
opt = SGD(learning_rate=rate, momentum=momentum)  # changed: Keras 3 has no lr= and no decay=

# Change 5  # filled in
opt = hvd.DistributedOptimizer(opt)
model.compile(opt, 'sparse_categorical_crossentropy')  # filled in

# Change 6: equal starts, metrics of all ranks, checkpoints on the first rank only  # filled in
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]  # filled in
if hvd.rank() == 0:  # filled in
    callbacks.append(tf.keras.callbacks.ModelCheckpoint('./checkpoint-{epoch}.keras'))  # filled in

# Change 7: every rank makes its share of an epoch's steps  # filled in
images, labels = digits()  # filled in
data = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().shuffle(2000).batch(args.batch_size)  # filled in
history = model.fit(data, steps_per_epoch=len(images) // args.batch_size // size, epochs=args.epochs,  # filled in
                    callbacks=callbacks, verbose=2 * (hvd.rank() == 0))  # filled in
report(history.history['loss'], model.variables)  # filled in
