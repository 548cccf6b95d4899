"""Libraries that move tensors in the core's place, for GPUs and MPI: whether they are there, and used by all ranks."""
