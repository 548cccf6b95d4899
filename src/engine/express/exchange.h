// Exchange: small blocking operations of a job on several hosts, whose data travel with the negotiation
// (docs/design/0012-payloads.md). Which they are, and what is made of what all have brought.
#pragma once

#include <memory>
#include <vector>

#include "collective/batch.h"
#include "engine/submit/submissions.h"
#include "negotiation/values/payload.h"

namespace hvd::engine {

// What this rank brings to an operation that was found valid; null: too much, or it takes another way.
std::shared_ptr<const std::vector<std::byte>> PayloadOf(const hvd_op& op, const collective::Group& group);

// The result, in own->tensor or where that says. kInternal: what came cannot be it.
Status Combine(const negotiation::Request& agreed, const std::vector<negotiation::Payload>& payloads,
               const collective::Group& group, Submitted* own);

}  // namespace hvd::engine
