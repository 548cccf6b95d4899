"""Not in this version; says so, and what to do instead."""

raise ModuleNotFoundError(
    "horovod.spark is not in this version: jobs cannot be started on a Spark cluster. Remedy: start the same job with "
    "horovodrun; for a data service: horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker CONFIGFILE.",
    name="horovod.spark",
)
