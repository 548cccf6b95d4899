// Completion: the state of one submission (one tensor, or a group), shared by its handle and its entries. Finished
// exactly once, by the holder of the driver role; read by any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "collective/batch.h"

namespace hvd {

// What a finished tensor leaves behind: its result block (if the core allocated one), the rows received, its shape now
// of the result.
struct Outcome {
  DType dtype = DType::kFloat32;
  Tensor tensor;
};

class Completion {
 public:
  struct Callback {
    hvd_done_fn fn = nullptr;
    void* user = nullptr;
  };

  explicit Completion(int tensors) : left_(tensors), results(tensors) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Valid once done.
  const Status& status() const { return status_; }

  // One tensor of the submission ended. Returns true when it was the last: then the callbacks to run are in *callbacks.
  bool Arrive(Status status, std::vector<std::pair<Callback, Status>>* callbacks) {
    if (!status.ok() && status_.ok()) status_ = std::move(status);
    if (--left_ > 0) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    done_.store(true, std::memory_order_release);
    for (const Callback& c : callbacks_) callbacks->emplace_back(c, status_);
    callbacks_.clear();
    return true;
  }
  // False: already done, the caller runs it itself.
  bool AddCallback(Callback c) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (done()) return false;
    callbacks_.push_back(c);
    return true;
  }

  int64_t value = 0;  // join, process_set_add

 private:
  std::atomic<bool> done_{false};
  Status status_;
  int left_;
  std::mutex mutex_;  // guards callbacks_ against done_
  std::vector<Callback> callbacks_;

 public:
  std::vector<Outcome> results;  // by index in the group
};

}  // namespace hvd
