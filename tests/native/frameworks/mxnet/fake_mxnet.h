// As much of MXNet as a request meets: arrays that share memory, of which some lies in a layout of oneDNN's, and an
// engine that runs one request. It takes no memory from the thread whose memory is scarce, but for what it copies.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "horovod/horovod.h"
#include "native/harness/harness.h"

namespace hvd::test {

struct FakeMemory {
  std::vector<float> values;
  bool reversed = false;  // the other layout
  bool missing = false;   // cannot be allocated
};

// Its first word points at its memory, as that of MXNet's arrays does.
struct FakeArray {
  explicit FakeArray(std::shared_ptr<FakeMemory> of) : memory(std::move(of)) { ++alive; }
  FakeArray(const FakeArray&) = delete;
  FakeArray& operator=(const FakeArray&) = delete;
  ~FakeArray() { --alive; }

  std::shared_ptr<FakeMemory> memory;
  static inline std::atomic<int> alive = 0;
};

inline void MakeUsual(FakeMemory* memory) {
  if (std::exchange(memory->reversed, false)) memory->values = {memory->values.rbegin(), memory->values.rend()};
}

// In the caller's memory, as of MXNet's function.
inline FakeArray UsualCopy(const void* array) {
  const auto& memory = static_cast<const FakeArray*>(array)->memory;
  if (!memory->reversed) return FakeArray(memory);
  auto copy = std::make_shared<FakeMemory>(*memory);
  MakeUsual(copy.get());
  return FakeArray(std::move(copy));
}

inline hvd_mxnet_functions FakeFunctions() {
  static constexpr auto kCopy = [](void* array, void** copy) {
    *copy = new (std::nothrow) FakeArray(static_cast<FakeArray*>(array)->memory);
    return *copy == nullptr ? -1 : 0;
  };
  static constexpr auto kFree = [](void* array) {
    static_cast<FakeArray*>(array)->~FakeArray();
    ::operator delete(array);  // as MXNet's, without a size
    return 0;
  };
  static constexpr auto kData = [](void* array, void** address) {
    FakeMemory& memory = *static_cast<FakeArray*>(array)->memory;
    if (memory.reversed) Fail(__FILE__, __LINE__, "the engine would wait for itself");
    if (memory.missing) return -1;
    *address = memory.values.data();
    return 0;
  };
  static constexpr auto kMakeError = [](void* error, const char* text) { new (error) std::runtime_error(text); };
  static constexpr auto kDropError = [](void* error) { std::destroy_at(static_cast<std::runtime_error*>(error)); };
  return {sizeof(hvd_mxnet_functions),          reinterpret_cast<void*>(+kCopy),
          reinterpret_cast<void*>(+kFree),      reinterpret_cast<void*>(+kData),
          reinterpret_cast<void*>(&UsualCopy),  reinterpret_cast<void*>(&MakeUsual),
          reinterpret_cast<void*>(+kMakeError), reinterpret_cast<void*>(+kDropError)};
}

// Runs one request to its end, and drops it then, as MXNet's engine does. What the operation failed of, or "".
inline std::string RunToItsEnd(void* request) {
  struct Run {
    void (*function)(void* self, void* request, const void* error);  // what MXNet passes: these three words
    Run* self;
    void* request;
    std::string failure{};
    std::atomic<bool> ended = false;
  };
  Run run = {[](void* self, void* ended, const void* error) {
               auto& owner = *static_cast<Run*>(self);
               if (error != nullptr) owner.failure = static_cast<const std::runtime_error*>(error)->what();
               hvd_mxnet_drop(ended);
               owner.ended = true;
             },
             &run, request};
  hvd_mxnet_run(nullptr, &run, request);
  for (int slices = 0; !run.ended && slices < 10000; ++slices)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT(run.ended);
  return run.failure;
}

}  // namespace hvd::test
