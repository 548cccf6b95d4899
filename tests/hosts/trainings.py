"""Whole trainings over hosts, as data: what runs, and how its output shows that it went well."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from .conftest import Ended, Hosts
from .mistakes import EXAMPLES
from .network import Network

# Lines of the document, word by word, and its hosts.
NODES = ("cpu-node-1", "cpu-node-2", "gpu-node-1", "gpu-node-2")
COMPUTE = (
    "horovodrun -np 4 --hosts cpu-node-1:2,cpu-node-2:2 python -m horovod.tensorflow.data.compute_worker "
    "/tmp/compute.json"
)
# With the options of the document's other lines, which say nothing of hosts; half as many ranks show the same sooner.
FEWER = COMPUTE.replace("-np 4", "-np 2").replace(":2", ":1")
DISPATCHERS = FEWER.replace("compute_worker ", "compute_worker --dispatchers 2 ")
TRAINING_SIDE = FEWER.replace("compute_worker ", "compute_worker --dispatcher-side training ")
TRAIN = "horovodrun -np 2 --hosts gpu-node-1:1,gpu-node-2:1 python tensorflow2_mnist_data_service.py /tmp/compute.json"


@dataclass
class Training:
    """An example of the project, with one rank on each host.

    Attributes:
        module: the framework that it takes.
        words: the script and its arguments.
        environ: variables of its own.
        shows: part of the line that shows how it went.
    """

    module: str
    words: tuple[str, ...]
    shows: str
    environ: dict[str, str] = field(default_factory=dict)

    def run(self, hosts: Hosts, count: int = 2) -> Ended:
        """Trains on the first hosts."""
        options = f"-np {count} -H " + ",".join(f"host{n}:1" for n in range(1, count + 1))
        script, *words = self.words
        environ = {"OMP_NUM_THREADS": "1", **self.environ}
        return hosts(options, [sys.executable, str(EXAMPLES / script), *words], environ=environ, patience_s=200.0)


PYTORCH = Training("torch", ("pytorch_digits.py", "--epochs", "2", "--json"), "RESULT")
TENSORFLOW = Training("tensorflow", ("tensorflow2_tape.py", "--steps", "100"), "equal weights on ")
KERAS = Training("keras", ("keras_fit.py", "--epochs", "2"), "rank(s), weights equal", {"KERAS_BACKEND": "tensorflow"})


@dataclass
class Served:
    """How a training with a data service on hosts of its own ended, and the service."""

    trained: Ended
    served: Ended


def serve_and_train(nodes: Network, place: Path, compute_line: str = COMPUTE) -> Served:
    """The document's two lines on its four hosts; only the file is in an empty folder."""
    hosts = Hosts(nodes)
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, hosts.environ["PATH"]])
    environ = {**hosts.environ, "PATH": path, "OMP_NUM_THREADS": "1"}

    def words(command: str) -> list[str]:
        return shlex.split(command.replace("/tmp/compute.json", str(place / "compute.json")))

    began_s = time.monotonic()
    compute = nodes[1].start(words(compute_line), environ)
    train = nodes[3].start(words(TRAIN) + ["--steps", "60"], environ, cwd=EXAMPLES / "tensorflow2")
    trained = hosts.ended(train, began_s, patience_s=200.0)
    served = hosts.ended(compute, began_s, patience_s=60.0)
    hosts.is_clean()
    return Served(trained, served)
