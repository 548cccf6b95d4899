// Streams: threads that do what was put on them, one thing after another and late.
#pragma once

#include <functional>
#include <string>

namespace fake {

struct Stream;  // lives until the end of the process

// Null: no such stream, or it is the default one (0) and no context is current.
Stream* FindStream(void* handle);
int DeviceOf(const Stream& stream);
// What FindStream's null means.
int NoStream(void* handle);
// Puts work on a stream. `late`: takes its time. kCaptureUnsupported: the stream is being captured.
int Enqueue(Stream& stream, std::string description, std::function<void()> work, bool late = true);
// Waits until all that was put on the streams of a device before the call is done.
void WaitForDevice(int device);
// Sleeps for as long as an operation is under way.
void Linger();

}  // namespace fake
