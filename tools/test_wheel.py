"""Makes the source package and from it this machine's wheel, and uses that in a fresh environment without a compiler.

The package as users get it. No git takes part. Prints sizes, the time to install and what it can use there, trains with
the frameworks of the environment that runs this (their libraries meet the wheel's), prints the table of their
operations on one rank and on two (`wheel_cells`), and runs the tests of that report and the contract of every framework
(`CONTRACT`), as the source package has them; NumPy's on the oldest Python too, where there is one. Exit code 1 on the
first claim that does not hold.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from build_wheels import build
from wheel_cells import OPERATIONS, WAYS

ROOT = Path(__file__).resolve().parent.parent

SCRIPT = """
import sys
import horovod
assert not {"torch", "tensorflow", "jax", "numpy"} & set(sys.modules), "import horovod imported a framework"
import numpy as np
import horovod.numpy as hvd
hvd.init()
total = hvd.allreduce(np.ones(3, np.float32), op=hvd.Sum, name="x")
assert total.tolist() == [hvd.size()] * 3
print("sum", total, "from", hvd.__name__, horovod.__file__)
assert "site-packages" in horovod.__file__
from horovod._native import lane
assert sys.version_info < (3, 11) or not lane.missing, lane.missing
"""
# With Keras on the backend that KERAS_BACKEND names.
FRAMEWORKS_SCRIPT = """
import os
import numpy as np
import keras
import horovod.keras as hvd_keras

backend = os.environ["KERAS_BACKEND"]
hvd_keras.init()
ranks = hvd_keras.size()
assert ranks == 2, ranks
if backend == "tensorflow":
    import tensorflow as tf
    import horovod.tensorflow as hvd

    def total(name):
        return lambda t: hvd.allreduce(t, op=hvd.Sum, name=name)

    for name, call in (
        ("eager", total("eager")),
        ("function", tf.function(total("function"))),
        ("xla", tf.function(total("xla"), jit_compile=True)),
    ):
        for _ in range(3):
            assert call(tf.ones(3)).numpy().tolist() == [ranks] * 3, name
    for compiled in (False, True):  # a failure is reported in strings of TensorFlow's library
        odd = tf.function(total(f"odd{compiled}"), jit_compile=compiled)
        try:
            odd(tf.ones(3 + hvd.rank()))
        except Exception as error:
            assert f"odd{compiled}" in str(error) and "shape" in str(error), error
        else:
            raise AssertionError("shapes that differ were added")
if backend == "torch":
    import torch
    import horovod.torch as hvd

    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [ranks] * 3
generator = np.random.default_rng(hvd_keras.rank())
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
first = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(generator.random((32, 4)), generator.random((32, 1)), batch_size=8, verbose=0, callbacks=first)
weights = np.asarray(hvd_keras.allgather(model.get_weights()[0][np.newaxis]))
assert len(weights) == ranks and (weights == weights[0]).all()
print(f"Keras on {backend}: rank {hvd_keras.rank()} of {ranks} is right")
"""
BACKENDS = ("tensorflow", "torch", "jax")
# By framework, the tests of tests/contract that its ranks must pass on the wheel: every operation, type and error on
# two ranks, in each of TensorFlow's ways. Other settings and numbers of ranks are left to the source tree's library.
CONTRACT = {
    "numpy": ("test_contract.py::test_adapter[numpy-2]",),
    "torch": ("test_contract.py::test_adapter[torch-2]",),
    "tensorflow": (
        "test_contract_tensorflow.py::test_gradients[2]",  # the shortest, while ranks wait for TensorFlow's import
        "test_contract_tensorflow.py::test_eager[2]",
        *(f"test_contract_tensorflow.py::test_mode[{mode}]" for mode in ("function", "graph", "jit")),
    ),
}
NEEDED = (
    *("horovod/py.typed", "horovod/torch/__init__.py", "horovod/tensorflow/__init__.py"),
    "horovod/tensorflow/gpu/stream.cc",  # compiled where it is used
)
OLDEST = "3.10"  # which has no lane
RUN_TIME = ("numpy", "ml_dtypes", "cloudpickle", "pyyaml", "packaging", "pytest", "pytest-timeout")


def attempt(*command: object, cwd: Path, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    """Runs the command in an environment that holds nothing that points to this checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(part) for part in command]
    return subprocess.run(
        words, cwd=cwd, env={**environment, "PATH": path}, capture_output=True, text=True, check=False
    )


def run(*command: object, cwd: Path, path: str = os.environ["PATH"]) -> str:
    """What the command prints, which must succeed."""
    done = attempt(*command, cwd=cwd, path=path)
    if done.returncode != 0:
        sys.exit(f"{command} failed ({done.returncode}):\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def source_package(place: Path) -> Path:
    """The unpacked source package."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", place, ROOT, cwd=place)
    (packed,) = place.glob("horovod-*.tar.gz")
    print(f"made {packed.name}: {packed.stat().st_size / 1e6:.2f} MB")
    with tarfile.open(packed) as archive:
        archive.extractall(place)
    return place / packed.name.removesuffix(".tar.gz")


def without_git(place: Path) -> None:
    """From here on, a command that asks git fails."""
    (place / "bin").mkdir()
    git = place / "bin" / "git"
    git.write_text("#!/bin/sh\necho 'The source package must build without git.' >&2\nexit 1\n")
    git.chmod(0o755)
    os.environ["PATH"] = f"{git.parent}{os.pathsep}{os.environ['PATH']}"


def check_names(wheel: Path) -> None:
    """The wheel holds the package, and nothing else."""
    names = zipfile.ZipFile(wheel).namelist()
    if missing := sorted(set(NEEDED) - set(names)):
        sys.exit(f"{', '.join(missing)}: not in the wheel")
    if stray := [n for n in names if not n.startswith(("horovod/", "horovod-"))]:
        sys.exit(f"the wheel holds files that are not the package's: {stray[:5]}")


def installed(interpreter: object, wheel: Path, venv: Path) -> tuple[Path, str]:
    """Makes a fresh environment with the wheel in it: its Python, and a PATH of nothing else, so no compiler."""
    run(interpreter, "-m", "venv", venv, cwd=venv.parent)
    python, path = venv / "bin/python", str(venv / "bin")
    run(python, "-m", "pip", "install", "--quiet", *RUN_TIME, cwd=venv.parent)
    if compiler := next(filter(None, (shutil.which(c, path=path) for c in ("cc", "c++", "gcc", "g++", "cmake"))), None):
        sys.exit(f"{compiler} is in the environment that is to have no compiler")
    start = time.monotonic()
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=venv.parent, path=path)
    print(f"installed in {time.monotonic() - start:.1f} s")
    (venv.parent / "use.py").write_text(SCRIPT)
    print(run(python, "-m", "horovod", cwd=venv.parent, path=path), end="")
    for words in ((venv / "bin/horovodrun", "-np", "2", python), (python,)):
        print(run(*words, "use.py", cwd=venv.parent, path=path), end="")
    return python, path


def use_on_the_oldest(wheel: Path, source: Path, place: Path) -> None:
    """The same with the oldest Python that the package takes, and NumPy's contract."""
    interpreter = oldest_python()
    if interpreter is None:
        print(f"skipped: the wheel on Python {OLDEST} (none is found that can make environments)")
        return
    python, path = installed(interpreter, wheel, place / f"wheel-{OLDEST}")
    print(run(python, "-c", "from horovod._native import lane; print('no lane:', lane.missing)", cwd=place, path=path))
    check_contract(["numpy"], source, python, path)


def oldest_python() -> Optional[Path]:
    """On the PATH, or one of pyenv's, whose command on the PATH may lead nowhere."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = shutil.which(f"python{OLDEST}")
    for python in ([Path(on_path)] if on_path else []) + sorted(pyenv.glob(f"versions/{OLDEST}.*/bin/python{OLDEST}")):
        if attempt(python, "-c", "import ensurepip, venv", cwd=python.parent).returncode == 0:
            return python
    return None


def use(wheel: Path, source: Path, place: Path) -> None:
    """Installs the wheel and works with it."""
    python, path = installed(sys.executable, wheel, place / "wheel")
    print(run(python, "-c", SCRIPT, cwd=ROOT, path=path), end="")  # the checkout does not hide what is installed
    shutil.rmtree(source / "python")  # the tests would prefer it
    # The fastest kernels too, which depend on how the core was built.
    print(
        run(python, "-m", "pytest", "-q", "tests/unit/runner/doctor/test_availability.py", cwd=source, path=path),
        end="",
    )
    (site_packages,) = (place / "wheel/lib").glob("python*/site-packages")
    # From here on it finds what this environment has; its own packages come first.
    (site_packages / "frameworks.pth").write_text(sysconfig.get_path("purelib"))
    check_contract(use_frameworks(place, path), source, python, path)


def check_contract(frameworks: Sequence[str], source: Path, python: Path, path: str) -> None:
    """The contract of these frameworks, whose ranks check that they run the wheel's Horovod (`jobs.installed`). What
    fails is run once more, as other tests are, and `make times` names it."""
    venv = python.parent.parent
    os.environ["HVD_TEST_INSTALLED"] = str(venv)
    records = [ROOT / "build" / "times" / f"{venv.name}{end}" for end in (".xml", ".again.xml")]
    for record in records:
        record.unlink(missing_ok=True)
    first, again = (f"--junit-xml={record}" for record in records)
    pytest = (python, "-m", "pytest", "-q")
    tests = [f"tests/contract/{test}" for framework in frameworks for test in CONTRACT.get(framework, ())]
    done = attempt(*pytest, first, *tests, cwd=source, path=path)
    print("contract:", done.stdout)
    if done.returncode == 1:
        print("FAILED ONCE: the tests named above. Once more:")
        print(run(*pytest, again, "--last-failed", *tests, cwd=source, path=path))
    elif done.returncode != 0:
        sys.exit(f"The contract's tests cannot be run:\n{done.stderr[-4000:]}")


def use_frameworks(place: Path, path: str) -> list[str]:
    """A training with each framework that is there, on the wheel, and the table of all operations; their names."""
    (place / "frameworks.py").write_text(FRAMEWORKS_SCRIPT)
    shutil.copy(ROOT / "tools" / "wheel_cells.py", place)
    python = place / "wheel/bin/python"
    two = (place / "wheel/bin/horovodrun", "-np", "2", python)
    used, printed = ["numpy"], []
    for backend in BACKENDS:
        if importlib.util.find_spec(backend) is None or importlib.util.find_spec("keras") is None:
            if os.environ.get("HVD_TEST_REQUIRE"):
                sys.exit(f"HVD_TEST_REQUIRE is set, and Keras on {backend} is not installed")
            print(f"skipped: Keras on {backend} (not installed)")
            continue
        os.environ["KERAS_BACKEND"] = backend
        print(run(*two, "frameworks.py", cwd=place, path=path), end="")
        used.append(backend)
    os.environ.pop("KERAS_BACKEND", None)
    for framework in used:
        for words in ((python,), two):
            printed.append(run(*words, "wheel_cells.py", framework, cwd=place, path=path))
    print(table("".join(printed), [way for framework in used for way in WAYS[framework]]))
    return used


def table(printed: str, ways: Sequence[str]) -> str:
    """What ranks of `wheel_cells` have printed, a line for each way and number of ranks; exits if a cell is missing."""
    cells = {tuple(found[:3]): found[3] for found in re.findall(r"cell: (.*), (\d), (\w+): (.*)", printed)}
    lines = [("way", "ranks", *OPERATIONS)]
    for way in ways:
        for ranks in ("1", "2"):
            row = [cells.get((way, ranks, operation), "") for operation in OPERATIONS]
            if not all(row):
                sys.exit(f"{way} on {ranks} ranks has not come to its end: {row}")
            lines.append((way, ranks, *row))
    return "\n".join(f"{way:<20} {' '.join(f'{word:<13}' for word in row)}".rstrip() for way, *row in lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = source_package(place)
        without_git(place)
        wheel = build(source, platform.machine(), place, aside=True)
        check_names(wheel)
        use(wheel, source, place)
        use_on_the_oldest(wheel, source, place)


if __name__ == "__main__":
    main()
