"""What `horovod.run` says of a call that cannot be made, before anything starts."""

from __future__ import annotations

import functools
import pickle
import threading
from collections.abc import Iterator
from typing import Any, Callable

import pytest

import horovod
from horovod._core.errors import InvalidArgumentError
from horovod.runner.function_call import checked

LOCK = threading.Lock()


class Loader:
    def __init__(self) -> None:
        self.parts = {"lock": LOCK}

    def load(self) -> None:
        pass


LOADER = Loader()


def plain(a: int, b: int = 2) -> int:
    return a + b


def reads_a_global() -> object:
    return LOADER


def reads_a_closure() -> Callable[[], object]:
    guard = [1, LOCK]
    return lambda: guard


async def coroutine() -> None:
    pass


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((None, (), {}), "func is None, which cannot be called. Pass the function, not what it returns"),
        (("train.py", (), {}), "func is a str, .* horovodrun -np 2 python train.py"),
        ((coroutine, (), {}), r"calling coroutine\(\) runs nothing, it makes a coroutine"),
        ((generator, (), {}), r"calling generator\(\) runs nothing, it makes a generator"),
        ((plain, 5, {}), r"args is an int, not a tuple .* args=\(value,\)"),
        ((plain, "ab", {}), "args is a str, not a tuple"),
        ((plain, {"a": 1}, {}), "args is a dict, not a tuple"),
        ((plain, (1,), [2]), "kwargs is a list, not a dictionary"),
        ((plain, (), {}), r"plain\(\) cannot be called .*: missing a required argument: 'a'"),
        ((plain, (1, 2, 3), {}), r"plain\(\) cannot be called .*: too many positional arguments"),
        ((plain, (1,), {"c": 1}), r"plain\(\) cannot be called .*: got an unexpected keyword argument 'c'"),
    ],
)
def test_a_call_that_cannot_be_made(given: tuple[Any, Any, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"horovod.run: {words}"):
        checked(*given)


@pytest.mark.parametrize(
    ("func", "args", "words"),
    [
        (plain, (1, [LOCK]), r"args\[1\], its item 0 \(a lock\)"),
        (
            lambda: LOADER,
            (),
            r"the variable 'LOADER' of <lambda>\(\), its attribute 'parts', its item 'lock' \(a lock\)",
        ),
        (reads_a_closure(), (), r"the variable 'guard' of <lambda>\(\), its item 1 \(a lock\)"),
        (LOADER.load, (), r"the object of Loader.load\(\), its attribute 'parts', its item 'lock' \(a lock\)"),
        (functools.partial(plain, LOCK), (), r"the bound argument 0 .*\(a lock\)"),
    ],
)
def test_what_cannot_be_pickled_is_named(func: Callable[..., Any], args: tuple[Any, ...], words: str) -> None:
    if func is not plain and not isinstance(func, functools.partial) and func.__name__ == "<lambda>":
        func.__module__ = "__main__"  # as in a notebook: pickled by value
    with pytest.raises(
        InvalidArgumentError, match=f"horovod.run: {words} cannot be pickled: .*make such an object inside"
    ):
        checked(func, args, {}).payload()


def test_a_call_that_can_be_made_is_shipped_whole() -> None:
    payload = checked(plain, [1], {"b": 5}).payload()
    size = int.from_bytes(payload[:8], "little")
    func, args, kwargs = pickle.loads(payload[8 + size :])
    assert func(*args, **kwargs) == 6
    checked(max, (1, 2), {}).payload()  # a function of C's


def test_mistakes_are_reported_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horovod.runner.function.make_job", lambda *given: pytest.fail("a job was made"))
    with pytest.raises(InvalidArgumentError, match="args is an int"):
        horovod.run(plain, args=5)  # type: ignore[arg-type]
