// RankForm: one rank of a trace of all ranks. The rank is a process of the trace. Its threads are the batches that it
// runs, and the tensors: from a rank's submission of a tensor (waiting for the others) and its batch's turn (queue) to
// the batch's run, with a flow from the submission to the batch. What devices do are more threads. Every slice is
// written when it has ended, so what gets lost on the way leaves no slice open.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/record/trace_form.h"

namespace hvd::engine {

class RankForm final : public TraceForm {
 public:
  struct Of {
    int rank = 0;
    std::string host = {};
    uint64_t epoch = 0;
    int64_t base_us = 0;   // where the times of the trace begin, on the clock of the trace
    int64_t start_us = 0;  // now, on this rank's clock
  };
  RankForm(Of of, TraceText* out);
  void Render(const TraceEvent& event, TraceText* out) override;
  void Render(const DeviceRows::Shown& phase, TraceText* out) override;
  void Look(int64_t now_us, bool last, TraceText* out) override;
  void Lack(int rank, uint64_t n, int64_t now_us, TraceText* out) override;
  void SetClock(int64_t offset_us, int64_t error_us, TraceText* out) override;

 private:
  static constexpr int64_t kNever = -1;
  struct Row {
    int tid = 0;
    const char* operation = "";
    int64_t submitted_us = kNever, agreed_us = kNever;
    int64_t flow_ts = 0;    // submitted_us in the trace, as its slice has it: clocks may be corrected meanwhile
    bool flows = false;     // a flow begins there
    bool reported = false;  // that it waits for long
    int unnamed = -1;       // its thread's number among those of unnamed operations
  };
  struct Run {
    std::string activity;
    const char* operation = "";
    int64_t began_us = 0;
    bool on_device_track = false, reported = false;
    AgreedRequests tensors;
  };

  void Agreed(const TraceEvent& event, TraceText* out);
  void Began(const TraceEvent& event, TraceText* out);
  void Ended(const TraceEvent& event, TraceText* out);
  void EndTensor(const negotiation::Request& tensor, const Run& run, int64_t end_us, TraceText* out);
  void Waited(Row& row, int64_t until_us, TraceText* out);
  void ReportLong(int64_t now_us, TraceText* out);
  void Count(int64_t now_us, TraceText* out);
  void CountBytes(int64_t now_us, TraceText* out);
  int64_t InTrace(int64_t at_us) const { return at_us - offset_us_ - of_.base_us; }
  // Phase, place and time; the rest and the end are the caller's.
  void Open(const char* phase, int tid, int64_t at_us, TraceText* out) { OpenAt(phase, tid, InTrace(at_us), out); }
  void OpenAt(const char* phase, int tid, int64_t ts, TraceText* out);
  void Slice(int tid, int64_t from_us, int64_t to_us, TraceText* out);
  void Moment(int tid, int64_t at_us, char scope, std::string_view name, TraceText* out);
  Row& Find(const std::string& name, TraceText* out);
  // The tensor is done, or has failed.
  void Settle(const std::string& name, Row& row);
  int NewThread(const std::string& name, TraceText* out);
  void NameThread(int tid, std::string_view name, int order, TraceText* out);

  const Of of_;
  int64_t offset_us_ = 0;
  std::pair<int64_t, int64_t> clock_said_{0, -2};
  std::unordered_map<std::string, Row> rows_;
  std::unordered_set<int> tids_;
  std::vector<int> unnamed_tids_;
  std::vector<char> unnamed_taken_;
  std::map<std::pair<std::string, int>, int> device_tids_;
  std::map<uint64_t, Run> runs_;
  uint64_t flows_ = 0;
  // Of the counters.
  int64_t bytes_ = 0, bytes_from_us_ = 0;  // since then
  bool rate_said_ = false;                 // and it was not zero
  int64_t counted_us_ = 0, in_flight_ = 0, most_in_flight_ = 0, said_in_flight_ = 0, looked_us_ = 0;
};

}  // namespace hvd::engine
