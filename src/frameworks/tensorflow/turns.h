// Turns: the iterations of a loop that come to one operator, one after the other. TensorFlow may run several at once,
// while the engine knows an operation by its name: a later iteration waits for the earlier ones. Any other two runs of
// one name at once are refused, because nothing says which of them the other ranks' belong to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hvd::frameworks::tensorflow {

class Turns {
 public:
  using Names = std::vector<std::string>;

  // Which run of an operator: of TensorFlow's step, of the loop in it (a frame; nested loops have one each), and the
  // iteration.
  struct Run {
    int64_t step = 0;
    uint64_t frame = 0;
    int64_t iteration = 0;
  };

  // Whether `begin` runs on the thread that asked for it, which may wait; an engine's thread must not.
  enum class Where { kHere, kElsewhere };
  using Begin = std::function<void(Where)>;

  enum class Answer { kGranted, kTwiceAtOnce, kOutOfOrder };

  // Granted: runs `begin` when none of `names` is taken: at once, or later on the thread that gives the last one back.
  // Refused, or thrown without memory: `begin` will not run. What a run needs later is made here, so that nothing fails
  // once it is granted.
  Answer Take(const Names& names, const Run& run, Begin begin) {
    std::list<Waiter> asking(1);
    Waiter& own = asking.front();
    for (const std::string& name : names) own.names.emplace(name, run);
    own.run = run;
    own.begin = std::move(begin);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const auto& [name, _] : own.names) {
        if (const Answer answer = Judge(name, run); answer != Answer::kGranted) return answer;
      }
      if (!Free(own.names)) {
        const auto behind = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiter& other) {
          return other.run.iteration > run.iteration && Same(other.names, own.names);
        });
        waiting_.splice(behind, asking);
        return Answer::kGranted;
      }
      taken_.merge(own.names);
    }
    own.begin(Where::kHere);
    return Answer::kGranted;
  }

  void GiveBack(const Names& names) noexcept {
    std::list<Waiter> next;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const std::string& name : names) taken_.erase(name);
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        const auto waiter = it++;
        if (!Free(waiter->names)) continue;
        taken_.merge(waiter->names);
        next.splice(next.end(), waiting_, waiter);
      }
    }
    for (const Waiter& waiter : next) waiter.begin(Where::kElsewhere);
  }

 private:
  using Taken = std::map<std::string, Run>;
  struct Waiter {
    Taken names;  // until they are taken
    Run run;
    Begin begin;
  };

  static bool Same(const Taken& some, const Taken& others) {
    return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                      [](const auto& one, const auto& other) { return one.first == other.first; });
  }

  // A run that waits for a name waits for the run of the same loop that holds it: one comparison covers all.
  Answer Judge(const std::string& name, const Run& run) const {
    const auto found = taken_.find(name);
    if (found == taken_.end()) return Answer::kGranted;
    const Run& other = found->second;
    const bool of_one_loop = run.frame != 0 && run.frame == other.frame && run.step == other.step;
    if (!of_one_loop || run.iteration == other.iteration) return Answer::kTwiceAtOnce;
    return run.iteration > other.iteration ? Answer::kGranted : Answer::kOutOfOrder;
  }

  bool Free(const Taken& names) const {
    return std::none_of(names.begin(), names.end(), [&](const auto& wanted) { return taken_.count(wanted.first) > 0; });
  }

  std::mutex mutex_;  // guards all below
  Taken taken_;
  std::list<Waiter> waiting_;  // of one loop: by iteration
};

}  // namespace hvd::frameworks::tensorflow
