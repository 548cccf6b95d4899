"""`horovod.jax` with flax, equinox and orbax: `make test-jaxs`. By the name of the file, no other run of the
tests collects it: the development environment does not have them."""

from __future__ import annotations

from pathlib import Path

from jobs import horovodrun, run


def test_libraries() -> None:
    ended = run(horovodrun(2, Path(__file__).parent / "facts.py"), {"JAX_PLATFORMS": "cpu"}, patience_s=170)
    reports = ended.of("libraries")
    assert ended.code == 0 and len(reports) == 2, str(ended)
    assert not any(one["failures"] for one in reports) and all(one["run"] >= 5 for one in reports), str(ended)
