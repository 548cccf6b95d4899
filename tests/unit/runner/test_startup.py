"""What the start of a job waits for: no module is imported that a plain job on this machine does not need."""

from __future__ import annotations

import subprocess
import sys

from horovod.runner.processes import keeper

# Each of these takes a millisecond or more, often by what it imports in turn.
NOT_IN_THE_LAUNCHER = {"bz2", "dataclasses", "difflib", "hashlib", "inspect", "random", "secrets", "shutil", "tempfile"}
NOT_OF_HOROVOD = {"horovod._net.bootstrap", "horovod._net.handshake", "horovod._dumps.compare", "horovod.runner.remote"}
NOT_IN_A_RANK = {"difflib", "json", "random", "secrets", "shutil", "tempfile"}  # and not in NumPy either
NOT_IN_THE_KEEPER = {"collections", "contextlib", "enum", "json", "re", "signal", "socket", "subprocess", "typing"}


def modules_after(*words: str, arguments: tuple[str, ...] = ()) -> set[str]:
    """The modules that a fresh interpreter has imported when it has run a program."""
    code = f"{'; '.join(words)}; import sys; print('modules', *sys.modules)"
    done = subprocess.run([sys.executable, *arguments, "-c", code], capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("modules ")]
    return set(line.split())


def test_the_launcher_imports_what_a_local_job_needs() -> None:
    job = "from horovod.runner.__main__ import main", "assert main(['-np', '2', 'true']) == 0"
    found = modules_after(*job)
    assert "horovod.runner.supervising.supervision" in found
    assert found & (NOT_IN_THE_LAUNCHER | NOT_OF_HOROVOD) == set()


def test_a_rank_imports_little_beside_numpy() -> None:
    found = modules_after("import horovod.numpy") - modules_after("import numpy")
    assert "horovod.numpy" in found
    assert found & NOT_IN_A_RANK == set()


def test_the_keeper_imports_next_to_nothing() -> None:
    load = f"exec(open({keeper.__file__!r}).read(), {{'__name__': 'keeper'}})"
    found = modules_after(load, arguments=("-I", "-S"))
    assert "ctypes" in found
    assert found & NOT_IN_THE_KEEPER == set()
