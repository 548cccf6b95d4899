// Validate: may the members run this together? The checks of a completed tally, in the order that users of Horovod
// know, one function per question. The text names the ranks and values that differ and is sent to every member. Pure;
// used by the coordinator only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "negotiation/rank_set.h"
#include "negotiation/request.h"

namespace hvd {

// What some ranks sent: a request, or (request == nullptr) their refusal.
struct Variant {
  std::shared_ptr<const Request> request;
  std::string refusal;
  RankSet ranks;
};

struct TallyView {
  OpType type;  // for the subject, where nobody sent a request
  const std::string& name;
  int process_set;
  const std::vector<Variant>& variants;  // distinct, at least one
  RankSet absent;                        // members that take part as joined ranks, with nothing of their own
};

Status Validate(const TallyView& tally);

}  // namespace hvd
