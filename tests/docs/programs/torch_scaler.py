"""One backward pass of a model in mixed precision."""

import torch

import horovod.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 2)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
scaler = torch.amp.GradScaler("cpu")
before = model.weight.detach().clone()
loss = model(torch.randn(8, 4)).square().mean()
# <- the block
if torch.equal(before, model.weight):
    raise SystemExit("no step was made")
