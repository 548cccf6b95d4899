"""Runs suites in environments of their own, with the library as built: `suites.py [NAME ...]`, all without names.

For what the development environment cannot have, such as another version of a framework. Prints a line for each run of
pytest. Exit code 1 if one fails. The environments lie under build/environments.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from environments import provide

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "environments"
_VARIABLE = re.compile(r"[A-Z_]+=")
TESTING = "pytest pytest-timeout cloudpickle pyyaml packaging ml_dtypes hypothesis"


@dataclass(frozen=True)
class Suite:
    """One environment and what runs in it.

    Attributes:
        packages: as pip takes them, besides `TESTING`.
        runs: title -> words for pytest, before which NAME=value sets a variable.
    """

    packages: str
    runs: Mapping[str, Sequence[str]]


_TENSORFLOW = {
    "contract": (
        *("-k", "test_eager and 2 or test_mode and not more_ranks"),
        "tests/contract/test_contract_tensorflow.py",
    ),
    "Keras": ("tests/integration/keras/test_keras_fit.py", "tests/integration/keras/test_keras_elastic.py"),
}
_TRAINERS = {
    "Lightning": ("--timeout=300", "tests/trainers/lightning_training.py"),
    "Accelerate and Trainer": ("--timeout=300", "tests/trainers/huggingface_training.py"),
    "torch.distributed on four ranks": ("--timeout=300", "tests/trainers/distributed_on_four.py"),
}
# Real sessions: they need Java 17, and 0.8 GB for each environment.
# What estimators need. torch exactly: see below.
_ESTIMATORS = (
    "torch==2.13.0 tensorflow-cpu keras>=3 jax==0.10.2 pandas pyarrow fsspec scikit-learn s3fs moto[server] lightning"
)
_SPARK = {
    "sessions": ("tests/spark/sessions.py",),
    "rows without a session": ("--timeout=120", "tests/spark/rows_read.py"),
    "S3 without a session": ("--timeout=120", "tests/spark/store_on_s3.py"),
    "Keras without a session": ("--timeout=300", "tests/spark/keras_on_parquet.py"),
    "an estimator of PyTorch": ("--timeout=400", "tests/spark/torch_on_parquet.py", "tests/spark/estimator_torch.py"),
    "an estimator of Lightning": (
        *("--timeout=400", "tests/spark/lightning_on_parquet.py", "tests/spark/estimator_lightning.py"),
    ),
    "a store on S3": ("--timeout=400", "tests/spark/estimator_on_s3.py"),
    **{
        f"an estimator of Keras on {backend}": (
            *(f"KERAS_BACKEND={backend}", "--timeout=600"),
            "tests/spark/estimator_keras.py",
        )
        for backend in ("tensorflow", "torch", "jax")
    },
    "examples": ("KERAS_BACKEND=torch", "--timeout=400", "tests/spark/examples.py"),
    "a cluster of two workers": ("--timeout=400", "tests/spark/cluster.py"),
    "a data service by spark-submit": ("--timeout=900", "tests/spark/compute_job.py"),
}
# A real cluster of two nodes on this machine, and one of three hosts that are namespaces (root); 1.5 GB.
_RAY = {
    "a cluster of two nodes": ("--timeout=120", "tests/ray_clusters/cluster.py"),
    "elastic jobs on Ray": ("--timeout=120", "tests/ray_clusters/elastic.py"),
    "nodes on three hosts": ("--timeout=280", "tests/ray_clusters/over_hosts.py"),
    "Ray Train": ("--timeout=300", "tests/ray_clusters/train.py", "tests/ray_clusters/train_jax.py"),
}
_ON_TORCH = ("ops", "optimizer", "autograd", "functions", "elastic")
_TORCH = {
    "contract": ("--timeout=300", "-k", "torch", "tests/contract/test_contract.py"),
    "operations": (
        *("--timeout=300", "-k", "not three_ranks"),
        *(f"tests/integration/torch/test_torch_{name}.py" for name in _ON_TORCH),
    ),
    "torch.distributed": ("--timeout=300", "tests/integration/torch/test_torch_distributed.py"),
}
_JAX = ("test_jax_ops.py", "test_jax_optax.py", "test_jax_elastic.py", "test_jax_contract.py")
_MXNET = {"contract, training and example": ("--timeout=300", "tests/mxnet19/sessions.py")}
# TensorFlow: the oldest that is supported, whose Keras is 2.13, and the first with Keras 3; the newest is in the
# development environment. Each environment takes about 1.5 GB.
SUITES = {
    "tensorflow-2.13": Suite("tensorflow-cpu==2.13.1", _TENSORFLOW),
    "tensorflow-2.16": Suite("tensorflow-cpu==2.16.2", _TENSORFLOW),
    # PyTorch: the oldest that is supported, and the newest. Builds for CUDA: 5 to 6 GB for each.
    "torch-2.4": Suite("torch==2.4.1 numpy", _TORCH),
    "torch-2.15": Suite("torch==2.15.0 numpy", _TORCH),
    # What builds on PyTorch; 1.5 GB. torch as in the development environment, exactly: a range fetches a CUDA build.
    "lightning": Suite("torch==2.13.0 lightning pytorch_lightning transformers accelerate scikit-learn", _TRAINERS),
    # The oldest JAX that is supported; the newest is in the development environment. And what builds on it; 0.8 GB.
    "jax-0.5": Suite(
        "jax==0.5.3 optax==0.2.4 keras scikit-learn",
        {"operations": ("--timeout=240", *(f"tests/integration/jax/{name}" for name in _JAX))},
    ),
    "jax-libraries": Suite(
        "jax==0.10.2 flax equinox optax orbax-checkpoint scikit-learn",
        {"flax, equinox, orbax": ("--timeout=240", "tests/jax_libraries/sessions.py")},
    ),
    "mxnet-1.9": Suite("mxnet==1.9.1 numpy==1.23.5 scikit-learn", _MXNET),
    "spark-4": Suite(
        f"pyspark[connect]>=4,<5 numpy {_ESTIMATORS}",
        {
            **_SPARK,
            "Spark Connect": ("--timeout=240", "tests/spark/connect.py"),
            "an estimator on Spark Connect": ("--timeout=400", "tests/spark/estimator_connect.py"),
        },
    ),
    "ray": Suite(
        "ray[client,train,tune]>=2.60,<3 torch tensorflow-cpu jax optax keras scikit-learn markdown-it-py", _RAY
    ),
    "spark-3.5": Suite(f"pyspark>=3.5,<3.6 numpy {_ESTIMATORS}", _SPARK),
}


def passes(name: str) -> bool:
    """Whether a suite passes; prints how it went."""
    suite = SUITES[name]
    if problem := provide(PLACE / name, f"{suite.packages} {TESTING}"):
        print(f"{name}: {problem}")
        return False
    # Nothing is required: an environment has what its suite needs, and nothing else.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "HVD_TEST_REQUIRE": ""}
    good = True
    for title, words in suite.runs.items():
        given = dict(word.split("=", 1) for word in itertools.takewhile(_VARIABLE.match, words))
        command = [PLACE / name / "bin" / "python", "-m", "pytest", "-q", *words[len(given) :]]
        done = subprocess.run(
            command, cwd=ROOT, env={**environment, **given}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        lines = done.stdout.strip().splitlines() or ["no output"]
        print(f"{name}, {title}: {lines[-1]}", flush=True)
        if done.returncode != 0 or " passed" not in lines[-1]:
            print("\n".join(lines[-60:]))
            good = False
    return good


def main(names: Sequence[str]) -> int:
    """Exit code for the shell."""
    if unknown := sorted(set(names) - SUITES.keys()):
        sys.exit(f"There are no suites {', '.join(unknown)}. Choose from {', '.join(SUITES)}.")
    good = [passes(name) for name in names or SUITES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
