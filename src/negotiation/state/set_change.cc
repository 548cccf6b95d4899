#include "negotiation/state/set_change.h"

#include <algorithm>
#include <string>
#include <vector>

#include "negotiation/values/new_set.h"
#include "negotiation/values/op_text.h"

namespace hvd::negotiation {
namespace {

Status Invalid(const Request& q, const std::string& what) {
  return {Code::kInvalidArgument, std::string(OpText(q.type)) + ": " + what};
}

}  // namespace

Status CheckAddSet(const Request& q, const SetTable& sets, int job_size, RankSet* out) {
  if (q.shape.empty()) return Invalid(q, "a process set needs at least one rank.");
  const std::string received = "Received: " + ShapeText(q.shape) + ".";
  std::vector<int> ranks;
  const auto is_rank = [job_size](int64_t r) { return r >= 0 && r < job_size; };
  if (const auto stray = std::find_if_not(q.shape.begin(), q.shape.end(), is_rank); stray != q.shape.end()) {
    const std::string range = "ranks are 0 to " + std::to_string(job_size - 1);
    return Invalid(q, std::to_string(*stray) + " is not a rank; " + range + ". " + received);
  }
  ranks.reserve(q.shape.size());
  for (const int64_t r : q.shape) ranks.push_back(static_cast<int>(r));
  RankSet set = RankSet::FromUnsorted(ranks);
  if (set.count() != static_cast<int>(ranks.size())) return Invalid(q, "a rank is named twice. " + received);
  if (NamesNewSet(q.name) && MembersOfNewSet(q.name) != set) return Invalid(q, "its name says otherwise. " + received);
  if (const int id = sets.IdOf(set); id >= 0) {
    return Invalid(
        q, "process set " + std::to_string(id) + " has these ranks already: " + ShapeText(q.shape) + "; use that one.");
  }
  *out = std::move(set);
  return {};
}

Status CheckRemoveSet(const Request& q, const SetTable& sets) {
  if (q.root == 0) return Invalid(q, "process set 0 holds all ranks and cannot be removed.");
  if (!sets.Find(q.root)) return Invalid(q, "process set " + std::to_string(q.root) + " does not exist.");
  return {};
}

}  // namespace hvd::negotiation
