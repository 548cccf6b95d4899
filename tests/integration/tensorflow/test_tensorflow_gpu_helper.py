"""The helper that tells the stream of TensorFlow's operators on a GPU: what refuses to build it, to load it and to use
it. That it answers is shown in test_tensorflow_gpu.py."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from jobs.needs import needs

pytestmark = [needs("tensorflow"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_a_compiler_the_program_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    from horovod import __main__ as program

    monkeypatch.setenv("PATH", str(home))
    assert program.main(["build-tensorflow-gpu"]) == 1
    assert "there is no C++ compiler (c++, g++, clang++) in PATH" in capsys.readouterr().err


def test_a_header_that_has_gone_is_reported_and_nothing_is_kept(home: Path) -> None:
    from horovod.tensorflow.gpu import helper

    with pytest.raises(RuntimeError, match=r"fails on the headers of TensorFlow .*gone\.h"):
        helper.build(["-include", "gone.h"])
    assert helper.found() is None and not list((home / ".cache" / "horovod").iterdir())


def test_a_helper_that_others_may_write_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod._core.life import session
    from horovod.tensorflow.gpu import device_memory, helper

    path = helper._path()
    path.parent.mkdir(parents=True)
    path.touch()
    path.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="chmod 700"):
        helper.found()
    with pytest.raises(PermissionError, match="chmod 700"):
        helper.build()
    monkeypatch.setattr(session, "current", SimpleNamespace())
    assert "chmod 700" in device_memory.take(0)


def test_one_rank_of_a_host_says_once_a_life_what_to_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import tensorflow as tf

    from horovod._core.life import session
    from horovod.tensorflow.gpu import device_memory

    lives = [
        SimpleNamespace(local_rank=rank, settings=SimpleNamespace(gpu_operations=way))
        for rank, way in ((0, None), (1, None), (0, "gloo"))
    ]
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [SimpleNamespace(name="/physical_device:GPU:3")])
    for life in lives:
        monkeypatch.setattr(session, "current", life)
        with caplog.at_level(logging.WARNING, "horovod"):
            device_memory.make_ready()
            device_memory.make_ready()
    (said,) = caplog.messages
    assert "run python -m horovod build-tensorflow-gpu on all hosts" in said
