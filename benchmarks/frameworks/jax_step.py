"""What reducing a step's gradients costs when Keras runs on JAX: by the core's custom call, and by the host call that
other devices need.

    KERAS_BACKEND=jax horovodrun -np 2 python benchmarks/frameworks/jax_step.py

Both ways alternate in one job. Rank 0 prints a Markdown table: medians of a compiled step with nothing but the
reduction, and the fastest and slowest slice.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

import jax
import jax.numpy as jnp

import horovod.keras as hvd
from horovod._core.training.reducer import ReductionOptions
from horovod.keras.backends import jax as reduce_jax
from horovod.keras.backends import jax_call
from horovod.keras.reducer import ReductionSettings

ROUNDS = 9
SETS: dict[str, tuple[list[tuple[int, ...]], int]] = {  # shapes, steps of a slice
    "1 of 4 B": ([()], 300),
    "4 of 12 to 512 B": ([(8, 16), (16,), (16, 3), (3,)], 300),
    "100 of 1 KB": ([(256,)] * 100, 50),
    "20 of 1 MB": ([(512, 512)] * 20, 8),
}


class Named:
    """As much of a variable as a reduction asks for."""

    name = "gradient"


def step(scope: str, n: int, in_the_core: bool) -> Callable[[Any], Any]:
    """A compiled reduction of n gradients; which way it takes is decided when it is traced."""
    reduction = reduce_jax.JaxReducer(ReductionSettings(scope, ReductionOptions()))
    usable = jax_call.usable

    def traced(gradients: Any) -> Any:
        jax_call.usable = lambda: in_the_core and usable()
        try:
            return reduction.reduce(gradients, [Named()] * n)
        finally:
            jax_call.usable = usable

    return jax.jit(traced)


def measured(shapes: list[tuple[int, ...]], steps: int) -> dict[str, list[float]]:
    """Microseconds a step, of every slice."""
    gradients = [jnp.ones(shape) for shape in shapes]
    ways = {"core": step("core", len(shapes), True), "host": step("host", len(shapes), False)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(ROUNDS + 1):
        for way, run in ways.items():
            start = time.perf_counter()
            for _ in range(steps):
                jax.block_until_ready(run(gradients))
            if number:  # the first round compiles
                times[way].append(1e6 * (time.perf_counter() - start) / steps)
    return times


def main() -> None:
    hvd.init()
    lines = ["| gradients | custom call, us | host call, us | ratio |", "|---|---|---|---|"]
    for what, (shapes, steps) in SETS.items():
        times = measured(shapes, steps)
        cells = [f"{statistics.median(t):.0f} ({min(t):.0f} to {max(t):.0f})" for t in times.values()]
        ratio = statistics.median(host / core for core, host in zip(times["core"], times["host"]))
        lines.append(f"| {what} | {' | '.join(cells)} | {ratio:.1f} |")
    if hvd.rank() == 0:
        print("\n".join(lines))
    hvd.shutdown()


if __name__ == "__main__":
    main()
