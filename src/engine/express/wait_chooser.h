// WaitChooser: how should ranks that share cores wait for one another? A rank that yields its core again and again
// stays ready to run, and nobody needs to wake it; but it takes the turns of those that it waits for. A sleeping rank
// leaves them the cores, and is woken by a system call. Which is faster differs between machines by a factor, either
// way, and with the number of ranks and the size of what they bring. So both are measured on the meetings themselves:
// after a while the way that is gone is timed, then the other one, which takes its place if it wins clearly. Pure: the
// caller owns the clock.
#pragma once

#include <algorithm>
#include <array>

namespace hvd::engine {

class WaitChooser {
 public:
  enum class Way { kSleep = 0, kYield = 1 };

  // Of the next meeting.
  Way way() const { return tries_other_ ? Other() : chosen_; }
  // From the beginning of that meeting to the beginning of the next: what the ranks that wait take from those that are
  // on their way counts too.
  void Took(double us) {
    if (pause_ > 0) {
      --pause_;
      return;
    }
    if (!timing_.Add(us)) return;
    const double cost = timing_.Median();
    timing_ = Timing();
    tries_other_ = !tries_other_;
    if (tries_other_) {
      cost_of_chosen_ = cost;
      return;
    }
    const bool loses = cost < kClearly * cost_of_chosen_;
    if (loses) chosen_ = Other();
    // A choice that has just been made is looked at again soon.
    pauses_ = loses ? kShortestPause : std::min(2 * pauses_, kLongestPause);
    pause_ = pauses_;
  }

  // Ranks that slept keep the order of those that yielded for a while, and are as fast; so the other way must win
  // clearly, and is timed last.
  static constexpr double kClearly = 0.95;
  // Meetings that are timed in each way: in blocks, because those of a way differ much and regularly, of which the
  // median counts, because something else may disturb some; in the first one some ranks still wait the way of before.
  static constexpr int kBlocks = 5, kBlock = 8, kTimed = kBlocks * kBlock;
  // Meetings without a look. At most: a way that is four times slower costs 2 % in its trials.
  static constexpr int kShortestPause = 64, kLongestPause = 8192;

 private:
  struct Timing {
    // True: complete.
    bool Add(double us) {
      sums[meetings / kBlock] += us;
      return ++meetings == kTimed;
    }
    double Median() {
      std::nth_element(sums.begin(), sums.begin() + kBlocks / 2, sums.end());
      return sums[kBlocks / 2];
    }
    int meetings = 0;
    std::array<double, kBlocks> sums = {};
  };
  Way Other() const { return chosen_ == Way::kSleep ? Way::kYield : Way::kSleep; }

  Way chosen_ = Way::kSleep;  // does no harm where nothing is known
  bool tries_other_ = false;
  Timing timing_;
  double cost_of_chosen_ = 0;
  int pauses_ = kShortestPause, pause_ = kShortestPause;  // meetings in a pause; left of this one
};

}  // namespace hvd::engine
