#include "engine/submit/pairs.h"

#include <variant>

namespace hvd::engine {
namespace {

bool IsAnswered(const Submission& submission) { return std::holds_alternative<submission::Tensors>(submission); }

const negotiation::Request& RequestOf(const Submission& submission) {
  if (const auto* refusal = std::get_if<submission::Refusal>(&submission)) return refusal->group[0];
  return std::get<submission::Tensors>(submission).group[0];
}

}  // namespace

bool Pairs::MayPass(Submission& submission) {
  const negotiation::Request& request = RequestOf(submission);
  Key key(request.process_set, request.name);
  if (const auto busy = waiting_.find(key); busy != waiting_.end()) {
    busy->second.push_back(std::move(submission));
    return false;
  }
  if (IsAnswered(submission)) waiting_.try_emplace(std::move(key));
  return true;
}

std::vector<Submission> Pairs::Answered(int process_set, const std::string& name) {
  std::vector<Submission> next;
  const auto pair = waiting_.find(Key(process_set, name));
  if (pair == waiting_.end()) return next;
  std::deque<Submission>& waiting = pair->second;
  while (!waiting.empty() && (next.empty() || !IsAnswered(next.back()))) {
    next.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
  if (next.empty() || !IsAnswered(next.back())) waiting_.erase(pair);
  return next;
}

}  // namespace hvd::engine
