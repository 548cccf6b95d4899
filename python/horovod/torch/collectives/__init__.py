"""The collectives on torch tensors: what users call, and the registered operators, which have gradients."""
