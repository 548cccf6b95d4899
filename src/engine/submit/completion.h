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

namespace hvd::engine {

// What a finished tensor leaves behind: its result block (if the core allocated one), the rows received, its shape now
// of the result.
struct Outcome {
  DType dtype = DType::kFloat32;
  collective::Tensor tensor;
};

class Completion {
 public:
  struct Callback {
    hvd_done_fn fn = nullptr;
    void* user = nullptr;
  };

  // What is to be called, with which status, once the role is put down.
  using Due = std::vector<std::pair<std::vector<Callback>, Status>>;

  explicit Completion(int tensors) : left_(tensors), results(tensors) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Valid once done.
  const Status& status() const { return status_; }

  // One tensor of the submission ended. Returns true when it was the last: then the callbacks to run are in *due. When
  // it throws, for want of memory, the tensor has not ended.
  bool Arrive(Status status, Due* due) {
    if (!status.ok() && status_.ok()) status_ = std::move(status);
    if (left_ > 1) {
      --left_;
      return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (!callbacks_.empty()) due->emplace_back(std::move(callbacks_), status_);
    callbacks_.clear();
    left_ = 0;
    done_.store(true, std::memory_order_release);
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

}  // namespace hvd::engine
