// Exchange: small blocking operations of a job on several hosts, whose data travel with the negotiation
// (docs/design/0012-payloads.md). Which they are, and what is made of what all have brought.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/task.h"
#include "collective/batch.h"
#include "engine/submit/submissions.h"
#include "negotiation/values/payload.h"

namespace hvd::engine {

// What this rank brings to an operation that was found valid; null: too much, or it takes another way.
std::shared_ptr<const std::vector<std::byte>> PayloadOf(const hvd_op& op, const collective::Group& group);

// The result, in own->tensor or where that says. kInternal: what came cannot be it.
Status Combine(const negotiation::Request& agreed, const std::vector<negotiation::Payload>& payloads,
               const collective::Group& group, Submitted* own);

// Of two ranks on two hosts: what leaves beside the mark, over the data connection.
struct Ahead {
  std::shared_ptr<const std::vector<std::byte>> payload;  // the rows that come, where that is not known
  std::span<const std::byte> data;
  transport::Channel* channel = nullptr;  // null: this rank has no data that the other needs
};
// For what is too much for PayloadOf. False: it takes another way.
bool AheadOf(const hvd_op& op, const collective::Group& group, Ahead* ahead);
// Whether some of it comes over the data connection: then CombineAhead makes the result, in its turn among the batches.
bool IsAhead(const std::vector<negotiation::Payload>& payloads);
// All of it must outlive the task.
Task CombineAhead(const negotiation::Request& agreed, const std::vector<negotiation::Payload>& payloads,
                  const collective::Group& group, collective::Batch* batch);

}  // namespace hvd::engine
