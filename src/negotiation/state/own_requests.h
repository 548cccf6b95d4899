// OwnRequests: the requests of this rank itself: submissions, refusals, joins, changes of process sets. What cannot
// begin yet, because an own refusal of the same name is not used up, waits here, in order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "negotiation/state/abort_state.h"
#include "negotiation/state/joins.h"
#include "negotiation/state/marks.h"
#include "negotiation/values/actions.h"
#include "negotiation/values/request.h"

namespace hvd::negotiation {

class OwnRequests {
 public:
  // Its inputs and outputs; they must outlive it.
  struct Around {
    const Place* place;
    const SetTable* sets;
    const AbortState* abort;
    Marks* marks;
    Joins* joins;
    Results* results;
  };
  explicit OwnRequests(const Around& around) : at_(around) {}

  void Submit(std::span<const Request> group, double now) {
    // The usual case, without a copy. What has an id is of a set that lives.
    const bool may = group.size() == 1 && waiting_.empty() && !at_.abort->over() &&
                     (IsPointToPoint(group[0].type) || !Joined(group[0].process_set));
    if (!may || !at_.marks->TryMarkOwn(group[0], now)) SubmitSlowly(group, now);
  }
  void Refuse(std::span<const Request> group, const std::string& reason, double now);
  void Join(uint64_t ticket, double now);
  // A request of kAddSetType or kRemoveSetType. One that all ranks make has no name yet: these are counted.
  void ChangeSets(Request request, double now);

  // ---- what the log says
  // An answer to the change of sets of this name; all ranks count alike, also those that took no part because they had
  // joined.
  void SetChangeOver(const std::string& name);
  // A name is free again: what waited for it begins.
  void Retry(double now);
  // A process set has ended.
  void DropSet(int process_set, const Status& why);

 private:
  struct OwnGroup {
    std::vector<Request> group;
    std::optional<std::string> refusal;  // why this rank refuses it; nothing: it submits it
  };
  bool Joined(int process_set) const { return process_set == 0 && (at_.joins->own() || join_); }
  // passes_join: a send or recv, which may have been submitted before the join, behind others of its pair.
  bool Allowed(int process_set, bool passes_join = false) const;
  Status WhyNot(int process_set, bool passes_join = false) const;
  bool MustWait(const Request& request) const;
  void SubmitSlowly(std::span<const Request> group, double now);
  void Begin(OwnGroup own, double now);
  void Fail(const OwnGroup& own, const Status& why);
  bool AnyWaitsIn(int process_set) const;

  const Around at_;
  std::vector<OwnGroup> waiting_;
  std::optional<uint64_t> join_;  // the ticket of a join that waits for own requests that came before it
  uint64_t set_changes_ = 0;      // number of the next one
};

}  // namespace hvd::negotiation
