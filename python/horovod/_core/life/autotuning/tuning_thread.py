"""Autotune at work: a thread of rank 0 that measures steps, changes the parameters of all ranks, and writes the log.

Used by `autotune`, which imports it when somebody wants to be tuned. What to try and what to keep is decided in
`horovod._core.tuning`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from pathlib import Path
from typing import IO, Final, Optional

from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.life.autotuning import parameters
from horovod._core.life.session import Session
from horovod._core.tuning import log
from horovod._core.tuning.parameters import Parameters
from horovod._core.tuning.sampling import Count, Sampler
from horovod._core.tuning.search import library_problem
from horovod._core.tuning.space import Space, free_dimensions
from horovod._core.tuning.tuner import Effort, Tuner

_FOR_EVER_S: Final = 1e9
_END_S: Final = 2.0
_log: Final = logging.getLogger("horovod")


def start(session: Session) -> Optional[TuningThread]:
    """Begins to tune; None where nothing can be tuned.

    Raises:
        InvalidArgumentError: the log cannot be written.
    """
    dimensions = free_dimensions(session.settings, (session.size, session.local_size, session.cross_size))
    if not dimensions:
        why = "there is one rank" if session.size == 1 else "every parameter was set"
        _say(f"it has nothing to tune: {why}")
        return None
    if problem := library_problem():
        _log.warning("The job runs without autotune, with its initial parameters: %s.", problem)
        return None
    names = tuple(one.name for one in dimensions)
    thread = TuningThread(session, Space(parameters.in_force(), dimensions), names)
    thread.start()
    return thread


class TuningThread:
    """See the head of the file.

    Args:
        session: of rank 0.
        space: what may be tried.
        names: of the parameters that may.
    """

    def __init__(self, session: Session, space: Space, names: tuple[str, ...]) -> None:
        settings = session.settings
        self._engine = session.engine
        self._names = names
        self._cache = settings.cache_capacity != 0
        self._ways = session.cross_size > 1 and session.local_size > 1
        effort = Effort(
            settings.autotune_warmup_samples,
            settings.autotune_bayes_opt_max_samples,
            settings.autotune_gaussian_process_noise,
        )
        self._tuner = Tuner(space, effort)
        self._sampler = Sampler(self._await_steps, parameters.in_force, settings.autotune_steps_per_sample)
        self._file = _opened(settings.autotune_log) if settings.autotune_log else None
        self._reported = False
        self._thread = threading.Thread(target=self._tune, name="horovod-autotune", daemon=True)

    def start(self) -> None:
        """Begins to measure."""
        self._thread.start()

    def stop(self) -> None:
        """After the engine's end, which has woken the thread."""
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)
        if not self._reported:
            self._tell_what_is_known()
        if self._file is not None and not self._thread.is_alive():
            self._file.close()

    def _tune(self) -> None:
        tuner = self._tuner
        try:
            while not tuner.finished:
                parameters.change(tuner.trying)
                score = self._sampler.sample(tuner.trying)
                self._write(tuner.trying, score)
                tuner.take(score)
            parameters.change(tuner.trying)
        except HorovodError as error:  # the engine has ended, or the job has failed and says so elsewhere
            return _log.debug("Autotune ends: %s", error)
        if tuner.score is not None:
            self._write(tuner.trying, tuner.score)
        self._reported = True
        kept, so_many = log.variables(tuner.trying, self._names), f"after {tuner.samples} samples"
        if tuner.trying == tuner.start:
            return _say(f"{so_many} it stays at {kept}, where the job started: nothing is faster here")
        return _say(
            f"{so_many} it keeps {kept} ({tuner.gain:+.1%} bytes per second against the start). Start the next job "
            "with these variables, and without autotune"
        )

    def _tell_what_is_known(self) -> None:
        tuner = self._tuner
        best = tuner.best_so_far()
        if best is not None:
            _say(f"the job has ended after {tuner.samples} samples; the best were {log.variables(best, self._names)}")
        elif tuner.samples:
            _say(f"the job has ended after {tuner.samples} samples, too few to compare two ways")
        else:
            _say(
                "it has taken no sample: the job was too short, or has only operations without a name, which do not "
                "show where a step begins"
            )

    def _await_steps(self, steps: int) -> Count:
        return Count(*self._engine.tuning.await_steps(steps, _FOR_EVER_S))

    def _write(self, point: Parameters, score: float) -> None:
        if self._file is None:
            return
        try:
            self._file.write(log.row(point, score, self._cache, self._ways) + "\n")
            self._file.flush()
        except OSError as error:  # a full disk; the search goes on
            _log.warning("The autotune log cannot be written: %s", error)
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _opened(path: str) -> IO[str]:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "w", encoding="ascii")  # noqa: SIM115 - as long as the search
        file.write(log.HEADER + "\n")
        file.flush()
    except OSError as error:
        raise InvalidArgumentError(
            f"HOROVOD_AUTOTUNE_LOG (--autotune-log-file) {os.fspath(path)} cannot be written on rank 0: "
            f"{error.strerror}; name a file where there is room and which this user may write."
        ) from error
    return file


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"[rank 0] autotune: {text}.\n")
        sys.stderr.flush()
