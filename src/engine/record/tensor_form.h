// TensorForm: a trace of what rank 0 alone sees, for tools that read it (HOROVOD_TIMELINE_RANKS=0). Each tensor is one
// "process", with a row for what the engine does and more for what devices do.
#pragma once

#include <string>
#include <unordered_map>

#include "engine/record/trace_form.h"

namespace hvd::engine {

class TensorForm final : public TraceForm {
 public:
  // start_us: where the times of the trace begin. rank: whose it is.
  TensorForm(int rank, int64_t start_us) : rank_(rank), start_us_(start_us) {}
  void Render(const TraceEvent& event, TraceText* out) override;
  void Render(const DeviceRows::Shown& phase, TraceText* out) override;
  void Lack(int rank, uint64_t n, int64_t now_us, TraceText* out) override;

 private:
  // The beginning of an event of a tensor; "": of the job.
  void Open(char phase, const std::string& tensor, int row, int64_t at_us, TraceText* out);
  void Begin(const std::string& tensor, std::string_view what, int64_t at_us, TraceText* out);
  void End(const std::string& tensor, const std::string& args, int64_t at_us, TraceText* out);
  int PidOf(const std::string& tensor, TraceText* out);

  const int rank_;
  const int64_t start_us_;
  std::unordered_map<std::string, int> pids_;
};

}  // namespace hvd::engine
