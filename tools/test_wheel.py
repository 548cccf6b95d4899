"""Builds the wheel, installs it into a fresh environment and uses it: the package as users get it.

Prints the wheel's size, the time to install it, what it contains and needs. Exit code 1 on the first claim that does
not hold.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

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
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command} failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        start = time.monotonic()
        run(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            place,
            ROOT,
            cwd=place,
        )
        (wheel,) = place.glob("horovod-*.whl")
        print(f"built {wheel.name} in {time.monotonic() - start:.1f} s: {wheel.stat().st_size / 1e6:.2f} MB")
        if "-py3-none-linux_" not in wheel.name:
            sys.exit(f"{wheel.name} is not a wheel for every Python 3")
        names = zipfile.ZipFile(wheel).namelist()
        for needed in (
            "horovod/_native/libhorovod.so",
            "horovod/_native/libhorovod_tensorflow.so",
            "horovod/py.typed",
            "horovod/torch/__init__.py",
            "horovod/tensorflow/__init__.py",
        ):
            if needed not in names:
                sys.exit(f"{needed} is not in the wheel")
        stray = [n for n in names if not n.startswith(("horovod/", "horovod-"))]
        if stray:
            sys.exit(f"the wheel holds files that are not the package's: {stray[:5]}")
        python = place / "venv/bin/python"
        run(sys.executable, "-m", "venv", place / "venv", cwd=place)
        run(python, "-m", "pip", "install", "--quiet", "numpy", "cloudpickle", "pyyaml", "packaging", cwd=place)
        start = time.monotonic()
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=place)
        print(f"installed in {time.monotonic() - start:.1f} s")
        (place / "use.py").write_text(SCRIPT)
        print(run(place / "venv/bin/horovodrun", "-np", "2", python, "use.py", cwd=place), end="")
        print(run(python, "use.py", cwd=place), end="")
        print(run(python, "-c", SCRIPT, cwd=ROOT), end="")  # the checkout does not hide what is installed
        library = next((place / "venv").rglob("libhorovod.so"))
        print(run("ldd", library, cwd=place), end="")


if __name__ == "__main__":
    main()
