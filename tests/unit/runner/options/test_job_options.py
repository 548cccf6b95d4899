"""The options that a program gives a job by keyword: all come from the table of settings, `horovod.run`'s too."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest

import horovod
from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import SETTINGS
from horovod.runner.function import OF_THE_CALL
from horovod.runner.job import effective_settings
from horovod.runner.options.job_options import BY_KEYWORD, values_of

# The type that a keyword's annotation must have, by the kind of its setting.
TYPES = {
    "bool": "bool",
    "float": "float",
    "int": "int",
    "int_or_auto": "int",
    "int_pair": "Sequence[int]",
    "names": "Sequence[str]",
    "text": "str",
}


def test_the_keywords_of_run_are_those_of_the_table() -> None:
    parameters = inspect.signature(horovod.run).parameters
    assert set(parameters) == {*OF_THE_CALL, *BY_KEYWORD}
    documented = set(re.findall(r"\w+", (inspect.getdoc(horovod.run) or "").partition("Args:")[2].partition(":\n")[0]))
    for keyword, setting in BY_KEYWORD.items():
        parameter = parameters[keyword]
        assert TYPES[setting.kind] in str(parameter.annotation), keyword
        assert parameter.default is None or keyword == "num_proc", keyword
        assert keyword in documented, keyword


def test_no_keyword_means_two_settings() -> None:
    every = [name for setting in SETTINGS if setting.keyword for name in (setting.keyword, *setting.old_keywords)]
    assert len(every) == len(set(every)) == len(BY_KEYWORD)
    assert not any(setting.old_keywords for setting in SETTINGS if not setting.keyword)


def test_values_are_parsed_and_none_is_absent() -> None:
    given = {"num_proc": "3", "ssh_port": None, "network_interfaces": ["a", "b"], "slots": 2}
    assert values_of("f", given) == {"num_proc": 3, "network_interfaces": ("a", "b"), "slots_per_host": 2}
    with pytest.raises(InvalidArgumentError, match="^f: ssh_port must be an integer"):
        values_of("f", {"ssh_port": "x"})
    with pytest.raises(TypeError, match=r"f\(\) has no argument 'host'. Did you mean hosts"):
        values_of("f", {"host": "a"})


def test_an_old_keyword_counts_and_is_remarked_upon() -> None:
    with pytest.warns(DeprecationWarning, match="^f: np is deprecated; use num_proc.$"):
        assert values_of("f", {"num_proc": 1, "np": 2}) == {"num_proc": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert values_of("f", {"num_proc": 1, "np": None}) == {"num_proc": 1}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"hosts": "a:1", "hostfile": "f"}, "hosts and hostfile"),
        ({"hosts": "a:1", "host_discovery_script": "f"}, "hosts and host_discovery_script"),
        ({"use_gloo": True, "use_mpi": True}, "use_gloo and use_mpi"),
        ({"use_mpi": True, "use_jsrun": True}, "use_mpi and use_jsrun"),
    ],
)
def test_what_flags_exclude_values_exclude(values: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{named} exclude each other; give one of them.$"):
        effective_settings(values, "argument", {})
    effective_settings({**values, next(iter(values)): None}, "argument", {})
