"""Skips for what is not installed."""

from __future__ import annotations

import importlib.util

import pytest


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skips a test whose jobs import these modules, where one is not installed.

    `pytest.importorskip` would import them into every process of the suite, because each reads all test files; for
    TensorFlow and Keras that takes ten seconds.
    """
    missing = [module for module in modules if not importlib.util.find_spec(module)]
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} is not installed.")
