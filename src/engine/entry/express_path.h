// ExpressPath: runs a small blocking operation that all ranks are calling at this moment, without the negotiation
// (docs/design/0005-express.md): may it go that way, do all come, and what does the caller get. Any thread.
#pragma once

#include <memory>
#include <string>

#include "engine/drive/driver.h"
#include "engine/express/express.h"
#include "engine/express/small_collective.h"
#include "engine/wake/spread.h"

namespace hvd::engine {

class ExpressPath {
 public:
  struct Tools {
    Express* express;  // null: every operation goes the long way
    Spread* spread;    // null: no other rank on this host
    Submissions* submissions;
    const Timeline* timeline;
    const Executor* executor;
    const Connections* connections;
    const Verdict* verdict;
    Arrivals* arrivals;
    Driver* driver;
    Counters* counters;
    const backend::Registry* backends;
  };
  // everybody: process set 0.
  ExpressPath(const Tools& tools, std::shared_ptr<ProcessSets::Set> everybody)
      : tools_(tools), everybody_(std::move(everybody)) {}

  // True: done, on all ranks; what the core has to say about it, if anything, is in *out. False: nothing has happened,
  // but that an unnamed operation may have got its *counted name.
  bool Run(const hvd_op& op, std::string* counted, std::shared_ptr<Completion>* out);

 private:
  bool MayTake(const hvd_op& op) const;
  bool Meet(const SmallCollective& small, uint64_t fingerprint);
  void Take(const SmallCollective& small, const hvd_op& op, std::shared_ptr<Completion>* out);
  const collective::Group& group() const { return everybody_->group; }

  const Tools tools_;
  const std::shared_ptr<ProcessSets::Set> everybody_;
};

}  // namespace hvd::engine
