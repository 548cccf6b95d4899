"""What ranks on Ray have of the environment of the program: the settings of Horovod, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from horovod._core.settings import BY_NAME, notices, unknown_variables
from horovod.runner.job import effective_settings, variables_of


class RankEnvironment(NamedTuple):
    """What all ranks of a job get from this process.

    Attributes:
        nics: network interfaces for traffic between nodes.
        environ: variables.
    """

    nics: tuple[str, ...]
    environ: Mapping[str, str]


def rank_environment(caller: str, timeout_s: float, nics: Any, extra: Mapping[str, str]) -> RankEnvironment:
    """Reads the environment of this process, and warns of settings that have no effect.

    Args:
        caller: for messages.
        timeout_s: for `hvd.init()`.
        nics: as the user gives them; None: not.
        extra: variables of the user's.

    Raises:
        InvalidArgumentError: a value is wrong.
    """
    parsed = () if nics is None else BY_NAME["network_interfaces"].parse(nics, f"{caller}: nics", coarse=True)
    given = {"start_timeout_s": float(timeout_s), "network_interfaces": tuple(parsed) or None}
    environ = {**os.environ, **extra}
    settings = effective_settings(given, "argument", environ).settings
    for text in (*unknown_variables(environ), *notices(settings)):
        sys.stderr.write(f"{caller}: warning: {text}\n")
    return RankEnvironment(tuple(parsed), {**variables_of(settings), **extra})
