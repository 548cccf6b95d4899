"""Every setting has a test of its effect, and every name that users know from upstream is a setting's, or refused.

The lists of names are facts about upstream's command line; what each does here is shown by the tests that `EFFECTS`
names.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from horovod._core.settings import SETTINGS, unknown_variables
from horovod.runner.options import flags

TESTS = Path(__file__).resolve().parents[2]
_OPTIONS = "integration/test_option_effects.py"
_TUNING = "integration/test_autotune.py"
_TUNER = "unit/core/training/test_tuning.py"
_MPI = "unit/runner/test_mpi_lines.py"
_MANNERS = "integration/runner/test_launch_manners.py"
_SSH = "integration/runner/test_launch_ssh_options.py"
_HANGS = "integration/runner/test_launch_hangs.py"
_OUTPUT = "integration/runner/test_launch_output.py"
_CONTRACT = "contract/test_contract.py::test_variant"
_TORCH = "integration/torch/test_torch_optimizer.py"
_GPUS = "unit/gpu/test_gpu_plane.py"
_LIBRARIES = "unit/gpu/test_gpu_libraries.py"
_FIGURES = "integration/runner/test_launch_figures.py"
_ELASTIC = "integration/elastic/test_elastic_jobs.py"

# Setting -> the test that shows what it does.
EFFECTS = {
    "num_proc": "integration/runner/test_launch_processes.py::test_eight_ranks_know_their_places",
    "disable_cache": f"{_SSH}::test_hosts_and_hostfile_name_the_same_hosts",  # every start asks all hosts
    "start_timeout_s": "integration/runner/test_launch_processes.py::test_ranks_that_never_come_up_are_named",
    "link_timeout_s": "hosts/faults/test_cuts_over_hosts.py::test_a_cut_is_survived_or_the_host_is_named",
    "network_interfaces": "hosts/test_training_over_hosts.py::test_the_named_interface_is_the_one_that_ranks_use",
    "output_filename": f"{_OUTPUT}::test_output_files",
    "shown_ranks": f"{_MANNERS}::test_only_chosen_ranks_are_shown_and_all_are_kept",
    "stdin_rank": f"{_MANNERS}::test_one_rank_reads_what_is_typed_and_the_others_nothing",
    "max_restarts": f"{_MANNERS}::test_a_job_is_started_again_until_it_ends_well",
    "dry_run": f"{_MANNERS}::test_a_dry_run_starts_nothing",
    "summary": f"{_FIGURES}::test_the_summary_names_the_straggler",
    "metrics_port": f"{_FIGURES}::test_status_and_metrics_name_the_straggler",
    "metrics_address": f"{_FIGURES}::test_the_metrics_are_served_where_they_should_be",
    "status_format": f"{_FIGURES}::test_status_and_metrics_name_the_straggler",
    "verbose": f"{_OUTPUT}::test_verbose_says_the_settings_and_their_sources",
    "config_file": f"{_OPTIONS}::test_a_flag_wins_over_the_file_and_the_file_over_the_environment",
    "hosts": f"{_SSH}::test_hosts_and_hostfile_name_the_same_hosts",
    "hostfile": f"{_SSH}::test_hosts_and_hostfile_name_the_same_hosts",
    "use_gloo": "integration/runner/test_launch_function.py::test_results_are_in_order_of_ranks",
    "ssh_port": f"{_SSH}::test_port_key_and_patience_reach_ssh",
    "ssh_identity_file": f"{_SSH}::test_port_key_and_patience_reach_ssh",
    "elastic": "unit/core/test_elastic.py",
    "host_discovery_script": f"{_ELASTIC}::test_ranks_come_and_go_with_the_hosts_and_nothing_is_done_twice",
    "min_num_proc": f"{_ELASTIC}::test_a_job_that_may_not_go_on_says_why",
    "max_num_proc": f"{_ELASTIC}::test_ranks_come_and_go_with_the_hosts_and_nothing_is_done_twice",
    "slots_per_host": f"{_ELASTIC}::test_one_that_never_names_enough",
    "elastic_timeout_s": f"{_ELASTIC}::test_a_job_that_may_not_go_on_says_why",
    "reset_limit": f"{_ELASTIC}::test_a_job_that_may_not_go_on_says_why",
    "blacklist_cooldown_range": f"{_ELASTIC}::test_a_job_that_may_not_go_on_says_why",
    "elastic_log": f"{_ELASTIC}::test_ranks_are_killed_one_after_the_other_and_replaced",
    "fusion_threshold_bytes": f"{_OPTIONS}::test_fusion_threshold_bounds_a_batch",
    "cycle_time_ms": f"{_OPTIONS}::test_cycle_time_lingers",
    "cache_capacity": _CONTRACT,
    "hierarchical_allreduce": f"{_OPTIONS}::test_the_ways_between_hosts",
    "hierarchical_allgather": f"{_OPTIONS}::test_the_ways_between_hosts",
    "torus_allreduce": f"{_OPTIONS}::test_the_ways_between_hosts",
    "disable_group_fusion": _CONTRACT,
    "deterministic": _CONTRACT,
    "spin_us": f"{_OPTIONS}::test_a_waiting_thread_spins_as_long_as_it_may",
    "store_mode": _CONTRACT,
    "resident_gradients": f"{_TORCH}::test_training_of_three_ranks_with_resident_gradients",
    "resident_bytes": f"{_TORCH}::test_training_of_three_ranks_with_resident_gradients",
    "transport": _CONTRACT,
    "full_mesh_ranks": "integration/test_few_connections.py::test_descriptors_of_eight_hosts_of_four",
    "autotune": f"{_TUNING}::test_two_ranks_switch_and_stay_equal",
    "autotune_log": f"{_TUNING}::test_two_ranks_switch_and_stay_equal",
    "autotune_warmup_samples": f"{_TUNING}::test_two_ranks_switch_and_stay_equal",
    "autotune_steps_per_sample": f"{_TUNING}::test_steps_per_sample_are_counted",
    "autotune_bayes_opt_max_samples": f"{_TUNING}::test_two_ranks_switch_and_stay_equal",
    "autotune_gaussian_process_noise": f"{_TUNER}::test_noise_decides_how_far_one_lucky_score_is_believed",
    "timeline_path": "integration/runner/test_launch_commands.py::test_the_folder_of_a_timeline_is_made",
    "timeline_mark_cycles": f"{_OPTIONS}::test_cycle_marks_stand_in_the_timeline",
    "timeline_ranks": "integration/test_trace_of_all_ranks.py::test_the_form_of_rank_0_alone",
    "timeline_max_mb": "integration/test_trace_of_all_ranks.py::test_a_file_that_grows_too_large_is_rotated",
    "stall_check_disable": f"{_OPTIONS}::test_the_stall_check_can_be_left_out_and_its_time_chosen",
    "stall_warning_s": f"{_OPTIONS}::test_the_stall_check_can_be_left_out_and_its_time_chosen",
    "stall_shutdown_s": "integration/runner/test_launch_by_agent.py::test_a_job_that_hangs_tells_where",
    "hang_shutdown_s": f"{_HANGS}::test_a_job_that_stands_still_ends_and_its_stacks_are_kept",
    "dump_on_stall": f"{_HANGS}::test_without_dumps_the_stall_is_reported_alone",
    "dump_signal": f"{_HANGS}::test_the_signal_asks_all_ranks",
    "dump_directory": f"{_HANGS}::test_under_another_launcher_rank_0_compares",
    "dump_call_sites": f"{_HANGS}::test_a_rank_that_skips_an_operation",
    "check_parameters": f"{_TORCH}::test_optimizer",
    "collective_timeout_s": f"{_OPTIONS}::test_gloo_timeout_fails_a_collective_without_progress",
    "thread_affinity": f"{_OPTIONS}::test_thread_affinity_keeps_the_background_thread_on_its_core",
    "dynamic_process_sets": "unit/core/test_context.py",
    "gloo_iface": "hosts/test_training_over_hosts.py::test_the_named_interface_is_the_one_that_ranks_use",
    "log_level": "integration/runner/test_launch_logging.py::test_trace_says_the_way_of_every_batch",
    "log_hide_time": f"{_OPTIONS}::test_log_lines_have_the_time_unless_it_is_hidden",
    "prefix_output_with_timestamp": f"{_OUTPUT}::test_timestamps",
    "use_jsrun": "integration/runner/test_launch_jsrun.py::test_ranks_are_placed_by_the_file_and_work",
    "use_mpi": "launchers/test_horovodrun_mpi.py::test_ranks_work",
    "controller": f"{_MPI}::test_mpi_is_chosen_by_its_flag_or_the_file_alone",
    "mpi_args": "launchers/test_horovodrun_mpi.py::test_words_of_the_user_reach_mpirun",
    "binding_args": "launchers/test_horovodrun_mpi.py::test_binding_words_bind_the_ranks",
    "tcp": f"{_MPI}::test_tcp_is_a_word_of_spectrum_mpi_only",
    "cpu_operations": "launchers/test_mpi_plane.py::test_mpi_moves_tensors_in_two_lives_and_an_idle_rank_costs_nothing",
    "mpi_threads_disable": "hosts/mpi/test_mpi_over_hosts.py::test_one_thread_is_enough",
    "mpi_library": "hosts/mpi/test_mpi_over_hosts.py::test_the_standard_abi_does_as_well",
    "secret_file": "hosts/test_ways_over_hosts.py::test_ranks_meet_and_work_and_meet_again",
    "meeting_address": "hosts/test_ways_over_hosts.py::test_a_mistake_is_reported",
    "expected_size": "launchers/test_slurm.py::test_a_step_of_another_size_than_promised_stops_in_init",
    "elastic_commit_dir": f"{_ELASTIC}::test_what_was_written_outlives_all_ranks",
    "elastic_commit_interval_s": f"{_ELASTIC}::test_what_was_written_outlives_all_ranks",
    "elastic_commit_keep": f"{_ELASTIC}::test_what_was_written_outlives_all_ranks",
    "elastic_commit_key_file": f"{_ELASTIC}::test_what_was_written_outlives_all_ranks",
    "gpu_operations": f"{_GPUS}::test_the_way_is_chosen_for_all_operations",
    **{
        f"gpu_{name}": f"{_GPUS}::test_one_operation_has_no_way_of_its_own"
        for name in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
    },
    "nccl_path": f"{_LIBRARIES}::test_what_the_user_names_is_the_only_one",
    "nccl_home": f"{_LIBRARIES}::test_the_best_place_wins",
    "nccl_lib": f"{_LIBRARIES}::test_the_best_place_wins",
    "nccl_max_ctas": f"{_GPUS}::test_the_core_hears_once_in_each_session",
    "num_nccl_streams": f"{_GPUS}::test_the_core_hears_once_in_each_session",
    "disable_nvtx_ranges": f"{_OPTIONS}::test_nvtx_ranges_reach_a_profiler_unless_switched_off",
    "expected_hosts": "unit/net/test_net_promises.py::test_all_ranks_on_one_host_are_not_two_hosts",
}
FLAGS = """
-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces --network-interface
--output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb --cycle-time-ms
--cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune --no-autotune --autotune-log-file
--autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples
--autotune-gaussian-process-noise --min-np --min-num-proc --max-np --max-num-proc --slots-per-host --elastic-timeout
--reset-limit --blacklist-cooldown-range --host-discovery-script --timeline-filename --timeline-mark-cycles
--no-timeline-mark-cycles --no-stall-check --stall-check --stall-check-warning-time-seconds
--stall-check-shutdown-time-seconds --mpi-threads-disable --no-mpi-threads-disable --mpi-args --tcp --binding-args
--num-nccl-streams --thread-affinity --gloo-timeout-seconds --log-level --log-with-timestamp --log-without-timestamp
--log-hide-timestamp --no-log-hide-timestamp -prefix-timestamp --prefix-output-with-timestamp -H --hosts -hostfile
--hostfile --gloo --mpi --jsrun -I
"""
VARIABLES = """
RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT CONTROLLER
CPU_OPERATIONS GLOO_IFACE ELASTIC FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY HIERARCHICAL_ALLREDUCE
HIERARCHICAL_ALLGATHER TORUS_ALLREDUCE BATCH_D2D_MEMCOPIES NUM_NCCL_STREAMS DISABLE_GROUP_FUSION
ENABLE_ASYNC_COMPLETION DISABLE_NVTX_RANGES ENABLE_XLA_OPS DYNAMIC_PROCESS_SETS THREAD_AFFINITY MPI_THREADS_DISABLE
ADASUM_MPI_CHUNK_SIZE CCL_CACHE GLOO_TIMEOUT_SECONDS TIMELINE TIMELINE_MARK_CYCLES STALL_CHECK_DISABLE
STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS AUTOTUNE AUTOTUNE_LOG AUTOTUNE_WARMUP_SAMPLES
AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE LOG_LEVEL LOG_HIDE_TIME
START_TIMEOUT ELASTIC_TIMEOUT SPARK_START_TIMEOUT SPARK_USE_LOCAL_RANK_GPU_INDEX SPARK_PYTHONPATH SPARK_WORK_DIR
WITH_MPI WITHOUT_GLOO GPU_OPERATIONS GPU_ALLREDUCE BUILD_ARCH_FLAGS CMAKE DEBUG NCCL_HOME CUDA_HOME
"""
KEYS = """
params.fusion_threshold_mb params.cycle_time_ms params.cache_capacity params.hierarchical_allreduce
params.hierarchical_allgather params.torus_allreduce autotune.enabled autotune.log_file autotune.warmup_samples
autotune.steps_per_sample autotune.bayes_opt_max_samples autotune.gaussian_process_noise timeline.filename
timeline.mark_cycles stall_check.enabled stall_check.warning_time_seconds stall_check.shutdown_time_seconds
library_options.mpi_threads_disable library_options.num_nccl_streams library_options.thread_affinity
library_options.gloo_timeout_seconds logging.level logging.with_timestamp controller
"""
KEYWORDS = """
num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile host_discovery_script start_timeout
ssh_port ssh_identity_file disable_cache output_filename verbose use_gloo use_mpi mpi_args network_interfaces
"""


@cache
def functions_in(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def test_every_setting_is_shown_at_work_or_inert() -> None:
    assert set(EFFECTS) == {setting.name for setting in SETTINGS if not setting.inert}


@pytest.mark.parametrize("name", EFFECTS)
def test_the_test_that_shows_it_is_there(name: str) -> None:
    file, _, function = EFFECTS[name].partition("::")
    assert not function or function in functions_in(TESTS / file)
    assert (TESTS / file).is_file()


def test_all_flags_of_upstream_are_known() -> None:
    known = {name for action in flags.parser()._actions for name in action.option_strings}
    assert set(FLAGS.split()) <= known


def test_all_variables_of_upstream_are_known() -> None:
    assert unknown_variables({f"HOROVOD_{name}": "1" for name in VARIABLES.split()}) == []


def test_all_keys_and_keywords_of_upstream_are_known() -> None:
    assert set(KEYS.split()) <= {setting.yaml for setting in SETTINGS}
    assert set(KEYWORDS.split()) <= {setting.keyword for setting in SETTINGS}
