"""A collective in a graph that torch.compile makes machine code of."""

import torch
from cases import run_cases

import horovod.torch as hvd


def case_compiled_by_inductor():
    def run(x):
        return hvd.allgather(hvd.allreduce(x.sin()) * 2).cos()

    eager, compiled = (torch.rand(4, 2).requires_grad_() for _ in range(2))
    with torch.no_grad():
        compiled.copy_(eager)
    results = [run(eager), torch.compile(run, fullgraph=True, backend="inductor")(compiled)]
    for result in results:
        (result * torch.arange(1.0, result.numel() + 1).view(result.shape) * (hvd.rank() + 1)).sum().backward()
    assert torch.allclose(*results) and torch.allclose(eager.grad, compiled.grad)


if __name__ == "__main__":
    run_cases(globals())
