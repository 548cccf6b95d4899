"""`horovodrun --jsrun` from its line to its end, with a program in jsrun's place that reads the rank file and starts
the ranks as jsrun does, on one host. No LSF can run here."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from .conftest import Horovodrun

JSRUN = """\
#!{python}
import os, re, stat, subprocess, sys
words = sys.argv[1:]
file = words[words.index("--erf_input") + 1]
assert stat.S_IMODE(os.stat(file).st_mode) == 0o600 and stat.S_IMODE(os.stat(os.path.dirname(file)).st_mode) == 0o700
ranks = re.findall(r"^rank: ([0-9]+): {{ host: (\\S+); cpu: {{", open(file).read(), re.MULTILINE)
print(open(file).read(), flush=True)
size = {size} or len(ranks)
started = []
for rank in range(size):
    own = dict(RANK=rank, SIZE=size, LOCAL_RANK=rank, LOCAL_SIZE=size)
    environ = {{**os.environ, **{{f"JSM_NAMESPACE_{{name}}": str(value) for name, value in own.items()}}}}
    started.append(subprocess.Popen(words[words.index("--erf_input") + 2 :], env=environ))
sys.exit(max(each.wait() for each in started))
"""
RANK = """
import horovod.numpy as hvd, numpy as np, sys
hvd.init()
total = hvd.allreduce(np.ones(3), op=hvd.Sum, name="x")[0]
print(f"sum {total} of {hvd.size()}", flush=True)  # one piece, so that no other rank's words come between
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def lsf(tmp_path: Path) -> dict[str, str]:
    """The variables of a job with four slots on this host, and a jsrun."""
    place(tmp_path, 0)
    return {
        "LSB_JOBID": "7",
        "LSB_MCPU_HOSTS": f"{socket.gethostname()} 4",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }


def place(folder: Path, size: int) -> None:
    (folder / "jsrun").write_text(JSRUN.format(python=sys.executable, size=size))
    (folder / "jsrun").chmod(stat.S_IRWXU)


def rank(code: int = 0) -> list[str]:
    return [sys.executable, "-c", RANK, str(code)]


def test_ranks_are_placed_by_the_file_and_work(horovodrun: Horovodrun, lsf: dict[str, str]) -> None:
    done = horovodrun("--jsrun -np 3", rank(), env={**horovodrun.environ, **lsf})
    out = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert out.startswith("overlapping-rs: allow\ncpu_index_using: logical\nrank: 0: { host: ")
    assert out.count("sum 3.0 of 3") == 3


def test_its_exit_code_is_the_ranks(horovodrun: Horovodrun, lsf: dict[str, str]) -> None:
    done = horovodrun("--jsrun -np 2", rank(5), env={**horovodrun.environ, **lsf})
    assert done.returncode == 5
    assert "jsrun ended with code 5 after" in done.stderr.decode()


def test_a_jsrun_that_starts_other_ranks_is_found_out(
    horovodrun: Horovodrun, lsf: dict[str, str], tmp_path: Path
) -> None:
    place(tmp_path, 1)
    done = horovodrun("--jsrun -np 2", rank(), env={**horovodrun.environ, **lsf})
    assert done.returncode == 1
    assert "HOROVOD_EXPECTED_SIZE=2" in done.stderr.decode() and "jsrun has started 1 rank" in done.stderr.decode()
