"""The tf.data service, run as one Horovod job (the compute job) and used by another (the training job).

::

    compute_worker    the command of the compute job           compute_service   what scripts import
    config            the file by which the two jobs meet      client            asks the compute service
    service           the compute service (rank 0), threads    registry          participants: pure
    channel           authenticated frames over a socket       addresses         which address to listen on
    strangers         connections that are not known yet
    attendance        a training process's watch               guard             a dataset that cannot hang
    servers           TensorFlow's dispatcher and worker        checks            do the numbers fit: pure

The data itself flows through TensorFlow's own servers; what is here starts them, lets them find one another and turns
the death of one into an error. This file imports nothing, so that the parts can be imported without TensorFlow's.
"""
