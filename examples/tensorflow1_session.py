"""A script in the style of TensorFlow 1 - graph, monitored session, hooks - on scikit-learn's handwritten digits.

    horovodrun -np 2 python examples/tensorflow1_session.py [--steps 200] [--checkpoint DIR]

All that today's TensorFlow asks of such a script is the first line: `tf` is `tensorflow.compat.v1`.

Needs scikit-learn, for its data: pip install scikit-learn.
"""

import argparse

import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd


def build_model(images):
    def dense(inputs, outputs, name):
        with tf.variable_scope(name):
            kernel = tf.get_variable("kernel", [inputs.shape[1], outputs])
            return tf.matmul(inputs, kernel) + tf.get_variable("bias", [outputs], initializer=tf.zeros_initializer())

    return dense(tf.nn.relu(dense(images, 64, "hidden")), 10, "logits")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", help="rank 0 saves here")
    arguments = parser.parse_args()
    tf.disable_eager_execution()

    # Initialize Horovod
    hvd.init()

    # Pin GPU to be used to process local rank (one GPU per process)
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    # Build model...
    digits = load_digits()
    data = tf.data.Dataset.from_tensor_slices(((digits.data / 16.0).astype("float32"), digits.target))
    data = data.shard(hvd.size(), hvd.rank()).repeat().shuffle(2000, seed=1).batch(32)
    images, labels = tf.data.make_one_shot_iterator(data).get_next()
    loss = tf.losses.sparse_softmax_cross_entropy(labels, build_model(images))
    opt = tf.train.AdagradOptimizer(0.05 * hvd.size())

    # Add Horovod Distributed Optimizer
    opt = hvd.DistributedOptimizer(opt)

    # Add hook to broadcast variables from rank 0 to all other processes during initialization.
    global_step = tf.train.get_or_create_global_step()
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=arguments.steps // hvd.size())]

    # Make training operation
    train_op = opt.minimize(loss, global_step=global_step)

    checksum = tf.add_n([tf.reduce_sum(tf.abs(variable)) for variable in tf.trainable_variables()])

    # Save checkpoints only on worker 0 to prevent other workers from corrupting them.
    checkpoint_dir = arguments.checkpoint if hvd.rank() == 0 else None

    # The MonitoredTrainingSession takes care of session initialization, restoring from a checkpoint, saving to a
    # checkpoint, and closing when done or an error occurs.
    losses = []
    with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, config=config, hooks=hooks) as mon_sess:
        while not mon_sess.should_stop():
            # Perform synchronous training.
            losses.append(mon_sess.run([train_op, loss])[1])
            if not mon_sess.should_stop():
                weights = mon_sess.run_step_fn(lambda step_context: step_context.session.run(checksum))
    print(f"rank {hvd.rank()}: loss {losses[0]:.4f} -> {losses[-1]:.4f} in {len(losses)} steps, weights {weights:.6f}")


if __name__ == "__main__":
    main()
