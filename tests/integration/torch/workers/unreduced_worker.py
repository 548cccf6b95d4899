"""Trains with a plain optimizer, for the remark at the job's end. The argument says what else happens."""

import sys

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

import horovod.torch as hvd

hvd.init()
torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
if "another engine" in sys.argv:
    place = {"rank": hvd.rank(), "world_size": hvd.size()}
    torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[-1]}", **place)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hvd.DistributedOptimizer(optimizer)  # its result is thrown away
for _ in range(110):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    if "reduced by hand" in sys.argv:
        for parameter in model.parameters():
            hvd.allreduce_(parameter.grad)
    optimizer.step()
assert len(_global_optimizer_post_hooks) == 0, "the hook is still there"
hvd.barrier()
if "another engine" in sys.argv:
    torch.distributed.destroy_process_group()
if "shutdown" in sys.argv:
    hvd.shutdown()
