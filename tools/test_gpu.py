"""The tests that need a GPU, for `make test-gpu`: the driver's side in C++ over the real driver, the contract suite on
arrays of the GPU, PyTorch's CUDA tensors, functions that JAX compiles for CUDA. What is absent is skipped by name;
without a GPU nothing is run. On a machine with AMD's GPUs only: the same over HIP, but for what knows CUDA by name.

Exit code 1 if something failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from horovod._core.gpu import libraries, platforms  # noqa: E402

PATIENCE_S = 240
# Of all parts together.
ALTOGETHER_S = 570
# Whether a framework has CUDA in this interpreter -> its tests.
FRAMEWORKS = {
    "PyTorch": ("import sys, torch; sys.exit(not torch.cuda.is_available())", "tests/gpu/torch_cuda.py"),
    "JAX": (
        "import sys, jax; sys.exit('cuda' not in jax.devices()[0].client.platform_version)",
        "tests/gpu/jax_cuda.py",
    ),
}
DRIVERS_SIDE = {platforms.CUDA: ("cuda_",), platforms.ROCM: ("cuda_", "-contract", "-fake", "-jax")}
MEMBERS = {"HVD_PROBE_ROUNDS": "3"}  # a run through the probe is the test
# Ranks that share a GPU, through the host and as members of one NCCL communicator. A script fails if nothing went by
# the way that HVD_TEST_WAY names.
STAGED = {"HVD_TEST_WAY": "staged"}
AS_MEMBERS = "tests/gpu/nccl_members.py"
CONTRACT = ("tests/contract/worker.py", "--target", "gpu", "--deadline", str(PATIENCE_S - 20), "--directory")


def of_the_driver(platform: platforms.Platform) -> Mapping[str, str]:
    """The variables that lead tests to it."""
    library = os.environ.get("HVD_TEST_CUDA_LIBRARY") or platforms.driver(platform, os.environ)
    is_hip = {"HVD_TEST_PLATFORM": "hip"} if platform is platforms.ROCM else {}
    return {"HVD_TEST_CUDA_LIBRARY": library, **is_hip}


def parts(nccl: str, platform: platforms.Platform) -> list[tuple[str, Sequence[str], Mapping[str, str]]]:
    """Name, command and variables of each part."""
    driver = of_the_driver(platform)
    arrays = {**driver, "HVD_TEST_NCCL_LIBRARY": nccl, "HVD_TEST_GPU": "0"}
    directory = tempfile.mkdtemp(prefix="horovod-test-gpu-")
    run = [sys.executable, "-m", "horovod.runner", "-np"]
    python = [sys.executable]
    tests = ROOT / "build" / "release" / "hvd_tests"
    found: list[tuple[str, Sequence[str], Mapping[str, str]]] = []
    if tests.exists():
        found.append(("the driver's side", [str(tests), *DRIVERS_SIDE[platform]], driver))
    else:
        print("skipped: the driver's side in C++ (cmake --build build/release --target hvd_tests builds it)")
    contract = [*CONTRACT, directory, "cases", "semantics", "join"]
    for ranks in ("1", "2"):
        words = [*run, ranks, *python, *contract]
        found.append((f"arrays of the GPU, {ranks} rank(s) on it", words, {**arrays, **STAGED}))
    has_members = bool(nccl) and platform is platforms.CUDA
    members = {**driver, "HOROVOD_NCCL_PATH": nccl}
    if has_members:
        words = [*run, "2", *python, AS_MEMBERS, *contract]
        found.append(("arrays of the GPU, 2 members of NCCL on it", words, {**arrays, **members}))
        words = [*run, "2", *python, "benchmarks/gpu/engine_rank.py", "two"]
        found.append(("the engine beside NCCL, 2 members on one GPU", words, {**MEMBERS, **members}))
    for framework, (question, script) in FRAMEWORKS.items():
        asked = subprocess.run([*python, "-c", question], stderr=subprocess.DEVNULL, timeout=PATIENCE_S)
        if asked.returncode != 0:
            print(f"skipped: {framework} (none with CUDA in this interpreter)")
            continue
        for ranks in ("1", "2"):
            found.append((f"{framework}, {ranks} rank(s)", [*run, ranks, *python, script], {}))
        if has_members and framework == "PyTorch":
            found.append((f"{framework}, 2 members of NCCL", [*run, "2", *python, AS_MEMBERS, script], members))
    return found


def main() -> int:
    """Runs the parts one after the other."""
    is_hip = os.environ.get("HVD_TEST_PLATFORM") == "hip"
    platform = platforms.ROCM if is_hip else platforms.of_devices()
    if not platforms.has_devices(platform) and "HVD_TEST_CUDA_LIBRARY" not in os.environ:
        print("skipped: this machine has no GPU (docs/gpu.md says what is tested without one)")
        return 0
    nccl = libraries.find(platform.nccl, libraries.Named(os.environ.get("HOROVOD_NCCL_PATH")), os.environ)
    print(f"{platform.nccl_name}: {nccl.path or nccl.why_not}", flush=True)
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    failed = 0
    deadline = time.monotonic() + ALTOGETHER_S
    for name, command, variables in parts(nccl.path, platform):
        left_s = min(PATIENCE_S, deadline - time.monotonic())
        print(f"-- {name} ({left_s:.0f} s at most)", flush=True)
        environment = {**os.environ, **variables, "PYTHONPATH": path.rstrip(os.pathsep)}
        try:
            code = subprocess.run(command, cwd=ROOT, env=environment, timeout=max(left_s, 1)).returncode
        except subprocess.TimeoutExpired:
            code = -1
        print("   passed" if code == 0 else f"   FAILED ({code})", flush=True)
        failed += code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
