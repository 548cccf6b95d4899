"""--jsrun: the rank file, the line, what is refused. No LSF can run here: its allocation is one that was recorded."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.settings import Settings
from horovod.runner.job import Job, effective_settings, make_job
from horovod.runner.jsrun import lines, rank_file
from horovod.runner.launchers.choose import choose
from horovod.runner.launchers.jsrun import JsrunLauncher
from horovod.runner.machines.hosts import Host
from horovod.runner.options import flags
from horovod.runner.plan import plan

# Two nodes of 42 cores with 4 threads each, behind a launch node, as IBM's Cluster System Manager gives them.
LSF = {"LSB_JOBID": "7001", "LSB_MCPU_HOSTS": "batch5 1 h30n16 42 h30n17 42 ", "CSM_ALLOCATION_ID": "12"}
SIX_EACH = """\
overlapping-rs: allow
cpu_index_using: logical
rank: 0: { host: h30n16; cpu: {0-83}; gpu: *; mem: * }
rank: 1: { host: h30n16; cpu: {84-167}; gpu: *; mem: * }
rank: 2: { host: h30n17; cpu: {0-167}; gpu: *; mem: * }
"""


def test_ranks_share_the_processors_of_their_host_equally() -> None:
    hosts = [Host("h30n16", 2), Host("h30n17", 1)]
    assert rank_file.text(hosts, {"h30n16": 168, "h30n17": 168}) == SIX_EACH


def test_one_processor_each_and_what_is_left_over() -> None:
    made = rank_file.text([Host("a", 3)], {"a": 5}).splitlines()[2:]
    assert [line.split("cpu: ")[1].split(";")[0] for line in made] == ["{0}", "{1}", "{2}"]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(6, 200)), min_size=1, max_size=4))
def test_no_processor_is_given_twice(shape: list[tuple[int, int]]) -> None:
    hosts = [Host(f"n{number}", ranks) for number, (ranks, _) in enumerate(shape)]
    made = rank_file.text(hosts, {f"n{number}": cpus for number, (_, cpus) in enumerate(shape)})
    given_away: set[tuple[str, int]] = set()
    for line in made.splitlines()[2:]:
        host, cpu = line.split("host: ")[1].split(";")[0], line.split("cpu: {")[1].split("}")[0]
        first, _, last = cpu.partition("-")
        own = {(host, number) for number in range(int(first), int(last or first) + 1)}
        assert own and not own & given_away
        given_away |= own
    assert len(made.splitlines()) == 2 + sum(ranks for ranks, _ in shape)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (Host("z", 1), r"z is not a host of this LSF job, which has a, b; jsrun starts ranks on those only"),
        (Host("a", 9), r"9 ranks on a cannot have a processor each: the job has 8 there"),
    ],
)
def test_ranks_that_have_no_place_are_refused(host: Host, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        rank_file.text([host], {"a": 8, "b": 8})


def test_threads_of_a_core_are_as_lscpu_says() -> None:
    said = "Architecture:        ppc64le\nCPU(s):              176\nThread(s) per core:  4\nCore(s) per socket:  22\n"
    assert rank_file.threads_per_core(said) == 4
    with pytest.raises(InvalidArgumentError, match="does not say how many threads"):
        rank_file.threads_per_core("CPU(s): 3\nThread(s) per core: -\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "jsrun --erf_input FILE train -x"),
        ({"binding_args": "-n 2 -a 1 -c ALL_CPUS"}, "jsrun -n 2 -a 1 -c ALL_CPUS train -x"),
        ({"mpi_args": "-gpu", "tcp": True}, "jsrun --erf_input FILE --smpiargs '-tcp -gpu' train -x"),
        (
            {"output_filename": "out"},
            "jsrun --erf_input FILE --stdio_stdout out/stdout --stdio_stderr out/stderr train -x",
        ),
    ],
)
def test_the_line(given: dict[str, Any], expected: str) -> None:
    assert shlex.join(lines.line("jsrun", "FILE", ("train", "-x"), Settings([("flag", given)]))) == expected


def job(words: str, environ: dict[str, str]) -> Job:
    parsed = flags.parse(shlex.split(words))
    return make_job(effective_settings(parsed.values, "flag", environ), parsed.command, environ, "/")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with a jsrun."""
    program = tmp_path / "jsrun"
    program.write_text("#!/bin/sh\n")
    program.chmod(stat.S_IRWXU)
    return f"{tmp_path}:/bin:/usr/bin"


def test_a_dry_run_shows_the_ranks_of_the_allocation_and_the_line(path: str) -> None:
    planned = job("--jsrun -np 84 true", {"PATH": path, **LSF})
    assert isinstance(choose(planned), JsrunLauncher)
    text = plan(planned, JsrunLauncher().stations(planned), {})
    assert "h30n16: ranks 0-41" in text and "h30n17: ranks 42-83" in text, text
    assert "jsrun --erf_input ranks.erf" in text
    assert "HOROVOD_EXPECTED_SIZE" in text and "HOROVOD_RANK" not in text and "SECRET" not in text
    assert planned.environ["HOROVOD_CONTROLLER"] == "mpi"


@pytest.mark.parametrize(
    ("words", "environ", "message"),
    [
        (
            "-np 2 --jsrun true",
            {},
            "The job cannot be started. --jsrun starts ranks in an LSF job, and this process is not in one (LSB_",
        ),
        (
            "--jsrun true",
            {**LSF, "PATH": "/no"},
            "--jsrun needs jsrun of IBM's Job Step Manager, which is not in PATH",
        ),
        (
            "--jsrun --ranks 0 true",
            LSF,
            "--ranks does not work with --jsrun: jsrun prints the output of all ranks",
        ),
        ("--jsrun --stdin-rank 0 true", LSF, "--stdin-rank does not work with --jsrun"),
        ("--jsrun --metrics-port 9400 true", LSF, "--metrics-port does not work with --jsrun"),
        ("--jsrun --prefix-output-with-timestamp true", LSF, "--prefix-output-with-timestamp does not work"),
        ("--jsrun -np 85 true", LSF, "85"),
    ],
)
def test_jobs_that_jsrun_cannot_start(words: str, environ: dict[str, str], message: str, path: str) -> None:
    with pytest.raises(HorovodError) as caught:
        choose(job(words, {"PATH": path, **environ}))
    assert message in str(caught.value)


def test_words_for_jsrun_are_no_words_without_effect(path: str) -> None:
    assert not job("--jsrun --mpi-args x --binding-args y true", {"PATH": path, **LSF}).remarks
