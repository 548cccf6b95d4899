"""Tests of horovod._net.clusters.launchers and placement: every launcher's variables, their order, and
contradictions."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._net import identity
from horovod._net.clusters.addresses import meeting_point
from horovod._net.clusters.launchers import LAUNCHERS, SECRET_VARIABLE, detect_placement, tasks_per_node
from horovod._net.clusters.placement import Placement
from horovod._net.failures import PlacementError

HOROVODRUN = {"HOROVOD_RANK": "2", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "2", "HOROVOD_LOCAL_SIZE": "4"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}
OPEN_MPI = {
    f"OMPI_COMM_WORLD_{k}": v for k, v in (("RANK", "2"), ("SIZE", "4"), ("LOCAL_RANK", "2"), ("LOCAL_SIZE", "4"))
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "4"}
INTEL_MPI = {**MPICH, "I_MPI_HYDRA_UUID": "620a0000-4971-2adb-c660-0600f5d74808"}
MVAPICH2 = {
    f"MV2_COMM_WORLD_{k}": v for k, v in (("RANK", "2"), ("SIZE", "4"), ("LOCAL_RANK", "2"), ("LOCAL_SIZE", "4"))
}
SRUN = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "2", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "4",
}  # fmt: skip
PALS = {"PALS_RANKID": "2", "PALS_SIZE": "4", "PALS_LOCAL_RANKID": "2", "PALS_LOCAL_SIZE": "4"}
FLUX = {"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "2"}
JSRUN = {f"JSM_NAMESPACE_{k}": v for k, v in (("RANK", "2"), ("SIZE", "4"), ("LOCAL_RANK", "2"), ("LOCAL_SIZE", "4"))}
PMI = {"PMI_RANK": "2", "PMI_SIZE": "4"}
PMIX = {"PMIX_RANK": "2", "HOROVOD_SIZE": "4"}
IN_ORDER = [
    ("horovodrun", HOROVODRUN), ("torchrun", TORCHRUN), ("Open MPI", OPEN_MPI), ("Intel MPI", INTEL_MPI),
    ("MPICH", MPICH), ("MVAPICH2", MVAPICH2), ("srun", SRUN), ("PALS", PALS), ("Flux", FLUX), ("jsrun", JSRUN),
    ("PMI", PMI), ("PMIx", PMIX),
]  # fmt: skip


@pytest.mark.parametrize(("name", "env"), IN_ORDER)
def test_every_launcher_tells_its_numbers(name: str, env: dict[str, str]) -> None:
    p = detect_placement(dict(env))
    assert (p.launcher, p.rank, p.size, p.local_rank, p.local_size, p.cross_rank, p.cross_size) == (
        name,
        2,
        4,
        2,
        4,
        0,
        1,
    )
    assert p.one_host


def test_the_documented_order_decides() -> None:
    assert [name for name, _ in IN_ORDER] == [launcher.name for launcher in LAUNCHERS]
    merged: dict[str, str] = {}
    for name, env in reversed(IN_ORDER):
        merged.update(env)
        assert detect_placement(dict(merged)).launcher == name


def test_without_a_launcher_it_is_one_process() -> None:
    p = detect_placement({"RANK": "3", "WORLD_SIZE": "8"})  # node numbers of some platform: no LOCAL_RANK
    assert (p.launcher, p.rank, p.size) == ("single process", 0, 1)


@pytest.mark.parametrize("step", [None, "", "4294967290", "4294967291", "batch", "²", "1" * 5000])
def test_slurm_variables_outside_a_step_do_not_count(step: str | None) -> None:
    env = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"}
    if step is not None:
        env["SLURM_STEP_ID"] = step
    assert detect_placement(env).size == 1


def test_srun_on_uneven_nodes() -> None:
    env = {**SRUN, "SLURM_STEP_NUM_TASKS": "7", "SLURM_PROCID": "6", "SLURM_LOCALID": "0", "SLURM_NODEID": "3"}
    p = detect_placement({**env, "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"})
    assert (p.rank, p.size, p.local_rank, p.local_size, p.cross_rank, p.cross_size) == (6, 7, 0, 1, 3, 4)


def test_srun_uses_the_numbers_of_the_step_not_of_the_allocation() -> None:
    assert detect_placement({**SRUN, "SLURM_NTASKS": "16"}).size == 4


def test_pmi_without_local_rank_is_left_to_srun() -> None:
    assert detect_placement({**SRUN, "PMI_RANK": "2", "PMI_SIZE": "4"}).launcher == "srun"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"HOROVOD_RANK": "4"}, "rank 4 does not fit size 4"),
        ({"HOROVOD_RANK": "-1"}, "HOROVOD_RANK must be a whole number from 0 to .*'-1'"),
        ({"HOROVOD_RANK": "two"}, "HOROVOD_RANK must be a whole number.*'two'"),
        ({"HOROVOD_RANK": "٣"}, "HOROVOD_RANK must be a whole number"),
        ({"HOROVOD_SIZE": "0"}, "HOROVOD_SIZE must be a whole number from 1"),
        ({"HOROVOD_SIZE": "99999999999999"}, "HOROVOD_SIZE must be"),
        ({"HOROVOD_SIZE": None}, "HOROVOD_RANK is set, but HOROVOD_SIZE is not"),
        ({"HOROVOD_RANK": None}, "HOROVOD_SIZE=4 is set, but HOROVOD_RANK is not, nor is any rank variable"),
        (
            {"HOROVOD_LOCAL_RANK": None},
            "HOROVOD_RANK is set, but HOROVOD_LOCAL_RANK is not.*remove HOROVOD_RANK, HOROVOD_S",
        ),
        ({"HOROVOD_LOCAL_RANK": "4"}, "local_rank 4 does not fit local_size 4"),
        ({"HOROVOD_LOCAL_SIZE": "8"}, "8"),
        ({"HOROVOD_LOCAL_SIZE": "3"}, "does not say which host"),
    ],
)
def test_contradictions_are_refused(change: dict[str, str | None], message: str) -> None:
    env = {name: value for name, value in {**HOROVODRUN, **change}.items() if value is not None}
    with pytest.raises(PlacementError, match=message):
        detect_placement(env)


def test_the_variables_of_any_launcher_are_named() -> None:
    with pytest.raises(
        PlacementError, match="torchrun: RANK is set, but LOCAL_WORLD_SIZE is not. Start the ranks with"
    ):
        detect_placement({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})


def test_a_size_of_one_needs_no_rank() -> None:
    assert detect_placement({"HOROVOD_SIZE": " 1 "}).size == 1
    assert detect_placement({"HOROVOD_SIZE": ""}).size == 1


def test_whatever_strip_takes_off_a_number_int_need_not() -> None:
    assert detect_placement({**HOROVODRUN, "HOROVOD_SIZE": f"\x1f{HOROVODRUN['HOROVOD_SIZE']} "}).size == 4


def test_srun_lists_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(PlacementError, match="does not describe 4 tasks"):
        detect_placement({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "3"})


def test_pmix_alone_does_not_pretend_to_be_one_process() -> None:
    with pytest.raises(PlacementError, match="the number of ranks is not known"):
        detect_placement({"PMIX_RANK": "1"})


def test_hosts_with_equal_blocks_are_numbered() -> None:
    p = detect_placement({**TORCHRUN, "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"})
    assert (p.cross_rank, p.cross_size, p.one_host) == (1, 2, False)


def test_the_launchers_own_host_numbers_win() -> None:
    env = {
        **HOROVODRUN,
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "2",
        "HOROVOD_CROSS_SIZE": "3",
    }
    assert (detect_placement(env).cross_rank, detect_placement(env).cross_size) == (2, 3)


def test_the_secret_leaves_the_environment() -> None:
    env = {**HOROVODRUN, "HOROVOD_RENDEZVOUS_DIR": "/run/x", SECRET_VARIABLE: "ab" * 32}
    p = detect_placement(env)
    assert p.secret == b"\xab" * 32 and p.meeting_directory == "/run/x"
    assert SECRET_VARIABLE not in env and "ab" * 32 not in repr(p)


def test_a_second_detection_still_knows_the_secret() -> None:
    program = (
        "import os; from horovod._net.clusters.launchers import detect_placement;"
        f"print(detect_placement().secret.hex(), detect_placement().secret.hex(), {SECRET_VARIABLE!r} in os.environ)"
    )
    env = {**os.environ, **HOROVODRUN, "HOROVOD_RENDEZVOUS_DIR": "/run/x", SECRET_VARIABLE: "cd" * 32}
    told = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["cd" * 32, "cd" * 32, "False"]


@pytest.mark.parametrize("secret", ["", "ab", "zz" * 32, "ab" * 33])
def test_a_malformed_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(PlacementError, match="malformed") as caught:
        detect_placement({**HOROVODRUN, "HOROVOD_RENDEZVOUS_DIR": "/run/x", SECRET_VARIABLE: secret})
    assert not secret or secret not in str(caught.value)


def test_a_directory_without_a_secret_is_refused() -> None:
    with pytest.raises(PlacementError, match="a process that a rank starts does not inherit it"):
        detect_placement({**HOROVODRUN, "HOROVOD_RENDEZVOUS_DIR": "/run/x"})


def test_another_launcher_inside_a_rank_of_horovodrun_does_not_meet_in_its_directory() -> None:
    p = detect_placement({**TORCHRUN, "HOROVOD_RENDEZVOUS_DIR": "/run/x", SECRET_VARIABLE: "ab" * 32})
    assert p.meeting_directory is None and p.secret is None


def test_job_keys_tell_restarts_and_jobs_apart() -> None:
    keys = {
        detect_placement({**TORCHRUN, "MASTER_PORT": port, "TORCHELASTIC_RESTART_COUNT": count}).job_key
        for port in ("1", "2")
        for count in ("0", "1")
    }
    assert len(keys) == 4


@pytest.mark.parametrize(("name", "env"), [(name, env) for name, env in IN_ORDER if name != "srun"])
def test_without_an_id_that_no_other_job_has_the_starting_process_counts(name: str, env: dict[str, str]) -> None:
    p = detect_placement(dict(env))
    assert p.starter and p.job_key.endswith(f"/{p.starter}")


@pytest.mark.parametrize("more", [{}, {"HOROVOD_RENDEZVOUS_DIR": "/run/x", SECRET_VARIABLE: "ab" * 32}])
def test_an_id_names_a_job_alone(more: dict[str, str]) -> None:
    p = detect_placement({**HOROVODRUN, "HOROVOD_JOB_ID": "mine", **more})
    assert (p.job_key, p.starter) == ("horovodrun/HOROVOD_JOB_ID=mine", "")


@pytest.mark.parametrize("left", [{"_HOROVOD_ADDRESS": "127.0.0.1:1"}, {"HOROVOD_ELASTIC": "1"}])
def test_the_id_of_the_job_that_started_this_one_names_it_not_alone(left: dict[str, str]) -> None:
    p = detect_placement({**HOROVODRUN, "HOROVOD_JOB_ID": "outer", **left})
    assert p.starter and p.job_key == f"horovodrun/HOROVOD_JOB_ID=outer/{p.starter}"


def test_a_step_of_slurm_is_named_by_it_alone() -> None:
    p = detect_placement(dict(SRUN))
    key = "srun/SLURM_JOB_ID=77/SLURM_STEP_ID=0/SLURM_RESTART_COUNT=/SLURM_JOBID=/SLURM_STEPID="
    assert (p.job_key, p.starter) == (key, "")
    without = detect_placement({name: value for name, value in SRUN.items() if name != "SLURM_JOB_ID"})
    assert without.starter


def test_steps_that_only_old_variables_tell_apart_are_two_jobs() -> None:
    old = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_ID"}
    assert len({detect_placement({**old, "SLURM_STEPID": step}).job_key for step in "012"}) == 3
    points = [meeting_point("srun", {**old, "SLURM_STEPID": step}, "node7") for step in "012"]
    assert len({point.job for point in points if point is not None}) == 3


def test_a_directory_without_an_id_names_the_job() -> None:
    keys = {
        detect_placement({**HOROVODRUN, "HOROVOD_RENDEZVOUS_DIR": place, SECRET_VARIABLE: "ab" * 32}).job_key
        for place in ("/run/x", "/run/y", "/run/y")
    }
    assert len(keys) == 2


PRINT_KEY = "from horovod._net.clusters.launchers import detect_placement; print(detect_placement().job_key)"


def test_ranks_behind_wrapper_scripts_agree_on_the_job() -> None:
    keys = []
    for rank in range(2):
        env = {**os.environ, **TORCHRUN, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = (
            [sys.executable, "-c", PRINT_KEY] if rank else ["sh", "-c", f"{sys.executable} -c '{PRINT_KEY}'; true"]
        )
        keys.append(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip())
    assert keys[0] == keys[1] and keys[0].startswith("torchrun/")
    place = identity.parent_and_start(os.getpid())
    assert place is not None and keys[0].endswith(f"/{os.getpid()}:{place[1]}")


def test_a_list_of_ranks_makes_a_job_of_its_own() -> None:
    whole = Placement(2, 4, 2, 4, 0, 1, "test", "key")
    part = whole.restricted_to([0, 2])
    assert (part.rank, part.size, part.local_rank, part.local_size) == (1, 2, 1, 2)
    assert part.job_key != whole.job_key and part.job_key != whole.restricted_to([2, 0]).job_key
    assert whole.restricted_to([2, 0]).rank == 0
    assert whole.restricted_to([0, 1, 2, 3]) is whole
    of_two_hosts = Placement(2, 4, 1, 2, 0, 2, "test", "key", keeps_local_rank=True)
    met = of_two_hosts.restricted_to([0, 2]).met([0, 0])  # not in the places that it has among all
    assert (met.local_rank, met.local_size, met.cross_size, met.unplaced) == (1, 2, 1, False)


@pytest.mark.parametrize("ranks", [[], [0, 2, 2], [0, 4], [-1, 2], [0, 1]])
def test_an_impossible_list_of_ranks_is_refused(ranks: list[int]) -> None:
    with pytest.raises(PlacementError):
        Placement(2, 4, 2, 4, 0, 1, "test", "key").restricted_to(ranks)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 5)), min_size=1, max_size=5))
def test_slurms_run_lengths_expand(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)
    assert tasks_per_node(text) == [count for count, times in runs for _ in range(times)]


@given(st.text(max_size=30))
def test_any_other_text_is_a_placement_error(text: str) -> None:
    with contextlib.suppress(PlacementError):
        tasks_per_node(text)


def test_a_run_length_that_would_fill_memory_is_refused() -> None:
    with pytest.raises(PlacementError):
        tasks_per_node(",".join(["1(x9999999)"] * 5))
