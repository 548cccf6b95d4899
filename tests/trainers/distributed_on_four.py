"""What trains over the backend "horovod" of torch.distributed, on four ranks: `make test-lightning`. By its name no
other run of the tests collects this file; on two ranks it is in theirs."""

from __future__ import annotations

import pytest
from jobs import ROOT
from jobs.cases import CaseJob

WORKERS = ROOT / "tests" / "integration" / "torch" / "workers"
CASES = {
    "parallelism_worker": (
        "case_ddp",
        "case_ddp_of_a_static_graph",
        "case_fsdp1",
        "case_fsdp2",
        "case_fsdp2_in_bfloat16",
        "case_tensor_parallelism",
        "case_pipelining",
    ),
    "distributed_worker": (
        "case_reductions_as_gloo",
        "case_movements_as_gloo",
        "case_outputs_that_share_memory_with_inputs",
        "case_objects",
        "case_coalesced",
        "case_send_and_recv",
        "case_more_small_sends_than_are_copied",
        "case_ddp_with_hooks_and_uneven_inputs",
        "case_ddp_with_a_hook_whose_callbacks_wait_for_futures",
        "case_tensors_over_a_mesh",
        "case_checkpoints_and_sharded_optimizers",
        "case_calls_whose_work_is_dropped_have_their_results_before_later_ones",
        "case_inference_tensors",
        "case_a_call_that_other_ranks_do_not_make_times_out",
        "case_more_calls_under_way_than_names",
        "case_groups",
        "case_on_four_ranks_meshes_of_two_dimensions",
        "case_on_four_ranks_new_groups",
        "case_a_second_life",
    ),
}
JOBS = {worker: CaseJob(WORKERS / f"{worker}.py", 4, cases=cases, timeout_s=280) for worker, cases in CASES.items()}


@pytest.mark.parametrize("worker, case", [(worker, case) for worker, cases in CASES.items() for case in cases])
def test_on_four_ranks(worker: str, case: str) -> None:
    JOBS[worker].check(case)
