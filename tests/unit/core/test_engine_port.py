"""The numbers of the port are those of the C interface, and both engines have its methods."""

from __future__ import annotations

import inspect

from fake_engine import FakeEngine

from horovod._core.life import engine_port
from horovod._native import abi
from horovod._native.engine import Engine


def test_numbers() -> None:
    status = abi.ENUMS["hvd_status"]
    assert (status["OK"], status["IN_PROGRESS"]) == (engine_port.OK, engine_port.IN_PROGRESS)
    ops = abi.ENUMS["hvd_op_type"]
    assert [name.upper() for name in engine_port.OP_NAMES] == list(ops)
    assert [getattr(engine_port, name) for name in ops] == list(ops.values())


def test_both_engines_have_every_method() -> None:
    methods = [name for name, _ in inspect.getmembers(engine_port.EnginePort, inspect.isfunction) if name[0] != "_"]
    assert len(methods) > 15
    for name in methods:
        expected = list(inspect.signature(getattr(engine_port.EnginePort, name)).parameters)
        for engine in (Engine, FakeEngine):
            assert list(inspect.signature(getattr(engine, name)).parameters) == expected, (engine, name)
