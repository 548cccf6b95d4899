// Streams: threads that do what was put on them, one thing after another and late.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "native/backend/cuda/fake/cuda/fake_cuda_memory.h"

namespace fake {

struct Stream;  // lives until the end of the process

// Null: no such stream, or it is the default one (0) and no context is current.
Stream* FindStream(void* handle);
int DeviceOf(const Stream& stream);
// What FindStream's null means.
int NoStream(void* handle);
// Puts work on a stream. kCaptureUnsupported: the stream is being captured. An access that no event orders is a fault
// at once, and then the work is called with true: it must not give right data, by luck.
int Enqueue(Stream& stream, const std::string& description, std::function<void(bool unordered)> work,
            const std::vector<Access>& accesses);
// Waits until all that was put on the streams of a device before the call is done. Whether the host then `knows` it, so
// that what comes later is ordered behind it.
void WaitForDevice(int device, bool knows = true);
// Sleeps for as long as an operation is under way.
void Linger();

}  // namespace fake
