"""The collectives on TensorFlow's tensors: what users call, the core's operators, and custom calls inside of XLA."""
