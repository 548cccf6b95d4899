"""A data set and a model of the reader's; afterwards the ranks must have learnt, and hold the same."""

import pathlib

import torch

inputs = 3 * torch.randn(1024, 4, generator=torch.Generator().manual_seed(1))
dataset = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
model = torch.nn.Linear(4, 2)

# <- the block
states = hvd.allgather_object([p.tolist() for p in model.parameters()])  # noqa: F821 - the block imports it
if states[0] != states[1]:
    raise SystemExit(f"the ranks differ: {states}")
right = (model(inputs).argmax(1) == dataset.tensors[1]).float().mean().item()
if right < 0.9:
    raise SystemExit(f"only {right:.0%} right")
hvd.barrier()  # noqa: F821
if not pathlib.Path("model.pt").exists():
    raise SystemExit("nothing was saved")
