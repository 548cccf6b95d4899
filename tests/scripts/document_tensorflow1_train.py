"""The TensorFlow 1 script of a tutorial.  horovodrun -np 4 -H localhost:4 python train.py

It is Horovod's older example, without the lines that the page has lost: hvd.init(), config=config and the run call.
"""

# was: import tensorflow as tf
import tensorflow.compat.v1 as tf  # changed: TensorFlow 2 keeps the names of TensorFlow 1 here
import horovod.tensorflow as hvd

from filled_in import loss_of_graph, recording_hook  # filled in
tf.disable_v2_behavior()  # changed: graphs are not the default any more

# Initialize Horovod
hvd.init()  # filled in

# Pin GPU to be used to process local rank (one GPU per process)
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())

# Build model...
# was: loss = ...
loss = loss_of_graph(tf)  # filled in
opt = tf.train.AdagradOptimizer(0.01 * hvd.size())

# Add Horovod Distributed Optimizer
opt = hvd.DistributedOptimizer(opt)

# Add hook to broadcast variables from rank 0 to all other processes during
# initialization.
hooks = [hvd.BroadcastGlobalVariablesHook(0)]
hooks.append(recording_hook(tf, loss))  # filled in

# Make training operation
# was: train_op = opt.minimize(loss)
train_op = opt.minimize(loss, tf.train.get_or_create_global_step())  # filled in: TensorFlow saves by steps

# Save checkpoints only on worker 0 to prevent other workers from corrupting them.
checkpoint_dir = '/tmp/train_logs' if hvd.rank() == 0 else None

# The MonitoredTrainingSession takes care of session initialization,
# restoring from a checkpoint, saving to a checkpoint, and closing when done
# or an error occurs.
with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir,
                                       hooks=hooks) as mon_sess:
  while not mon_sess.should_stop():
    # Perform synchronous training.
    mon_sess.run(train_op)  # filled in
