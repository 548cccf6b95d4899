// Turns: the iterations of a loop that come to one operator, one after the other. TensorFlow may run several at once,
// while the engine knows an operation by its name: a later iteration waits for the earlier ones. Any other two runs of
// one name at once are refused, because nothing says which of them the other ranks' belong to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
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
  // Refused: `begin` will not run.
  Answer Take(const Names& names, const Run& run, Begin begin) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const std::string& name : names) {
        if (const Answer answer = Judge(name, run); answer != Answer::kGranted) return answer;
      }
      if (!Free(names)) {
        const auto behind = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiter& other) {
          return other.names == names && other.run.iteration > run.iteration;
        });
        waiting_.insert(behind, {names, run, std::move(begin)});
        return Answer::kGranted;
      }
      for (const std::string& name : names) taken_[name] = run;
    }
    begin(Where::kHere);
    return Answer::kGranted;
  }

  void GiveBack(const Names& names) {
    std::vector<Begin> next;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (const std::string& name : names) taken_.erase(name);
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (!Free(it->names)) {
          ++it;
          continue;
        }
        for (const std::string& name : it->names) taken_[name] = it->run;
        next.push_back(std::move(it->begin));
        it = waiting_.erase(it);
      }
    }
    for (auto& begin : next) begin(Where::kElsewhere);
  }

 private:
  struct Waiter {
    Names names;
    Run run;
    Begin begin;
  };

  // Who waits for a name waits for somebody who has it, of the same loop: one comparison tells about all.
  Answer Judge(const std::string& name, const Run& run) const {
    const auto found = taken_.find(name);
    if (found == taken_.end()) return Answer::kGranted;
    const Run& other = found->second;
    const bool of_one_loop = run.frame != 0 && run.frame == other.frame && run.step == other.step;
    if (!of_one_loop || run.iteration == other.iteration) return Answer::kTwiceAtOnce;
    return run.iteration > other.iteration ? Answer::kGranted : Answer::kOutOfOrder;
  }

  bool Free(const Names& names) const {
    return std::none_of(names.begin(), names.end(), [&](const std::string& name) { return taken_.count(name) > 0; });
  }

  std::mutex mutex_;  // guards all below
  std::unordered_map<std::string, Run> taken_;
  std::list<Waiter> waiting_;  // of one loop: by iteration
};

}  // namespace hvd::frameworks::tensorflow
