"""--mpi: which mpirun it is, the line that it gets, what is refused."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import horovod
from horovod._core.errors import HorovodError, InvalidArgumentError, UnsupportedError
from horovod._core.settings import Settings
from horovod.runner.job import Job, effective_settings, make_job
from horovod.runner.launchers.choose import choose
from horovod.runner.launchers.mpirun import MpirunLauncher
from horovod.runner.machines.hosts import Host
from horovod.runner.mpi import kinds, limits, lines
from horovod.runner.mpi.kinds import Implementation, implementation
from horovod.runner.mpi.lines import Wanted, exported, host_file, line, ssh_options
from horovod.runner.options import flags
from horovod.runner.plan import plan

OPEN_4, OPEN_5 = Implementation(kinds.OPEN_MPI, (4, 1, 8)), Implementation(kinds.OPEN_MPI, (5, 0, 11))
SPECTRUM = Implementation(kinds.SPECTRUM_MPI, (10, 3, 0))
MPICH, INTEL = Implementation(kinds.MPICH, (5, 0, 2)), Implementation(kinds.INTEL_MPI, (2021, 18, 1))
ALL = (OPEN_4, OPEN_5, SPECTRUM, MPICH, INTEL)
HERE = (Host("localhost", 2),)
TWO = (Host("a", 2), Host("b", 1))


def of(mpi: Implementation, hosts: tuple[Host, ...] = HERE, variables: tuple[str, ...] = (), **given: Any) -> str:
    wanted = Wanted("mpirun", hosts, ("train", "-x"), variables, "FILE")
    return shlex.join(line(wanted, Settings([("flag", given)]), mpi))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mpirun (Open MPI) 4.1.8\n\nReport bugs to http://www.open-mpi.org/community/help/\n", OPEN_4),
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n", OPEN_5),
        ("warning: x\norterun (OpenRTE) 3.1.6\n", Implementation(kinds.OPEN_MPI, (3, 1, 6))),
        ("mpirun (Open MPI) 5.1.0a1\n", Implementation(kinds.OPEN_MPI, (5, 1, 0))),
        ("mpirun (IBM Spectrum MPI) 10.3.0.01rtm3\n", Implementation(kinds.SPECTRUM_MPI, (10, 3, 0, 1))),
        ("HYDRA build details:\n    Version:                                 5.0.2\n    CC:  cc\n", MPICH),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n", INTEL),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2019 Update 9 Build 20200923\n",
            Implementation(kinds.INTEL_MPI, (2019,)),
        ),
    ],
)
def test_the_implementation_is_known_by_its_version(text: str, expected: Implementation) -> None:
    assert implementation(text) == expected


def test_another_mpirun_is_refused() -> None:
    with pytest.raises(
        UnsupportedError,
        match=r"/bin/mpirun belongs to none of the supported MPIs .* --version says 'mpirun \(Other\) 1.0'",
    ):
        implementation("mpirun (Other) 1.0\n", "/bin/mpirun")


@given(st.text(max_size=200))
def test_any_text_is_an_implementation_or_refused(text: str) -> None:
    for begin in ("", "mpirun (Open MPI) ", "HYDRA build details:\n Version: "):
        try:
            assert implementation(begin + text).version
        except UnsupportedError as error:
            assert "belongs to none of the supported MPIs" in str(error)


@pytest.mark.parametrize(
    ("mpi", "expected"),
    [
        (OPEN_4, "mpirun --tag-output -np 2 -H localhost:2 --bind-to none --map-by slot train -x"),
        (OPEN_5, "mpirun --output rank -np 2 -H localhost:2 --bind-to none --map-by slot train -x"),
        (SPECTRUM, "mpirun --tag-output -np 2 -H localhost:2 --bind-to socket --map-by socket train -x"),
        (MPICH, "mpirun -prepend-rank -np 2 -machinefile FILE train -x"),
        (INTEL, "mpirun -prepend-rank -np 2 -machinefile FILE train -x"),
    ],
)
def test_the_line_of_a_job_on_one_host(mpi: Implementation, expected: str) -> None:
    assert of(mpi) == expected


def test_several_hosts_and_variables_by_name() -> None:
    assert "-np 3 -H a:2,b:1 " in of(OPEN_5, TWO)
    assert of(OPEN_4, TWO, ("A", "B")).endswith(" -x A -x B train -x")
    assert of(INTEL, TWO, ("A", "B")).endswith(" -genvlist A,B train -x")
    assert "genv" not in of(MPICH, TWO, ("A", "B"))
    assert host_file(TWO) == "a:2\nb:1\n"
    assert [lines.wants_host_file(mpi) for mpi in ALL] == [False, False, False, True, True]


def test_variables_of_mpis_and_impossible_names_are_not_exported() -> None:
    names = [
        "PATH",
        "OMPI_MCA_x",
        "PMIX_RANK",
        "a b",
        "_",
        "PWD",
        "BASH_FUNC_x%%",
        "HOROVOD_CYCLE_TIME",
        "PRTE_X",
        "1X",
    ]
    assert exported(names) == ("HOROVOD_CYCLE_TIME", "PATH")


def test_as_root_open_mpi_needs_a_flag() -> None:
    wanted = Wanted("mpirun", HERE, ("x",), as_root=True)
    assert "--allow-run-as-root" in line(wanted, Settings(), OPEN_5)
    assert "--allow-run-as-root" not in line(wanted, Settings(), MPICH)


@pytest.mark.parametrize("mpi", ALL)
def test_words_of_the_user_replace_the_binding_or_come_last(mpi: Implementation) -> None:
    told = of(mpi, binding_args="--bind-to 'core 1'", mpi_args="--report-bindings -v")
    assert "--bind-to 'core 1' --report-bindings -v train -x" in told
    assert "none" not in told and "socket" not in told
    with pytest.raises(InvalidArgumentError, match="--mpi-args cannot be split into words: No closing quotation"):
        of(mpi, mpi_args="a 'b")


def test_tcp_is_a_word_of_spectrum_mpi_only() -> None:
    assert [" -tcp " in of(mpi, tcp=True) for mpi in ALL] == [False, False, True, False, False]


def test_ssh_is_called_with_port_and_key() -> None:
    given = {"ssh_port": 2222, "ssh_identity_file": "/my key"}
    assert """ --mca plm_rsh_args '-p 2222 -i '"'"'/my key'"'"'' """ in of(OPEN_4, TWO, **given)
    assert " --prtemca plm_ssh_args " in of(OPEN_5, TWO, **given)


@pytest.mark.parametrize(
    ("environ", "options"),
    [
        ({}, "-o ConnectTimeout=12"),
        ({"OMPI_MCA_plm_rsh_args": "-o 'ConnectionAttempts 9'"}, "-o ConnectionAttempts 9 -o ConnectTimeout=12"),
        ({"PRTE_MCA_plm_ssh_args": "-q", "OMPI_MCA_plm_rsh_agent": "/usr/bin/ssh -x"}, "-q -o ConnectTimeout=12"),
        ({"OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh", "OMPI_MCA_plm_rsh_args": "-q"}, ""),
    ],
)
def test_ssh_is_not_patient_for_ever(environ: dict[str, str], options: str) -> None:
    found = ssh_options(environ, 12.9)
    assert " ".join(found) == options
    words = line(Wanted("mpirun", TWO, ("x",), ssh=found), Settings([("flag", {"ssh_port": 7})]), OPEN_5)
    assert words[words.index("plm_ssh_args") + 1] == shlex.join(["-p", "7", *found])


def test_network_interfaces() -> None:
    assert "--mca btl_tcp_if_include eth0,eth1 train" in of(OPEN_4, network_interfaces=("eth0", "eth1"))
    assert " --mca oob_tcp_if_include eth0 " in of(OPEN_4, TWO, network_interfaces=("eth0",))
    assert " --prtemca prte_if_include eth0 " in of(OPEN_5, TWO, network_interfaces=("eth0",))
    assert " -iface eth0 " in of(MPICH, TWO, network_interfaces=("eth0",))
    with pytest.raises(InvalidArgumentError, match="MPICH takes one interface. Received: eth0,eth1"):
        of(MPICH, TWO, network_interfaces=("eth0", "eth1"))


def test_many_hosts_are_called_at_once_by_open_mpi() -> None:
    many = tuple(Host(f"n{number}", 1) for number in range(64))
    assert " --mca plm_rsh_no_tree_spawn 1 --mca plm_rsh_num_concurrent 64 " in of(OPEN_4, many)
    assert " --prtemca plm_ssh_no_tree_spawn 1 --prtemca plm_ssh_num_concurrent 64 " in of(OPEN_5, many)
    assert "tree_spawn" not in of(OPEN_4, many[:63])


def test_output_options_that_mpirun_honours() -> None:
    assert " --output rank,timestamp " in of(OPEN_5, prefix_output_with_timestamp=True)
    assert " --tag-output --timestamp-output --output-filename out " in of(
        OPEN_4, prefix_output_with_timestamp=True, output_filename="out"
    )


@pytest.mark.parametrize(
    ("given", "refusing", "message"),
    [
        ({"shown_ranks": (0,)}, ALL, "--ranks does not work with --mpi: mpirun prints the output of all ranks"),
        ({"stdin_rank": 0}, ALL, "--stdin-rank does not work with --mpi"),
        ({"metrics_port": 9400}, ALL, "--metrics-port does not work with --mpi: mpirun starts the ranks"),
        ({"output_filename": "x"}, (OPEN_5, MPICH, INTEL), "--output-filename does not work with --mpi"),
        ({"prefix_output_with_timestamp": True}, (MPICH, INTEL), "puts either the time or the rank before a line"),
        ({"ssh_port": 22}, (MPICH, INTEL), "calls ssh without options. Remedy: write them into ~/.ssh/config"),
        ({"ssh_identity_file": "x"}, (MPICH, INTEL), "calls ssh without options"),
        ({"verbose": True, "max_restarts": 1, "timeline_path": "x"}, (), ""),
    ],
)
def test_what_nobody_would_honour_is_refused(
    given: dict[str, Any], refusing: tuple[Implementation, ...], message: str
) -> None:
    for mpi in ALL:
        if mpi in refusing:
            with pytest.raises(UnsupportedError, match=message):
                limits.refuse_unmet(Settings([("flag", given)]), mpi)
        else:
            limits.refuse_unmet(Settings([("flag", given)]), mpi)


def test_addresses_and_versions_that_do_not_work() -> None:
    with pytest.raises(InvalidArgumentError, match="mpirun takes no IPv6 address such as fe80::1"):
        limits.refuse_addresses((Host("a", 1), Host("fe80::1", 1)))
    limits.refuse_addresses(TWO)
    assert limits.remarks(Implementation(kinds.OPEN_MPI, (3, 1, 3))) == [
        "Open MPI 3.1.3 is known to hang; use 3.1.2, or 4.0.0 and later."
    ]
    assert limits.remarks(OPEN_4) == []


def job(words: str, environ: dict[str, str]) -> Job:
    parsed = flags.parse(shlex.split(words))
    return make_job(effective_settings(parsed.values, "flag", environ), parsed.command, environ, "/")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with a mpirun that says which it is."""
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.8'\n")
    program.chmod(stat.S_IRWXU)
    return f"{tmp_path}:/bin:/usr/bin"


def test_mpi_is_chosen_by_its_flag_or_the_file_alone(path: str, tmp_path: Path) -> None:
    assert isinstance(choose(job("-np 2 --mpi true", {"PATH": path})), MpirunLauncher)
    assert not isinstance(choose(job("-np 2 true", {"PATH": path, "HOROVOD_CONTROLLER": "mpi"})), MpirunLauncher)
    file = tmp_path / "config.yaml"
    file.write_text("controller: mpi\n")
    assert isinstance(choose(job(f"-np 2 --config-file {file} true", {"PATH": path})), MpirunLauncher)
    assert not isinstance(choose(job(f"-np 2 --gloo --config-file {file} true", {"PATH": path})), MpirunLauncher)
    file.write_text("controller: gloo\n")
    assert isinstance(choose(job(f"-np 2 --mpi --config-file {file} true", {"PATH": path})), MpirunLauncher)


@pytest.mark.parametrize(
    ("words", "environ", "message"),
    [
        ("-np 2 --mpi true", {"PATH": "/no"}, "--mpi needs mpirun, which is not in PATH. Install an MPI"),
        ("-np 2 --mpi --ranks 0 true", {}, "--ranks does not work with --mpi"),
    ],
)
def test_jobs_that_mpirun_cannot_start(words: str, environ: dict[str, str], message: str, path: str) -> None:
    with pytest.raises(HorovodError) as caught:
        choose(job(words, {"PATH": path, **environ}))
    assert message in str(caught.value)


def test_words_for_mpirun_have_no_effect_without_it() -> None:
    remarks = job("-np 2 --mpi-args x --binding-args y true", {}).remarks
    assert "--mpi-args has no effect without --mpi." in remarks
    assert "--binding-args has no effect without --mpi." in remarks
    assert not job("-np 2 --mpi --mpi-args x true", {}).remarks


@pytest.mark.parametrize(
    ("words", "environ", "remarks"),
    [
        ("", {"HOROVOD_CONTROLLER": "mpi"}, ["HOROVOD_CONTROLLER=mpi has no effect. Write --mpi to have mpirun start"]),
        ("--mpi", {"HOROVOD_CONTROLLER": "mpi"}, []),
        ("--gloo", {"HOROVOD_CONTROLLER": "mpi"}, []),
        ("", {"HOROVOD_CONTROLLER": "gloo"}, []),
        ("", {"HOROVOD_CONTROLLER": "mpi", "_HOROVOD_SETTINGS_NOTICED": "1"}, []),  # set by a surrounding job
        ("--mpi-threads-disable", {}, ["--mpi-threads-disable has no effect without --mpi."]),
        ("", {"HOROVOD_MPI_LIBRARY": "/x.so"}, ["HOROVOD_MPI_LIBRARY has no effect without --mpi."]),
        ("", {"HOROVOD_MPI_THREADS_DISABLE": "0"}, []),
        ("--mpi --mpi-threads-disable", {"HOROVOD_MPI_LIBRARY": "/x.so"}, []),
    ],
)
def test_what_is_meant_for_mpi_has_no_effect_without_it(
    words: str, environ: dict[str, str], remarks: list[str]
) -> None:
    found = job(f"-np 2 {words} true", environ).remarks
    assert len(found) == len(remarks), found
    assert all(text.startswith(remark) for text, remark in zip(found, remarks)), found


def test_the_ranks_know_who_controls_them_and_what_was_asked_for() -> None:
    environ = job("-np 2 --mpi --mpi-threads-disable --tcp true", {"HOROVOD_EXPECTED_SIZE": "9"}).environ
    assert environ["HOROVOD_CONTROLLER"] == "mpi"
    assert environ["HOROVOD_MPI_THREADS_DISABLE"] == environ["NCCL_IB_DISABLE"] == "1"
    assert "HOROVOD_CPU_OPERATIONS" not in environ
    assert "HOROVOD_EXPECTED_SIZE" not in environ  # of a surrounding job


def test_a_dry_run_shows_the_line_and_no_variables_of_other_launchers(path: str) -> None:
    planned = job("-np 2 --mpi -H localhost:2 true", {"PATH": path})
    text = plan(planned, MpirunLauncher().stations(planned), {})
    assert "localhost: ranks 0, 1, by Open MPI 4.1.8: " in text
    assert "-np 2 -H localhost:2 --bind-to none --map-by slot " in text
    assert "HOROVOD_EXPECTED_SIZE" in text
    assert "HOROVOD_RANK" not in text and "SECRET" not in text


def test_a_function_is_not_brought_to_other_machines(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path)
    with pytest.raises(UnsupportedError, match="on this machine only, and a.invalid is another one"):
        horovod.run(int, use_mpi=True, hosts="a.invalid:1")
