"""The names of the port are those of the C interface, and both engines have its methods."""

from __future__ import annotations

import inspect

from fakes.engine import FakeEngine

from horovod._core.life import engine_port
from horovod._native import abi
from horovod._native.engine import Engine


def test_a_type_is_the_place_of_its_name() -> None:
    assert list(abi.ENUMS["hvd_op_type"].values()) == list(range(len(engine_port.OP_NAMES)))
    for number, name in enumerate(engine_port.OP_NAMES):
        assert getattr(engine_port, name.upper()) == number


def test_both_engines_have_every_method() -> None:
    methods = [name for name, _ in inspect.getmembers(engine_port.EnginePort, inspect.isfunction) if name[0] != "_"]
    assert len(methods) > 15
    for name in methods:
        expected = list(inspect.signature(getattr(engine_port.EnginePort, name)).parameters)
        for engine in (Engine, FakeEngine):
            assert list(inspect.signature(getattr(engine, name)).parameters) == expected, (engine, name)
