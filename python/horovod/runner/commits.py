"""Checks, before a rank starts, whether a job can write the durable commits that its settings ask for.

Used by `cli` and `function`. The question is the ranks' own (`horovod._core.commits`), as far as the launcher can know.
"""

from __future__ import annotations

import os
import sys

from horovod._core.errors import InvalidArgumentError
from horovod.runner.job import Job
from horovod.runner.machines.this_host import is_local
from horovod.runner.processes.command import executable


def refuse_impossible(job: Job) -> None:
    """Refuses settings of durable commits that no rank could follow.

    Raises:
        InvalidArgumentError: the folder, the URL or the file with the key cannot be used.
        UnsupportedError: a URL, and fsspec is not installed.
    """
    if job.settings.elastic_commit_dir is None:
        return
    from horovod._core.commits import choice  # other jobs do without

    names = {slot.hostname for slot in job.slots} | {host.hostname for host in job.hosts}
    here = not job.settings.host_discovery_script and all(map(is_local, names))
    choice.refuse_impossible(job.settings, here, _have_this_python(job))


def _have_this_python(job: Job) -> bool:
    """The ranks' program lies beside this Python, so it is one with the same packages, or a script of theirs."""
    try:
        program, _ = executable(job.command, job.environ.get("PATH"), job.cwd)
    except InvalidArgumentError:  # which the launcher says by itself
        return False
    return os.path.dirname(os.path.abspath(program)) == os.path.dirname(sys.executable)
