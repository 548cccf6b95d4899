// HandleTable: the numbers users hold for submissions. One counter for all tables of the process: a handle of an engine
// that was shut down never means an operation of the next one. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/submit/completion.h"

namespace hvd::engine {

class HandleTable {
 public:
  // completion: null for a place that Fill takes; nobody knows its number before.
  hvd_handle Add(std::shared_ptr<Completion> completion) {
    const hvd_handle handle = next.fetch_add(1, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(mutex_);
    table_.emplace(handle, std::move(completion));
    return handle;
  }
  void Fill(hvd_handle handle, std::shared_ptr<Completion> completion) {
    std::lock_guard<std::mutex> lock(mutex_);
    table_.at(handle) = std::move(completion);
  }
  std::shared_ptr<Completion> Find(hvd_handle handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = table_.find(handle);
    return it == table_.end() ? nullptr : it->second;
  }
  // Forgets it. Null: it is not known.
  std::shared_ptr<Completion> Take(hvd_handle handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = table_.extract(handle);
    return found ? std::move(found.mapped()) : nullptr;
  }

  // What has not been forgotten.
  std::vector<std::shared_ptr<Completion>> All() {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<Completion>> all;
    for (const auto& [handle, completion] : table_) {
      if (completion != nullptr) all.push_back(completion);
    }
    return all;
  }

 private:
  static inline std::atomic<hvd_handle> next{1};
  std::mutex mutex_;  // guards table_
  std::unordered_map<hvd_handle, std::shared_ptr<Completion>> table_;
};

}  // namespace hvd::engine
