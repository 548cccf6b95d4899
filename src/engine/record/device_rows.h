// DeviceRows: batches whose phases a trace is to show and has not shown yet, and the rows of the trace to which they
// go. Each tensor has one for each stream that has worked for it, and one for the host. Used by the timeline's writer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/phases.h"

namespace hvd::engine {

// A batch that is on its way.
struct Followed {
  std::vector<std::string> tensors;
  std::shared_ptr<Phases> phases;
};

class DeviceRows {
 public:
  struct Shown {
    std::string tensor;
    Span span;
    int row;               // from 1
    std::string row_name;  // of a row that is new to this tensor; else empty
  };

  // What began before that, as MonotonicS counts, is not shown.
  explicit DeviceRows(double from_s = 0) : from_s_(from_s) {}
  // Tensors without a name share their rows.
  void Add(Followed batch);
  bool empty() const { return waiting_.empty(); }
  // Asks the devices, and takes out what has ended. Takes milliseconds at most.
  std::vector<Shown> TakeEnded();

 private:
  void Show(const Followed& batch, std::vector<Shown>* shown);
  void ShowSpan(const std::string& tensor, Span span, std::vector<Shown>* shown);

  const double from_s_;
  std::vector<Followed> waiting_;
  std::map<void*, int> rows_ = {{nullptr, 1}};               // by stream
  std::map<std::pair<std::string, int>, double> filled_to_;  // the rows of tensors
};

}  // namespace hvd::engine
