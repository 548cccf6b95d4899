// Timeline: events over virtual time, the earliest first; of equal times the one that was posted first. Each event
// belongs to a lane, whose events are posted in the order of their times: so only the first of each lane is compared
// with others, and the heap stays as small as the number of lanes, however many messages are on their way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <stdexcept>
#include <vector>

namespace hvd::simulate {

template <class T>
class Timeline {
 public:
  struct Event {
    double at;
    size_t lane;
    T what;
  };

  explicit Timeline(size_t lanes) : lanes_(lanes) {}

  bool empty() const { return heads_.empty(); }

  // at: not before the events of the lane that wait already. Throws std::logic_error if it is.
  void Post(size_t lane, double at, const T& what) {
    std::deque<Waiting>& waiting = lanes_[lane];
    if (!waiting.empty() && at < waiting.back().at) throw std::logic_error("an event before the last one of its lane");
    if (waiting.empty()) heads_.push({at, numbers_, lane});
    waiting.push_back({at, numbers_++, what});
  }

  // Not of an empty timeline.
  Event Take() {
    const size_t lane = heads_.top().lane;
    heads_.pop();
    std::deque<Waiting>& waiting = lanes_[lane];
    const Event event{waiting.front().at, lane, waiting.front().what};
    waiting.pop_front();
    if (!waiting.empty()) heads_.push({waiting.front().at, waiting.front().number, lane});
    return event;
  }

 private:
  struct Waiting {
    double at;
    uint64_t number;
    T what;
  };
  struct Head {
    double at;
    uint64_t number;
    size_t lane;
    bool operator>(const Head& other) const { return at != other.at ? at > other.at : number > other.number; }
  };

  std::vector<std::deque<Waiting>> lanes_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
  uint64_t numbers_ = 0;
};

}  // namespace hvd::simulate
