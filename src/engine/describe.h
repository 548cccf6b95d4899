// What hvd_describe answers, as JSON.
#pragma once

#include <string>

#include "backend/backend.h"
#include "engine/connections.h"
#include "engine/counters.h"
#include "engine/process_sets.h"

namespace hvd::engine {

// The settings of a configuration as a JSON object, by their names in hvd_config.
std::string DescribeSettings(const hvd_config& c);

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

}  // namespace hvd::engine
