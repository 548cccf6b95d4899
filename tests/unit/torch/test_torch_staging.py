"""Tensors of another device travel through the host: with an adapter that takes CPU tensors for such ones."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]

CODE = """
import warnings, torch, horovod.torch as hvd
from horovod._core.operations.collectives import Collectives
from horovod.torch.adapter import TorchAdapter

class OtherDevice(TorchAdapter):
    copies = 0
    lane_terms = None
    in_host = None
    def device(self, tensor):
        return "cpu" if tensor is self.in_host else "cuda:0"
    def address(self, tensor):
        assert tensor.data_ptr() != given.data_ptr(), "the device's memory must not reach the engine"
        return super().address(tensor)
    def from_host(self, host, like):
        self.copies += 1
        return host.clone()

hvd.init()
adapter = OtherDevice()
ops = Collectives(adapter)
given = torch.arange(6.0).reshape(3, 2)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for step in range(2):
        assert ops.allreduce(given, op=hvd.Sum, name="out", postscale_factor=2.0).equal(given * 2)
    kept = given.clone()
    assert ops.allreduce_(given, op=hvd.Sum, name="in", postscale_factor=3.0) is given and given.equal(kept * 3)
    group = ops.grouped_allreduce_([given], op=hvd.Sum, postscale_factor=2.0)
    assert group[0] is given and given.equal(kept * 6)
    assert ops.allgather(given).equal(given) and ops.broadcast(given, 0).equal(given)
    assert ops.broadcast_(given, 0) is given
    assert ops.reducescatter(given, op=hvd.Sum).equal(given)
    rows, counts = ops.alltoall(given, splits=torch.tensor([3]))
    assert rows.equal(given) and counts.tolist() == [3]
    # A group of which one lies in the host's memory already: it is read, and not written to.
    adapter.in_host = torch.ones(2)
    results = ops.grouped_allreduce([adapter.in_host, given], op=hvd.Sum, postscale_factor=2.0)
    assert adapter.in_host.equal(torch.ones(2)) and results[0].equal(torch.full((2,), 2.0))
    assert results[1].equal(given * 2)
told = [w for w in seen if "copied to host memory" in str(w.message)]
assert [w.filename for w in told] == ["<string>"], [(w.filename, str(w.message)) for w in seen]
assert adapter.copies >= 6
"""


def test_results_are_right_and_the_cost_is_reported_once() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
