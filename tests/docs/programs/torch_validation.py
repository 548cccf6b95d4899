"""A model and a validation set that does not divide by the ranks; the accuracy must be that of the whole set."""

import torch

import horovod.torch as hvd

hvd.init()
device = torch.device("cpu")
inputs = torch.randn(101, 4, generator=torch.Generator().manual_seed(1))
validation_set = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
model = torch.nn.Linear(4, 2)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
# <- the block
whole = (model(inputs).argmax(1) == validation_set.tensors[1]).double().mean().item()
if count != 101 or accuracy != whole:  # noqa: F821 - the block makes them
    raise SystemExit(f"{accuracy} of {count}, but one process has {whole} of 101")  # noqa: F821
