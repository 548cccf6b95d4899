#include "engine/describe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "collective/kernels/kernels.h"
#include "negotiation/values/op_text.h"
#include "negotiation/values/pair.h"

namespace hvd::engine {
namespace {

constexpr size_t kMostListed = 1000;  // operations that wait, the oldest first

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

template <class Number>
std::string List(const std::vector<Number>& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size(); ++i) out += (i ? "," : "") + std::to_string(numbers[i]);
  return out + "]";
}

// One JSON object, member by member.
class Members {
 public:
  void Add(const std::string& name, const std::string& json) {
    text_ += (text_.empty() ? "" : ",") + Quoted(name) + ':' + json;
  }
  void Add(const std::string& name, int64_t value) { Add(name, std::to_string(value)); }
  void Add(const std::string& name, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", std::isfinite(value) ? value : 1e308);  // JSON knows no infinity
    Add(name, std::string(text));
  }
  void AddText(const std::string& name, const std::string& value) { Add(name, Quoted(value)); }
  void AddBool(const std::string& name, bool value) { Add(name, std::string(value ? "true" : "false")); }
  // Members of another one.
  void Append(const std::string& text) { text_ += (text_.empty() ? "" : ",") + text; }
  const std::string& text() const { return text_; }
  std::string Json() const { return '{' + text_ + '}'; }

 private:
  std::string text_;
};

std::string Describe(const backend::Backend& backend) {
  Members m;
  const std::string why_not = backend.why_not();
  m.AddText("name", backend.name());
  m.AddBool("usable", why_not.empty());
  m.AddText("why_not", why_not);
  m.Add("version", static_cast<int64_t>(backend.version()));
  m.Add("batches", static_cast<int64_t>(backend.batches()));
  return m.Json();
}

std::string Describe(ProcessSets& sets) {
  Members m;
  for (const int id : sets.Ids()) m.Add(std::to_string(id), List(sets.Ranks(id)));
  return m.Json();
}

// By operation: how many tensors of this rank, and their bytes. Those without a tensor are left out.
std::string DescribeOperations(const Counters& counters) {
  Members all;
  for (int type = 0; type <= HVD_RECV; ++type) {
    const int at = HVD_COUNTER_OPERATIONS + 2 * type;
    const auto tensors = static_cast<int64_t>(counters.Since(at));
    if (tensors == 0) continue;
    Members m;
    m.Add("tensors", tensors);
    m.Add("bytes", static_cast<int64_t>(counters.Since(at + 1)));
    all.Add(NameOf(static_cast<OpType>(type)), m.Json());
  }
  return all.Json();
}

std::string Describe(const Counters& counters, size_t in_flight) {
  Members all, seconds;
  for (const auto& [name, word] : {std::pair("batches", HVD_COUNTER_BATCHES),
                                   {"tensors", HVD_COUNTER_TENSORS},
                                   {"sleeps", HVD_COUNTER_SLEEPS},
                                   {"steps", HVD_COUNTER_STEPS},
                                   {"stalls", HVD_COUNTER_STALLS},
                                   {"errors", HVD_COUNTER_ERRORS}})
    all.Add(name, static_cast<int64_t>(counters.Since(word)));
  for (const auto& [name, word] : {std::pair("blocked", HVD_COUNTER_BLOCKED_NS),
                                   {"transferring", HVD_COUNTER_TRANSFER_NS},
                                   {"pending", HVD_COUNTER_PENDING_NS},
                                   {"in_batches", HVD_COUNTER_BATCH_NS}})
    seconds.Add(name, static_cast<double>(counters.Since(word)) * 1e-9);
  all.Add("in_flight", static_cast<int64_t>(in_flight));
  all.Add("seconds", seconds.Json());
  all.AddText("last_error", counters.LastError());
  all.Add("operations", DescribeOperations(counters));
  return all.Json();
}

void AddOperation(OpType type, const std::string& name, int process_set, Members* m) {
  m->AddText("operation", NameOf(type));
  // Of a send or recv what both ranks call it.
  const std::optional<negotiation::Pair> pair = IsPointToPoint(type) ? negotiation::RanksOf(name) : std::nullopt;
  m->AddText("name", pair ? std::string(negotiation::SharedPart(name)) : name);
  if (pair) m->Add("members", List(std::vector<int32_t>{pair->from, pair->to}));
  m->AddText("what", negotiation::Subject(type, name, process_set));
  m->Add("process_set", int64_t{process_set});
}

std::string Describe(const Waiting& waiting, double now) {
  Members m;
  AddOperation(waiting.type, waiting.name, waiting.process_set, &m);
  m.AddText("dtype", NameOf(waiting.dtype));
  m.Add("shape", List(waiting.shape));
  m.Add("seconds", std::max(0.0, now - waiting.since));
  return m.Json();
}

std::string Describe(const Finished::One& finished) {
  Members m;
  m.Add("number", static_cast<int64_t>(finished.number));
  AddOperation(finished.type, finished.name, finished.process_set, &m);
  return m.Json();
}

}  // namespace

std::string DescribeSettings(const negotiation::Parameters& now, const std::string& fixed) {
  Members m;
  m.Add("fusion_threshold_bytes", now.fusion_threshold_bytes);
  m.Add("cycle_time_ms", now.cycle_time_ms);
  m.Add("hierarchical_allreduce", int64_t{now.hierarchical_allreduce});
  m.Add("hierarchical_allgather", int64_t{now.hierarchical_allgather});
  m.Add("torus_allreduce", int64_t{now.torus_allreduce});
  m.Append(fixed);
  return m.Json();
}

std::string DescribeFixedSettings(const hvd_config& c) {
  Members m;
  m.Add("cache_capacity", int64_t{c.cache_capacity});
  m.AddBool("disable_group_fusion", c.disable_group_fusion != 0);
  m.AddBool("deterministic", c.deterministic != 0);
  m.AddBool("stall_check_disable", c.stall_check_disable != 0);
  m.Add("stall_warning_s", c.stall_warning_s);
  m.Add("stall_shutdown_s", c.stall_shutdown_s);
  m.Add("collective_timeout_s", c.collective_timeout_s);
  m.Add("link_timeout_s", c.link_timeout_s);
  m.Add("spin_us", c.spin_us);
  m.Add("store_mode", int64_t{c.store_mode});
  m.Add("thread_affinity", int64_t{c.thread_affinity});
  m.Add("log_level", int64_t{c.log_level});
  m.AddBool("log_hide_time", c.log_hide_time != 0);
  m.AddText("timeline_path", c.timeline_path != nullptr ? c.timeline_path : "");
  m.AddBool("timeline_mark_cycles", c.timeline_mark_cycles != 0);
  m.Add("timeline_ranks", int64_t{c.timeline_ranks});
  m.Add("timeline_max_mb", int64_t{c.timeline_max_mb});
  m.Add("resident_bytes", c.resident_bytes);
  return m.text();
}

std::string DescribeRank(const Facts& rank) {
  std::string backends;
  for (const auto& backend : rank.backends->all()) backends += (backends.empty() ? "" : ",") + Describe(*backend);
  Members all;
  all.Add("abi", int64_t{HVD_ABI_VERSION});
  all.Add("rank", int64_t{rank.topology.rank});
  all.Add("size", int64_t{rank.topology.size});
  all.AddText("hostname", rank.hostname);
  all.AddText("simd", collective::kernels::SimdName());
  const transport::Neighbours* const neighbours = rank.connections->neighbours();
  all.Add("shared_memory_ranks", int64_t{neighbours != nullptr ? neighbours->size() : 1});
  all.Add("cores_per_rank", int64_t{rank.connections->cores_per_rank()});
  all.AddBool("failed", rank.failed);
  all.Add("backends", '[' + backends + ']');
  all.Add("settings", rank.settings_json);
  all.Add("process_sets", Describe(*rank.sets));
  all.Add("counters", Describe(*rank.counters, rank.in_flight));
  return all.Json();
}

std::string DescribeWork(const Work& work) {
  std::string waiting, finished;
  const size_t listed = std::min(work.waiting.size(), kMostListed);
  for (size_t i = 0; i < listed; ++i) waiting += (i ? "," : "") + Describe(work.waiting[i], work.now);
  for (const Finished::One& one : work.finished) finished += (finished.empty() ? "" : ",") + Describe(one);
  Members all;
  all.Add("pending", '[' + waiting + ']');
  all.Add("untold", static_cast<int64_t>(work.waiting.size() - listed));
  all.Add("finished", '[' + finished + ']');
  all.Add("process_sets", Describe(*work.sets));
  return all.Json();
}

}  // namespace hvd::engine
