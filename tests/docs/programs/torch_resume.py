"""A checkpoint that only rank 0 can read; afterwards all ranks must hold what it holds."""

import os  # noqa: F401 - the block uses it

import torch

import horovod.torch as hvd

hvd.init()
device = torch.device("cpu")
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + hvd.rank(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
if hvd.rank() == 0:
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}
    torch.save(saved, "checkpoint.pt")
    with torch.no_grad():
        model.weight.zero_()
hvd.barrier()
# <- the block
mine = [first_epoch, optimizer.param_groups[0]["lr"], model.weight.tolist()]  # noqa: F821 - the block makes it
states = hvd.allgather_object(mine)
if states[0] != states[1] or mine[:2] != [7, 0.1] or not model.weight.abs().sum():
    raise SystemExit(f"not what was saved: {states}")
