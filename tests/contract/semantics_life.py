"""What holds for the engine's life in a real process: init again, Ctrl-C, fork, sub-worlds, questions before init."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable

import numpy as np
from targets import Env

from horovod._core.errors import HorovodInternalError, ShutdownError


def questions(env: Env) -> None:
    hvd = env.hvd
    env.check("init twice", hvd.init(), None)
    hosts = [(host, local) for host, count in enumerate(env.hosts) for local in range(count)]
    host, local = hosts[hvd.rank()]
    env.check("local", (hvd.local_rank(), hvd.local_size()), (local, env.hosts[host]))
    beside = [count for count in env.hosts if count > local]
    earlier = [count for count in env.hosts[:host] if count > local]
    env.check("cross", (hvd.cross_rank(), hvd.cross_size()), (len(earlier), len(beside)))
    env.check("homogeneous", hvd.is_homogeneous(), len(set(env.hosts)) == 1)
    env.check("enabled", (hvd.mpi_enabled(), hvd.gloo_enabled(), hvd.gloo_built()), (False, True, True))
    env.raises("mpi_threads_supported", ValueError, hvd.mpi_threads_supported)
    env.raises("start_timeline", ValueError, lambda: hvd.start_timeline(os.path.join(env.directory, "trace")))
    env.raises("a bad comm", ValueError, lambda: (hvd.shutdown(), hvd.init(comm="all")))
    hvd.init(process_sets="dynamic")
    env.still_usable("questions")


def shutdown_and_init(env: Env) -> None:
    hvd = env.hvd
    for round_ in range(3):
        lost = hvd.allreduce_async(env.tensor([1]), name="lost")
        done = hvd.synchronize(hvd.allreduce_async(env.tensor([round_]), op=hvd.Sum))
        env.check(f"round {round_}", done, np.array([round_ * env.size], np.float32))
        hvd.barrier()
        hvd.shutdown()
        env.check("initialised", hvd.is_initialized(), False)
        env.raises("rank", ValueError, hvd.rank)
        env.raises("allreduce", (ValueError, HorovodInternalError), lambda: hvd.allreduce(env.tensor([1]), name="x"))
        hvd.shutdown()
        hvd.init(process_sets="dynamic")
        env.raises("a handle of before", ShutdownError, lambda: hvd.synchronize(lost))  # noqa: B023
        env.still_usable(f"init {round_}")


def interrupt(env: Env) -> None:
    """Ctrl-C in a wait: the exception comes out at once, and what was under way goes on."""
    hvd = env.hvd
    if env.size == 1:
        return  # nothing to wait for
    flag = os.path.join(env.directory, "interrupted")
    tensor = env.tensor([env.rank + 1.0])
    right = np.array([env.size * (env.size + 1) / 2], np.float32)
    for variant in ("asynchronous", "blocking", "prepared"):
        mark = f"{flag}.{variant}"
        if variant == "prepared":
            hvd.allreduce_(env.tensor([1.0]), name="prepared", op=hvd.Sum)
        if env.rank > 0:
            _wait_for(mark)
            result = hvd.allreduce(tensor, name=variant, op=hvd.Sum)
            env.check(f"{variant}, others", result, right)
            continue
        if variant == "asynchronous":
            handle = hvd.allreduce_async(tensor, name=variant, op=hvd.Sum)
            env.raises(variant, KeyboardInterrupt, lambda: _interrupted(lambda: hvd.synchronize(handle)))  # noqa: B023
        else:
            function = hvd.allreduce if variant == "blocking" else hvd.allreduce_
            call: Callable[[], Any] = lambda: function(env.tensor([1.0]), name=variant, op=hvd.Sum)  # noqa: E731, B023
            env.raises(variant, KeyboardInterrupt, lambda: _interrupted(call))  # noqa: B023
        with open(mark, "w"):
            pass
        if variant == "asynchronous":
            env.check(f"{variant}, interrupted", hvd.synchronize(handle), right)
    env.still_usable("interrupt")


def _interrupted(call: Callable[[], Any]) -> None:
    """Calls, with a SIGINT arriving while the call waits."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _wait_for(path: str) -> None:
    deadline = time.monotonic() + 30
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear")
        time.sleep(0.005)


def forked_child(env: Env) -> None:
    """A forked child knows its parent's place and is no rank: it is told so, and its end does not disturb the job."""
    hvd = env.hvd
    place = _place(hvd)
    tensor = env.tensor([1])  # made before: on a GPU a child can make none
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for call in (hvd.init, lambda: hvd.allreduce(tensor, name="child"), lambda: hvd.barrier()):
            try:
                call()
                texts.append("nothing raised")
            except Exception as error:
                texts.append(f"{type(error).__name__}: {error}")
        texts.append(_place(hvd))
        hvd.shutdown()
        os.write(writer, "\n".join(texts).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        texts = file.read().splitlines()
    env.check("the child's end", os.waitpid(child, 0)[1], 0)
    env.check_true(f"the child was told: {texts}", len(texts) == 4 and all("forked" in text for text in texts[:3]))
    env.check_true(f"the child knows the place {place}: {texts}", texts[3] == place)
    env.still_usable("fork")


def forked_child_keeps_results(env: Env) -> None:
    """A large result that a forked child has stays what it was, whatever the parent does with its own."""
    if env.target.name == "gpu":
        return  # a child cannot read it
    for call in (env.hvd.allgather, env.hvd.alltoall):
        rows = np.full((env.size * 1000, 128), env.rank, np.float32)  # enough to be stored into by others
        result = call(env.target.tensor(rows))
        result = result[0] if isinstance(result, tuple) else result
        kept = env.target.array(result)
        before = kept.tobytes()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0 if kept.tobytes() == before else 1)
        del result, kept
        for turn in range(4):  # the memory is used again
            call(env.target.tensor(rows + turn + 1))
        os.write(writer, b"g")
        env.check(f"the child of {call.__name__}", os.waitpid(child, 0)[1], 0)
        os.close(reader)
        os.close(writer)
    env.still_usable("fork with results")


def _place(hvd: Any) -> str:
    """All that a process can ask about its place in the job."""
    everybody = hvd.global_process_set
    return " ".join(
        str(answer)
        for answer in (
            *(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()),
            *(hvd.is_initialized(), hvd.is_homogeneous()),
            *(everybody.rank(), everybody.size(), everybody.included(), everybody.ranks),
        )
    )


def sub_worlds(env: Env) -> None:
    hvd = env.hvd
    place, size, hosts = hvd.rank(), hvd.size(), env.hosts
    if size < 2:
        return
    hvd.shutdown()
    mine = [r for r in range(size) if r % 2 == place % 2]
    hvd.init(comm=mine)
    env.check("sub-world", (hvd.rank(), hvd.size()), (mine.index(place), len(mine)))
    host_of_rank = [host for host, count in enumerate(hosts) for _ in range(count)]
    beside = [rank for rank in mine if host_of_rank[rank] == host_of_rank[place]]
    env.check("its host", (hvd.local_rank(), hvd.local_size()), (beside.index(place), len(beside)))
    total = hvd.allreduce(env.tensor([place]), op=hvd.Sum)
    env.check("sum of the sub-world", total, np.array([sum(mine)], np.float32))
    hvd.shutdown()
    env.raises("a world without me", ValueError, lambda: hvd.init(comm=[r for r in range(size) if r != place]))
    hvd.init(process_sets="dynamic")
    env.still_usable("sub-worlds")


LIFE: tuple[Callable[[Env], None], ...] = (
    questions,
    shutdown_and_init,
    interrupt,
    forked_child,
    forked_child_keeps_results,
    sub_worlds,
)
