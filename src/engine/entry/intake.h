// Intake: the way in. Checks what a thread asks for, gives it its name, queues it, and has somebody look at it. Any
// thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/drive/driver.h"
#include "engine/entry/send_copies.h"
#include "engine/links/process_sets.h"
#include "engine/record/timeline.h"
#include "engine/submit/submissions.h"

namespace hvd::engine {

class Intake {
 public:
  struct Tools {
    Submissions* submissions;
    ProcessSets* sets;
    Waker* waker;
    Driver* driver;
    const Timeline* timeline;
    const backend::Registry* backends;
  };
  using Out = std::shared_ptr<Completion>*;

  Intake(const Tools& tools, int rank, bool alone) : tools_(tools), rank_(rank), alone_(alone) {}

  // A group of n tensors, or a join. flags: HVD_SUBMIT_...; counted: the name of a single unnamed operation that has
  // got it already.
  Status Submit(const hvd_op* ops, int n, uint32_t flags, Out out, const std::string& counted = "");
  // The other members must not wait for what this rank refused.
  Status Refuse(OpType type, int process_set, const std::string& name, const std::string& reason);
  // by_members: the ranks of the set alone ask for it. kInvalidArgument: this rank is none of them.
  Status AddSet(std::vector<int> ranks, bool by_members, Out out);
  Status RemoveSet(int id, Out out);
  // kInvalidArgument: this is not rank 0, or they cannot be.
  Status ChangeParameters(const negotiation::Parameters& to);
  // Rank 0, for all. to end: *out is done when every rank has sent what it had; its ticket is in *ticket.
  Status BeginTrace(const negotiation::TraceOrder& order);
  Status EndTrace(const negotiation::TraceOrder& order, Out out, uint64_t* ticket);
  Status Goodbye(const std::string& last_words);
  // *out is done when it has been obeyed. Fails when everything has failed already.
  Status Abort(submission::Abort how, Out out);

 private:
  template <class Wish>
  Status Add(Wish wish, Out out);
  Status CheckGroup(const hvd_op* ops, int n) const;
  // All but names and group.
  Status CheckEach(const hvd_op* ops, int n, const collective::Group& group) const;
  // A send or recv.
  Status SubmitOfPair(const hvd_op& op, const collective::Group& group, uint32_t flags, Out out);
  Status Member(const hvd_op& op, std::shared_ptr<ProcessSets::Set>* set) const;
  // Of tensors on devices: when each is there. *made stays empty if there is none.
  Status Mark(const hvd_op* ops, int n, std::vector<std::shared_ptr<DeviceEvent>>* made) const;
  // Of a set that these ask for alone, ascending.
  Status CheckMembers(const std::vector<int>& ranks);
  // Type, set, name, group.
  std::vector<negotiation::Request> NameAll(const hvd_op* ops, int n, const std::string& counted = "");
  Status Refuse(std::vector<negotiation::Request> what, const std::string& reason);
  void Announce(uint32_t flags, size_t bytes);

  const Tools tools_;
  const int rank_;
  const bool alone_;  // the job has one rank
  const std::shared_ptr<SendCopies> send_copies_ = std::make_shared<SendCopies>();
  const std::shared_ptr<SendCopies> self_copies_ = std::make_shared<SendCopies>();  // sends to other ranks have limits
};

}  // namespace hvd::engine
