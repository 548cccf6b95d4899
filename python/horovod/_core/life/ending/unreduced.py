"""Whether this rank has trained without the others, which is mostly a forgotten `DistributedOptimizer`; said once, when
the process ends.

A framework counts the first steps of its plain optimizers. From the first of them on the engine's record of finished
operations must hold nothing but barriers and joins: whatever else the program exchanges may be how it combines what the
ranks learn. So nothing is counted where operations are submitted. Rank 1 says it, because rank 0 may train alone on
purpose. Nothing is said after an exception, and with HOROVOD_CHECK_PARAMETERS=0.
"""

from __future__ import annotations

import atexit
import logging
import sys
from typing import Final, Optional

from horovod._core.errors import HorovodError
from horovod._core.life import session
from horovod._core.life.ending import last_words
from horovod._core.life.engine_port import BARRIER, JOIN, OP_NAMES

__all__ = ["STEPS", "PlainTraining", "others_combine"]

STEPS: Final = 10
_SPEAKER: Final = 1  # the rank
_HARMLESS: Final = (OP_NAMES[BARRIER], OP_NAMES[JOIN])

# Libraries that may combine gradients themselves.
_OTHERS: Final = ("mpi4py", "torch_xla", "byteps", "bagua")

_log: Final = logging.getLogger("horovod")


def others_combine() -> bool:
    """True if this process may combine gradients by something else than Horovod: DDP, FSDP and DeepSpeed use
    torch.distributed."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return True
    return any(name in sys.modules for name in _OTHERS)


class PlainTraining:
    """Steps of optimizers that combine nothing, on this rank, over all sessions.

    Args:
        whose: "PyTorch's", for the message.
        remedy: what to do, for the message.
    """

    def __init__(self, whose: str, remedy: str) -> None:
        self._whose = whose
        self._remedy = remedy
        self._steps: dict[str, int] = {}
        self._trained = ""  # the class of an optimizer that has made STEPS steps
        self._size = 1
        self._before: Optional[int] = None  # operations that had finished before the first step in this session
        self._is_excused = False

    def wants_steps(self) -> bool:
        """True if the steps of this session are to be counted."""
        current = session.current
        if current is None or current.size < 2 or current.rank != _SPEAKER or self._is_excused or self._trained:
            return False
        return bool(current.settings.check_parameters != 0)

    def count(self, kind: str) -> bool:
        """An optimizer of this class has stepped.

        Returns:
            False if no more steps need be counted.
        """
        current = session.current
        if current is None:
            return True  # after a shutdown this process may do what it likes
        if others_combine():
            self._is_excused = True
        if not self._steps:
            atexit.register(self.remark)  # runs before the engine is shut down: that was registered earlier
            session.on_end.append(self._look)
        if self._before is None:
            self._size = current.size
            self._before = _last(current)
        self._steps[kind] = self._steps.get(kind, 0) + 1
        if self._steps[kind] == STEPS:
            self._trained = kind
        return not self._trained and not self._is_excused

    def excuse(self) -> None:
        """Something else combines what the ranks learn, or may do so."""
        self._is_excused = True

    def remark(self) -> None:
        """The process ends."""
        if session.current is not None:
            self._look(session.current)
        if not self._trained or self._is_excused or others_combine():
            return
        if not session.forked and not last_words.now():
            _log.warning(
                "%s %s has made %d steps or more, and no gradient was reduced over the %d ranks: each trains a model "
                "of its own. %s (If this is intended, HOROVOD_CHECK_PARAMETERS=0 turns this warning off.)",
                self._whose, self._trained, STEPS, self._size, self._remedy,
            )  # fmt: skip

    def _look(self, ending: session.Session) -> None:
        """A session ends: excuses what has exchanged something in it since the first step."""
        before, self._before = self._before if self._before is not None else 0, None
        if self._steps and not self._is_excused and ending.size > 1:
            self._is_excused = _has_exchanged(ending, before)


def _finished(current: session.Session) -> Optional[list[dict[str, object]]]:
    """The last operations that have ended on this rank, oldest first; None: the engine does not say."""
    import json  # few programs come here

    try:
        return list(json.loads(current.engine.dumps.text())["finished"])
    except (HorovodError, ValueError, KeyError):
        return None


def _last(current: session.Session) -> int:
    """How many operations have ended on this rank."""
    ended = _finished(current)
    return int(str(ended[-1]["number"])) if ended else 0


def _has_exchanged(current: session.Session, before: int) -> bool:
    """True if an operation after this many may have exchanged something, or if that is not known."""
    ended = _finished(current)
    if ended is None:
        return True
    later = [entry for entry in ended if int(str(entry["number"])) > before]
    is_whole = not ended or int(str(ended[0]["number"])) <= before + 1
    return not is_whole or any(entry["operation"] not in _HARMLESS for entry in later)
