#include "training_step.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <span>
#include <string>
#include <variant>

#include "negotiation.h"
#include "negotiation/node.h"

namespace hvd::simulate {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The root of the job, at the moment when all ranks have marked: one node alone.
class Root {
 public:
  explicit Root(const std::vector<Gradient>& gradients) : node_(Config()) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      negotiation::Request q;
      q.name = "gradient." + std::to_string(i);
      q.shape = {static_cast<int64_t>(gradients[i].bytes / 4)};
      q.ticket = i + 1;
      requests_.push_back(std::move(q));
    }
  }
  void Ready(size_t i, double now) { node_.Submit(std::span(&requests_[i], 1), now); }
  // The bytes of the batches that it decides on now.
  std::vector<size_t> Decide(double now, int under_way) {
    if (node_.wants_flush()) node_.Flush(now, under_way);
    std::vector<size_t> batches;
    for (const negotiation::Action& action : node_.actions()) {
      const auto* batch = std::get_if<negotiation::ExecuteBatch>(&action);
      if (batch == nullptr) continue;
      batches.push_back(0);
      for (const negotiation::Entry& entry : batch->entries)
        batches.back() += static_cast<size_t>(entry.request->bytes());
    }
    node_.actions().clear();
    return batches;
  }

 private:
  static negotiation::NodeConfig Config() {
    negotiation::NodeConfig config;
    config.fusion_threshold_bytes = kFusionBytes;
    return config;
  }

  negotiation::Node node_;
  std::vector<negotiation::Request> requests_;
};

}  // namespace

StepTimes SimulateStep(const std::vector<Gradient>& gradients, double compute_s, double agreement_s,
                       const std::function<double(size_t)>& allreduce_s) {
  Root root(gradients);
  StepTimes times;
  std::deque<size_t> batches;  // decided and not finished; the first one runs
  double now = 0, runs_until = kNever;
  for (size_t next = 0;;) {
    const double ready = next < gradients.size() ? gradients[next].ready_s + agreement_s : kNever;
    if (ready == kNever && batches.empty()) break;
    if (ready <= runs_until) {
      now = ready;
      root.Ready(next++, now);
    } else {
      now = runs_until;
      batches.pop_front();
      runs_until = kNever;
    }
    for (const size_t bytes : root.Decide(now, static_cast<int>(batches.size()))) {
      batches.push_back(bytes);
      ++times.batches;
    }
    if (runs_until == kNever && !batches.empty()) runs_until = now + allreduce_s(batches.front());
  }
  times.seconds = std::max(now, compute_s);
  times.exposed_s = times.seconds - compute_s;
  return times;
}

}  // namespace hvd::simulate
