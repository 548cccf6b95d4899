"""Which GPUs and which NCCL (or, for AMD's, RCCL) a job could use here, and why not. Used by `checks` and `gpus`.

Libraries are opened in a process of their own, which is killed at a deadline: the launcher starts no CUDA, and outlives
a driver that hangs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Union

from horovod._core.gpu import libraries, platforms, probe
from horovod.runner.doctor.examination import child

PATIENCE_S: Final = 10.0
_NO_NVIDIA: Final = "no NVIDIA driver is installed"
_NO_ANSWER: Final = f"gives no answer within {PATIENCE_S:g} s"


class Driver(NamedTuple):
    """A driver: the version of CUDA that it serves, such as 13.0, or HIP's, and its devices. They are empty when
    `why_not` says why it cannot be used; `hangs`: because it does not answer."""

    version: str = ""
    devices: tuple[str, ...] = ()
    why_not: str = ""
    hangs: bool = False


class Nccl(NamedTuple):
    """NCCL: its version, such as 2.28.9, its file and how that was found. They are empty when `why_not` says why it
    cannot be used; `absent`: because there is none, and the user has named none."""

    version: str = ""
    path: str = ""
    how: str = ""
    why_not: str = ""
    absent: bool = False


def cuda(environ: Mapping[str, str]) -> Driver:
    """The driver of NVIDIA's GPUs, asked."""
    facts = _asked("cuda", libraries.DRIVER, environ)
    if isinstance(facts, str):
        # Of a library that it needs itself the loader would say another name first.
        if facts.startswith(f"{libraries.DRIVER}: cannot open shared object file"):
            return Driver(why_not=f"{libraries.DRIVER} not found: {_NO_NVIDIA}")
        return Driver(why_not=facts, hangs=_NO_ANSWER in facts)
    version = facts["version"]
    return Driver(f"{version // 1000}.{version % 1000 // 10}", tuple(facts["devices"]))


def hip(environ: Mapping[str, str]) -> Driver:
    """HIP's library, for AMD's GPUs, asked."""
    found = libraries.find(libraries.HIP, libraries.Named(), environ)
    if found.why_not:
        return Driver(why_not=found.why_not)
    facts = _asked("hip", found.path, environ)
    if isinstance(facts, str):
        return Driver(why_not=facts, hangs=_NO_ANSWER in facts)
    version = facts["version"]
    return Driver(f"{version // 10_000_000}.{version // 100_000 % 100}", tuple(facts["devices"]))


def nccl(environ: Mapping[str, str], platform: platforms.Platform = platforms.CUDA) -> Nccl:
    """The NCCL, or RCCL, that a rank would open, asked."""
    named = libraries.named_in(environ)
    found = libraries.find(platform.nccl, named, environ)
    if found.why_not:
        return Nccl(why_not=found.why_not, absent=named.path is None)
    facts = _asked("nccl", found.path, environ)
    if isinstance(facts, str):
        return Nccl(why_not=facts)
    return Nccl(version_text(facts["version"]), found.path, found.how)


def nccl_why_not(environ: Mapping[str, str]) -> str:
    """Why NCCL, or RCCL where all are AMD's, could not move tensors of this machine's GPUs; empty if it could."""
    platform = platforms.of_devices()
    driver = hip(environ) if platform is platforms.ROCM else cuda(environ)
    if driver.why_not or not driver.devices:
        return driver.why_not or f"{'HIP' if platform is platforms.ROCM else 'the NVIDIA driver'} shows no GPU"
    return nccl(environ, platform).why_not


def version_text(number: int) -> str:
    """NCCL's integer for people: 22809 is 2.28.9, and before 2.9 2708 is 2.7.8."""
    major, rest = (number // 10000, number % 10000) if number >= 10000 else (number // 1000, number % 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _asked(what: str, path: str, environ: Mapping[str, str]) -> Union[dict[str, Any], str]:
    """What a library says, or why it says nothing."""
    answer = child([sys.executable, "-I", "-S", probe.__file__, what, path], PATIENCE_S, environ)
    if answer.code == 0:
        return dict(json.loads(answer.out.splitlines()[-1]))
    if answer.code is None:
        return f"{path} {_NO_ANSWER}"
    return answer.last_word
