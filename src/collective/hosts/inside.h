// Inside: what the members of a host do for one another in a two-level collective, through the stages and small buffers
// (shm/steps.h). Every task pumps the network between its rounds and fails with it. All members of the host call the
// same ones in the same order, with vectors of the same lengths; where a member is alone, they do its own part only.
#pragma once

#include <optional>
#include <vector>

#include "base/task.h"
#include "collective/hosts/between.h"
#include "collective/hosts/roles.h"
#include "collective/shm/steps.h"

namespace hvd::collective::hosts {

// The tensors of a batch, one behind the other.
shm::Ranges RangesOf(const Batch& batch);

class Inside {
 public:
  // All of them outlive it. `bytes` of the batch: what decides how to store.
  Inside(const Group& group, Batch& batch, const Roles& roles, Between& between, size_t bytes);

  bool alone() const { return !steps_; }

  // parts[o]: the own operand of what owner o combines; at the owner, the outputs take the combination of all members
  // of this host, in member order, after the prescale factor. Outputs may be the inputs. 2 B/k moved per lane: each
  // member stores all parts but its own once and reads its own part of the others.
  Task Reduce(const std::vector<shm::Ranges>& parts);

  // What every member has, to all others: mine.inputs of this one, places[m].outputs of the others' (parts without an
  // output are skipped; places may be shorter where the last ones have nothing). Each byte is stored once and read by
  // all.
  Task Share(const shm::Ranges& mine, const std::vector<shm::Ranges>& places);

  // out[d].inputs goes to member d, which has as many bytes at in[this].outputs; `longest` of all, known to all.
  Task Exchange(const std::vector<shm::Ranges>& out, const std::vector<shm::Ranges>& in, size_t longest);

  // all[m * bytes] = mine of member m.
  Task Blobs(const std::byte* mine, size_t bytes, std::byte* all);

  // At the end, also of nothing.
  void Finish() {
    if (steps_) steps_->view().Finish();
  }

 private:
  template <class Fill, class Drain>
  Task Stream(size_t rounds, std::vector<bool> sources, Fill fill, Drain drain);
  Task ReduceAlone(const shm::Ranges& part);
  void Combine(const shm::Ranges& part, size_t begin, size_t end, size_t c);
  size_t lane_offset(int source, int owner) const {
    return lane_bytes_ * (lanes_ < roles_.owners && owner > source ? owner - 1 : owner);
  }

  Batch& batch_;
  const Roles& roles_;
  Between& between_;
  std::optional<shm::Steps> steps_;  // none: alone on this host
  int lanes_ = 1;                    // of Reduce
  size_t lane_bytes_ = 0;
  StoreMode mode_ = StoreMode::kOrdinary;
};

}  // namespace hvd::collective::hosts
