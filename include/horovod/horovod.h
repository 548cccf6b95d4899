/* The C interface of libhorovod.so: the one door into the native core.
 *
 * Conventions
 *   - Every function that can fail returns an hvd_status; HVD_OK is 0. The message of the last failure of the calling
 * thread is hvd_last_error(). No function prints, exits or aborts.
 *   - Pointers passed in are borrowed for the length of the call, but the tensors of an hvd_op (input, output): those
 * must stay valid and untouched until the handle is done.
 *   - Functions are safe to call from any thread, unless a comment says otherwise.
 *   - "Collective": every member of the process set must make the matching call.
 *
 * Nothing in this file names Python, a deep-learning framework or a socket address; and nothing of MPI, CUDA or NCCL
 * but where their libraries are.
 */
#ifndef HOROVOD_HOROVOD_H_
#define HOROVOD_HOROVOD_H_

#include <stddef.h>
#include <stdint.h>

#include "horovod/counters.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))

/* Increased with every incompatible change of this file; the Python side refuses a library whose number differs. */
#define HVD_ABI_VERSION 5

/* ---- status codes */

typedef enum hvd_status {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1,    /* the caller's fault on this rank */
  HVD_UNSUPPORTED = 2,         /* this operation or process set cannot do that */
  HVD_BACKEND_UNAVAILABLE = 3, /* nothing can run this batch; the message holds one reason per backend */
  HVD_INTERNAL = 4,            /* a collective failed, or a bug of ours */
  HVD_NOT_INITIALIZED = 5,     /* hvd_init has not been called */
  HVD_SHUTDOWN = 6,            /* the engine, or a member that the operation needs, has shut down */
  HVD_PEER_LOST = 7,           /* a rank died or closed its connection: the message names it */
  HVD_TIMEOUT = 8,             /* a named deadline passed inside a collective */
  HVD_MISMATCH = 9,            /* the members disagree; same message on every one of them */
  HVD_IN_PROGRESS = 10,        /* hvd_wait: not done yet (time slice over, or a signal arrived) */
  HVD_UNKNOWN_HANDLE = 11,     /* this number was released, or never given out */
  HVD_RESOURCE = 12,           /* this process or machine lacks memory, descriptors, threads or space; the message
                                  names the limit. Trying again does not help */
} hvd_status;

/* ---- operations and types */

typedef enum hvd_op_type {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_ALLTOALL = 3,
  HVD_REDUCESCATTER = 4,
  HVD_BARRIER = 5,
  HVD_JOIN = 6,
  HVD_SEND = 7, /* this and the next: between two members of a process set, see hvd_submit */
  HVD_RECV = 8,
} hvd_op_type;

/* The public numbers of hvd.Average, hvd.Sum, ... */
typedef enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5,
} hvd_reduce_op;

typedef enum hvd_dtype {
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_UINT16 = 2,
  HVD_INT16 = 3,
  HVD_INT32 = 4,
  HVD_INT64 = 5,
  HVD_FLOAT16 = 6,
  HVD_FLOAT32 = 7,
  HVD_FLOAT64 = 8,
  HVD_BOOL = 9,
  HVD_BFLOAT16 = 10,
  HVD_UINT32 = 11,
  HVD_UINT64 = 12,
  HVD_FLOAT8_E4M3FN = 13,
  HVD_FLOAT8_E5M2 = 14,
} hvd_dtype;

/* One tensor of a submission. Row-major and contiguous. */
typedef struct hvd_op {
  int32_t type;        /* hvd_op_type */
  int32_t dtype;       /* hvd_dtype */
  int32_t reduce_op;   /* hvd_reduce_op; allreduce and reducescatter only */
  int32_t root_rank;   /* global rank; of a broadcast the root, of a send who receives, of a recv who sends; else 0 */
  int32_t process_set; /* id; 0 = all ranks */
  int32_t ndim;
  double prescale;   /* multiplies before the reduction; 1.0 = nothing */
  double postscale;  /* multiplies after it */
  const char* name;  /* UTF-8, NUL-terminated; the identity that is negotiated. NULL or "": counted per (process set,
                        operation). Of a send or recv for messages only */
  const void* input; /* may be NULL when the tensor has no elements; of a recv it is */
  void* output;      /* allreduce, broadcast: same shape as input, may equal input. recv: where the tensor goes. send:
                        NULL. Others: NULL, or memory for a result of exactly output_bytes; a result of another size is
                        allocated by the core */
  const int64_t* shape;  /* ndim extents */
  const int32_t* splits; /* alltoall only: rows for each member; NULL = equal parts */
  int32_t n_splits;
  int32_t place;        /* where input and output lie: 0 = the host's memory, n = CUDA device n - 1, see hvd_use_gpu */
  int64_t output_bytes; /* allgather, alltoall, reducescatter with an output */
  void* stream; /* on a device: the CUstream whose work until now makes the input; what is put on it later may run
                   before the operation does */
} hvd_op;

typedef int64_t hvd_handle; /* > 0; one per submission, also of a group; never given out twice in a process */

/* Flags of hvd_submit. Without any, small tensors are passed on together, some microseconds later at most. */
enum {
  HVD_SUBMIT_WILL_WAIT = 1, /* the caller waits in this thread, after its last submission, and drives the engine */
  HVD_SUBMIT_AT_ONCE = 2,   /* no thread of this process is going to wait: pass it on now */
};

/* ---- life */

/* How this rank reaches one other rank. Descriptors become the core's property when hvd_init succeeds or fails; -1 =
 * absent. */
typedef struct hvd_peer {
  int32_t rank;
  int32_t memory_fd;   /* the peer's shared region (same host), or -1 */
  int32_t doorbell_fd; /* the peer's eventfd (same host), or -1 */
  int32_t liveness_fd; /* becomes readable when the peer's process is gone (a pidfd or a pipe), or -1 */
  int32_t control_fd;  /* connected stream socket for control frames (other host, see hvd_tree), or -1 */
  int32_t data_fd;     /* connected stream socket for data (other host), or -1: not yet, see wish_fd */
  int64_t pid;         /* for messages */
  uint8_t key[16];     /* per-connection key of the control frames' MAC (other host) */
} hvd_peer;

typedef struct hvd_config {
  uint32_t struct_bytes; /* sizeof(hvd_config), checked */
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  uint64_t epoch;              /* rises with every re-initialisation of a job; a frame of another epoch is refused */
  const int32_t* host_of_rank; /* size entries: equal numbers share memory */
  const hvd_peer* peers;       /* the other ranks this one is connected to */
  int32_t n_peers;
  int32_t memory_fd;   /* own region, hvd_region_bytes long, or -1 when alone on the host */
  int32_t doorbell_fd; /* own eventfd, or -1: the core makes one */
  int32_t wish_fd;     /* a connected stream socket of the caller's other end: the core writes the number of each lower
                          rank (int32_t, as this machine stores it) that it needs a data connection with and has none,
                          and closes it in hvd_shutdown; see hvd_connected. Or -1: all peers are given theirs */
  const char* nvtx_library; /* the profiler's, as NVTX_INJECTION64_PATH names it; NULL or "" = no NVTX ranges */
  uint64_t* counters; /* HVD_COUNTER_WORDS words, zeros at first, aligned to 8 bytes, which live as long as the process;
                         NULL: the core's own */
  int32_t timeline_continues; /* 1: the file of timeline_path is that of an earlier epoch of the job, if it names it */
  const char* timeline_job;   /* what names the job in the file: letters and digits, 32 at most; NULL or "": nothing */
  const char* hostname;
  /* settings, from the one table (python/horovod/_core/settings/table.py) */
  int64_t fusion_threshold_bytes;
  double cycle_time_ms;
  int32_t cache_capacity; /* names that the negotiation remembers; < 0: as many as fit into 64 MB */
  int32_t disable_group_fusion;
  int32_t hierarchical_allreduce; /* and reducescatter: -1 = decide by topology, 0 = off, 1 = on */
  int32_t hierarchical_allgather; /* and broadcast and alltoall: likewise */
  int32_t torus_allreduce;        /* 1: as hierarchical_allreduce = 1, whatever that says */
  int32_t deterministic; /* 1: never fuse allreduces whose algorithm's rounding depends on the make-up of the batch */
  int32_t stall_check_disable;
  double stall_warning_s;
  double stall_shutdown_s;     /* 0 = never */
  double collective_timeout_s; /* no progress for that long inside a running batch */
  double link_timeout_s;       /* a host that is silent for that long is lost; 1 to 120 */
  double spin_us;              /* a waiting thread's spin before it blocks; < 0 = by ranks per usable core */
  int32_t store_mode;          /* stores into shared stages: 0 = measure, 1 = ordinary, 2 = streaming */
  int32_t thread_affinity;     /* core of the background thread, -1 = none */
  int32_t log_level;           /* 0 trace .. 5 fatal */
  int32_t log_hide_time;       /* 1: lines on stderr begin without the time */
  const char* timeline_path;   /* NULL or "" = off */
  int32_t timeline_mark_cycles;
  int32_t timeline_ranks;  /* 0 = all ranks, a process each; 1 = what rank 0 sees, a process for each tensor */
  int32_t timeline_max_mb; /* of the file, then it becomes PATH.1; 0 = no bound */
  int64_t resident_bytes;  /* address space for tensors that live in shared memory; 0 = none */
} hvd_config;

HVD_API int32_t hvd_abi_version(void);

/* Message of the calling thread's last failure; valid until its next failing call. Never NULL. */
HVD_API const char* hvd_last_error(void);

/* Bytes that every rank of a host of local_size ranks must give its region (a sealed memfd). */
HVD_API int64_t hvd_region_bytes(int32_t local_size, int64_t resident_bytes);

/* Starts the engine. Collective. Does not block on other ranks: the connections are there already.
 * Errors: HVD_INVALID_ARGUMENT (bad config; already initialised), HVD_RESOURCE (no memory, descriptor or thread),
 * HVD_INTERNAL (a descriptor that is not what it should be). */
HVD_API hvd_status hvd_init(const hvd_config* config);

/* Hands in the data connection to a rank that had none, a connected stream socket, which is the core's from now on; or,
 * with fd -1, the reason why there will be none: what needs it then fails with that. Of two ranks the higher one
 * connects, when the core has written the number of the lower one to wish_fd. HVD_INVALID_ARGUMENT: that rank has its
 * connection, or is none. Errors as hvd_init. */
HVD_API hvd_status hvd_connected(int32_t rank, int32_t fd, const char* why_not);

/* parent[r] of each rank in the tree of the negotiation, -1 for rank 0: ranks of two hosts that are parent and child
 * need a control connection, others none. host_of_rank as in hvd_config, size entries. */
HVD_API hvd_status hvd_tree(const int32_t* host_of_rank, int32_t size, int32_t* parent);

/* The three ways in which MPI libraries name their objects. */
typedef enum hvd_mpi_style {
  HVD_MPI_OPEN_MPI = 0, /* addresses of objects that the library exports */
  HVD_MPI_MPICH = 1,    /* numbers of 32 bits; also Intel MPI, MVAPICH, Cray MPICH */
  HVD_MPI_STANDARD = 2, /* small numbers in pointers, MPI 5.0 */
} hvd_mpi_style;

/* An MPI library that the caller has opened and initialised, at least with MPI_THREAD_SERIALIZED; with
 * MPI_THREAD_MULTIPLE where others use it, too. */
typedef struct hvd_mpi {
  uint32_t struct_bytes; /* sizeof(hvd_mpi), checked */
  int32_t style;         /* hvd_mpi_style */
  const char* library;   /* its path, as it was opened */
  uint64_t communicator; /* handle of one whose ranks are the job's, in their order, and which returns errors; the
                            core's from now on, for as long as the process lives. 0: it is only seen whether the library
                            could be used */
  const char* why_not;   /* not NULL or "": MPI is not used, for this reason, which hvd_describe tells */
} hvd_mpi;

/* From now on MPI moves the tensors. Not collective, but all ranks must call this alike, with one library, after
 * hvd_init and before any has submitted anything. HVD_BACKEND_UNAVAILABLE: the library cannot be opened, lacks a
 * function, or has been left by ranks of an earlier job in the middle of an operation. */
HVD_API hvd_status hvd_use_mpi(const hvd_mpi* mpi);

/* The GPU of this rank, and the libraries that are to be opened for it. */
typedef struct hvd_gpu {
  uint32_t struct_bytes;    /* sizeof(hvd_gpu), checked */
  int32_t device;           /* as the driver counts in this process, from 0 */
  const char* cuda_library; /* the driver's, CUDA's or HIP's, as its functions tell: its path or name */
  const char* nccl_library; /* its path, RCCL's for HIP, or NULL: why_not_nccl says why there is none */
  const char* why_not_nccl; /* not NULL or "": NCCL is not used, for this reason */
  int32_t max_ctas;         /* of an NCCL communicator; 0 = NCCL chooses */
  int32_t streams;          /* of NCCL; each has a communicator for each process set */
} hvd_gpu;

/* From now on this rank can submit tensors that lie on that device. Not collective; the members of a process set agree
 * with the first such operation how they move them: NCCL where all of them can, else the host's way, through pinned
 * memory. Once for each hvd_init. HVD_BACKEND_UNAVAILABLE: the driver cannot be opened, or has no such device. */
HVD_API hvd_status hvd_use_gpu(const hvd_gpu* gpu);

/* The place (see hvd_op) of the GPU that this rank uses; 0: none. */
HVD_API hvd_status hvd_gpu_place(int32_t* place);

/* Why the ranks of this process's jobs cannot end MPI together, so that MPI_Finalize would wait for ever; "": they can.
 * Any thread, also after hvd_shutdown. Valid until the next call of the same thread. */
HVD_API const char* hvd_mpi_left(void);

/* Why this rank is about to end ("ValueError: ..."), for hvd_shutdown to say in its goodbye: what needs this rank then
 * fails elsewhere with "rank 1 ended with ValueError: ...". At most 4096 bytes are sent. */
HVD_API hvd_status hvd_last_words(const char* why);

/* Says goodbye, completes what can still complete within timeout_s, fails the rest with HVD_SHUTDOWN, joins the
 * threads, closes every descriptor. Where another rank has left with last words, waits two seconds (and timeout_s) at
 * most for its process to end, so that a launcher that watches the processes sees that one end first. Callable when not
 * initialised (does nothing). Shared tensors stay valid until freed. Returns within timeout_s, that wait and what
 * hvd_abort takes, but for an hvd_on_done callback that does not return. */
HVD_API hvd_status hvd_shutdown(double timeout_s);

/* Fails every pending and future operation of this rank with `code` (a failure above) and `reason`, and tells the other
 * ranks. Returns when that is done, within 0.1 s also while other threads wait; live shared tensors take about half a
 * second per GB more. */
HVD_API hvd_status hvd_abort(hvd_status code, const char* reason);

/* 1 between hvd_init and hvd_shutdown; stays 1 after a failure, until hvd_shutdown. */
HVD_API int32_t hvd_initialized(void);

/* Where this rank stands, as given to hvd_init. HVD_NOT_INITIALIZED. */
typedef struct hvd_topology {
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
} hvd_topology;
HVD_API hvd_status hvd_get_topology(hvd_topology* out);

/* JSON text: abi, rank, size, hostname, simd, shared_memory_ranks, cores_per_rank (on this host; 0: ranks share cores,
 * 2: two or more), failed; backends, each with name, usable, why_not ("" when usable), version (of a library
 * behind it, as one number; 0: none) and batches (that it has carried); settings, by their names in hvd_config, as this
 * engine uses them; process_sets, id to ranks; counters: batches, tensors, sleeps, in_flight, steps, stalls, errors,
 * last_error, seconds (blocked, transferring, pending, in_batches), all since this hvd_init, and operations, by name,
 * each with tensors and bytes of this rank. Writes at most n bytes with a NUL; *needed: the full length + 1. */
HVD_API hvd_status hvd_describe(char* buffer, size_t n, size_t* needed);

/* JSON text to diagnose a job that hangs: pending, what has been submitted and does not run yet, the oldest
 * first, each with operation, name, what (as messages call it), process_set, dtype, shape, seconds, and members: of a
 * send or recv, whose name both ranks have alike, who sends and who receives; untold, how many more there are;
 * finished, the last operations that have ended, with their number from 1, the oldest first; process_sets. Any thread
 * may call it, at any time. Buffer as for hvd_describe. */
HVD_API hvd_status hvd_dump(char* buffer, size_t n, size_t* needed);

/* What may be changed while the job runs; each as in hvd_config. */
typedef struct hvd_parameters {
  uint32_t struct_bytes; /* sizeof(hvd_parameters), checked */
  int32_t hierarchical_allreduce;
  int32_t hierarchical_allgather;
  int32_t torus_allreduce;
  int64_t fusion_threshold_bytes;
  double cycle_time_ms;
} hvd_parameters;

/* Those in force on this rank. Sets struct_bytes too. */
HVD_API hvd_status hvd_get_parameters(hvd_parameters* out);

/* All ranks go by these from the next batch that is decided on, at the same place in their order; what is under way
 * goes on as it was. Called by rank 0 alone: not collective. Non-blocking. HVD_INVALID_ARGUMENT: another rank, or a
 * value that cannot be; nothing is changed then. */
HVD_API hvd_status hvd_set_parameters(const hvd_parameters* parameters);

/* Training steps of this rank that have ended since the first call of hvd_await_steps, the bytes of its tensors in them
 * and when the last of them ended, on CLOCK_MONOTONIC. A step ends where a tensor comes again that has come in it. */
typedef struct hvd_steps {
  int64_t steps;
  int64_t bytes;
  double at_s;
} hvd_steps;

/* Waits until n steps have ended in all; n = 0 asks. For a tuner's thread: it drives nothing. HVD_IN_PROGRESS: they
 * have not within timeout_s. HVD_SHUTDOWN: hvd_shutdown was called. *out is set in all three cases. */
HVD_API hvd_status hvd_await_steps(int64_t n, double timeout_s, hvd_steps* out);

/* An eventfd of this process that becomes readable when somebody asks for a dump: its count grows by 1 for each signal
 * of hvd_dump_on_signal, by 2^32 whenever operations of the job have waited too long for some ranks. It is not blocking
 * and stays the core's. -1: there is no descriptor left. */
HVD_API int32_t hvd_dump_call_fd(void);

/* From now on this signal asks for a dump, whatever the threads of the process do. HVD_UNSUPPORTED: the program handles
 * or ignores it already. */
HVD_API hvd_status hvd_dump_on_signal(int32_t number);

/* ---- work */

/* Submits n tensors (n > 1: one atomic group, all of one type and process set). Non-blocking. The caller keeps the
 * tensors alive until the handle is done. A refusal (bad argument, duplicate name in flight) submits nothing and, but
 * for a duplicate or a name of more than 64 KB, is sent to the other members as that rank's contribution, so that they
 * fail with the reason instead of waiting.
 *
 * HVD_SEND, HVD_RECV: not collective. The n-th send of one rank to another meets the n-th recv of that one from it, in
 * the order of submission; both have one dtype and shape, or both fail with HVD_MISMATCH. n is 1, and the tensor lies
 * in the host's memory. A send with HVD_SUBMIT_WILL_WAIT of at most 64 KB (to oneself: of any size) is copied, and done
 * at once, unless 16 MB of such copies wait already; should it fail later, the next send to that rank says so and does
 * nothing else. hvd_shutdown waits half its time for those copies to be taken. */
HVD_API hvd_status hvd_submit(const hvd_op* ops, int32_t n, uint32_t flags, hvd_handle* out);

/* Tells the members of a set that this rank refuses the operation `name` for `reason` (an adapter found a bad
 * argument): they all get HVD_MISMATCH naming this rank. Non-blocking. */
HVD_API hvd_status hvd_refuse(int32_t type, int32_t process_set, const char* name, const char* reason);

/* HVD_OK: done and successful. HVD_IN_PROGRESS: not done yet. Anything else: done, failed with that error. */
HVD_API hvd_status hvd_poll(hvd_handle handle);

/* As hvd_poll, but waits up to timeout_s, driving the engine meanwhile. Returns HVD_IN_PROGRESS early when a signal
 * arrives. */
HVD_API hvd_status hvd_wait(hvd_handle handle, double timeout_s);

/* hvd_wait and, if the operation was successful, hvd_release. */
HVD_API hvd_status hvd_finish(hvd_handle handle, double timeout_s);

/* hvd_finish for n handles at once: when all of them are successful they are released; otherwise none is. The first
 * status that is not HVD_OK. */
HVD_API hvd_status hvd_finish_all(const hvd_handle* handles, int32_t n, double timeout_s);

/* Submit with HVD_SUBMIT_WILL_WAIT, wait, and release unless there is something to take, or to order by (hvd_order).
 * When it returns HVD_IN_PROGRESS, *out is a handle to go on waiting for. When it returns HVD_OK, *out is 0 if all
 * results are where the caller wanted them, else a handle for hvd_take_result or hvd_order. On a failure *out is 0. */
HVD_API hvd_status hvd_run(const hvd_op* ops, int32_t n, double timeout_s, hvd_handle* out);

/* Calls fn(user, status, message) once, when the handle is done, on an engine thread that holds no lock (or at once, on
 * the caller's). The message is valid during the call. fn may submit, poll and release, but must not wait. */
typedef void (*hvd_done_fn)(void* user, hvd_status status, const char* message);
HVD_API hvd_status hvd_on_done(hvd_handle handle, hvd_done_fn fn, void* user);

/* The result `index` of a done allgather, alltoall or reducescatter. If the core allocated it, ownership passes to the
 * caller, who must call hvd_result_free(owner) when the data is no longer needed; if it lies in the caller's output,
 * data is that and owner is NULL. The first ndim entries of shape are set. */
typedef struct hvd_result {
  void* data;
  void* owner;
  int64_t bytes;
  int32_t dtype;
  int32_t ndim;
  int64_t shape[16];
} hvd_result;
HVD_API hvd_status hvd_take_result(hvd_handle handle, int32_t index, hvd_result* out);
HVD_API void hvd_result_free(void* owner);

/* Rows received from each member (alltoall): n must be the size of the set. hvd_run keeps no handle to ask when the
 * result lies in the caller's output. HVD_UNSUPPORTED: a number above 2^31 - 1; the rows can still be taken. */
HVD_API hvd_status hvd_received_splits(hvd_handle handle, int32_t index, int32_t* splits, int32_t n);

/* What is put on `stream` from now on begins when the device is through with the operations of this done handle: an
 * operation on a device is done when it is on its way. The host does not wait. No part of a failed operation is under
 * way. */
HVD_API hvd_status hvd_order(hvd_handle handle, void* stream);

/* As hvd_take_result, but takes nothing: data and owner are NULL. */
HVD_API hvd_status hvd_describe_result(hvd_handle handle, int32_t index, hvd_result* out);

/* Copies the result `index` of a done allgather, alltoall or reducescatter that the core has allocated on the device to
 * `to`, of exactly `bytes` on the same device, on `stream`, and gives it back. The host does not wait.
 * HVD_INVALID_ARGUMENT: another number of bytes, or it was taken already. */
HVD_API hvd_status hvd_copy_result(hvd_handle handle, int32_t index, void* to, int64_t bytes, void* stream);

/* A number that the operation yields: join: the last rank to join; process_set_add: the id. */
HVD_API hvd_status hvd_result_value(hvd_handle handle, int64_t* value);

/* Forgets a handle. Of an operation on a device that is done, what is put from now on on the stream that its tensors
 * came with begins when the device is through with them, so that their memory may be used again; hvd_finish does the
 * same. If it is not done the operation still runs to its end; its tensors must live until then. */
HVD_API hvd_status hvd_release(hvd_handle handle);

/* ---- process sets */

/* Registers the set of these global ranks. Collective over *all* ranks of the job; with by_members != 0 over the ranks
 * of the set, of which the caller must be one, and the others learn of it in passing. Completes when all of them have
 * asked for the same ranks; hvd_result_value gives the id. Errors on the handle: HVD_MISMATCH (ranks differ),
 * HVD_INVALID_ARGUMENT (exists, not a rank, empty). */
HVD_API hvd_status hvd_process_set_add(const int32_t* ranks, int32_t n, int32_t by_members, hvd_handle* out);
/* Removes a set. Collective over all ranks. Set 0 cannot be removed. */
HVD_API hvd_status hvd_process_set_remove(int32_t id, hvd_handle* out);
/* Members in ascending order. *n in: capacity, out: number of members. HVD_INVALID_ARGUMENT: unknown id. */
HVD_API hvd_status hvd_process_set_ranks(int32_t id, int32_t* ranks, int32_t* n);
/* Registered ids, ascending. */
HVD_API hvd_status hvd_process_set_list(int32_t* ids, int32_t* n);

/* ---- shared tensors */

/* Memory that the other ranks of this host can read and write during a collective: an allreduce of it needs no copy.
 * Aligned to 64 bytes, zeroed, committed (never a SIGBUS). HVD_UNSUPPORTED: alone on the host or resident_bytes is 0;
 * HVD_RESOURCE: no memory or room left. Stays valid, as private memory of this process, after hvd_shutdown and until
 * hvd_shared_free. In a forked child it is copy-on-write: what the child stores, no other process sees; what it has not
 * stored into may go on following its parent, and is zero after the parent's shutdown or abort. */
HVD_API hvd_status hvd_shared_alloc(int64_t bytes, void** out);
HVD_API void hvd_shared_free(void* data);

/* ---- observers */

/* Rank 0 begins and ends the trace for all ranks (hvd_config.timeline_ranks). The end waits 2 s at most for what the
 * others have to say. HVD_INVALID_ARGUMENT: another rank; the file cannot be written; there is a trace already. */
HVD_API hvd_status hvd_timeline_start(const char* path, int32_t mark_cycles);
HVD_API hvd_status hvd_timeline_stop(void);

/* fn receives the engine's log lines (level, text) on any thread; NULL restores stderr. Call before hvd_init. */
typedef void (*hvd_log_fn)(int32_t level, const char* text);
HVD_API void hvd_log_sink(hvd_log_fn fn);

/* ---- frameworks */

/* Adds the core's operators and kernels to the TensorFlow that the process has loaded, once; called by
 * libhorovod_tensorflow.so when it is loaded. The answer, also of later calls: "" or why not. */
HVD_API const char* hvd_register_tensorflow(void);
/* Adds the custom calls with which functions compiled by that TensorFlow's XLA run collectives on the CPU, and on the
 * GPU of hvd_use_gpu. Likewise. */
HVD_API const char* hvd_register_tensorflow_xla(void);
/* Answers the CUstream of the device that a kernel runs on, given its TF_OpKernelContext; NULL: it has none. */
typedef void (*hvd_tensorflow_stream_fn)(void* context, void** stream);
/* Adds kernels that take tensors where they lie on the GPU of hvd_use_gpu, ordered by these streams. They precede those
 * of hvd_register_tensorflow, which goes first and whose tensors TensorFlow copies to the host's memory. Likewise. */
HVD_API const char* hvd_register_tensorflow_gpu(hvd_tensorflow_stream_fn stream_of);
/* The handler of the XLA FFI with which functions compiled by JAX run collectives on the CPU; given to
 * jax.ffi.register_ffi_target. Collective; blocks XLA's thread. call_frame: an XLA_FFI_CallFrame, checked: a token and
 * the tensors, of any hvd_dtype, and one text attribute `description`. The answer: NULL, or an XLA_FFI_Error with the
 * message of the failure. */
HVD_API void* hvd_jax_collective(void* call_frame);
/* Likewise for the platform CUDA: the tensors lie on the GPU of hvd_use_gpu. Blocks XLA's thread until the operations
 * are on their way; the computation's stream goes on behind them. */
HVD_API void* hvd_jax_collective_on_cuda(void* call_frame);

/* What is called of MXNet, which is found at run time. */
typedef struct hvd_mxnet_functions {
  uint32_t struct_bytes; /* sizeof(hvd_mxnet_functions), checked */
  void* copy_array;      /* MXShallowCopyNDArray */
  void* free_array;      /* MXNDArrayFree */
  void* array_data;      /* MXNDArrayGetData */
  void* usual_copy;      /* mxnet::NDArray::Reorder2Default; NULL: MXNet without oneDNN, whose arrays have one layout */
  void* usual_place;     /* mxnet::NDArray::Chunk::Reorder2Default; likewise */
  void* make_error;      /* of the C++ library that MXNet uses: std::runtime_error's constructor from a text */
  void* drop_error;      /* and its destructor */
} hvd_mxnet_functions;
/* A submission as an operation of MXNet's engine: the parameter for MXEnginePushAsyncND, with hvd_mxnet_run as function
 * and hvd_mxnet_drop as deleter. Input and output of the ops, which are copied, are handles of MXNet's arrays, which
 * are kept; their addresses are asked for when the engine runs the operation. Each has a name. HVD_IN_PROGRESS: an
 * operation of one of these names has not ended within timeout_s. HVD_RESOURCE: no memory; without a text. */
HVD_API hvd_status hvd_mxnet_prepare(const hvd_op* ops, int32_t n, const hvd_mxnet_functions* mxnet, double timeout_s,
                                     void** request);
/* Called by MXNet's engine when the arrays are ready: submits. Non-blocking. Collective. on_complete: three words, a
 * function and its arguments, which the engine has called when the operation has ended, with an error that holds the
 * message of a failure. */
HVD_API void hvd_mxnet_run(void* run_context, void* on_complete, void* request);
/* Frees a request that has ended, or that the engine leaves out because an operation before it has failed: then the
 * other members learn that. */
HVD_API void hvd_mxnet_drop(void* request);

#ifdef __cplusplus
}
#endif

#endif /* HOROVOD_HOROVOD_H_ */
