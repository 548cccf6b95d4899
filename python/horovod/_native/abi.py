"""The C interface of libhorovod.so, mirrored with ctypes: constants, structures, function prototypes.

`tools/check_abi.py` compares every line with include/horovod/horovod.h. Used by `library` (prototypes), `engine`
(calls) and by the code of `horovod._core` that fills `HvdOp`. It loads nothing and calls nothing.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Final

ABI_VERSION: Final = 3
SUBMIT_WILL_WAIT: Final = 1
SUBMIT_AT_ONCE: Final = 2

# Every enum of the header: name -> {constant without the HVD_ prefix: value}.
ENUMS: Final[dict[str, dict[str, int]]] = {
    "hvd_status": {
        "OK": 0,
        "INVALID_ARGUMENT": 1,
        "UNSUPPORTED": 2,
        "BACKEND_UNAVAILABLE": 3,
        "INTERNAL": 4,
        "NOT_INITIALIZED": 5,
        "SHUTDOWN": 6,
        "PEER_LOST": 7,
        "TIMEOUT": 8,
        "MISMATCH": 9,
        "IN_PROGRESS": 10,
        "UNKNOWN_HANDLE": 11,
        "RESOURCE": 12,
    },
    "hvd_op_type": {
        "ALLREDUCE": 0,
        "ALLGATHER": 1,
        "BROADCAST": 2,
        "ALLTOALL": 3,
        "REDUCESCATTER": 4,
        "BARRIER": 5,
        "JOIN": 6,
    },
    "hvd_reduce_op": {"AVERAGE": 0, "SUM": 1, "ADASUM": 2, "MIN": 3, "MAX": 4, "PRODUCT": 5},
    "hvd_dtype": {
        "UINT8": 0,
        "INT8": 1,
        "UINT16": 2,
        "INT16": 3,
        "INT32": 4,
        "INT64": 5,
        "FLOAT16": 6,
        "FLOAT32": 7,
        "FLOAT64": 8,
        "BOOL": 9,
        "BFLOAT16": 10,
        "UINT32": 11,
        "UINT64": 12,
        "FLOAT8_E4M3FN": 13,
        "FLOAT8_E5M2": 14,
    },
    "hvd_mpi_style": {"MPI_OPEN_MPI": 0, "MPI_MPICH": 1, "MPI_STANDARD": 2},
    "": {"SUBMIT_WILL_WAIT": SUBMIT_WILL_WAIT, "SUBMIT_AT_ONCE": SUBMIT_AT_ONCE},
}

OK: Final = 0
INVALID_ARGUMENT: Final = 1
INTERNAL: Final = 4
IN_PROGRESS: Final = 10
UNKNOWN_HANDLE: Final = 11


class HvdOp(ctypes.Structure):
    """hvd_op: one tensor of a submission."""

    _fields_ = [
        ("type", c_int32),
        ("dtype", c_int32),
        ("reduce_op", c_int32),
        ("root_rank", c_int32),
        ("process_set", c_int32),
        ("ndim", c_int32),
        ("prescale", c_double),
        ("postscale", c_double),
        ("name", c_char_p),
        ("input", c_void_p),
        ("output", c_void_p),
        ("shape", POINTER(c_int64)),
        ("splits", POINTER(c_int32)),
        ("n_splits", c_int32),
        ("place", c_int32),
        ("output_bytes", c_int64),
        ("stream", c_void_p),
    ]


class HvdPeer(ctypes.Structure):
    """hvd_peer: how this rank reaches one other rank."""

    _fields_ = [
        ("rank", c_int32),
        ("memory_fd", c_int32),
        ("doorbell_fd", c_int32),
        ("liveness_fd", c_int32),
        ("control_fd", c_int32),
        ("data_fd", c_int32),
        ("pid", c_int64),
        ("key", c_uint8 * 16),
    ]


class HvdConfig(ctypes.Structure):
    """hvd_config: everything hvd_init needs."""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("local_rank", c_int32),
        ("local_size", c_int32),
        ("cross_rank", c_int32),
        ("cross_size", c_int32),
        ("epoch", c_uint64),
        ("host_of_rank", POINTER(c_int32)),
        ("peers", POINTER(HvdPeer)),
        ("n_peers", c_int32),
        ("memory_fd", c_int32),
        ("doorbell_fd", c_int32),
        ("wish_fd", c_int32),
        ("nvtx_library", c_char_p),
        ("hostname", c_char_p),
        ("fusion_threshold_bytes", c_int64),
        ("cycle_time_ms", c_double),
        ("cache_capacity", c_int32),
        ("disable_group_fusion", c_int32),
        ("hierarchical_allreduce", c_int32),
        ("hierarchical_allgather", c_int32),
        ("torus_allreduce", c_int32),
        ("deterministic", c_int32),
        ("stall_check_disable", c_int32),
        ("stall_warning_s", c_double),
        ("stall_shutdown_s", c_double),
        ("collective_timeout_s", c_double),
        ("link_timeout_s", c_double),
        ("spin_us", c_double),
        ("store_mode", c_int32),
        ("thread_affinity", c_int32),
        ("log_level", c_int32),
        ("log_hide_time", c_int32),
        ("timeline_path", c_char_p),
        ("timeline_mark_cycles", c_int32),
        ("resident_bytes", c_int64),
    ]


class HvdTopology(ctypes.Structure):
    """hvd_topology: where a rank stands."""

    _fields_ = [
        ("rank", c_int32),
        ("size", c_int32),
        ("local_rank", c_int32),
        ("local_size", c_int32),
        ("cross_rank", c_int32),
        ("cross_size", c_int32),
    ]


class HvdParameters(ctypes.Structure):
    """hvd_parameters: what may be changed while the job runs."""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("hierarchical_allreduce", c_int32),
        ("hierarchical_allgather", c_int32),
        ("torus_allreduce", c_int32),
        ("fusion_threshold_bytes", c_int64),
        ("cycle_time_ms", c_double),
    ]


class HvdMpi(ctypes.Structure):
    """hvd_mpi: an MPI library that moves tensors, or why it does not."""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("style", c_int32),
        ("library", c_char_p),
        ("communicator", c_uint64),
        ("why_not", c_char_p),
    ]


class HvdGpu(ctypes.Structure):
    """hvd_gpu: the GPU of this rank, and the libraries to open for it."""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("device", c_int32),
        ("cuda_library", c_char_p),
        ("nccl_library", c_char_p),
        ("why_not_nccl", c_char_p),
        ("max_ctas", c_int32),
        ("streams", c_int32),
    ]


class HvdSteps(ctypes.Structure):
    """hvd_steps: how many training steps have ended, and what they have moved."""

    _fields_ = [
        ("steps", c_int64),
        ("bytes", c_int64),
        ("at_s", c_double),
    ]


class HvdResult(ctypes.Structure):
    """hvd_result: one tensor that the core allocated; give `owner` to hvd_result_free."""

    _fields_ = [
        ("data", c_void_p),
        ("owner", c_void_p),
        ("bytes", c_int64),
        ("dtype", c_int32),
        ("ndim", c_int32),
        ("shape", c_int64 * 16),
    ]


STRUCTURES: Final[dict[str, type[ctypes.Structure]]] = {
    "hvd_op": HvdOp,
    "hvd_peer": HvdPeer,
    "hvd_config": HvdConfig,
    "hvd_topology": HvdTopology,
    "hvd_parameters": HvdParameters,
    "hvd_mpi": HvdMpi,
    "hvd_gpu": HvdGpu,
    "hvd_steps": HvdSteps,
    "hvd_result": HvdResult,
}

DoneFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
LogFunction = ctypes.CFUNCTYPE(None, c_int32, c_char_p)
CALLBACKS: Final[dict[str, Any]] = {"hvd_done_fn": DoneFunction, "hvd_log_fn": LogFunction}

# Arrays of operations and the address of the handle are declared as plain addresses: ctypes converts an int faster
# than it checks a pointer type. Name -> (result, arguments).
FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "hvd_abi_version": (c_int32, ()),
    "hvd_last_error": (c_char_p, ()),
    "hvd_region_bytes": (c_int64, (c_int32, c_int64)),
    "hvd_init": (c_int32, (POINTER(HvdConfig),)),
    "hvd_connected": (c_int32, (c_int32, c_int32, c_char_p)),
    "hvd_tree": (c_int32, (POINTER(c_int32), c_int32, POINTER(c_int32))),
    "hvd_use_mpi": (c_int32, (POINTER(HvdMpi),)),
    "hvd_mpi_left": (c_char_p, ()),
    "hvd_use_gpu": (c_int32, (POINTER(HvdGpu),)),
    "hvd_gpu_place": (c_int32, (POINTER(c_int32),)),
    "hvd_last_words": (c_int32, (c_char_p,)),
    "hvd_shutdown": (c_int32, (c_double,)),
    "hvd_abort": (c_int32, (c_int32, c_char_p)),
    "hvd_initialized": (c_int32, ()),
    "hvd_get_topology": (c_int32, (POINTER(HvdTopology),)),
    "hvd_describe": (c_int32, (POINTER(c_char), c_size_t, POINTER(c_size_t))),
    "hvd_get_parameters": (c_int32, (POINTER(HvdParameters),)),
    "hvd_set_parameters": (c_int32, (POINTER(HvdParameters),)),
    "hvd_await_steps": (c_int32, (c_int64, c_double, POINTER(HvdSteps))),
    "hvd_dump": (c_int32, (POINTER(c_char), c_size_t, POINTER(c_size_t))),
    "hvd_dump_call_fd": (c_int32, ()),
    "hvd_dump_on_signal": (c_int32, (c_int32,)),
    "hvd_submit": (c_int32, (c_void_p, c_int32, c_uint32, c_void_p)),
    "hvd_refuse": (c_int32, (c_int32, c_int32, c_char_p, c_char_p)),
    "hvd_poll": (c_int32, (c_int64,)),
    "hvd_wait": (c_int32, (c_int64, c_double)),
    "hvd_finish": (c_int32, (c_int64, c_double)),
    "hvd_finish_all": (c_int32, (POINTER(c_int64), c_int32, c_double)),
    "hvd_run": (c_int32, (c_void_p, c_int32, c_double, c_void_p)),
    "hvd_on_done": (c_int32, (c_int64, DoneFunction, c_void_p)),
    "hvd_take_result": (c_int32, (c_int64, c_int32, POINTER(HvdResult))),
    "hvd_result_free": (None, (c_void_p,)),
    "hvd_received_splits": (c_int32, (c_int64, c_int32, POINTER(c_int32), c_int32)),
    "hvd_order": (c_int32, (c_int64, c_void_p)),
    "hvd_describe_result": (c_int32, (c_int64, c_int32, POINTER(HvdResult))),
    "hvd_copy_result": (c_int32, (c_int64, c_int32, c_void_p, c_int64, c_void_p)),
    "hvd_result_value": (c_int32, (c_int64, POINTER(c_int64))),
    "hvd_release": (c_int32, (c_int64,)),
    "hvd_process_set_add": (c_int32, (POINTER(c_int32), c_int32, POINTER(c_int64))),
    "hvd_process_set_remove": (c_int32, (c_int32, POINTER(c_int64))),
    "hvd_process_set_ranks": (c_int32, (c_int32, POINTER(c_int32), POINTER(c_int32))),
    "hvd_process_set_list": (c_int32, (POINTER(c_int32), POINTER(c_int32))),
    "hvd_shared_alloc": (c_int32, (c_int64, POINTER(c_void_p))),
    "hvd_shared_free": (None, (c_void_p,)),
    "hvd_timeline_start": (c_int32, (c_char_p, c_int32)),
    "hvd_timeline_stop": (c_int32, ()),
    "hvd_log_sink": (None, (LogFunction,)),
    "hvd_register_tensorflow": (c_char_p, ()),
    "hvd_register_tensorflow_xla": (c_char_p, ()),
    "hvd_jax_collective": (c_void_p, (c_void_p,)),
    "hvd_jax_collective_on_cuda": (c_void_p, (c_void_p,)),
}
