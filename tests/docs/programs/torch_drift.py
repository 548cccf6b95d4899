"""Models that are equal, then models that are not: only then the block must complain."""

import torch

import horovod.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 2)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
# <- the block
with torch.no_grad():
    model.weight += hvd.rank()
if len(set(hvd.allgather_object(model.weight.sum().item()))) == 1:
    raise SystemExit("the ranks do not differ")
