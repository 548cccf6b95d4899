"""`horovod.jax` with flax, equinox and orbax: `make test-jaxs`. By the name of the file, no other run of the
tests collects it: the development environment does not have them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from jobs import ROOT, horovodrun, run, run_well

ON_THE_CPU = {"JAX_PLATFORMS": "cpu"}


@pytest.mark.parametrize(("words", "count"), [((), 5), (("distributed",), 1)], ids=["alone", "jax.distributed"])
def test_libraries(words: tuple[str, ...], count: int) -> None:
    if words and not socket.gethostbyname(socket.gethostname()).startswith("127."):
        pytest.skip("Not here: JAX's gloo listens where the name of this host leads to, which is not the loopback.")
    ended = run(horovodrun(2, Path(__file__).parent / "facts.py", *words), ON_THE_CPU, patience_s=170)
    reports = ended.of("libraries")
    assert ended.code == 0 and len(reports) == 2, str(ended)
    assert not any(one["failures"] for one in reports) and all(one["run"] == count for one in reports), str(ended)


@pytest.mark.parametrize("script", ["digits_flax.py", "digits_equinox.py"])
def test_example(script: str) -> None:
    command = horovodrun(2, str(ROOT / "examples" / "jax" / script), "--epochs", "3")
    output = run_well(command, ON_THE_CPU, patience_s=170)
    found: dict[str, Any] = json.loads(output.partition("RESULT ")[2].splitlines()[0])
    assert found["equal"] and found["accuracy"] > 0.85, found
