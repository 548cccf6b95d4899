"""The tf.data service, run as one Horovod job (the compute job) and used by another (the training job).

::

    compute_worker    the command of the compute job           compute_service   what scripts import
    config            the file by which the two jobs meet      client            connects with the compute service
    service           the compute service (rank 0): a board    presence          a process's place there
    registry          participants: pure                       addresses         which address to listen on
    attendance        a training process's watch               guard             a dataset that cannot hang
    servers           TensorFlow's dispatcher and worker        checks            do the numbers fit: pure

The data itself flows through TensorFlow's own servers; what is here starts them, lets them find one another and turns
the death of one into an error. This file imports nothing, so that the parts can be imported without TensorFlow's.
"""
