// ProfilerRange: a name for what a thread does, for a profiler that shows it (such as Nsight Systems). Named so are the
// launch of each batch and the operations that a thread waits for. Ranges of a thread nest, with those of the program
// and of its framework. Without a profiler a range is one load.
//
// A profiler names a library in NVTX_INJECTION64_PATH, and receives ranges through functions that it puts into tables
// of ours: the published binary interface of NVTX, version 3. Its headers do the same in each library that uses them,
// so nothing needs to be installed, and no other library to be found.
#pragma once

#include <atomic>
#include <string>

namespace hvd::engine {

// Has ranges shown by this library from now on; null or "": by none. It stays open for good. One call at a time.
void ShowRangesBy(const char* library);

class ProfilerRange {
 public:
  // name(): a string, asked for only if there is a profiler; "": no range.
  template <class Name>
  explicit ProfilerRange(Name name) {
    if (shown_.load(std::memory_order_relaxed)) Begin(name());
  }
  ~ProfilerRange() {
    if (begun_) End();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  friend void ShowRangesBy(const char* library);
  void Begin(const std::string& name);
  static void End();

  static std::atomic<bool> shown_;
  bool begun_ = false;
};

}  // namespace hvd::engine
