#include "engine/record/rank_form.h"

#include <algorithm>

namespace hvd::engine {
namespace {

constexpr int kBatches = 1, kDeviceBatches = 2;  // threads; those of tensors are larger
constexpr int kFirstTensor = 16;
constexpr int64_t kLongUs = 1'000'000;  // what lasts longer is said to last while it does
constexpr int64_t kCountEveryUs = 50'000;

// Of the name, so that a tensor has the same thread on all ranks and in all epochs.
int TidOf(const std::string& name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return kFirstTensor + static_cast<int>(hash % 0x3fffff00u);
}

}  // namespace

RankForm::RankForm(Of of, TraceText* out)
    : of_(std::move(of)), bytes_from_us_(of_.start_us), counted_us_(of_.start_us), looked_us_(of_.start_us) {
  std::string& names = out->names;
  AppendAll(&names, ",{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", of_.rank, ",\"args\":{\"name\":");
  AppendQuoted("rank " + std::to_string(of_.rank) + (of_.host.empty() ? "" : " (" + of_.host + ")"), &names);
  AppendAll(&names, "}}\n,{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":", of_.rank,
            ",\"args\":{\"sort_index\":", of_.rank, "}}\n");
  NameThread(kBatches, "batches", 0, out);
}

void RankForm::SetClock(int64_t offset_us, int64_t error_us, TraceText* out) {
  offset_us_ = offset_us;
  if (clock_said_ == std::pair(offset_us, error_us)) return;
  const bool is_first = clock_said_.second == -2;
  if (is_first) {  // what came before waited for it
    Moment(kBatches, of_.start_us, 'p', "epoch " + std::to_string(of_.epoch) + " begins", out);
  }
  clock_said_ = {offset_us, error_us};
  // Files that follow begin with the names: they must not grow with time.
  std::string* const text = is_first ? &out->names : &out->events;
  AppendAll(text, ",{\"name\":\"horovod_clock\",\"ph\":\"M\",\"pid\":", of_.rank, ",\"args\":{\"host\":");
  AppendQuoted(of_.host, text);
  AppendAll(text, ",\"offset_us\":", offset_us, ",\"error_us\":");
  if (error_us < 0) {
    AppendAll(text, "null}}\n");
  } else {
    AppendAll(text, error_us, "}}\n");
  }
}

void RankForm::Render(const TraceEvent& e, TraceText* out) {
  switch (e.kind) {
    case TraceEvent::Kind::kSubmitted: {
      Row& row = Find(e.name, out);
      in_flight_ += row.submitted_us == kNever ? 1 : 0;
      most_in_flight_ = std::max(most_in_flight_, in_flight_);
      row.operation = e.operation;
      row.submitted_us = e.at_us;
      row.flow_ts = InTrace(e.at_us);
      row.agreed_us = kNever;
      row.flows = true;
      row.reported = false;
      return;
    }
    case TraceEvent::Kind::kAgreed:
      return Agreed(e, out);
    case TraceEvent::Kind::kBegan:
      return Began(e, out);
    case TraceEvent::Kind::kEnded:
      return Ended(e, out);
    case TraceEvent::Kind::kFailed: {
      Row& row = Find(e.name, out);
      if (row.submitted_us == kNever) return;
      Waited(row, e.at_us, out);
      Moment(row.tid, e.at_us, 't', "failed", out);
      Settle(e.name, row);
      return;
    }
    case TraceEvent::Kind::kMoment:
      Moment(kBatches, e.at_us, 'p', e.name, out);
  }
}

// NEGOTIATE_ALLREDUCE: until all ranks have it.
void RankForm::Waited(Row& row, int64_t until_us, TraceText* out) {
  if (row.agreed_us != kNever) return;
  Slice(row.tid, row.submitted_us, until_us, out);
  row.flow_ts = InTrace(row.submitted_us);
  AppendAll(&out->events, ",\"name\":\"NEGOTIATE_", row.operation, "\"}\n");
}

void RankForm::Agreed(const TraceEvent& e, TraceText* out) {
  for (const auto& r : e.tensors) {
    Row& row = Find(RowOf(*r), out);
    if (row.submitted_us == kNever) continue;  // before the trace, or by a rank that has joined
    Waited(row, e.at_us, out);
    row.agreed_us = e.at_us;
    row.reported = false;
  }
}

void RankForm::Began(const TraceEvent& e, TraceText* out) {
  if (e.on_device_track && tids_.insert(kDeviceBatches).second)
    NameThread(kDeviceBatches, "batches on devices", 1, out);
  Run& run = runs_[e.seq];
  run = {e.name, e.operation, e.at_us, e.on_device_track, false, e.tensors};
}

void RankForm::Ended(const TraceEvent& e, TraceText* out) {
  const auto found = runs_.find(e.seq);
  if (found == runs_.end()) return;
  const Run run = std::move(found->second);
  runs_.erase(found);
  if (bytes_ == 0 && !rate_said_) bytes_from_us_ = std::max(bytes_from_us_, run.began_us);  // after a rest
  bytes_ += e.bytes;
  Slice(run.on_device_track ? kDeviceBatches : kBatches, run.began_us, e.at_us, out);
  AppendAll(&out->events, ",\"name\":");
  AppendQuoted(run.activity, &out->events);
  AppendAll(&out->events, ",\"args\":{\"operation\":\"", run.operation, "\",\"tensors\":", e.tensors.size(),
            ",\"bytes\":", e.bytes, ",\"batch\":", e.seq, "}}\n");
  for (const auto& r : run.tensors) EndTensor(*r, run, e.at_us, out);
}

void RankForm::EndTensor(const negotiation::Request& tensor, const Run& run, int64_t end_us, TraceText* out) {
  const std::string name = RowOf(tensor);
  Row& row = Find(name, out);
  if (row.agreed_us != kNever && run.began_us > row.agreed_us) {
    Slice(row.tid, row.agreed_us, run.began_us, out);
    AppendAll(&out->events, ",\"name\":\"QUEUE\"}\n");
  }
  Slice(row.tid, run.began_us, end_us, out);
  AppendAll(&out->events, ",\"name\":\"", run.operation, "\",\"args\":{\"dtype\":\"", NameOf(tensor.dtype),
            "\",\"shape\":\"", ShapeJson(tensor.shape), "\"}}\n");
  if (row.submitted_us == kNever) return Settle(name, row);
  if (std::exchange(row.flows, false)) {
    const uint64_t id = (static_cast<uint64_t>(of_.rank) << 32) + flows_++;
    OpenAt("s", row.tid, row.flow_ts, out);
    AppendAll(&out->events, ",\"name\":\"submitted\",\"cat\":\"batch\",\"id\":", id, "}\n");
    Open("f", run.on_device_track ? kDeviceBatches : kBatches, run.began_us, out);
    AppendAll(&out->events, ",\"name\":\"submitted\",\"cat\":\"batch\",\"bp\":\"e\",\"id\":", id, "}\n");
  }
  Settle(name, row);
}

void RankForm::Render(const DeviceRows::Shown& shown, TraceText* out) {
  const auto begin_us = static_cast<int64_t>(shown.span.begin_s * 1e6),
             end_us = static_cast<int64_t>(shown.span.end_s * 1e6);
  int& tid = device_tids_[{shown.tensor, shown.row}];
  if (tid == 0) tid = NewThread(shown.tensor + ": " + shown.row_name, out);
  Slice(tid, begin_us, end_us, out);
  AppendAll(&out->events, ",\"name\":");
  AppendQuoted(shown.span.name, &out->events);
  AppendAll(&out->events, "}\n");
}

void RankForm::Look(int64_t now_us, bool last, TraceText* out) {
  if (last) {  // what has not ended is shown as far as it got
    for (auto& [name, row] : rows_) {
      if (row.submitted_us != kNever) Waited(row, now_us, out);
    }
    for (auto& [seq, run] : runs_) {
      Slice(run.on_device_track ? kDeviceBatches : kBatches, run.began_us, now_us, out);
      AppendAll(&out->events, ",\"name\":");
      AppendQuoted(run.activity, &out->events);
      AppendAll(&out->events, "}\n");
    }
  }
  if (now_us - looked_us_ >= kLongUs) ReportLong(now_us, out);
  if (now_us - counted_us_ >= kCountEveryUs || last) Count(now_us, out);
}

// A slice is written when it ends; of a job that hangs, the trace is to show where.
void RankForm::ReportLong(int64_t now_us, TraceText* out) {
  looked_us_ = now_us;
  for (auto& [name, row] : rows_) {
    if (row.submitted_us == kNever || row.agreed_us != kNever || row.reported) continue;
    if (now_us - row.submitted_us < kLongUs) continue;
    row.reported = true;
    Moment(row.tid, now_us, 't', "waits for other ranks", out);
  }
  for (auto& [seq, run] : runs_) {
    if (run.reported || now_us - run.began_us < kLongUs) continue;
    run.reported = true;
    Moment(run.on_device_track ? kDeviceBatches : kBatches, now_us, 't', "still runs: " + run.activity, out);
  }
}

void RankForm::Count(int64_t now_us, TraceText* out) {
  if (bytes_ != 0 || runs_.empty()) CountBytes(now_us, out);  // those of a batch come when it has ended
  // The most since the last time: between steps there are none.
  if (std::exchange(said_in_flight_, most_in_flight_) != most_in_flight_) {
    Open("C", 0, now_us, out);
    AppendAll(&out->events, ",\"name\":\"tensors in flight\",\"args\":{\"tensors\":", most_in_flight_, "}}\n");
  }
  most_in_flight_ = in_flight_;
  counted_us_ = now_us;
}

// A viewer draws a number from its time to that of the next one, so it stands where its period began.
void RankForm::CountBytes(int64_t now_us, TraceText* out) {
  const int64_t rate = bytes_ * 1'000'000 / std::max<int64_t>(now_us - bytes_from_us_, 1);
  if (rate != 0 || rate_said_) {
    Open("C", 0, bytes_from_us_, out);
    AppendAll(&out->events, ",\"name\":\"bytes/s\",\"args\":{\"bytes/s\":", rate, "}}\n");
    rate_said_ = rate != 0;
  }
  bytes_ = 0;
  bytes_from_us_ = now_us;
}

void RankForm::Lack(int rank, uint64_t n, int64_t now_us, TraceText* out) {
  AppendAll(&out->events, ",{\"ph\":\"i\",\"pid\":", rank, ",\"tid\":", kBatches, ",\"ts\":", InTrace(now_us),
            ",\"s\":\"p\",\"name\":\"", n, " events dropped\"}\n");
  ++out->n_events;
}

void RankForm::OpenAt(const char* phase, int tid, int64_t ts, TraceText* out) {
  AppendAll(&out->events, ",{\"ph\":\"", phase, "\",\"pid\":", of_.rank, ",\"tid\":", tid, ",\"ts\":", ts);
  ++out->n_events;
}

void RankForm::Slice(int tid, int64_t from_us, int64_t to_us, TraceText* out) {
  Open("X", tid, from_us, out);
  AppendAll(&out->events, ",\"dur\":", std::max<int64_t>(to_us - from_us, 0));
}

void RankForm::Moment(int tid, int64_t at_us, char scope, std::string_view name, TraceText* out) {
  Open("i", tid, at_us, out);
  AppendAll(&out->events, ",\"s\":\"", scope, "\",\"name\":");
  AppendQuoted(name, &out->events);
  AppendAll(&out->events, "}\n");
}

RankForm::Row& RankForm::Find(const std::string& name, TraceText* out) {
  const auto [it, is_new] = rows_.try_emplace(name);
  Row& row = it->second;
  if (!is_new) return row;
  if (!IsUnnamed(name)) {
    row.tid = NewThread(name, out);
    return row;
  }
  // Each has another name, and would have a thread for its own: they take turns with a few.
  const auto free = std::find(unnamed_taken_.begin(), unnamed_taken_.end(), 0);
  row.unnamed = static_cast<int>(free - unnamed_taken_.begin());
  if (free == unnamed_taken_.end()) {
    unnamed_taken_.push_back(0);
    unnamed_tids_.push_back(NewThread("unnamed " + std::to_string(row.unnamed + 1), out));
  }
  unnamed_taken_[static_cast<size_t>(row.unnamed)] = 1;
  row.tid = unnamed_tids_[static_cast<size_t>(row.unnamed)];
  return row;
}

void RankForm::Settle(const std::string& name, Row& row) {
  in_flight_ -= row.submitted_us == kNever ? 0 : 1;
  row.submitted_us = row.agreed_us = kNever;
  if (row.unnamed < 0) return;
  unnamed_taken_[static_cast<size_t>(row.unnamed)] = 0;
  rows_.erase(name);
}

int RankForm::NewThread(const std::string& name, TraceText* out) {
  int tid = TidOf(name);
  while (!tids_.insert(tid).second) ++tid;
  NameThread(tid, name, kFirstTensor + static_cast<int>(tids_.size()), out);
  return tid;
}

void RankForm::NameThread(int tid, std::string_view name, int order, TraceText* out) {
  AppendAll(&out->names, ",{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", of_.rank, ",\"tid\":", tid,
            ",\"args\":{\"name\":");
  AppendQuoted(name, &out->names);
  AppendAll(&out->names, "}}\n,{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":", of_.rank, ",\"tid\":", tid,
            ",\"args\":{\"sort_index\":", order, "}}\n");
}

}  // namespace hvd::engine
