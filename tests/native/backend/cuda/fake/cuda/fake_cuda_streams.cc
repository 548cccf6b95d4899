#include "native/backend/cuda/fake/cuda/fake_cuda_streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "native/backend/cuda/fake/cuda/fake_cuda.h"
#include "native/backend/cuda/fake/cuda/fake_cuda_control.h"

namespace fake {

struct Work {
  std::function<void(bool unordered)> run;
  bool late = true, unordered = false;
};
struct Stream {
  int number = 0, device = 0;
  bool capturing = false, started = false, closed = false;
  std::deque<Work> queue;
  uint64_t submitted = 0, finished = 0;
  size_t index = 0;
  Clock clock;  // what is done before that which is put on it next
  bool Ended() const { return closed && queue.empty(); }
};

namespace {

// One recording of an event.
struct Moment {
  bool come = false;
  std::chrono::steady_clock::time_point at;  // when it came
  Clock clock;                               // what is done then
};
struct Event {
  int number = 0, device = 0;
  std::shared_ptr<Moment> last;  // null: never recorded, which is as good as come
  bool timed = false;
};

// Never destroyed: streams still work while the process ends.
struct Runtime {
  std::mutex mutex;  // guards all of this, and all streams and events
  std::condition_variable changed;
  std::map<void*, Stream*> streams;
  std::map<void*, Event> events;
  std::map<int, Stream*> defaults, per_thread;  // of devices
  std::vector<Stream*> all;                     // those that are destroyed, too: they finish their work
  bool stalled = false;
  int numbers = 0;
  Clock host;  // what any thread of the host knows to be done
};
Runtime& TheRuntime() {
  static auto* const kRuntime = new Runtime;
  return *kRuntime;
}
using Lock = std::unique_lock<std::mutex>;

// Never given out again, and no addresses: who looks inside crashes.
void* HandleOf(int number) { return reinterpret_cast<void*>(uintptr_t{0x40000} + 16 * static_cast<uintptr_t>(number)); }

void SleepAbout(double us) {
  static const long kSeed = Number("FAKE_CUDA_SEED", 1);
  static std::atomic<unsigned> threads{0};
  thread_local std::minstd_rand random(static_cast<unsigned>(kSeed) * 1000 + threads++);
  if (us <= 0) return;
  std::uniform_real_distribution<double> about(0.5 * us, 1.5 * us);
  std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(about(random)));
}
double DelayUs() {
  static const double kDelay = static_cast<double>(Number("FAKE_CUDA_DELAY_US", 200));
  return kDelay;
}

void WorkOn(Stream& stream) {
  Runtime& runtime = TheRuntime();
  current_device = stream.device;
  Lock lock(runtime.mutex);
  while (true) {
    runtime.changed.wait(lock, [&] { return (!stream.queue.empty() && !runtime.stalled) || stream.Ended(); });
    if (stream.Ended()) return;
    Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    lock.unlock();
    if (work.late) SleepAbout(DelayUs());
    lock.lock();
    runtime.changed.wait(lock, [&] { return !runtime.stalled; });
    lock.unlock();
    work.run(work.unordered);
    work = {};
    lock.lock();
    ++stream.finished;
    runtime.changed.notify_all();
  }
}

// With the lock.
Stream* NewStream(int device, int number) {
  Runtime& runtime = TheRuntime();
  auto* stream = new Stream;
  stream->number = number;
  stream->device = device;
  stream->index = runtime.all.size();
  runtime.all.push_back(stream);
  return stream;
}
int MakeStream(void** made) {
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mutex);
  const int number = ++runtime.numbers;
  *made = HandleOf(number);
  runtime.streams[*made] = NewStream(current_device, number);
  return kSuccess;
}
// With the lock.
Stream* Find(void* handle) {
  Runtime& runtime = TheRuntime();
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {  // the default streams
    if (current_device < 0) return nullptr;
    const bool per_thread = reinterpret_cast<uintptr_t>(handle) == 2;
    Stream*& stream = (per_thread ? runtime.per_thread : runtime.defaults)[current_device];
    if (stream == nullptr)
      stream = NewStream(current_device, current_device == 0 && !per_thread ? 0 : ++runtime.numbers);
    return stream;
  }
  const auto found = runtime.streams.find(handle);
  return found == runtime.streams.end() ? nullptr : found->second;
}
Event* FindEvent(void* handle) {
  const auto found = TheRuntime().events.find(handle);
  return found == TheRuntime().events.end() ? nullptr : &found->second;
}
std::string Name(const Stream& stream) { return "stream " + std::to_string(stream.number); }

void Merge(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// With the lock. The next operation is one more, after all that the host knows.
void Tick(Stream& stream) {
  Merge(stream.clock, TheRuntime().host);
  if (stream.clock.size() <= stream.index) stream.clock.resize(stream.index + 1);
  ++stream.clock[stream.index];
}

// With the lock. `late`: takes its time.
void Push(Stream& stream, const std::string& description, std::function<void(bool)> work, bool late,
          const std::vector<Access>& accesses = {}) {
  if (!stream.started) {
    std::thread([&stream] { WorkOn(stream); }).detach();
    stream.started = true;
  }
  Record(Name(stream) + ": " + description);
  Tick(stream);
  const std::string wrong = NoteAccesses(accesses, stream.index, stream.clock);
  if (!wrong.empty()) Fault(Name(stream) + ": " + description + " " + wrong);
  stream.queue.push_back({std::move(work), late, !wrong.empty()});
  ++stream.submitted;
  TheRuntime().changed.notify_all();
}

void Come(const std::shared_ptr<Moment>& moment) {
  Lock lock(TheRuntime().mutex);
  moment->come = true;
  moment->at = std::chrono::steady_clock::now();
  TheRuntime().changed.notify_all();
}
// On a stream's thread, which runs a host function: the host knows all that came before it.
void KnowOnHost(const Clock& clock) {
  Lock lock(TheRuntime().mutex);
  Merge(TheRuntime().host, clock);
}
Clock ClockOf(const Stream& stream) {
  Lock lock(TheRuntime().mutex);
  return stream.clock;
}
void WaitFor(const std::shared_ptr<Moment>& moment) {
  Lock lock(TheRuntime().mutex);
  TheRuntime().changed.wait(lock, [&] { return moment->come; });
}

}  // namespace

Stream* FindStream(void* handle) {
  Lock lock(TheRuntime().mutex);
  return Find(handle);
}
int DeviceOf(const Stream& stream) { return stream.device; }
int NoStream(void* handle) { return reinterpret_cast<uintptr_t>(handle) <= 2 ? kNoContext : kInvalidHandle; }

int Enqueue(Stream& stream, const std::string& description, std::function<void(bool unordered)> work,
            const std::vector<Access>& accesses) {
  Lock lock(TheRuntime().mutex);
  if (stream.capturing) {
    Fault(description + " on a stream that is being captured");
    return kCaptureUnsupported;
  }
  Push(stream, description, std::move(work), true, accesses);
  return kSuccess;
}

void WaitForDevice(int device, bool knows) {
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mutex);
  std::vector<std::pair<Stream*, uint64_t>> until;
  Clock known;
  for (Stream* stream : runtime.all) {
    if (stream->device != device) continue;
    until.emplace_back(stream, stream->submitted);
    Merge(known, stream->clock);
  }
  for (auto& [stream, number] : until)
    runtime.changed.wait(lock, [stream = stream, number = number] { return stream->finished >= number; });
  if (knows) Merge(runtime.host, known);
}

void Linger() { SleepAbout(DelayUs() / 2); }

}  // namespace fake

using namespace fake;  // NOLINT: the driver's functions have to be global

EXPORT int cuStreamCreateWithPriority(void** made, unsigned, int) {
  ENTER_IN_CONTEXT();
  return MakeStream(made);
}
EXPORT int cuStreamCreate(void** made, unsigned) {
  ENTER_IN_CONTEXT();
  return MakeStream(made);
}
EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER_IN_CONTEXT();
  *least = 0;
  *greatest = -5;
  return kSuccess;
}
EXPORT int cuStreamDestroy_v2(void* handle) {
  ENTER();
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mutex);
  const auto found = runtime.streams.find(handle);
  if (found == runtime.streams.end()) return kInvalidHandle;
  found->second->closed = true;
  runtime.streams.erase(found);
  runtime.changed.notify_all();
  return kSuccess;
}
EXPORT int cuStreamSynchronize(void* handle) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  Stream* stream = Find(handle);
  if (stream == nullptr) return NoStream(handle);
  if (stream->capturing) return kCaptureUnsupported;
  Record("host sync: cuStreamSynchronize " + Name(*stream));
  const uint64_t until = stream->submitted;
  const Clock known = stream->clock;
  TheRuntime().changed.wait(lock, [&] { return stream->finished >= until; });
  Merge(TheRuntime().host, known);
  return kSuccess;
}
EXPORT int cuStreamQuery(void* handle) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  Stream* stream = Find(handle);
  if (stream == nullptr) return NoStream(handle);
  if (stream->capturing) return kCaptureUnsupported;
  if (stream->finished < stream->submitted) return kNotReady;
  Merge(TheRuntime().host, stream->clock);
  return kSuccess;
}
EXPORT int cuStreamIsCapturing(void* handle, int* status) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  Stream* stream = Find(handle);
  if (stream == nullptr) return NoStream(handle);
  *status = stream->capturing ? 1 : 0;
  return kSuccess;
}
EXPORT int cuStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  Stream* stream = Find(handle);
  if (stream == nullptr) return NoStream(handle);
  Event* event = FindEvent(event_handle);
  if (event == nullptr) return kInvalidHandle;
  if (stream->capturing) return kCaptureIsolation;
  if (event->last != nullptr) Merge(stream->clock, event->last->clock);
  Push(
      *stream, "wait event " + std::to_string(event->number),
      [moment = event->last](bool) {
        if (moment != nullptr) WaitFor(moment);
      },
      false);
  return kSuccess;
}
EXPORT int cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  ENTER();
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return NoStream(handle);
  const auto run = [function, argument, known = ClockOf(*stream)](bool) {
    KnowOnHost(known);
    in_host_function = true;
    function(argument);
    in_host_function = false;
  };
  return Enqueue(*stream, "host function", run, {});
}
EXPORT int cuCtxSynchronize() {
  ENTER_IN_CONTEXT();
  Record("host sync: cuCtxSynchronize");
  WaitForDevice(current_device);
  return kSuccess;
}

EXPORT int cuEventCreate(void** made, unsigned flags) {
  ENTER_IN_CONTEXT();
  Runtime& runtime = TheRuntime();
  Lock lock(runtime.mutex);
  const int number = ++runtime.numbers;
  *made = HandleOf(number);
  runtime.events[*made] = {number, current_device, nullptr, (flags & 2) == 0};
  return kSuccess;
}
EXPORT int cuEventDestroy_v2(void* handle) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  return TheRuntime().events.erase(handle) > 0 ? kSuccess : kInvalidHandle;
}
EXPORT int cuEventRecord(void* handle, void* stream_handle) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  Stream* stream = Find(stream_handle);
  if (stream == nullptr) return NoStream(stream_handle);
  Event* event = FindEvent(handle);
  if (event == nullptr || event->device != stream->device) return kInvalidHandle;
  const std::string description =
      (event->timed ? "record timed event " : "record event ") + std::to_string(event->number);
  if (stream->capturing) {
    Fault(description + " on a stream that is being captured");
    return kCaptureUnsupported;
  }
  event->last = std::make_shared<Moment>();
  Push(*stream, description, [moment = event->last](bool) { Come(moment); }, false);
  event->last->clock = stream->clock;
  return kSuccess;
}
EXPORT int cuEventQuery(void* handle) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  Event* event = FindEvent(handle);
  if (event == nullptr) return kInvalidHandle;
  if (event->last == nullptr) return kSuccess;
  if (!event->last->come) return kNotReady;
  Merge(TheRuntime().host, event->last->clock);
  return kSuccess;
}
EXPORT int cuEventSynchronize(void* handle) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  Event* event = FindEvent(handle);
  if (event == nullptr) return kInvalidHandle;
  Record("host sync: cuEventSynchronize event " + std::to_string(event->number));
  const std::shared_ptr<Moment> moment = event->last;
  if (moment == nullptr) return kSuccess;
  TheRuntime().changed.wait(lock, [&] { return moment->come; });
  Merge(TheRuntime().host, moment->clock);
  return kSuccess;
}
EXPORT int cuEventElapsedTime(float* ms, void* from_handle, void* to_handle) {
  ENTER();
  Lock lock(TheRuntime().mutex);
  const Event *from = FindEvent(from_handle), *to = FindEvent(to_handle);
  if (from == nullptr || to == nullptr || !from->timed || !to->timed) return kInvalidHandle;
  if (from->last == nullptr || to->last == nullptr || from->device != to->device) return kInvalidHandle;
  if (!from->last->come || !to->last->come) return kNotReady;
  *ms = std::chrono::duration<float, std::milli>(to->last->at - from->last->at).count();
  return kSuccess;
}

EXPORT void fake_cuda_set_capturing(void* handle, int on) {
  Lock lock(TheRuntime().mutex);
  if (Stream* stream = Find(handle)) stream->capturing = on != 0;
}
EXPORT void fake_cuda_stall(int on) {
  Lock lock(TheRuntime().mutex);
  TheRuntime().stalled = on != 0;
  TheRuntime().changed.notify_all();
}
EXPORT int fake_cuda_number(void* handle) {
  Lock lock(TheRuntime().mutex);
  if (const Event* event = FindEvent(handle)) return event->number;
  const Stream* stream = Find(handle);
  return stream == nullptr ? -1 : stream->number;
}
EXPORT int fake_cuda_enqueue(void* handle, void (*function)(void*, int), void* argument, const char* description,
                             const fake_cuda_access* accesses, int count) {
  Stream* stream = FindStream(handle);
  if (stream == nullptr) return NoStream(handle);
  std::vector<Access> all;
  for (int i = 0; i < count; ++i) all.push_back({accesses[i].address, accesses[i].bytes, accesses[i].writes != 0});
  const auto run = [function, argument](bool unordered) { function(argument, unordered ? 1 : 0); };
  return Enqueue(*stream, description, run, all);
}
EXPORT int fake_cuda_device_of(void* handle) {
  const Stream* stream = FindStream(handle);
  return stream == nullptr ? -1 : DeviceOf(*stream);
}
EXPORT void fake_cuda_linger() { Linger(); }
