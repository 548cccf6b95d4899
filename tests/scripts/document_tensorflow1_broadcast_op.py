"""The same without MonitoredTrainingSession, as the text of the documentation says: an operation broadcasts.

horovodrun -np 2 python document_tensorflow1_broadcast_op.py
"""

# was: import tensorflow as tf
import tensorflow.compat.v1 as tf  # changed: TensorFlow 2 keeps the names of TensorFlow 1 here
import horovod.tensorflow as hvd

from filled_in import BATCHES, loss_of_graph, report  # filled in
tf.disable_v2_behavior()  # changed: graphs are not the default any more


# Initialize Horovod
hvd.init()

# Pin GPU to be used to process local rank (one GPU per process)
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())

# Build model...
# was: loss = ...
loss = loss_of_graph(tf)  # filled in
opt = tf.train.AdagradOptimizer(0.01 * hvd.size())

# Add Horovod Distributed Optimizer
opt = hvd.DistributedOptimizer(opt)

# Make training operation
train_op = opt.minimize(loss)
broadcast = hvd.broadcast_global_variables(0)  # filled in: the op of the text

with tf.Session(config=config) as session:  # filled in
  session.run(tf.global_variables_initializer())  # filled in
  session.run(broadcast)  # filled in: after the initialization, says the text
  losses = [session.run([train_op, loss])[1] for _ in range(BATCHES // hvd.size())]  # filled in
  report(losses, session.run(tf.trainable_variables()))  # filled in
  if hvd.rank() == 0:  # filled in
    tf.train.Saver().save(session, '/tmp/train_logs/model.ckpt')  # filled in
