"""Opens and closes what shows a job while it runs. Used by `cli` and `function`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from horovod.runner.job import Job
from horovod.runner.showing.desk import Desk


@contextlib.contextmanager
def monitored(job: Job) -> Iterator[Desk]:
    """For its time, the job can be asked how it is; the endpoint for metrics listens if the job wants it.

    Raises:
        InvalidArgumentError: the endpoint is not available.
    """
    desk, settings = Desk(), job.settings
    with contextlib.closing(desk), contextlib.ExitStack() as undo:
        if settings.metrics_port is not None:
            from horovod.runner.showing.endpoint import serving  # few jobs need it

            undo.enter_context(serving(desk, settings.metrics_address, settings.metrics_port))
        yield desk
