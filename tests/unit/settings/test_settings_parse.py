"""Parsing of settings: texts of the environment to values, and the errors that go with them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core import settings as table
from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import BY_ENV, SETTINGS, Settings, from_environ

GOOD = [
    ("HOROVOD_CYCLE_TIME", "0.5", "cycle_time_ms", 0.5),
    ("HOROVOD_CYCLE_TIME", " 3 ", "cycle_time_ms", 3.0),
    ("HOROVOD_FUSION_THRESHOLD", "1024", "fusion_threshold_bytes", 1024),
    ("HOROVOD_FUSION_THRESHOLD", "", "fusion_threshold_bytes", 134217728),
    ("HOROVOD_CACHE_CAPACITY", "0", "cache_capacity", 0),
    ("HOROVOD_TIMELINE_MARK_CYCLES", "7", "timeline_mark_cycles", True),
    ("HOROVOD_TIMELINE_MARK_CYCLES", "-1", "timeline_mark_cycles", False),
    ("HOROVOD_DETERMINISTIC", "Yes", "deterministic", True),
    ("HOROVOD_DETERMINISTIC", "off", "deterministic", False),
    ("HOROVOD_HIERARCHICAL_ALLREDUCE", "0", "hierarchical_allreduce", False),
    ("HOROVOD_LOG_LEVEL", "DEBUG", "log_level", "debug"),
    ("HOROVOD_LOG_LEVEL", "WARN", "log_level", "warning"),
    ("HOROVOD_LOG_LEVEL", "warn", "log_level", "warning"),
    ("HOROVOD_LOG_LEVEL", "0", "log_level", "trace"),
    ("HOROVOD_LOG_LEVEL", "5", "log_level", "fatal"),
    ("HOROVOD_STORE_MODE", "streaming", "store_mode", "streaming"),
    ("HOROVOD_THREAD_AFFINITY", "3, 5,7", "thread_affinity", (3, 5, 7)),
    ("HOROVOD_GLOO_TIMEOUT_SECONDS", "90", "collective_timeout_s", 90.0),
    ("HOROVOD_SPIN_US", "-1", "spin_us", -1.0),
    ("HOROVOD_TRANSPORT", "tcp", "transport", "tcp"),
    ("HOROVOD_RESIDENT_GRADIENTS", "0", "resident_gradients", False),
]

BAD = [
    (
        "HOROVOD_CYCLE_TIME",
        "fast",
        "HOROVOD_CYCLE_TIME must be a number of milliseconds >= 0. Received: 'fast'.",
    ),
    ("HOROVOD_CYCLE_TIME", "-1", "HOROVOD_CYCLE_TIME must be a number of milliseconds >= 0. Received: '-1'."),
    ("HOROVOD_CYCLE_TIME", "nan", "HOROVOD_CYCLE_TIME must be a number of milliseconds >= 0. Received: 'nan'."),
    ("HOROVOD_CYCLE_TIME", "(1,)", "HOROVOD_CYCLE_TIME must be a number of milliseconds >= 0. Received: '(1,)'."),
    (
        "HOROVOD_FUSION_THRESHOLD",
        "1.5",
        "HOROVOD_FUSION_THRESHOLD must be an integer number of bytes >= 0. Received: '1.5'.",
    ),
    (
        "HOROVOD_LOG_LEVEL",
        "loud",
        "HOROVOD_LOG_LEVEL must be one of trace, debug, info, warning, error, fatal. Received: 'loud'.",
    ),
    (
        "HOROVOD_DETERMINISTIC",
        "maybe",
        "HOROVOD_DETERMINISTIC must be true or false (an integer > 0 is true). Received: 'maybe'.",
    ),
    (
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        "1.1",
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE must be a number from 0 to 1. Received: '1.1'.",
    ),
    (
        "HOROVOD_THREAD_AFFINITY",
        "1,,2",
        "HOROVOD_THREAD_AFFINITY must be a comma-separated list of core numbers >= 0. Received: '1,,2'.",
    ),
    (
        "HOROVOD_THREAD_AFFINITY",
        "1,-2",
        "HOROVOD_THREAD_AFFINITY must be a comma-separated list of core numbers >= 0. Received: '1,-2'.",
    ),
]


@pytest.mark.parametrize(("variable", "text", "name", "value"), GOOD)
def test_value_of_variable(variable: str, text: str, name: str, value: Any) -> None:
    settings = from_environ({variable: text})
    assert getattr(settings, name) == value
    assert type(getattr(settings, name)) is type(value)


@pytest.mark.parametrize(("variable", "text", "message"), BAD)
def test_error_of_variable(variable: str, text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        from_environ({variable: text})
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


@given(st.sampled_from(sorted(BY_ENV)), st.text(max_size=40))
def test_any_text_is_a_value_or_a_clean_error(variable: str, text: str) -> None:
    try:
        settings = from_environ({variable: text})
    except InvalidArgumentError as error:
        assert str(error).startswith(variable)
    else:
        for value in settings.to_environ().values():
            assert "\0" not in value


@given(st.sampled_from([setting for setting in SETTINGS if setting.env]), st.data())
def test_text_is_the_inverse_of_parse(setting: table.Setting, data: st.DataObject) -> None:
    low = int(setting.minimum or 0)
    high = low + 1000 if setting.maximum is None else min(int(setting.maximum), low + 1000)
    values = {
        "bool": st.booleans(),
        "tristate": st.booleans(),
        "int": st.integers(low, high),
        "float": st.floats(low, high),
        "text": st.text("abc/._-", min_size=1),
        "choice": st.sampled_from(setting.choices or ("",)),
        "cores": st.lists(st.integers(0, 99), min_size=1).map(tuple),
        "names": st.just(("eth0", "eth1")),
        "ranks": st.sets(st.integers(0, 99), min_size=1).map(lambda ranks: tuple(sorted(ranks))),
    }
    value = data.draw(values[setting.kind])
    assert setting.parse(setting.text(value), "x") == value


@pytest.mark.parametrize(
    "setting", [s for s in SETTINGS if s.kind in ("int", "float", "int_or_auto")], ids=lambda setting: setting.name
)
def test_bounds_are_good_values_and_what_lies_beyond_is_none(setting: table.Setting) -> None:
    for bound, step in ((setting.minimum, -1), (setting.maximum, 1)):
        if bound is not None:
            assert setting.parse(setting.text(bound), "x") == bound
            with pytest.raises(InvalidArgumentError):
                setting.parse(setting.text(bound + step), "x")


def test_defaults_of_the_contract() -> None:
    settings = from_environ({})
    expected = {
        "fusion_threshold_bytes": 134217728,
        "cycle_time_ms": 0.0,  # upstream has 1
        "cache_capacity": -1,  # bounded by memory; upstream has 1024
        "stall_warning_s": 60.0,
        "stall_shutdown_s": None,
        "collective_timeout_s": 30.0,
        "start_timeout_s": 30.0,
        "elastic_timeout_s": 600.0,
        "log_level": "warning",
        "batch_d2d_memcopies": True,
        "autotune_warmup_samples": 3,
        "autotune_gaussian_process_noise": 0.8,
    }
    assert {name: getattr(settings, name) for name in expected} == expected


def test_every_default_is_a_value_that_its_setting_takes() -> None:
    for setting in SETTINGS:
        if setting.default is not None:
            assert setting.parse(setting.default, setting.name) == setting.default


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("num_proc", np.int64(2), 2),
        ("cycle_time_ms", np.int32(3), 3.0),
        ("deterministic", np.int64(1), True),
        ("deterministic", np.bool_(True), True),
        ("hierarchical_allreduce", np.bool_(False), False),
        ("thread_affinity", [np.int64(1), 2], (1, 2)),
    ],
)
def test_integers_of_numpy(name: str, given: Any, value: Any) -> None:
    (setting,) = (setting for setting in SETTINGS if setting.name == name)
    assert setting.parse(given, name) == value and type(setting.parse(given, name)) is type(value)


def test_names_flags_and_yaml_keys_are_unique() -> None:
    flags = [name for setting in SETTINGS for flag in setting.flags for name in flag.names]
    paths = [setting.yaml for setting in SETTINGS if setting.yaml]
    keywords = [setting.keyword for setting in SETTINGS if setting.keyword]
    for names in ([setting.name for setting in SETTINGS], flags, paths, keywords):
        assert len(names) == len(set(names))


def test_settings_are_frozen_and_travel_by_pickle() -> None:
    settings = from_environ({"HOROVOD_CYCLE_TIME": "2"})
    with pytest.raises(AttributeError, match="frozen"):
        settings.cycle_time_ms = 3
    with pytest.raises(AttributeError, match="Did you mean cycle_time_ms"):
        _ = settings.cycle_time_s
    assert pickle.loads(pickle.dumps(settings)).cycle_time_ms == 2.0
    assert settings.replace("argument", cycle_time_ms=4.0).cycle_time_ms == 4.0
    assert settings.cycle_time_ms == 2.0


def test_unknown_setting_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidArgumentError, match="no setting 'cycle_time'. Did you mean cycle_time_ms"):
        Settings([("argument", {"cycle_time": 1})])
