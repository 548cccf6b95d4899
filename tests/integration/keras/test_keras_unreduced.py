"""A job whose `fit` reduces no gradient says so at its end, once."""

from __future__ import annotations

import pytest
from jobs.commands import horovodrun
from jobs.job import run
from keras_backends import BACKENDS, QUIET, WORKERS, needs_backend, variables_of, warmed

CASES = [(backend, what, remarks) for backend in BACKENDS for what, remarks in (("plain", 1), ("distributed", 0))]


@pytest.mark.parametrize(
    ("backend", "what", "remarks"),
    [
        pytest.param(
            *case, marks=[needs_backend(case[0]), *([] if case[:2] == ("torch", "plain") else [pytest.mark.slow])]
        )
        for case in CASES
    ],
)
def test_fit(backend: str, what: str, remarks: int) -> None:
    command = horovodrun(2, WORKERS / "unreduced_worker.py", what, warm=warmed(backend))
    ended = run(command, {**variables_of(backend), **QUIET})
    assert ended.code == 0, ended
    told = [line for line in ended.stderr.splitlines() if "no gradient was reduced" in line]
    assert len(told) == remarks, ended
    for line in told:
        assert "[rank 1] Keras' SGD has made 10 steps or more" in line, line
