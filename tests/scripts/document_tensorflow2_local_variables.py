"""The TensorFlow v2 example with local variables, as the text of the documentation says: register_local_var().

horovodrun -np 2 python document_tensorflow2_local_variables.py
"""

import tensorflow as tf
import horovod.tensorflow as hvd

from filled_in import batches, keras_model, report  # filled in

# Initialize Horovod
hvd.init()

# Pin GPU to be used to process local rank (one GPU per process)
gpus = tf.config.experimental.list_physical_devices('GPU')
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')

# Build model and dataset
# was: dataset = ...
dataset = batches(tf)  # filled in
# was: model = ...
model = mnist_model = keras_model(tf)  # filled in: the example has two names for it
local_layer = model.layers[-1]  # filled in: every rank has its own last layer
loss = tf.losses.SparseCategoricalCrossentropy()
opt = tf.optimizers.Adam(0.001 * hvd.size())
opt = hvd.DistributedOptimizer(opt)  # filled in
for variable in local_layer.trainable_variables:  # filled in
    opt.register_local_var(variable)  # filled in: as the text says

checkpoint_dir = './checkpoints'
checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)
losses = []  # filled in

@tf.function
def training_step(images, labels, first_batch):
    with tf.GradientTape() as tape:
        probs = mnist_model(images, training=True)
        loss_value = loss(labels, probs)

    # Horovod: add Horovod Distributed GradientTape.
    # was: tape = hvd.DistributedGradientTape(tape)

    grads = tape.gradient(loss_value, mnist_model.trainable_variables)
    opt.apply_gradients(zip(grads, mnist_model.trainable_variables))

    # Horovod: broadcast initial variable states from rank 0 to all other processes.
    # This is necessary to ensure consistent initialization of all workers when
    # training is started with random weights or restored from a checkpoint.
    #
    # Note: broadcast should be done after the first gradient step to ensure optimizer
    # initialization.
    if first_batch:
        hvd.broadcast_variables(mnist_model.variables, root_rank=0)
        # was: hvd.broadcast_variables(opt.variables(), root_rank=0)
        hvd.broadcast_variables(opt.variables, root_rank=0)  # changed: a property since Keras 3

    return loss_value

# Horovod: adjust number of steps based on number of GPUs.
for batch, (images, labels) in enumerate(dataset.take(10000 // hvd.size())):
    loss_value = training_step(images, labels, batch == 0)
    losses.append(loss_value)  # filled in

    if batch % 10 == 0 and hvd.local_rank() == 0:
        print('Step #%d\tLoss: %.6f' % (batch, loss_value))

# Horovod: save checkpoints only on worker 0 to prevent other workers from
# corrupting it.
if hvd.rank() == 0:
    checkpoint.save(checkpoint_dir)
shared = [v for layer in model.layers if layer is not local_layer for v in layer.variables]  # filled in
report(losses, shared, local=local_layer.bias.numpy().tolist())  # filled in
