"""A data set and a model of the reader's; afterwards the ranks must have learnt, hold the same, and have held the same
data back."""

import pathlib

import torch

inputs = 3 * torch.randn(1024, 4, generator=torch.Generator().manual_seed(1))
dataset = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
model = torch.nn.Linear(4, 2)

# <- the block
states = hvd.allgather_object([p.tolist() for p in model.parameters()])  # noqa: F821 - the block imports it
if states[0] != states[1]:
    raise SystemExit(f"the ranks differ: {states}")
held_back = hvd.allgather_object(list(validation_set.indices))  # noqa: F821 - the block makes it
if held_back[0] != held_back[1]:
    raise SystemExit("one rank trains on what another one validates on")
if len(set(hvd.allgather_object(torch.rand(1).item()))) == 1:  # noqa: F821
    raise SystemExit("the ranks draw the same numbers")
right = (model(inputs).argmax(1) == dataset.tensors[1]).float().mean().item()
if right < 0.9:
    raise SystemExit(f"only {right:.0%} right")
hvd.barrier()  # noqa: F821
if not pathlib.Path("checkpoint.pt").exists():
    raise SystemExit("nothing was saved")
