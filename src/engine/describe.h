// What hvd_describe and hvd_dump answer, as JSON.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/links/connections.h"
#include "engine/links/process_sets.h"
#include "engine/record/counters.h"
#include "engine/submit/submissions.h"
#include "negotiation/values/parameters.h"

namespace hvd::engine {

// The settings as a JSON object, by their names in hvd_config: those that may change as they are now, and the rest of
// the configuration, which is described at the start.
std::string DescribeFixedSettings(const hvd_config& c);
std::string DescribeSettings(const negotiation::Parameters& now, const std::string& fixed);

// What there is to tell of a rank.
struct Facts {
  hvd_topology topology;
  std::string hostname;
  std::string settings_json;
  const Connections* connections;
  const backend::Registry* backends;
  ProcessSets* sets;
  const Counters* counters;
  size_t in_flight;  // tensors and wishes
  bool failed;
};
std::string DescribeRank(const Facts& facts);

// What a rank waits for and has done last, of which it tells when a job hangs.
struct Work {
  std::vector<Waiting> waiting;
  std::vector<Finished::One> finished;
  ProcessSets* sets;
  double now;
};
std::string DescribeWork(const Work& work);

}  // namespace hvd::engine
