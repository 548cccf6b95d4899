"""The programs of examples/spark by spark-submit, on two executors: `make test-spark`.

Keras uses the backend of KERAS_BACKEND. See `sessions`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pyspark
import pytest
from sessions import MARK, processes
from submitted import submitted

ROOT = Path(__file__).resolve().parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
PATIENCE_S = 360
PROGRAMS = sorted((ROOT / "examples" / "spark").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_most_digits_are_right(program: Path, tmp_path: Path) -> None:
    name, _, value = MARK.partition("=")
    environ = {
        **os.environ,
        name: value,
        "PYTHONPATH": str(ROOT / "python"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    words = ["--master", "local-cluster[2,1,1024]", "--conf", f"spark.executorEnv.{name}={value}"]
    words += ["--conf", "spark.executor.memory=512m", str(program), "--store", str(tmp_path / "store")]
    log = tmp_path / "log"
    start_s = time.monotonic()
    with submitted([str(SUBMIT), *words], environ, log) as job:
        assert job.wait(PATIENCE_S) == 0, log.read_text()[-6000:]
    found = re.search(r"^(\d+) of (\d+) digits are right$", log.read_text(), re.MULTILINE)
    assert found, log.read_text()[-6000:]
    print(f"{found.group()}; {time.monotonic() - start_s:.0f} s")
    assert int(found.group(1)) > 0.9 * int(found.group(2)) > 250
    assert nothing_is_left()


def nothing_is_left() -> bool:
    deadline_s = time.monotonic() + 20
    while (left := [words for _, words, environ in processes() if MARK in environ]) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert left == []
    return True
