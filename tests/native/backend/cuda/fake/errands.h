// Short work of the fakes in threads of its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace fake {

// Those that have ended are joined when the next one begins. Of a thread that ends before it is detached the memory is
// freed by another one, in an order of which the thread sanitizer knows nothing.
class Errands {
 public:
  // At the end of the process, which some may outlive.
  ~Errands() {
    JoinEnded();
    for (std::unique_ptr<Errand>& errand : errands_) {
      errand->thread.detach();
      [[maybe_unused]] const Errand* const lost = errand.release();
    }
  }
  void Begin(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    JoinEnded();
    Errand& errand = *errands_.emplace_back(std::make_unique<Errand>());
    errand.thread = std::thread([&errand, work = std::move(work)] {
      work();
      errand.ended = true;
    });
  }

 private:
  struct Errand {
    std::thread thread;
    std::atomic<bool> ended{false};
  };
  void JoinEnded() {
    std::erase_if(errands_, [](const std::unique_ptr<Errand>& errand) {
      if (!errand->ended) return false;
      errand->thread.join();
      return true;
    });
  }

  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Errand>> errands_;
};

inline Errands& TheErrands() {
  static Errands all;
  return all;
}

}  // namespace fake
