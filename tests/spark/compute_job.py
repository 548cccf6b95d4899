"""The data service on Spark, by the lines of a published page ("Compute job on Spark cluster").

Their typography is undone, which a web page has put in the place of quotation marks, dashes and a line break. By the
name of the file, no other run of the tests collects it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from submitted import submitted

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path("/tmp/compute.json")  # as published
COMPUTE = """
worker_py=$(python -c "import horovod.spark.tensorflow.compute_worker as worker; print(worker.__file__)")
spark-submit --master "local[4]" "$worker_py" /tmp/compute.json
"""
TRAINING = """
cd examples/spark/tensorflow2 spark-submit –master “local[2]” –py-files tensorflow2_mnist_data_service_train_fn_compute_side_dispatcher.py,tensorflow2_mnist_data_service_train_fn_training_side_dispatcher.py tensorflow2_mnist_data_service.py /tmp/compute.json
"""  # noqa: E501, RUF001
MARK = f"HVD_SPARK_COMPUTE_JOB={os.getpid()}"


def undone(line: str) -> str:
    """As it was before it became a web page."""
    for shown, written in (
        ("–", "--"),
        ("“", '"'),
        ("”", '"'),
        ("tensorflow2 spark-submit", "tensorflow2\nspark-submit"),
    ):  # noqa: RUF001
        line = line.replace(shown, written)
    return line


class Jobs(ExitStack):
    """Programs that end with the test."""

    def start(self, lines: str, log: Path) -> subprocess.Popen[bytes]:
        """Runs lines of a shell."""
        name, _, value = MARK.partition("=")
        environ = {
            **os.environ,
            name: value,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT / "python"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOROVOD_START_TIMEOUT": "300",  # six processes import TensorFlow, on two cores
        }
        return self.enter_context(submitted(["bash", "-ec", lines], environ, log))


def left() -> list[str]:
    """What lives of both jobs."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode("latin1"))
        except OSError:
            continue
    return [words for words in found if words]


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    if CONFIG.exists():
        pytest.fail(f"{CONFIG} exists: another compute job runs on this machine, or was killed.")
    with Jobs() as made:
        yield made
    deadline_s = time.monotonic() + 20
    while left() and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert left() == [] and not CONFIG.exists()


@pytest.mark.parametrize("side", ["", " --dispatcher-side training"], ids=["compute side", "training side"])
def test_both_jobs_by_spark_submit(jobs: Jobs, tmp_path: Path, side: str) -> None:
    start_s = time.monotonic()
    logs = tmp_path / "compute.log", tmp_path / "training.log"
    compute = jobs.start(COMPUTE.rstrip() + side, logs[0])
    training = jobs.start(undone(TRAINING), logs[1])
    codes = [job.wait(850) for job in (training, compute)]
    said = logs[1].read_text()
    assert codes == [0, 0], said[-6000:] + logs[0].read_text()[-6000:]
    (line,) = [line for line in said.splitlines() if line.startswith("test accuracy ")]
    assert float(line.split()[2]) > 0.9 and line.endswith("equal on all ranks: True")
    print(f"{line}; {time.monotonic() - start_s:.0f} s for both jobs")


def test_ranks_that_are_no_multiple_of_the_dispatchers(jobs: Jobs, tmp_path: Path) -> None:
    log = tmp_path / "compute.log"
    assert jobs.start(COMPUTE.rstrip() + " --dispatchers 3", log).wait(500) == 1
    assert "compute_worker: A compute job of 4 ranks cannot give each of 3 dispatchers the same" in log.read_text()


def test_a_compute_job_ends_by_sigterm(jobs: Jobs, tmp_path: Path) -> None:
    log = tmp_path / "compute.log"
    job = jobs.start(COMPUTE, log)
    deadline_s = time.monotonic() + 500
    while not CONFIG.exists():
        assert time.monotonic() < deadline_s and job.poll() is None, log.read_text()[-6000:]
        time.sleep(0.2)
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(60) != 0
