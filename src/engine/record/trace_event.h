// TraceEvent: what the engine reports to a timeline; TraceText: what a writer has made of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "negotiation/values/request.h"

namespace hvd::engine {

using AgreedRequests = std::vector<std::shared_ptr<const negotiation::Request>>;

// The row of a tensor: process sets may have tensors of the same name.
inline std::string RowOf(const std::string& tensor, int32_t process_set) {
  return process_set == 0 ? tensor : tensor + " (process set " + std::to_string(process_set) + ")";
}
// Of an operation without a name: the core makes up one for each.
inline bool IsUnnamed(const std::string& tensor) { return tensor.find(".noname.") != std::string::npos; }
inline std::string RowOf(const negotiation::Request& tensor) { return RowOf(tensor.name, tensor.process_set); }

struct TraceEvent {
  enum class Kind {
    kSubmitted,  // name (the row), operation: this rank has it
    kAgreed,     // tensors: all ranks have them
    kBegan,      // tensors, operation, name (what the backend calls it), seq, row: their batch runs
    kEnded,      // tensors, seq, bytes: it has run
    kFailed,     // name (the row): it will not run
    kMoment,     // name
  };
  Kind kind = Kind::kMoment;
  int64_t at_us = 0;
  std::string name = {};
  const char* operation = "";
  AgreedRequests tensors = {};
  uint64_t seq = 0;
  int64_t bytes = 0;
  bool on_device_track = false;
};

// Elements of a JSON array of events, each after a comma. Names: metadata, which every file of a trace repeats.
struct TraceText {
  std::string names, events;
  uint32_t n_events = 0;
  void clear() {
    names.clear();
    events.clear();
    n_events = 0;
  }
};

}  // namespace hvd::engine
