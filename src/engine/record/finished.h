// Finished: the last operations of this rank that have ended, for who looks at a job that hangs. Written by the holder
// of the driver role, read by any thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace hvd::engine {

class Finished {
 public:
  static constexpr size_t kKept = 32;

  struct One {
    uint64_t number = 0;  // from 1, of all that this rank has finished
    OpType type = OpType::kAllreduce;
    int process_set = 0;
    std::string name;  // its beginning
  };

  void Note(OpType type, int process_set, std::string_view name) {
    std::lock_guard<std::mutex> lock(mutex_);  // nearly always free: it is read only when a job hangs
    One& one = ring_[count_ % kKept];
    one.number = ++count_;
    one.type = type;
    one.process_set = process_set;
    one.name.assign(name.substr(0, kMostNameBytes));  // no allocation, once the place has held a name as long
  }

  // Oldest first.
  std::vector<One> Last() const {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<One> last;
    for (uint64_t n = count_ > kKept ? count_ - kKept : 0; n < count_; ++n) last.push_back(ring_[n % kKept]);
    return last;
  }

 private:
  static constexpr size_t kMostNameBytes = 200;

  mutable std::mutex mutex_;
  uint64_t count_ = 0;
  std::array<One, kKept> ring_;
};

}  // namespace hvd::engine
