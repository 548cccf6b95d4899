"""Runs every fuzz target for a number of seconds.

The C++ ones run under the address sanitizer, the Python parsers with random and mutated bytes.

A parser may refuse input with the project's own error classes and nothing else. Exit code 1 and the offending input
on failure.
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def native_targets(seconds: float) -> list[str]:
    build = ROOT / "build/fuzz"
    configure = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DHVD_FUZZ=ON", "-DHVD_SANITIZE=address,undefined"]
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *configure], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "--target", "fuzzers"], check=True, stdout=subprocess.DEVNULL)
    failed = []
    for source in sorted((ROOT / "tests/native/fuzz").glob("*_fuzz.cc")):
        crash = build / f"{source.stem}.input"
        done = subprocess.run(
            [build / source.stem, str(seconds), str(time.time_ns() % 100000), crash], capture_output=True, text=True
        )
        print(
            f"{source.stem}: exit code {done.returncode}; {(done.stdout.strip().splitlines() or ['no output'])[-1]}",
            flush=True,
        )
        if done.returncode != 0:
            print(done.stderr[-3000:])
            failed.append(f"{source.stem} ({crash})")
    return failed


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
    from horovod._net.clusters.launchers import detect_placement
    from horovod._net.failures import NetError
    from horovod._net.handshake import messages
    from horovod.runner import config_file, hosts
    from horovod.runner.remote import diagnosis, entries, frames
    from horovod.runner.remote import messages as control

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
            entries.Judge(1).post(entry.text)

    def agent(data: bytes, limits: Mapping[int, int] = frames.FROM_AGENT, shapes: Any = control.FROM_AGENT) -> None:
        reader = frames.Reader(limits)
        for i in range(0, len(data), 11):
            for kind, body in reader.feed(data[i : i + 11]):
                if kind == frames.CONTROL:
                    control.decode(body, shapes)
                elif kind == frames.OUTPUT:
                    frames.output_of(body)

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
    exited = frames.frame(frames.CONTROL, control.encode("exited", rank=1, status=0, age=0.5, how="x"))
    stop = frames.frame(frames.CONTROL, control.encode("signal", number=15, ranks=[0, 1]))
    said = b"ssh: connect to host a port 22: Connection refused\nNo module named horovod\nPermission denied"
    knobs = b"HOROVOD_CYCLE_TIME=1.5\nHOROVOD_FUSION_THRESHOLD=1024\nHOROVOD_AUTOTUNE=1\nHOROVOD_LOG_LEVEL=debug"
    return {
        "handshake messages": (handshake, [hello, b""], (NetError,)),
        "board": (board, [messages.frame(messages.Post("address.0=10.0.0.1 4000"))], (NetError,)),
        "an agent's frames": (agent, [exited + frames.output_frame(1, 0, b"out")], (NetError,)),
        "a launcher's frames": (
            lambda d: agent(d, frames.FROM_LAUNCHER, control.FROM_LAUNCHER),
            [stop + frames.frame(frames.FUNCTION, b"f") + frames.frame(frames.BEAT)],
            (NetError,),
        ),
        "words of ssh": (lambda d: diagnosis.Facts("a", "/p", None, 255, text(d), 3.0).why(), [said], ()),
        "host list": (lambda d: hosts.parse_hosts(text(d)), [b"a:2,b:4", b"[::1]:2"], (HorovodError,)),
        "host file": (lambda d: hosts.parse_hostfile(text(d)), [b"a slots=2\n# c\n\nb slots=4\n"], (HorovodError,)),
        "YAML": (
            lambda d: config_file.parse(d, "f"),
            [b"params:\n  cycle_time_ms: 5\ntimeline:\n  filename: x\n"],
            (HorovodError,),
        ),
        "settings": (lambda d: settings.from_environ(environment(d)), [knobs], (HorovodError,)),
        "launcher variables": (lambda d: detect_placement(environment(d)), [launcher], (NetError, HorovodError)),
    }


def run_python(seconds: float) -> list[str]:
    logging.disable()  # refusals are logged, a million times here
    failed = []
    for name, (parse, seeds, allowed) in python_targets().items():
        rng = random.Random(time.time_ns())
        corpus, runs, end = list(seeds), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            data = mutated(rng.choice(corpus), rng) if rng.random() < 0.9 else rng.randbytes(rng.randint(0, 200))
            runs += 1
            try:
                parse(data)
                if len(corpus) < 500 and len(data) < 2000:
                    corpus.append(data)
            except allowed:
                pass
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error} for {data!r}")
                failed.append(name)
                break
        print(f"{name}: {runs} inputs", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="for each target")
    seconds = parser.parse_args().seconds
    failed = run_python(seconds) + native_targets(seconds)
    print(f"failed: {', '.join(failed)}" if failed else "no fuzz target failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
