"""What a user sees when a compiled step goes wrong: other shapes, a rank that is killed, one that does not come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jax_jobs import ENVIRON, WARM, WORKERS
from jobs import Ended, python, run
from jobs.needs import needs

pytestmark = [needs("jax", "keras"), pytest.mark.slow]

LEAF = "allreduce 'grads['dense']['kernel']'"


def broken(what: str, *options: str) -> tuple[Ended, list[dict[str, Any]]]:
    script = python(WORKERS / "broken_step.py", what, warm=WARM)
    command = [*python("-m", "horovod.runner", "-np", "2"), *options, *script]
    ended = run(command, ENVIRON, patience_s=60)
    errors = ended.of("error")
    for error in errors:
        print(f"{what}: after {error['at'] - error['begun']:.2f} s rank {error['rank']} gets {error['kind']}: {error}")
    return ended, errors


def test_a_mismatch() -> None:
    ended, errors = broken("mismatch")
    assert len(errors) == 2, str(ended)
    for error in errors:
        assert f"Horovod MismatchError: {LEAF}: rank 1 sent float32 [5], rank 0 sent float32 [4]" in error["text"]
        assert error["at"] - error["begun"] < 2, error


def test_a_dead_rank() -> None:
    ended, (error,) = broken("death")
    (death,) = ended.of("death")
    print(f"{error['at'] - death['at']:.3f} s after the death")
    assert error["rank"] == 0 and "Horovod PeerLostError" in error["text"] and "rank 1" in error["text"], error
    assert error["at"] - death["at"] < 2, error
    assert "rank 1" in ended.stderr.splitlines()[-1] and ended.code != 0, str(ended)


def test_a_stall(tmp_path: Path) -> None:
    """It is named after the first limit, and an error on all ranks after the second."""
    limits = "--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "4"
    ended, errors = broken("stall", *limits, "--dump-directory", str(tmp_path))
    assert f"rank 1 has not submitted: {LEAF}" in ended.stderr, str(ended)
    assert [error["rank"] for error in errors] == [0] and LEAF in errors[0]["text"], str(ended)
    assert 2 < errors[0]["at"] - errors[0]["begun"] < 12, errors
