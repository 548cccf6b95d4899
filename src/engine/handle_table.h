// HandleTable: the numbers users hold for submissions. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "engine/completion.h"

namespace hvd {

class HandleTable {
 public:
  hvd_handle Add(std::shared_ptr<Completion> completion) {
    std::lock_guard<std::mutex> lock(mutex_);
    const hvd_handle handle = next_++;
    table_.emplace(handle, std::move(completion));
    return handle;
  }
  std::shared_ptr<Completion> Find(hvd_handle handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = table_.find(handle);
    return it == table_.end() ? nullptr : it->second;
  }
  bool Remove(hvd_handle handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    return table_.erase(handle) > 0;
  }

 private:
  std::mutex mutex_;  // guards all below
  hvd_handle next_ = 1;
  std::unordered_map<hvd_handle, std::shared_ptr<Completion>> table_;
};

}  // namespace hvd
