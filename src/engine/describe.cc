// Engine::DescribeJson: what hvd_describe answers.
#include "collective/kernels.h"
#include "engine/engine.h"

namespace hvd {
namespace {

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string List(const std::vector<int>& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size(); ++i) out += (i ? "," : "") + std::to_string(numbers[i]);
  return out + "]";
}

}  // namespace

std::string Engine::DescribeJson() {
  std::string out =
      "{\"abi\":" + std::to_string(HVD_ABI_VERSION) + ",\"rank\":" + std::to_string(rank_) +
      ",\"size\":" + std::to_string(size_) + ",\"hostname\":" + Quoted(hostname_) + ",\"simd\":" + Quoted(SimdName()) +
      ",\"shared_memory_ranks\":" + std::to_string(transports_.neighbours ? transports_.neighbours->size() : 1) +
      ",\"cores_are_shared\":" + (Crowded() ? "true" : "false") + ",\"failed\":" + (failed_ ? "true" : "false");
  out += ",\"backends\":[";
  bool first = true;
  for (const auto& backend : backends_.all()) {
    out += std::string(first ? "" : ",") + "{\"name\":" + Quoted(backend->name()) +
           ",\"why_not\":" + Quoted(backend->why_not()) + "}";
    first = false;
  }
  out += "],\"process_sets\":{";
  first = true;
  for (const int id : sets_.Ids()) {
    out += std::string(first ? "" : ",") + "\"" + std::to_string(id) + "\":" + List(sets_.Ranks(id));
    first = false;
  }
  out += "},\"counters\":{\"batches\":" + std::to_string(batches_) + ",\"tensors\":" + std::to_string(tensors_) +
         ",\"sleeps\":" + std::to_string(sleeps_) + ",\"in_flight\":" + std::to_string(submissions_.in_flight()) + "}}";
  return out;
}

}  // namespace hvd
