// PlanRun: executes a plan of schedule.h over channels: sends and receives side by side, never blocking, a bounded
// piece of work at a time. Team: the members as the plans number them. Used by the collectives over channels; chooses
// no algorithm.
//
// Each message has a header (batch, phase, step, segment, bytes) that the receiver compares with its own plan: a bug or
// a stray sender is an error and never silent corruption.
#pragma once

#include <array>
#include <vector>

#include "base/task.h"
#include "collective/batch.h"
#include "collective/channels/pieces.h"
#include "collective/channels/schedule.h"
#include "transport/channel.h"

namespace hvd::collective::channels {

// The members of a group by *position*; equal on all members.
struct Team {
  int rank = 0;                               // own global rank
  int index = 0;                              // own position
  std::vector<transport::Channel*> channels;  // per position; nullptr: itself
  std::vector<int> member;                    // per position: member index in the group
  int size() const { return static_cast<int>(channels.size()); }
};
// kByHost: the members of a host next to one another, so that few messages cross its boundary; else in rank order.
// kByRank: where the result depends on the order visibly (Adasum) and must not depend on the placement.
enum class Order { kByHost, kByRank };
Team TeamOf(const Group& group, Order order = Order::kByHost);

// Parts of one batch that number their steps from 0; they tell the parts apart on the wire.
enum class Phase : uint32_t { kSizes = 1, kData = 2, kDots = 3, kGather = 4 };

class PlanRun {
 public:
  struct Work {
    Plan plan;
    Pieces input, output;
    size_t unit_bytes = 1;  // of the plan's ranges
    size_t own_at = 0;      // where unit 0 of the output lies in the input, for combinations with an own operand there
    // combinations only:
    DType dtype = DType::kUint8;
    ReduceOp op = ReduceOp::kSum;
    double receive_factor = 1.0;  // multiplies what arrives, and an own operand in the input
    double last_factor = 1.0;     // multiplies final values
    // headers:
    uint64_t seq = 0;
    Phase phase = Phase::kData;
    uint32_t round = 0;  // several runs of one phase
  };

  // `team`, `scratch` (grown to at most two segments) and `waiting_for` (may be null) outlive the run.
  PlanRun(const Team& team, Work work, std::vector<std::byte>* scratch, int* waiting_for);
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;

  bool done() const { return sent_ == work_.plan.sends.size() && received_ == work_.plan.receives.size(); }
  // Moves what can be moved now, at most about kTurnBytes. *moved += bytes sent, received and combined; 0: nothing can
  // go on now.
  Status Advance(size_t* moved);
  // co_await: Status. Runs to the end, yielding between turns. behind: null, or a run whose sends follow this one's on
  // the same channels; it goes on beside this one, has a scratch of its own, and receives nothing before its Expect.
  Task Finish(PlanRun* behind = nullptr);
  // For a run that was made without receives, because their places were not known yet: these.
  void Expect(std::vector<Transfer> receives, Pieces output);

  // About 100 us of copying through a socket.
  static constexpr size_t kTurnBytes = 512 << 10;

 private:
  static constexpr size_t kHeaderBytes = 32;
  // So much of a payload shares one call (and one copy) with the header.
  static constexpr size_t kJoinedBytes = 8 << 10;
  // A message of so much goes out as one packet, which holds 64 KB at most. Larger ones are slower, up to twice, when
  // Linux keeps their beginning.
  static constexpr size_t kPacketBytes = 48 << 10;
  using Header = std::array<std::byte, kHeaderBytes>;

  struct Flow {  // the message under way in one direction
    bool begun = false;
    std::byte* payload = nullptr;  // in place; nullptr: staged behind the header
    size_t moved = 0;              // of header and payload
  };

  void MakeRoom();
  Status AdvanceWithBehind(size_t* moved);
  bool IsFollowed(const Transfer& t) const;
  Status PushSends(size_t* moved);
  Status PullReceives(size_t* moved);
  Status WriteSome(const Transfer& t, size_t* n);
  Status ReadSome(const Transfer& t, size_t* n);
  Status CheckHeader(const Transfer& t) const;
  void Deliver(const Transfer& t);
  void Combine(const Transfer& t, std::byte* received);
  Header HeaderOf(const Transfer& t) const;
  Status Tell(const Status& why, const char* doing, const Transfer& t) const;
  const Pieces& SourceOf(const Transfer& t) const { return t.own == Where::kInput ? work_.input : work_.output; }
  size_t StagedBytes(const Transfer& t, const Pieces& where) const;
  static size_t StageBytes(size_t payload_bytes) { return (kHeaderBytes + payload_bytes + 63) / 64 * 64; }
  size_t BytesOf(const Transfer& t) const { return t.range.size() * work_.unit_bytes; }
  void NoteWaiting() const;

  const Team& team_;
  Work work_;
  std::vector<std::byte>* scratch_;
  int* waiting_for_;
  size_t receive_stage_at_ = 0;  // scratch: header and payload of what goes out, then of what comes in
  size_t sent_ = 0, received_ = 0;
  Flow out_, in_;
  PlanRun* behind_ = nullptr;  // see Finish
};

}  // namespace hvd::collective::channels
