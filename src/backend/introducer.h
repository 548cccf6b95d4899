// GpuIntroducer: the members of a group tell one another what they have, over the host's ways, and conclude.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "backend/introduction.h"

namespace hvd::backend {

class GpuIntroducer final : public Introducer {
 public:
  // What this rank has, for a group that it is a member of.
  using Facts = std::function<DeviceFacts(const Group& group)>;

  // `host` outlives this.
  explicit GpuIntroducer(Backend* host) : host_(host) {}

  Task Introduce(Group& group, const Batch& batch) override;
  // Any thread. Before that this rank has no GPU, as one that has joined before it used one.
  void SetFacts(Facts facts);

 private:
  DeviceFacts Own(const Group& group, const Batch& batch) const;

  Backend* const host_;
  mutable std::mutex mutex_;  // guards facts_
  Facts facts_;
};

}  // namespace hvd::backend
