"""A compiled step that goes wrong on rank 1: `broken_step.py mismatch|death|stall`. Says what rank 0 gets, and when."""

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
from jobs.report import report

import horovod.jax as hvd

what = sys.argv[1]
hvd.init()
step = jax.jit(lambda tree: hvd.allreduce(tree, name="grads"))
jax.block_until_ready(step({"dense": {"kernel": jnp.ones(4)}}))
tree = {"dense": {"kernel": jnp.ones(4 + (what == "mismatch" and hvd.rank()))}}
hvd.barrier()
begun = time.time()
if hvd.rank() == 1 and what != "mismatch":
    time.sleep(2)
    if what == "death":
        report("death", at=time.time())
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.barrier()  # which the other one does not call
try:
    jax.block_until_ready(step(tree))
except (jax.errors.JaxRuntimeError, ValueError) as error:  # a ValueError where JAX runs a function at once
    report("error", rank=hvd.rank(), kind=type(error).__name__, text=str(error), begun=begun, at=time.time())
