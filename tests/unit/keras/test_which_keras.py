"""Which Keras is chosen, with modules made up: no framework is imported."""

from __future__ import annotations

import pathlib
import runpy
import sys
import types
from typing import Any, Optional

import pytest

INSTALLED = str(pathlib.Path(__file__).parents[3] / "python" / "horovod" / "keras" / "installed.py")


def chosen(
    monkeypatch: pytest.MonkeyPatch, keras: str, tf_keras: Optional[str] = None, flag: Optional[str] = None
) -> dict[str, Any]:
    """The contents of the module where these versions are installed and TF_USE_LEGACY_KERAS has this value."""
    modules = {"keras": keras, "tf_keras": tf_keras}
    for name, version in modules.items():
        made = None if version is None else types.SimpleNamespace(__name__=name, __version__=version)
        monkeypatch.setitem(sys.modules, name, made)  # None: an import of it fails
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    if flag is not None:
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", flag)
    return runpy.run_path(INSTALLED)


@pytest.mark.parametrize(
    ("versions", "flag", "name", "is_2"),
    [
        (("3.15.1", "2.21.0"), None, "keras", False),
        (("3.15.1", "2.21.0"), "0", "keras", False),
        (("3.15.1", "2.21.0"), "1", "tf_keras", True),
        (("3.15.1", "2.21.0"), "True", "tf_keras", True),
        (("2.13.1", None), None, "keras", True),
        (("2.15.0", "2.15.1"), "true", "tf_keras", True),
    ],
)
def test_the_one_that_tensorflow_takes(
    versions: tuple[str, Optional[str]], flag: Optional[str], name: str, is_2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(monkeypatch, *versions, flag)
    assert found["keras"].__name__ == name and found["KERAS_2"] is is_2


def test_what_is_asked_for_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match="TF_USE_LEGACY_KERAS.*pip install tf_keras"):
        chosen(monkeypatch, "3.15.1", None, "1")


def test_a_keras_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match=r"keras 2\.12\.0 is installed.*Remedy"):
        chosen(monkeypatch, "2.12.0")
