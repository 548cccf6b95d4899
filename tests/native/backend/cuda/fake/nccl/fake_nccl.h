// What the fake NCCL has besides NCCL's own functions, for tests. All are exported by libfake_nccl.so under these
// names, to be found by dlsym.
//
// The environment, read once: FAKE_NCCL_VERSION (22809; as an RCCL 22203), FAKE_NCCL_FAIL ("ncclCommInitRankConfig:3":
// these functions always fail), FAKE_NCCL_INIT_MS (10; how long a communicator takes once all members have come).
#pragma once

extern "C" {

// Mistakes of whoever uses NCCL; counted from the beginning of the process. Those with memory and streams are in
// fake_cuda_faults().
int fake_nccl_faults();
// The words for the last one. Returns their length.
int fake_nccl_say(char* text, int bytes);
// The next call of a function fails with `code`; 0: not any more.
void fake_nccl_fail_next(const char* function, int code);
// No operation of this process ends but by ncclCommAbort.
void fake_nccl_hang(int on);
// What ncclCommGetAsyncError says of all communicators of this process; 0: how they are.
void fake_nccl_async_error(int code);
// ncclCommDestroy comes back when all members have called it, or ncclCommAbort, as that of members on one host does.
void fake_nccl_leave_together(int on);
// How many communicators there are in this process, and how many operations have not ended.
int fake_nccl_communicators();
int fake_nccl_operations();
// How many reduction operations of callers there are in this process.
int fake_nccl_scaled_sums();
}
