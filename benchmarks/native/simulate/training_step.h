// TrainingStep: gradients that become ready one after the other, as a backward pass makes them, and the batches that
// the engine makes of them: decided by a real Node with its fusion and its limit of batches under way, each as long as
// the simulated allreduce of as many bytes takes.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace hvd::simulate {

struct Gradient {
  double ready_s = 0;  // after the step's begin
  size_t bytes = 0;
};

struct StepTimes {
  double seconds = 0;    // until everything is reduced, and computed
  double exposed_s = 0;  // of that, after the computation's end
  int batches = 0;
};

// compute_s: of the whole step without communication. agreement_s: from a tensor's readiness on all ranks to the order.
// allreduce_s: of a batch, by its bytes.
StepTimes SimulateStep(const std::vector<Gradient>& gradients, double compute_s, double agreement_s,
                       const std::function<double(size_t)>& allreduce_s);

}  // namespace hvd::simulate
