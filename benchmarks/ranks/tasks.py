"""The tasks that a rank program carries out on the driver's order, whatever library it measures.

Used by `rank.py`. Times are nanoseconds of this rank; the driver takes the slowest rank of each iteration. Results are
checked outside the measured time: some places in every iteration, every place in the last of a slice. A wrong result
is reported, not raised.
"""

from __future__ import annotations

import gc
import time
from typing import Any, Callable, Optional

import numpy as np
from contenders.library import Library, Prepared

from ranks import patterns
from ranks.gate import Gate


class Tasks:
    """Everything a rank has prepared, by the order that asked for it.

    Args:
        library: connected.
        gate: of the job.
    """

    def __init__(self, library: Library, gate: Gate) -> None:
        self._library = library
        self._gate = gate
        self._kept: dict[str, Any] = {}
        self._iteration = 0
        gc.freeze()  # the modules: looking through them before each slice would take half as long as the slice

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carries out an order: {"task": ..., "iterations": ..., what the task needs}. Collective over the job."""
        task: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, f"_do_{order['task']}")
        gc.collect()
        gc.disable()
        begin = time.perf_counter()
        try:
            reply = task(order)
        finally:
            gc.enable()
        return {**reply, "wall_s": time.perf_counter() - begin}

    # ---- tasks

    def _do_hello(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"rank": self._library.rank, "size": self._library.size, "versions": self._library.versions}

    def _do_release(self, order: dict[str, Any]) -> dict[str, Any]:
        self._kept.clear()
        patterns.positions.cache_clear()
        gc.collect()
        return {}

    def _do_collective(self, order: dict[str, Any]) -> dict[str, Any]:
        return self._repeat(self._collective(order), order["operation"], order["iterations"])

    def _do_gradients(self, order: dict[str, Any]) -> dict[str, Any]:
        def prepare() -> Prepared:
            return self._library.gradients(order["sizes"], order["mode"])

        return self._repeat(
            self._keep(f"gradients {order['mode']} {len(order['sizes'])}", prepare), "allreduce", order["iterations"]
        )

    def _do_train(self, order: dict[str, Any]) -> dict[str, Any]:
        """Steps of a loop of a model: "plain", or "wrapped" by the library, or so with "resident" gradients."""
        from ranks import training

        variant, model = order["variant"], order["model"]
        loop = self._keep(f"train {model} {variant}", lambda: training.Loop(self._library, variant, model))
        return self._steps(loop, order)

    def _do_bookkeeping(self, order: dict[str, Any]) -> dict[str, Any]:
        """Steps of a loop of 161 tiny parameters: "plain", "raw" (allreduces after backward) or "wrapped"."""
        from ranks import training

        loop = self._keep(f"tiny {order['variant']}", lambda: training.TinyLoop(self._library, order["variant"]))
        return self._steps(loop, order)

    # ---- helpers

    def _keep(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def _collective(self, order: dict[str, Any]) -> Prepared:
        operation, elems, variant = order["operation"], order["elems"], order.get("variant", "")
        prepared: Prepared = self._keep(
            f"{operation} {elems} {variant}", lambda: self._library.collective(operation, elems, variant)
        )
        return prepared

    def _repeat(self, prepared: Prepared, operation: str, count: int) -> dict[str, Any]:
        rank, size, call = self._library.rank, self._library.size, prepared.call
        clock, gate, times = time.perf_counter_ns, self._gate, []
        wrong: Optional[str] = None
        for turn in range(count):
            iteration = self._iteration
            self._iteration += 1
            last = turn == count - 1
            _fill(prepared, patterns.value(rank, iteration), patterned=last)
            begin = gate.pass_through()
            result = call()  # the result before it goes at the same moment, for every contender
            times.append(clock() - begin)
            outputs = prepared.outputs(result)
            if last:
                right = [patterns.expected(operation, rank, size, iteration, sent.size) for sent in prepared.inputs]
                found = _first_difference(outputs, right)
            else:
                found = _first_wrong_place(outputs, patterns.constants(operation, rank, size, iteration))
            wrong = wrong or found
        return {"times": times, "wrong": wrong}

    def _steps(self, loop: Any, order: dict[str, Any]) -> dict[str, Any]:
        clock, times = time.perf_counter_ns, []
        for _ in range(order["iterations"]):
            begin = self._gate.pass_through()
            loop.step()
            times.append(clock() - begin)
        # Plain loops see other pictures on every rank and drift apart.
        checksum = None if order["variant"] == "plain" else loop.checksum()
        return {"times": times, "wrong": None, "checksum": checksum, "steps": loop.steps}


def _fill(prepared: Prepared, filling: int, patterned: bool) -> None:
    for array in prepared.inputs:
        array.fill(filling)
        if patterned:
            array += patterns.positions(array.size)


def _first_wrong_place(outputs: list[np.ndarray], blocks: list[int]) -> Optional[str]:
    """Looks at the first, the middle and the last element of each block."""
    for number, array in enumerate(outputs):
        length = array.size // len(blocks)
        for index, right in enumerate(blocks):
            for place in (index * length, index * length + length // 2, (index + 1) * length - 1):
                if array[place] != right:
                    return f"output {number} holds {array[place]} instead of {right} at place {place}"
    return None


def _first_difference(outputs: list[np.ndarray], expected: list[np.ndarray]) -> Optional[str]:
    """Looks at every element."""
    for number, (array, right) in enumerate(zip(outputs, expected)):
        if array.shape != right.shape:
            return f"output {number} has the shape {array.shape} instead of {right.shape}"
        if not np.array_equal(array, right):
            place = int(np.argmax(array != right))
            return f"output {number} holds {array[place]} instead of {right[place]} at place {place}"
    return None
