"""How flags may be written, and what is said to those who write them as another launcher wants them."""

from __future__ import annotations

from typing import Any

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import SETTINGS
from horovod.runner.job import effective_settings, make_job
from horovod.runner.options import flags


@pytest.mark.parametrize(
    ("line", "values", "command"),
    [
        ("-n 2 x -n 3", {"num_proc": 2}, ("x", "-n", "3")),
        ("-np4 x", {"num_proc": 4}, ("x",)),
        ("-n4 x", {"num_proc": 4}, ("x",)),
        ("-np=4 x", {"num_proc": 4}, ("x",)),
        ("-np auto x", {"num_proc": "auto"}, ("x",)),
        ("-i/home/me/key x", {"ssh_identity_file": "/home/me/key"}, ("x",)),
        ("--num-p 3 x", {"num_proc": 3}, ("x",)),
        ("--fusion 32 --cycle=2 x", {"fusion_threshold_bytes": 32 << 20, "cycle_time_ms": 2.0}, ("x",)),
        ("--verb x --verb", {"verbose": True}, ("x", "--verb")),
        ("--network-interface lo x", {"network_interfaces": ("lo",)}, ("x",)),
    ],
)
def test_short_and_attached_forms(line: str, values: dict[str, Any], command: tuple[str, ...]) -> None:
    found = flags.parse(line.split())
    assert (found.values, found.command) == (values, command)


def test_every_flag_is_itself_although_another_begins_with_it() -> None:
    for setting in SETTINGS:
        for flag in setting.flags:
            for name in flag.names:
                assert flags.split([name])[0][0] == name


@pytest.mark.parametrize(("word", "flag"), [("--check", "--check-build"), ("--reset", "--reset-limit")])
def test_a_beginning_of_upstream_s_flag_means_that_one(word: str, flag: str) -> None:
    assert flags.split([word, "1"])[0][0] == flag


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--ver x", "--ver could be --verbose or --version; write more of it."),
        ("--log-w x", "--log-w could be --log-with-timestamp or --log-without-timestamp; write more of it."),
        ("--nproc-per-node 2 x", "There is no flag --nproc-per-node. Did you mean -np?"),
        ("--nproc_per_node=2 x", "There is no flag --nproc_per_node. Did you mean -np?"),
        ("-P 22 x", "There is no flag -P. Did you mean -p?"),
        (
            "--epochs 3 x",
            "There is no flag --epochs. If it is meant for your program, write it after the program's name.",
        ),
        ("--host a:1 x", "--host could be"),
        ("-np two x", "-np must be an integer number of processes >= 1, or auto. Received: 'two'."),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(line: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        flags.parse(line.split())
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("python mine.py", "Write: horovodrun -np 2 python mine.py"),
        ("python mine.py -np 4 --epochs 3", "Write: horovodrun -np 4 python mine.py --epochs 3"),
        ("mine.py -n 2", "Write: horovodrun -n 2 mine.py"),
        ("python mine.py -n many", "Write: horovodrun -np 2 python mine.py -n many"),
        ("2 python mine.py", "Write: horovodrun -np 2 python mine.py"),
        ("-m mine --epochs 3", "Write: horovodrun -np 2 -m mine --epochs 3"),
        ("-m mine -np 4", "Write: horovodrun -np 4 -m mine"),
    ],
)
def test_a_missing_number_of_processes_is_answered_with_the_line_to_write(line: str, remedy: str) -> None:
    parsed = flags.parse(line.split())
    with pytest.raises(InvalidArgumentError, match="The number of processes is missing") as caught:
        make_job(effective_settings(parsed.values, "flag", {}), parsed.command, {}, "/")
    assert str(caught.value).endswith(remedy)


@pytest.mark.parametrize(
    ("line", "environ", "size"),
    [
        ("-np auto -H localhost:3,a:2 x", {"CUDA_VISIBLE_DEVICES": "0"}, 5),
        ("-np auto x", {"CUDA_VISIBLE_DEVICES": "0,1,GPU-7"}, 3),
    ],
)
def test_automatic_number_of_ranks(line: str, environ: dict[str, str], size: int) -> None:
    parsed = flags.parse(line.split())
    assert make_job(effective_settings(parsed.values, "flag", {}), parsed.command, environ, "/").size == size
