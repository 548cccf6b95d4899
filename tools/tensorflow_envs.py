"""Runs the contract suite and the Keras jobs on other versions of TensorFlow, with the library as built: one
environment for each under build/tensorflow-envs.

    tensorflow_envs.py [VERSION ...]

Prints a line per version and suite. Exit code 1 if one fails. Each environment takes about 1.5 GB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "tensorflow-envs"
# The oldest that is supported, whose Keras is 2.13, and the first with Keras 3; the newest is in the development
# environment.
VERSIONS = ("2.13.1", "2.16.2")
SUITES = {
    "contract": [
        "-k",
        "test_eager and 2 or test_mode and not more_ranks",
        "tests/contract/test_contract_tensorflow.py",
    ],
    "Keras": ["tests/integration/keras/test_keras_fit.py", "tests/integration/keras/test_keras_elastic.py"],
}
OTHERS = ("pytest", "pytest-timeout", "cloudpickle", "pyyaml", "packaging", "ml_dtypes", "hypothesis")


def python_of(version: str) -> Path:
    """The interpreter of the version's environment, made if it is not there."""
    folder = PLACE / version
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        venv.create(folder, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"tensorflow-cpu=={version}", *OTHERS], check=True)
        ready.touch()
    return python


def main() -> int:
    """Exit code for the shell."""
    failed = []
    for version in sys.argv[1:] or VERSIONS:
        # Nothing is required: these environments have TensorFlow and its own Keras alone.
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "HVD_TEST_REQUIRE": ""}
        for name, suite in SUITES.items():
            command = [python_of(version), "-m", "pytest", "-q", *suite]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
            lines = done.stdout.strip().splitlines() or ["no output"]
            print(f"TensorFlow {version}, {name}: {lines[-1]}", flush=True)
            if done.returncode != 0:
                print("\n".join(lines[-60:]))
                failed.append(version)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
