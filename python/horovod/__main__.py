"""`python -m horovod`: the version, this machine, and what can be used on it.

`python -m horovod doctor [--json]` says more, as `horovodrun doctor` does. `python -m horovod build-tensorflow-gpu`
compiles what TensorFlow needs for NCCL outside XLA. Exit code 1 when the core library cannot be
used, 2 for other arguments, of which there are none. `horovodrun --check-build` answers like upstream's; both ask
`horovod.runner.doctor.availability`.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence

import horovod
from horovod.runner.doctor import availability
from horovod.runner.doctor.checks import Line


def report(core: availability.Core) -> str:
    """The whole text."""
    facts = f" C interface {core.abi}, {core.kernels} kernels, {core.path}" if not core.why_not else ""
    lost = "the core cannot be used" if core.why_not else ""
    sections = {
        "Core": [Line(f"libhorovod.so{facts and ':' + facts}", core.why_not)],
        "Frameworks": [Line(f"{f.name} {f.version}".rstrip(), f.why_not) for f in availability.frameworks()],
        "Transports": [
            Line("shared memory", lost or availability.shared_memory_why_not()),
            Line("TCP", lost),
        ],
    }
    libc = " ".join(platform.libc_ver()) or "unknown C library"
    text = [
        f"Horovod {horovod.__version__}",
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"{platform.system()} {platform.release()} on {platform.machine()}, {libc}",
    ]
    for title, lines in sections.items():
        text += ["", f"{title}:", *(line.text(verbose=True) for line in lines)]
    return "\n".join(text)


def main(words: Sequence[str] = ()) -> int:
    """Prints the report; or says that the words after the program's name were meant for another one."""
    if words[:1] == ["doctor"]:
        return _doctor(words[1:])
    if list(words) == ["build-tensorflow-gpu"]:
        return _build_tensorflow_gpu()
    if words:
        sys.stderr.write(
            f"python -m horovod shows what can be used on this machine; its arguments are doctor and "
            f"build-tensorflow-gpu. Received: "
            f"{words[0]}. Jobs are started by horovodrun, or by python -m horovod.runner, which is the same.\n"
        )
        return 2
    core = availability.core()
    sys.stdout.write(report(core) + "\n")
    return 1 if core.why_not else 0


def _doctor(words: Sequence[str]) -> int:
    from horovod.runner.doctor import command  # a good deal more than the short report needs

    try:
        return command.main(words)
    except ValueError as error:  # a word that it does not know
        sys.stderr.write(f"error: {error}\n")
        return 2


def _build_tensorflow_gpu() -> int:
    try:
        from horovod.tensorflow.gpu import helper

        path = helper.build()
    except (ImportError, OSError, RuntimeError) as error:
        sys.stderr.write(f"error: TensorFlow's tensors on GPUs go through the host's memory outside XLA: {error}\n")
        return 1
    sys.stdout.write(f"{path}\nOn every host of a job: either all ranks have it, or none.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
