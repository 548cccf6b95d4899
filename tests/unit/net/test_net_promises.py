"""What a launcher has promised, against the job that there is."""

from __future__ import annotations

import pytest

from horovod._net.clusters.launchers import detect_placement
from horovod._net.clusters.placement import Placement
from horovod._net.clusters.promises import hosts_of, refuse_other_job
from horovod._net.failures import PlacementError


def mpi(rank: int, size: int, local_size: int) -> Placement:
    names = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank % local_size, "LOCAL_SIZE": local_size}
    return detect_placement({f"OMPI_COMM_WORLD_{name}": str(number) for name, number in names.items()})


def told(local_rank: int, cross_rank: int, cross_size: int) -> Placement:
    return Placement(local_rank, 3, local_rank, 2 - cross_rank, cross_rank, cross_size, "horovodrun", "key", "here")


@pytest.mark.parametrize("promise", [(None, None), (4, None), (None, 2), (4, 2)])
def test_a_promise_that_was_kept(promise: tuple[int | None, int | None]) -> None:
    for rank in range(4):
        refuse_other_job(mpi(rank, 4, 2), *promise)


def test_all_ranks_on_one_host_are_not_two_hosts() -> None:
    with pytest.raises(PlacementError) as caught:
        refuse_other_job(mpi(3, 4, 4), 4, 2)
    assert str(caught.value).startswith(
        "HOROVOD_EXPECTED_SIZE=4 and HOROVOD_EXPECTED_HOSTS=2 was promised, but Open MPI has started 4 ranks on 1 host,"
        " seen from "
    )
    assert "see which hosts and slots Open MPI was given" in str(caught.value)


def test_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(PlacementError, match="HOROVOD_EXPECTED_SIZE=8 was promised, but Open MPI has started 4 ranks"):
        refuse_other_job(mpi(0, 4, 2), 8, None)


def test_a_process_without_a_launcher_is_not_the_job_that_was_promised() -> None:
    with pytest.raises(PlacementError, match="no launcher has given this process a rank, so it is a job of its own"):
        refuse_other_job(detect_placement({}), 2, None)
    refuse_other_job(detect_placement({}), 1, 1)


def test_a_rank_that_cannot_count_the_hosts_does_not() -> None:
    # Two hosts with two ranks and one: only those with local rank 0 know of both.
    assert hosts_of(told(0, 0, 2)) == 2
    assert hosts_of(told(1, 0, 1)) is None
    refuse_other_job(told(1, 0, 1), 3, 5)
    with pytest.raises(PlacementError, match="HOROVOD_EXPECTED_HOSTS=5 was promised"):
        refuse_other_job(told(0, 0, 2), None, 5)
