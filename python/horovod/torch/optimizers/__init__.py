"""What a distributed optimizer is made of, and a look at optimizers that are none."""
