// What the fake CUDA driver has besides the driver's own functions: for tests, and for the fake NCCL. All are exported
// by libfake_cuda.so under these names, to be found by dlsym.
//
// The environment, read once: FAKE_CUDA_DEVICES (8), FAKE_CUDA_UUID (processes with different values have different
// GPUs), FAKE_CUDA_DELAY_US (200; how late operations are, about), FAKE_CUDA_SEED (1), FAKE_CUDA_FAIL
// ("cuInit:100,cuMemAlloc_v2:2": these functions always fail).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// ---- for tests

// Mistakes of whoever uses the driver; counted from the beginning of the process.
int fake_cuda_faults();
// The words for the last one. Returns their length.
int fake_cuda_say(char* text, int bytes);
// As if the stream were being captured into a graph.
void fake_cuda_set_capturing(void* stream, int on);
// The next call of a function fails with `code`; 0: not any more.
void fake_cuda_fail_next(const char* function, int code);
// No operation of any stream begins.
void fake_cuda_stall(int on);
// The number under which a stream or an event is in the record; 0: the default stream of device 0; -1: no such handle.
int fake_cuda_number(void* handle);
// From now on: a line for every operation put on a stream, in the order of the calls, as "stream 3: wait event 7", and
// one for every wait of the host, as "host sync: cuStreamSynchronize stream 3". Of copies from memory of the host that
// the device cannot reach the line says so: the driver may have the caller wait while it reads them.
void fake_cuda_record_start();
// The lines since then. Returns their length.
int fake_cuda_record(char* text, int bytes);
// How many blocks of device and of pinned memory there are.
int fake_cuda_blocks();

// ---- for the fake NCCL

struct fake_cuda_access {
  const void* address;
  size_t bytes;
  int writes;
};
// Puts a function on a stream. Returns CUresult. The function is called with 1 if an access was not ordered by an
// event: then it must not give right data.
int fake_cuda_enqueue(void* stream, void (*function)(void*, int unordered), void* argument, const char* description,
                      const fake_cuda_access* accesses, int count);
// Whether the stream's device may access this memory now; a counted fault if not. `who`: for its words.
int fake_cuda_may_access(const void* address, size_t bytes, int device, const char* who);
// The device of a stream, -1: no such stream.
int fake_cuda_device_of(void* stream);
// The device of this thread's context (0 if there is none), and its number for everybody.
int fake_cuda_current(unsigned char uuid[16]);
// Makes the context of a device current in this thread.
void fake_cuda_set_device(int device);
// Counts a fault.
void fake_cuda_fault(const char* text);
// Sleeps for as long as an operation is under way.
void fake_cuda_linger();
}
