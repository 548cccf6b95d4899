"""Functions that are kept out of torch.compile's graphs, and the compiler that is not imported for them."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import horovod.torch as hvd
from horovod.torch.graphs import outside_graphs
assert "torch._dynamo" not in sys.modules
import torch

hvd.init()
seen = []

@outside_graphs
def twice(x, *, plus=0):
    "Doubles."
    seen.append(torch.compiler.is_compiling())
    return 2 * x + plus

def program(x):
    return twice(x + 1, plus=1) + hvd.synchronize(hvd.allreduce_async(x, name="x"))

x = torch.arange(3.0)
expected = 2 * (x + 1) + 1 + x
assert torch.equal(program(x), expected)
assert "torch._dynamo" not in sys.modules
graphs = []

def backend(module, inputs):
    graphs.append(module)
    return module.forward

for _ in range(2):
    assert torch.equal(torch.compile(program, backend=backend)(x), expected)
assert seen == [False] * 3, seen
assert 2 <= len(graphs) <= 3, [str(graph.graph) for graph in graphs]  # before, between and after; none within
assert twice.__doc__ == "Doubles."
"""


def test_the_compiler_is_not_imported_before_the_script_does_and_is_obeyed_then() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=120, check=False, text=True)
    assert done.returncode == 0, done.stderr
