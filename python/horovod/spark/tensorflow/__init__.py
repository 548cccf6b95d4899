"""TensorFlow on Spark: `compute_worker` starts a data service in the executors."""
