/* A library with every function of include/horovod/horovod.h that computes nothing: it answers from its arguments, so
 * that the tests of horovod._native see that each argument and each field arrives where the header puts it. Compiled by
 * test_native_engine.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "horovod/horovod.h"

#ifndef FAKE_ABI_VERSION
#define FAKE_ABI_VERSION HVD_ABI_VERSION
#endif

static _Thread_local char error[256] = "";
static char text[65536];
static hvd_log_fn log_fn;
static int freed;

static hvd_status fail(hvd_status status, const char* message) {
  snprintf(error, sizeof error, "%s", message);
  return status;
}

int32_t hvd_abi_version(void) { return FAKE_ABI_VERSION; }
const char* hvd_last_error(void) { return error; }
int64_t hvd_region_bytes(int32_t local_size, int64_t resident) { return local_size * 1000000000000LL + resident; }

hvd_status hvd_init(const hvd_config* c) {
  if (c->struct_bytes != sizeof(hvd_config)) return fail(HVD_INVALID_ARGUMENT, "struct_bytes");
  int n = snprintf(text, sizeof text, "%d %d %d %d %d %d %llu|", c->rank, c->size, c->local_rank, c->local_size,
                   c->cross_rank, c->cross_size, (unsigned long long)c->epoch);
  for (int i = 0; i < c->size; i++) n += snprintf(text + n, sizeof text - n, "%d ", c->host_of_rank[i]);
  for (int i = 0; i < c->n_peers; i++) {
    const hvd_peer* p = &c->peers[i];
    n += snprintf(text + n, sizeof text - n, "| %d %d %d %d %d %d %lld %d..%d", p->rank, p->memory_fd, p->doorbell_fd,
                  p->liveness_fd, p->control_fd, p->data_fd, (long long)p->pid, p->key[0], p->key[15]);
  }
  n += snprintf(text + n, sizeof text - n, "| %d %d %d %s %llu %d %s %s %lld %g %d %d %d %d %d %d %d %g %g %g %g %g %d %d %d %d %s %d %d %d %lld",
                c->memory_fd, c->doorbell_fd, c->wish_fd, c->nvtx_library,
                (unsigned long long)c->counters[HVD_COUNTER_PID], c->timeline_continues, c->timeline_job, c->hostname, (long long)c->fusion_threshold_bytes,
                c->cycle_time_ms, c->cache_capacity, c->disable_group_fusion, c->hierarchical_allreduce,
                c->hierarchical_allgather, c->torus_allreduce, c->deterministic, c->stall_check_disable,
                c->stall_warning_s, c->stall_shutdown_s, c->collective_timeout_s, c->link_timeout_s, c->spin_us,
                c->store_mode, c->thread_affinity, c->log_level, c->log_hide_time, c->timeline_path ? c->timeline_path : "NULL",
                c->timeline_mark_cycles, c->timeline_ranks, c->timeline_max_mb,
                (long long)c->resident_bytes);
  if (log_fn) log_fn(2, "started");
  return c->rank == 99 ? fail(HVD_INTERNAL, "no thread") : HVD_OK;
}
hvd_status hvd_connected(int32_t rank, int32_t fd, const char* why_not) {
  snprintf(text, sizeof text, "%d %d %s", rank, fd, why_not);
  return rank < 7 ? HVD_OK : fail(HVD_INVALID_ARGUMENT, "no such rank");
}
hvd_status hvd_tree(const int32_t* host_of_rank, int32_t size, int32_t* parent) {
  for (int i = 0; i < size; i++) parent[i] = host_of_rank[i] - 1;
  return size < 9 ? HVD_OK : HVD_RESOURCE;
}
hvd_status hvd_use_mpi(const hvd_mpi* mpi) {
  if (mpi->struct_bytes != sizeof *mpi) return fail(HVD_INVALID_ARGUMENT, "struct_bytes");
  if (mpi->why_not[0] != 0) return strcmp(mpi->why_not, "no such library") ? fail(HVD_INTERNAL, mpi->why_not) : HVD_OK;
  if (mpi->style != HVD_MPI_STANDARD || mpi->communicator != 0xfedcba9876543210) return fail(HVD_INTERNAL, "fields");
  return fail(HVD_BACKEND_UNAVAILABLE, mpi->library);
}
hvd_status hvd_use_gpu(const hvd_gpu* g) {
  if (g->struct_bytes != sizeof *g) return fail(HVD_INVALID_ARGUMENT, "struct_bytes");
  snprintf(text, sizeof text, "%d %s %s|%s %d %d", g->device, g->cuda_library, g->nccl_library ? g->nccl_library : "NULL",
           g->why_not_nccl ? g->why_not_nccl : "NULL", g->max_ctas, g->streams);
  return g->device < 7 ? HVD_OK : fail(HVD_BACKEND_UNAVAILABLE, "no such device");
}
hvd_status hvd_gpu_place(int32_t* out) {
  *out = 0;
  return HVD_OK;
}
hvd_status hvd_order(hvd_handle handle, void* stream) {
  return stream == (void*)0xfedcba9876543210 ? HVD_OK : fail(HVD_UNKNOWN_HANDLE, "no such stream");
}
hvd_status hvd_describe_result(hvd_handle handle, int32_t index, hvd_result* out) {
  (void)handle, (void)index;
  memset(out, 0, sizeof *out);
  out->bytes = 24;
  out->dtype = HVD_FLOAT32;
  out->ndim = 2;
  out->shape[0] = 2;
  out->shape[1] = 3;
  return HVD_OK;
}
hvd_status hvd_copy_result(hvd_handle handle, int32_t index, void* to, int64_t bytes, void* stream) {
  snprintf(text, sizeof text, "%lld %d %p %lld %p", (long long)handle, index, to, (long long)bytes, stream);
  return bytes > 1 ? HVD_OK : fail(HVD_INVALID_ARGUMENT, "bytes");
}
const char* hvd_mpi_left(void) { return "a rank has died"; }
hvd_status hvd_last_words(const char* why) { return fail(HVD_OK, why); }
hvd_status hvd_shutdown(double timeout_s) { return timeout_s == 5.5 ? HVD_OK : fail(HVD_SHUTDOWN, "timeout"); }
hvd_status hvd_abort(hvd_status code, const char* reason) {
  return code == HVD_PEER_LOST && !strcmp(reason, "why") ? HVD_OK : fail(HVD_INTERNAL, reason);
}
int32_t hvd_initialized(void) { return 1; }

hvd_status hvd_get_topology(hvd_topology* out) {
  *out = (hvd_topology){1, 2, 3, 4, 5, 6};
  return HVD_OK;
}
const char* hvd_register_tensorflow(void) { return ""; }
const char* hvd_register_tensorflow_xla(void) { return ""; }
const char* hvd_register_tensorflow_gpu(hvd_tensorflow_stream_fn stream_of) { return (void)stream_of, ""; }
void* hvd_jax_collective(void* call_frame) {
  (void)call_frame;
  return 0;
}
void* hvd_jax_collective_on_cuda(void* call_frame) { return hvd_jax_collective(call_frame); }
hvd_status hvd_mxnet_prepare(const hvd_op* ops, int32_t n, const hvd_mxnet_functions* mxnet, double timeout_s,
                             void** request) {
  (void)ops, (void)n, (void)mxnet, (void)timeout_s, (void)request;
  return HVD_OK;
}
void hvd_mxnet_run(void* run_context, void* on_complete, void* request) {
  (void)run_context, (void)on_complete, (void)request;
}
void hvd_mxnet_drop(void* request) { (void)request; }

hvd_status hvd_describe(char* buffer, size_t n, size_t* needed) {
  *needed = strlen(text) + 1;
  if (n) {
    strncpy(buffer, text, n - 1);
    buffer[n - 1] = 0;
  }
  return HVD_OK;
}

hvd_status hvd_dump(char* buffer, size_t n, size_t* needed) { return hvd_describe(buffer, n, needed); }
hvd_status hvd_get_parameters(hvd_parameters* out) {
  *out = (hvd_parameters){sizeof *out, -1, 0, 1, 64, 2.5};
  return HVD_OK;
}
hvd_status hvd_set_parameters(const hvd_parameters* p) {
  const int as_asked = p->struct_bytes == sizeof *p && p->hierarchical_allreduce == -1 &&
                       p->hierarchical_allgather == 0 && p->torus_allreduce == 1 && p->fusion_threshold_bytes == 64 &&
                       p->cycle_time_ms == 2.5;
  return as_asked ? HVD_OK : fail(HVD_INVALID_ARGUMENT, "other parameters");
}
hvd_status hvd_await_steps(int64_t n, double timeout_s, hvd_steps* out) {
  *out = (hvd_steps){n, 100 * n, 1.5};
  return n < 5 ? HVD_OK : timeout_s < 1 ? HVD_IN_PROGRESS : fail(HVD_SHUTDOWN, "over");
}
int32_t hvd_dump_call_fd(void) { return -1; }
hvd_status hvd_dump_on_signal(int32_t number) { return number == 12 ? HVD_OK : HVD_UNSUPPORTED; }

hvd_status hvd_submit(const hvd_op* ops, int32_t n, uint32_t flags, hvd_handle* out) {
  const hvd_op* op = &ops[n - 1];
  int at =
      snprintf(text, sizeof text, "%d %d %d %d %d %g %g %s %s %s", op->type, op->dtype, op->reduce_op, op->root_rank,
               op->process_set, op->prescale, op->postscale, op->name, (const char*)op->input, (const char*)op->output);
  for (int i = 0; i < op->ndim; i++) at += snprintf(text + at, sizeof text - at, " %lld", (long long)op->shape[i]);
  for (int i = 0; i < op->n_splits; i++) at += snprintf(text + at, sizeof text - at, " s%d", op->splits[i]);
  *out = ((int64_t)flags << 40) + n;
  return HVD_OK;
}
hvd_status hvd_run(const hvd_op* ops, int32_t n, double timeout_s, hvd_handle* out) {
  hvd_submit(ops, n, 1, out);
  return timeout_s > 1 ? HVD_IN_PROGRESS : fail(HVD_MISMATCH, "differ");
}
hvd_status hvd_refuse(int32_t type, int32_t process_set, const char* name, const char* reason) {
  snprintf(text, sizeof text, "%d %d %s %s", type, process_set, name, reason);
  return HVD_OK;
}
hvd_status hvd_finish(hvd_handle handle, double timeout_s) { return handle == 7 && timeout_s == 0.5 ? HVD_OK : HVD_IN_PROGRESS; }
hvd_status hvd_finish_all(const hvd_handle* handles, int32_t n, double timeout_s) {
  return n == 2 && handles[0] == 1 && handles[1] == 1LL << 40 && timeout_s == 0.5 ? HVD_OK : HVD_UNKNOWN_HANDLE;
}
hvd_status hvd_poll(hvd_handle handle) { return handle == 1LL << 40 ? HVD_OK : HVD_IN_PROGRESS; }
hvd_status hvd_wait(hvd_handle handle, double timeout_s) {
  return handle == 1LL << 40 && timeout_s == 0.25 ? HVD_OK : HVD_IN_PROGRESS;
}
hvd_status hvd_release(hvd_handle handle) {
  return handle == 7 ? HVD_OK : fail(HVD_INVALID_ARGUMENT, "unknown handle");
}
hvd_status hvd_on_done(hvd_handle handle, hvd_done_fn fn, void* user) {
  fn(user, handle == 7 ? HVD_OK : HVD_PEER_LOST, "done");
  return HVD_OK;
}

hvd_status hvd_take_result(hvd_handle handle, int32_t index, hvd_result* out) {
  static float data[6] = {0, 1, 2, 3, 4, 5};
  if (index) return fail(HVD_INVALID_ARGUMENT, "no such result");
  *out = (hvd_result){data, &freed, sizeof data, HVD_FLOAT32, 2, {2, 3}};
  return handle ? HVD_OK : HVD_INTERNAL;
}
void hvd_result_free(void* owner) { ++*(int*)owner; }
hvd_status hvd_received_splits(hvd_handle handle, int32_t index, int32_t* splits, int32_t n) {
  for (int i = 0; i < n; i++) splits[i] = (int32_t)handle * 10 + index + i;
  return HVD_OK;
}
hvd_status hvd_result_value(hvd_handle handle, int64_t* value) {
  *value = handle == 3 ? freed : handle << 33;
  return HVD_OK;
}

hvd_status hvd_process_set_add(const int32_t* ranks, int32_t n, int32_t by_members, hvd_handle* out) {
  *out = n ? ranks[n - 1] + 100 * by_members : 0;
  return n ? HVD_OK : fail(HVD_INVALID_ARGUMENT, "empty");
}
hvd_status hvd_process_set_remove(int32_t id, hvd_handle* out) {
  *out = id + 1;
  return id ? HVD_OK : fail(HVD_INVALID_ARGUMENT, "set 0 cannot be removed");
}
hvd_status hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t* n) {
  int capacity = *n;
  if (id < 0) return *n = 0, fail(HVD_INVALID_ARGUMENT, "unknown id");
  *n = id;
  if (capacity < id) return fail(HVD_INVALID_ARGUMENT, "capacity");
  for (int i = 0; i < id; i++) ranks[i] = i * 2;
  return HVD_OK;
}
hvd_status hvd_process_set_list(int32_t* ids, int32_t* n) { return ids[0] = 0, *n = 1, HVD_OK; }

hvd_status hvd_shared_alloc(int64_t bytes, void** out) {
  if (bytes > 1000) return fail(HVD_UNSUPPORTED, "alone on the host");
  *out = calloc(1, bytes);
  return HVD_OK;
}
void hvd_shared_free(void* data) { free(data); }
hvd_status hvd_timeline_start(const char* path, int32_t mark_cycles) {
  snprintf(text, sizeof text, "%s %d", path, mark_cycles);
  return HVD_OK;
}
hvd_status hvd_timeline_stop(void) { return fail(HVD_INVALID_ARGUMENT, "no timeline"); }
void hvd_log_sink(hvd_log_fn fn) { log_fn = fn; }
