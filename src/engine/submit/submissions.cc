#include "engine/submit/submissions.h"

#include <algorithm>
#include <new>
#include <utility>

#include "negotiation/values/pair.h"

namespace hvd::engine {

Status Submissions::Add(std::vector<std::unique_ptr<Submitted>> tensors, std::vector<negotiation::Request> requests,
                        bool waits) {
  std::lock_guard<std::mutex> lock(mutex_);
  HVD_TRY(closed_);
  ByName& by_name = entries_[requests[0].process_set];
  queue_.emplace_back(
      submission::Tensors());  // its place first: a name that is registered is also queued, even when memory runs out
  size_t registered = 0;
  const auto undo = [&] {
    for (size_t k = 0; k < registered; ++k) by_name.erase(by_name.find(requests[k].name));
    queue_.pop_back();
  };
  try {
    for (; registered < tensors.size(); ++registered) {
      negotiation::Request& r = requests[registered];
      r.ticket = tensors[registered]->ticket();
      const std::string_view name = tensors[registered]->name;
      if (by_name.try_emplace(name, std::move(tensors[registered])).second) continue;
      undo();
      return Status(
          Code::kInvalidArgument,
          std::string(NameOf(r.type)) + " '" + r.name +
              "' is in flight already; wait for it before submitting the same name again, or use another name.");
    }
  } catch (const std::bad_alloc&) {
    undo();
    throw;
  }
  CountInFlight(static_cast<ptrdiff_t>(requests.size()));
  std::get<submission::Tensors>(queue_.back()) = {std::move(requests), waits};
  waiting_.store(queue_.size(), std::memory_order_seq_cst);
  return Status();
}

Result<uint64_t> Submissions::AddWish(std::shared_ptr<Completion> completion) {
  std::lock_guard<std::mutex> lock(mutex_);
  HVD_TRY(closed_);
  const uint64_t ticket = next_wish_;
  next_wish_ += 2;
  wishes_.emplace(ticket, std::move(completion));
  CountInFlight(1);
  return ticket;
}

bool Submissions::EverRefused(const char* name) {
  if (!any_refused_.load(std::memory_order_relaxed)) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return refused_.count(name) > 0;
}

Status Submissions::Add(Submission submission) {
  std::lock_guard<std::mutex> lock(mutex_);
  HVD_TRY(closed_);
  if (const auto* refusal = std::get_if<submission::Refusal>(&submission)) {
    for (const negotiation::Request& r : refusal->group) {
      if (!r.transient) refused_.insert(r.name);
    }
    any_refused_.store(true, std::memory_order_relaxed);
  }
  queue_.push_back(std::move(submission));
  waiting_.store(queue_.size(), std::memory_order_seq_cst);
  return Status();
}

std::string Submissions::NextName(int process_set, OpType type) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::string(NameOf(type)) + ".noname." + std::to_string(unnamed_[process_set][static_cast<size_t>(type)]++);
}

uint64_t Submissions::NextNumber(int process_set, OpType type, const std::string& pair) {
  std::lock_guard<std::mutex> lock(mutex_);
  PairState& state = pairs_[process_set][pair];
  return type == OpType::kSend ? ++state.sends : ++state.recvs;
}

void Submissions::KeepFailure(int process_set, const std::string& pair, const Status& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  pairs_[process_set][pair].failed = why;
}

Status Submissions::TakeFailure(int process_set, const std::string& pair) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(pairs_[process_set][pair].failed, Status());
}

std::vector<std::shared_ptr<Completion>> Submissions::CopiesForOthers() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Completion>> copies;
  for (const auto& [id, by_name] : entries_) {
    for (const auto& [name, own] : by_name) {
      if (own->copy == nullptr) continue;
      const auto pair = negotiation::RanksOf(own->name);
      if (pair->from != pair->to) copies.push_back(own->completion);
    }
  }
  return copies;
}

void Submissions::ForgetSet(int process_set) {
  CountAnew(process_set);
  std::lock_guard<std::mutex> lock(mutex_);
  pairs_.erase(process_set);
}

void Submissions::CountAnew(int process_set) {
  std::lock_guard<std::mutex> lock(mutex_);
  unnamed_.erase(process_set);
}

std::vector<Waiting> Submissions::ListWaiting() {
  std::vector<Waiting> list;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [id, by_name] : entries_) {
      for (const auto& [key, own] : by_name)
        list.push_back({id, own->type, own->dtype, own->name, own->tensor.shape, own->since});
    }
  }
  std::sort(list.begin(), list.end(), [](const Waiting& a, const Waiting& b) { return a.since < b.since; });
  return list;
}

bool Submissions::Take(std::vector<Submission>* out) {
  if (!any()) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  out->clear();
  out->swap(queue_);
  waiting_.store(0, std::memory_order_seq_cst);
  return !out->empty();
}

std::unique_ptr<Submitted> Submissions::Take(uint64_t ticket) {
  const auto* p = reinterpret_cast<const Submitted*>(ticket);
  std::lock_guard<std::mutex> lock(mutex_);
  ByName& by_name = entries_[p->process_set];
  auto it = by_name.find(p->name);
  std::unique_ptr<Submitted> tensor = std::move(it->second);
  by_name.erase(it);
  CountInFlight(-1);
  return tensor;
}

std::shared_ptr<Completion> Submissions::TakeWish(uint64_t ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = wishes_.find(ticket);
  if (it == wishes_.end()) return nullptr;
  std::shared_ptr<Completion> completion = std::move(it->second);
  wishes_.erase(it);
  CountInFlight(-1);
  return completion;
}

std::vector<std::shared_ptr<Completion>> Submissions::Close(Status why) {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = std::move(why);
  std::vector<std::shared_ptr<Completion>> all;
  for (auto& [id, by_name] : entries_) {
    for (auto& [name, tensor] : by_name) all.push_back(tensor->completion);  // once per tensor: each is one arrival
  }
  for (auto& [ticket, completion] : wishes_) all.push_back(completion);
  entries_.clear();
  wishes_.clear();
  queue_.clear();
  waiting_.store(0, std::memory_order_seq_cst);
  in_flight_.store(0, std::memory_order_relaxed);
  if (counters_ != nullptr) counters_->SetInFlight(0);
  return all;
}

}  // namespace hvd::engine
