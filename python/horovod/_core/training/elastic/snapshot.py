"""What a commit keeps: `Snapshot`, a deep copy of values as they are at one moment.

It is made into the memory of the snapshot before the last, so that two are there at any time and none is allocated in
the loop. Framework modules say by `register` how tensors of their types are copied: at once; or begun at once and done
by a thread meanwhile, where the framework itself keeps the values of that moment (copy on write) when others change the
tensor. Everything else is copied at once by `copy.deepcopy`.
"""

from __future__ import annotations

import atexit
import copy
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any, Callable, Final, Optional

__all__ = ["Later", "Snapshot", "leaves", "register", "settle"]

# What is left of a copy that has begun.
Later = Callable[[], None]
# (value, old) -> (the copy, what is left to do or None); `old` is an earlier copy whose memory may be used, or None.
# None: as `copy.deepcopy` does it.
Copier = Callable[[Any, Any], Optional[tuple[Any, Optional[Later]]]]
Path = tuple[Any, ...]

_copiers: Final[dict[type, Copier]] = {}
# Those whose copy may still be under way. One at most of each owner, but a state has several.
_under_way: Final[set[Snapshot]] = set()
_work: Optional[queue.SimpleQueue[Later]] = None


def register(kind: type, copier: Copier) -> None:
    """Says how values of exactly this type are copied, wherever they stand in dictionaries, lists and tuples."""
    _copiers[kind] = copier


def leaves(value: Any, path: Path = (), inside: frozenset[int] = frozenset()) -> Iterator[tuple[Path, Any]]:
    """The values of registered types inside dictionaries, lists and tuples, and where they stand.

    `inside`: the containers around the value. One that holds itself is left to `copy.deepcopy`.
    """
    if type(value) in _copiers:
        yield path, value
    elif isinstance(value, (dict, list, tuple)) and id(value) not in inside:
        within = inside | {id(value)}
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if type(item) in _copiers or isinstance(item, (dict, list, tuple)):
                yield from leaves(item, (*path, key), within)


def settle() -> None:
    """Waits until all copies that are under way are done: before something changes what they are made of in place, so
    that this need not be copied a second time."""
    for snapshot in list(_under_way):
        snapshot.wait()


class Snapshot:
    """A deep copy of a value, as it is when this is called.

    Args:
        value: of any type that can be deep-copied.
        before: the owner's last snapshot, which stays as it is; the memory of the one before that is used again.
        instead: by the identity of objects that are not to be copied, their replacements.

    Raises:
        whatever copying raises; from a part in the background `wait` and `value` do.
    """

    def __init__(self, value: Any, before: Optional[Snapshot] = None, instead: Optional[dict[int, Any]] = None) -> None:
        old: dict[Path, Any] = {}
        if before is not None:
            before.wait()
            old = before._retired()
        self._before = before
        self._pins = 0
        self._lock = threading.Lock()  # guards _pins
        self._error: Optional[BaseException] = None
        self._whole: Optional[threading.Event] = None
        self._tensors: dict[Path, Any] = {}
        self._later: list[Later] = []
        self._value = copy.deepcopy(value, {**self._begun(value, old), **(instead or {})})
        if self._later:
            _under_way.add(self)
            self._whole = threading.Event()
            _background().put(self._finish)

    @classmethod
    def holding(cls, value: Any) -> Snapshot:
        """A snapshot that is this value, which nobody else has."""
        made = cls(None)
        made._value = value
        return made

    @property
    def value(self) -> Any:
        """What was copied. Not to be changed."""
        self.wait()
        return self._value

    def wait(self) -> None:
        """Waits until the copy is whole.

        Raises:
            what the background has met with.
        """
        whole = self._whole
        if whole is not None:
            whole.wait()
            self._whole = None
            _under_way.discard(self)
        if self._error is not None:
            raise self._error

    def pin(self, by: int = 1) -> None:
        """Keeps later snapshots from using this one's memory, until `pin(-1)`. On any thread."""
        with self._lock:
            self._pins += by

    def _begun(self, value: Any, old: dict[Path, Any]) -> dict[int, Any]:
        """The copies of the tensors, by the identity of what they are made of, as `copy.deepcopy` wants to know."""
        memo: dict[int, Any] = {}
        for path, tensor in leaves(value):
            if id(tensor) in memo:
                continue
            made = _copiers[type(tensor)](tensor, old.get(path))
            if made is not None:
                memo[id(tensor)] = self._tensors[path] = made[0]
                if made[1] is not None:
                    self._later.append(made[1])
        return memo

    def _finish(self) -> None:
        """In the background."""
        whole = self._whole
        try:
            while self._later:
                self._later.pop()()
        except BaseException as error:
            self._error = error
            self._later.clear()
        finally:
            if whole is not None:
                whole.set()

    def _retired(self) -> dict[Path, Any]:
        """Memory for the next snapshot: that of the one before, which nobody needs any more."""
        retired, self._before = self._before, None
        if retired is None:
            return {}
        with retired._lock:
            return {} if retired._pins else retired._tensors


def _background() -> queue.SimpleQueue[Later]:
    """What is put there is done by a thread, which is started the first time: a start costs what a copy does."""
    global _work
    if _work is None:
        work: queue.SimpleQueue[Later] = queue.SimpleQueue()
        _work = work
        threading.Thread(target=_do, args=(work,), name="horovod-commit", daemon=True).start()
    return _work


def _do(work: queue.SimpleQueue[Later]) -> None:
    while True:
        work.get()()


def _forget() -> None:
    """In a forked child, which has no thread."""
    global _work
    _work = None
    _under_way.clear()


# A thread that is in a framework when Python ends would end in its memory.
atexit.register(settle)
os.register_at_fork(after_in_child=_forget)
