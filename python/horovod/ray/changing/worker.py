"""The actor that is a worker of an elastic job: one call of the user's function, from its start to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from horovod._core.life import membership
from horovod._core.life.ending import last_words
from horovod.ray import here, ray_logger
from horovod.ray.changing.roster import ActorRoster, Question, Word
from horovod.ray.crew import Call
from horovod.ray.placing import Facts


class Made(NamedTuple):
    """The object that each worker makes before it calls the function; None: none."""

    cls: Optional[type] = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}


class Returned(NamedTuple):
    """The function has returned this."""

    value: Any


class Lost(NamedTuple):
    """It has ended because another rank was lost, and not by a mistake of its own: the error, in words."""

    why: str


class ElasticWorker:
    """See the head of the file. Ray shows its `repr` in errors. While `run` is at work, the other methods are called on
    threads of their own.

    Args:
        number: of the worker.
        nics: network interfaces for traffic between nodes.
    """

    def __init__(self, number: int, nics: Sequence[str]) -> None:
        self._number = number
        self._roster = ActorRoster(nics)

    def __repr__(self) -> str:
        return self._roster.title or f"worker {self._number} without a rank"

    def facts(self) -> Facts:
        """See `here`."""
        return here.facts()

    def question(self, patience_s: float) -> Optional[Question]:
        """What this worker asks next; None: nothing within this time."""
        return self._roster.question(patience_s)

    def hear(self, word: Word) -> None:
        """The driver says this."""
        self._roster.take(word)

    def run(self, environ: Mapping[str, str], made: Made, call: Call, queue: Optional[Any]) -> Union[Returned, Lost]:
        """Makes the object and calls the function.

        Args:
            environ: variables that it sets before.
            made, call: see there.
            queue: for `ray_logger`; None: there are no callbacks.

        Raises:
            RuntimeError: the function has ended with a code. What it raises, but for the loss of another rank.
        """
        here.set_variables(environ)
        membership.enroll(self._number, self._roster)
        ray_logger.configure(ray_logger.OfRank0(lambda: self._roster.rank, queue))
        try:
            own = () if not call.is_for_object else (None if made.cls is None else made.cls(*made.args, **made.kwargs),)
            value = call.fn(*own, *call.args, **call.kwargs)
            here.end()
            return Returned(value)
        except SystemExit as error:
            here.end()
            if error.code in (None, 0):  # also of a worker for which there is no place any more
                return Returned(None)
            raise RuntimeError(f"the function has called sys.exit({error.code!r})") from None
        except BaseException as error:
            here.leave(error)
            if last_words.is_loss_of_another_rank(error):
                return Lost(" ".join(f"{type(error).__name__}: {error}".split()))
            raise
