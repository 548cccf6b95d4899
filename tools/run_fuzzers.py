"""Runs every fuzz target for a number of seconds of processor time, as many side by side as there are cores.

The C++ ones (`make fuzz` builds them) run under the address sanitizer, the Python parsers with random and mutated
bytes.

A parser may refuse input with the project's own error classes and nothing else. Exit code 1 and the offending input
on failure. The page docs/threat-model.md says which target stands for which parser.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.util
import logging
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def native_targets() -> list[str]:
    return [source.stem for source in sorted((ROOT / "tests/native/fuzz").glob("*_fuzz.cc"))]


def run_native(name: str, seconds: float) -> str:
    """What came of it; empty when nothing was found."""
    build = ROOT / "build/asan"  # made by `make asan-build`
    crash = build / f"{name}.input"
    seed = str(time.time_ns() % 100000)
    done = subprocess.run([build / name, str(seconds), seed, crash], capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    print(f"{name}: exit code {done.returncode}; {last}", flush=True)
    return f"{name} ({crash}): {done.stderr[-3000:]}" if done.returncode else ""


def mutated(seed: bytes, rng: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.randint(1, 6)):
        at = rng.randint(0, len(data))
        choice = rng.randint(0, 3)
        if choice == 0 and data:
            data[at % len(data)] = rng.randint(0, 255)
        elif choice == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        elif choice == 2:
            del data[at : at + rng.randint(1, 8)]
        else:
            data += data[: rng.randint(0, len(data))]
    return bytes(data)


def python_targets() -> dict[str, tuple[Callable[[bytes], object], list[bytes], tuple[type[BaseException], ...]]]:
    """Name -> (parser of bytes, seeds, errors that it may raise)."""
    from horovod._core import settings
    from horovod._core.errors import HorovodError
    from horovod._core.life.seal import Seal
    from horovod._core.training.elastic import commit_file
    from horovod._dumps import values as dumps
    from horovod._net.clusters.launchers import detect_placement
    from horovod._net.failures import NetError
    from horovod._net.handshake.frames import messages
    from horovod._net.handshake.roll_call import parse_card
    from horovod._net.meeting import entries, facts
    from horovod.runner.allocations.base import Sources
    from horovod.runner.allocations.choose import allocation
    from horovod.runner.live import figures
    from horovod.runner.machines import hosts
    from horovod.runner.mpi.kinds import implementation
    from horovod.runner.options import config_file
    from horovod.runner.remote.ways import diagnosis
    from horovod.runner.remote.wire import frames, pulses
    from horovod.runner.remote.wire import messages as control
    from horovod.spark import placement

    def handshake(data: bytes) -> None:
        reader = messages.FrameReader()
        for i in range(0, len(data), 7):
            reader.feed(data[i : i + 7])
            while reader.next() is not None:
                pass

    def board(data: bytes) -> None:
        reader = messages.FrameReader(messages.ON_A_BOARD)
        reader.feed(data)
        while isinstance(entry := reader.next(), messages.Post):
            entries.Arbiter(1).post(entry.text)

    def agent(data: bytes, limits: Mapping[int, int] = frames.FROM_AGENT, shapes: Any = control.FROM_AGENT) -> None:
        reader = frames.Reader(limits)
        for i in range(0, len(data), 11):
            for kind, body in reader.feed(data[i : i + 11]):
                if kind == frames.CONTROL:
                    control.decode(body, shapes)
                elif kind == frames.OUTPUT:
                    frames.output_of(body)

    def compute_config(data: bytes) -> object:
        if importlib.util.find_spec("tensorflow") is None:
            return None  # its module is one of horovod.tensorflow's
        from horovod.tensorflow.data.config import TfDataServiceConfig

        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return TfDataServiceConfig.read(file.name)

    def data_service(data: bytes) -> None:
        if importlib.util.find_spec("tensorflow") is None:
            return
        from horovod.tensorflow.data.registry import Registry

        registry = Registry(1, 1, "compute")
        for entry in text(data).split("\n"):
            key, _, value = entry.partition("=")
            registry.apply(key, value)

    def text(data: bytes) -> str:
        return data.decode("utf-8", "surrogateescape")

    def environment(data: bytes) -> dict[str, str]:
        return dict(line.split("=", 1) for line in text(data).replace("\0", "").split("\n") if "=" in line)

    hello = messages.frame(messages.Knock(3)) + messages.frame(
        messages.Hello(b"j" * 16, 1, messages.ROLE_MEET, 4, 1, 0, b"n" * 32)
    )
    launcher = (
        b"OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=1\nOMPI_COMM_WORLD_LOCAL_SIZE=2"
    )
    exited = frames.frame(frames.CONTROL, control.encode("exited", rank=1, status=0, age=0.5, how="x", peak=1))
    news = control.encode("figures", ranks=[[1, *figures.to_wire(figures.Figures(last_error="x"))]])
    stop = frames.frame(frames.CONTROL, control.encode("signal", number=15, ranks=[0, 1]))
    watch = frames.frame(frames.CONTROL, control.encode("watch", seconds=4.0))
    said = b"ssh: connect to host a port 22: Connection refused\nNo module named horovod\nPermission denied"
    knobs = b"HOROVOD_CYCLE_TIME=1.5\nHOROVOD_FUSION_THRESHOLD=1024\nHOROVOD_AUTOTUNE=1\nHOROVOD_LOG_LEVEL=debug"
    config = (
        b'{"dispatchers": 1, "workers_per_dispatcher": 1, "dispatcher_side": "compute", "key": "%s", "addresses": '
        % (base64.b64encode(bytes(32)))
    )
    service = (
        b'do.0.0=["join", "compute", 0, "a"]\ndo.0.1=["dispatcher", 0, "a:1"]\ndo.1.0=["join", "training", 0, "b"]\n'
        b'do.1.1=["meet", "t", 2]\ndo.1.2=["give up", "t"]\nended.1=ended\ndo.0.2=["end", "shutdown", "c"]'
    )
    seal = Seal(bytes(32), 0)
    dump = dumps.to_json(
        dumps.Dump(
            0, 2, "a", 7, "/", "now", "stall", threads=(dumps.Thread("m", True, (dumps.Frame("f.py", 1, "g"),)),)
        )
    )
    return {
        "handshake messages": (handshake, [hello, b""], (NetError,)),
        "board": (board, [messages.frame(messages.Post("address.0=10.0.0.1 4000"))], (NetError,)),
        "card of the roll call": (
            lambda d: parse_card(3, text(d)),
            [b"4000 10.0.0.1 host1", b"1 fe80::1%eth0 h"],
            (NetError,),
        ),
        "facts of a rank": (lambda d: facts.unpacked(3, d), [b'["node7","boot.1",["10.0.0.7/24"],"1.0"]'], (NetError,)),
        "sealed objects": (
            lambda d: seal.open("broadcast_object 'a'", d, 1),
            [bytes(Seal(bytes(32), 1).close("broadcast_object 'a'", bytearray(b"object")))],
            (HorovodError,),
        ),
        "durable commit": (
            lambda d: commit_file.read(bytearray(d), bytes(32)),
            [b"".join(commit_file.written({"a": 1}, {}, bytes(32))), b"".join(commit_file.written([], {}, None))],
            (commit_file.NotWholeError, commit_file.OtherKeyError),
        ),
        "a rank's dump": (lambda d: dumps.from_json(text(d)), [dump.encode()], (ValueError,)),
        "compute config": (compute_config, [config + b'{"a": [["10.0.0.1", 4000]]}}'], (HorovodError,)),
        "data service": (data_service, [service], ()),
        "an agent's frames": (
            agent,
            [exited + frames.frame(frames.CONTROL, news) + frames.output_frame(1, 0, b"out")],
            (NetError,),
        ),
        "a launcher's frames": (
            lambda d: agent(d, frames.FROM_LAUNCHER, control.FROM_LAUNCHER),
            [stop + watch + frames.frame(frames.FUNCTION, b"f") + frames.frame(frames.BEAT)],
            (NetError,),
        ),
        "a page of counters": (lambda d: figures.decoded(d, 1 << 40), [bytes([1]) + bytes(767), b"\xff" * 768], ()),
        "signs of life": (
            lambda d: pulses.number_of(b"k", b"?", d),
            [pulses.datagram(b"k", b"?", 7), pulses.datagram(b"k", b"!", 7)],
            (),
        ),
        "words of ssh": (lambda d: diagnosis.Facts("a", "/p", None, 255, text(d), 3.0).why(), [said], ()),
        "a task of Spark": (
            lambda d: placement.Facts.said("0.1", text(d)),
            [placement.Facts(3, "m", "m/7", "node", ["0", "GPU-1"]).text().encode()],
            (NetError,),
        ),
        "host list": (lambda d: hosts.parse_hosts(text(d)), [b"a:2,b:4", b"[::1]:2"], (HorovodError,)),
        "host file": (lambda d: hosts.parse_hostfile(text(d)), [b"a slots=2\n# c\n\nb slots=4\n"], (HorovodError,)),
        "YAML": (
            lambda d: config_file.parse(d, "f"),
            [b"params:\n  cycle_time_ms: 5\ntimeline:\n  filename: x\n"],
            (HorovodError,),
        ),
        "settings": (lambda d: settings.from_environ(environment(d)), [knobs], (HorovodError,)),
        "launcher variables": (lambda d: detect_placement(environment(d)), [launcher], (NetError, HorovodError)),
        "scheduler's variables": (
            lambda d: allocation(environment(d), Sources(lambda path: path, lambda command: text(d))),
            [
                b"SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n[1-3,7],l\nSLURM_TASKS_PER_NODE=2(x4),1",
                b"LSB_JOBID=7\nLSB_MCPU_HOSTS=a 2 b 1",
                b"PBS_JOBID=3\nPBS_NODEFILE=a",
            ],
            (HorovodError,),
        ),
        "mpirun's version": (
            lambda d: implementation(text(d)),
            [b"mpirun (Open MPI) 5.0.11\n", b"HYDRA build details:\n    Version:  5.0.2\n"],
            (HorovodError,),
        ),
    }


def run_python(name: str, seconds: float) -> str:
    """What came of it; empty when nothing was found."""
    logging.disable()  # refusals are logged, a million times here
    parse, seeds, allowed = python_targets()[name]
    rng = random.Random(time.time_ns())
    with contextlib.suppress(*allowed):
        parse(seeds[0])  # what it imports takes its time
    corpus, runs, end = list(seeds), 0, time.process_time() + seconds
    while time.process_time() < end:
        data = mutated(rng.choice(corpus), rng) if rng.random() < 0.9 else rng.randbytes(rng.randint(0, 200))
        runs += 1
        try:
            parse(data)
            if len(corpus) < 500 and len(data) < 2000:
                corpus.append(data)
        except allowed:
            pass
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error} for {data!r}"
    print(f"{name}: {runs} inputs", flush=True)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="of a processor, for each target")
    parser.add_argument("targets", nargs="*", help="their names; without any: all")
    wanted = parser.parse_args()
    runs = {**dict.fromkeys(native_targets(), run_native), **dict.fromkeys(python_targets(), run_python)}
    for name in set(wanted.targets) - runs.keys():
        parser.error(f"there is no target {name!r}; there are: {', '.join(runs)}")
    names = wanted.targets or list(runs)
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        found = [text for text in pool.map(_run, ((runs[name], name, wanted.seconds) for name in names)) if text]
    print("\n".join(found) if found else f"{len(names)} fuzz targets, nothing found")
    return 1 if found else 0


def _run(job: tuple[Callable[[str, float], str], str, float]) -> str:
    run, name, seconds = job
    return run(name, seconds)


if __name__ == "__main__":
    sys.exit(main())
