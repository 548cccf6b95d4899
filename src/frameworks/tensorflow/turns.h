// Turns: operators of one name, one after the other. TensorFlow may run the same node twice at once (two iterations of
// a loop, two threads in one function), while the engine knows an operation by its name: the later one waits.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace hvd::tensorflow {

class Turns {
 public:
  using Names = std::vector<std::string>;

  // Whether `begin` runs on the thread that asked for it, which may wait; an engine's thread must not.
  enum class Where { kHere, kElsewhere };
  using Begin = std::function<void(Where)>;

  // Runs `begin` when none of `names` is taken: at once, or later on the thread that gives the last one back.
  void Take(const Names& names, Begin begin) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      // Nobody overtakes who waits for the same name: a name that is waited for is taken.
      if (!Free(names)) {
        waiting_.emplace_back(names, std::move(begin));
        return;
      }
      taken_.insert(names.begin(), names.end());
    }
    begin(Where::kHere);
  }

  void GiveBack(const Names& names) {
    std::vector<Begin> next;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const std::string& name : names) taken_.erase(name);
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (!Free(it->first)) {
          ++it;
          continue;
        }
        taken_.insert(it->first.begin(), it->first.end());
        next.push_back(std::move(it->second));
        it = waiting_.erase(it);
      }
    }
    for (auto& begin : next) begin(Where::kElsewhere);
  }

 private:
  bool Free(const Names& names) const {
    return std::none_of(names.begin(), names.end(), [&](const std::string& name) { return taken_.count(name) > 0; });
  }

  std::mutex mutex_;  // guards all below
  std::unordered_set<std::string> taken_;
  std::list<std::pair<Names, Begin>> waiting_;  // in the order of their coming
};

}  // namespace hvd::tensorflow
