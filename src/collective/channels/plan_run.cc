#include "collective/channels/plan_run.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "collective/kernels/kernels.h"

namespace hvd::collective::channels {
namespace {

constexpr uint32_t kMagic = 0x44564831;  // also tells byte orders apart

struct Fields {
  uint32_t magic, phase;
  uint64_t seq;
  uint32_t step, segment;
  uint64_t bytes;
};

std::string TellFields(const Fields& f) {
  return "batch " + std::to_string(f.seq) + ", phase " + std::to_string(f.phase) + ", step " + std::to_string(f.step) +
         ", segment " + std::to_string(f.segment) + ", " + std::to_string(f.bytes) + " bytes";
}

}  // namespace

Team TeamOf(const Group& group, Order order) {
  Team team;
  const int n = group.size();
  team.rank = group.ranks[group.index];
  for (int m = 0; m < n; ++m) team.member.push_back(m);
  if (order == Order::kByHost && !group.host_of.empty()) {
    // A host's place is that of its lowest member.
    std::vector<int> place(n);
    for (int m = 0; m < n; ++m) {
      int first = 0;
      while (group.host_of[first] != group.host_of[m]) ++first;
      place[m] = first;
    }
    std::stable_sort(team.member.begin(), team.member.end(), [&](int a, int b) { return place[a] < place[b]; });
  }
  for (int p = 0; p < n; ++p) {
    if (team.member[p] == group.index) team.index = p;
    team.channels.push_back(group.channels[team.member[p]]);
  }
  return team;
}

PlanRun::PlanRun(const Team& team, Work work, std::vector<std::byte>* scratch, int* waiting_for)
    : team_(team), work_(std::move(work)), scratch_(scratch), waiting_for_(waiting_for) {
  size_t largest = 0;
  for (const Transfer& t : work_.plan.sends) largest = std::max(largest, StagedBytes(t, SourceOf(t)));
  receive_stage_at_ = StageBytes(largest);
  MakeRoom();
}

// For what comes in, behind what goes out.
void PlanRun::MakeRoom() {
  size_t largest = 0;
  for (const Transfer& t : work_.plan.receives)
    largest = std::max(largest, t.action == Action::kStore ? StagedBytes(t, work_.output) : BytesOf(t));
  const size_t bytes = receive_stage_at_ + StageBytes(largest);
  if (scratch_->size() < bytes) scratch_->resize(bytes);
}

void PlanRun::Expect(std::vector<Transfer> receives, Pieces output) {
  work_.plan.receives = std::move(receives);
  work_.output = std::move(output);
  MakeRoom();
}

// In place but for what shares a call with the header, where the bytes lie in one piece.
size_t PlanRun::StagedBytes(const Transfer& t, const Pieces& where) const {
  const size_t bytes = BytesOf(t);
  const bool in_place = bytes > kJoinedBytes && where.Contiguous(t.range.begin * work_.unit_bytes, bytes) != nullptr;
  return in_place ? kJoinedBytes : bytes;
}

PlanRun::Header PlanRun::HeaderOf(const Transfer& t) const {
  static_assert(sizeof(Fields) == kHeaderBytes);
  const Fields f{kMagic,    static_cast<uint32_t>(work_.phase) | work_.round << 8, work_.seq, t.step, t.segment,
                 BytesOf(t)};
  Header header;
  std::memcpy(header.data(), &f, sizeof(f));
  return header;
}

Status PlanRun::Tell(const Status& why, const char* doing, const Transfer& t) const {
  uint32_t steps = 0;
  for (const auto* list : {&work_.plan.sends, &work_.plan.receives}) {
    for (const Transfer& other : *list) steps = std::max(steps, other.step + 1);
  }
  return why.Because("rank " + std::to_string(team_.rank) + " " + doing + " " + std::to_string(BytesOf(t)) +
                     " bytes in batch " + std::to_string(work_.seq) + " (step " + std::to_string(t.step + 1) + " of " +
                     std::to_string(steps) + ")");
}

// Whether the end of this message, the next to be sent, is followed at once by another to the same member.
bool PlanRun::IsFollowed(const Transfer& t) const {
  if (behind_ == nullptr || sent_ + 1 < work_.plan.sends.size() || behind_->work_.plan.sends.empty()) return false;
  const Transfer& next = behind_->work_.plan.sends.front();
  return next.peer == t.peer && next.after == 0 && behind_->BytesOf(next) <= kPacketBytes;
}

Status PlanRun::WriteSome(const Transfer& t, size_t* n) {
  const size_t bytes = BytesOf(t), total = kHeaderBytes + bytes;
  const Pieces& from = SourceOf(t);
  std::byte* stage = scratch_->data();
  if (!out_.begun) {
    const Header header = HeaderOf(t);
    std::memcpy(stage, header.data(), kHeaderBytes);
    const size_t at = t.range.begin * work_.unit_bytes;
    out_ = {true, bytes > kJoinedBytes ? from.Contiguous(at, bytes) : nullptr, 0};
    // The header does not travel alone: a small packet costs as much as a large one.
    std::byte* to = stage + kHeaderBytes;
    from.Visit(at, out_.payload == nullptr ? bytes : kJoinedBytes, [&](const std::byte* data, size_t size) {
      std::memcpy(to, data, size);
      to += size;
    });
  }
  constexpr size_t kJoined = kHeaderBytes + kJoinedBytes;
  const bool in_place = out_.payload != nullptr && out_.moved >= kJoined;
  const std::byte* data = in_place ? out_.payload + (out_.moved - kHeaderBytes) : stage + out_.moved;
  const size_t end = out_.payload != nullptr && !in_place ? kJoined : total;
  const std::span<const std::byte> part(data, end - out_.moved);
  transport::Channel& channel = *team_.channels[t.peer];
  const Result<size_t> written =
      (end < total && bytes <= kPacketBytes) || IsFollowed(t) ? channel.WriteAhead(part) : channel.Write(part);
  if (!written.ok()) return Tell(written.status(), "sends", t);
  out_.moved += *written;
  *n = *written;
  return Status();
}

// At most about one segment at a time, so that both directions take turns.
Status PlanRun::PushSends(size_t* moved) {
  const size_t until = *moved + kSegmentBytes;
  while (sent_ < work_.plan.sends.size() && *moved < until) {
    const Transfer& t = work_.plan.sends[sent_];
    if (received_ < t.after) break;
    size_t n = 0;
    HVD_TRY(WriteSome(t, &n));
    *moved += n;
    if (out_.moved == kHeaderBytes + BytesOf(t)) {
      out_ = {};
      ++sent_;
    } else if (n == 0) {
      break;
    }
  }
  return Status();
}

Status PlanRun::CheckHeader(const Transfer& t) const {
  Fields got, want;
  std::memcpy(&got, scratch_->data() + receive_stage_at_, sizeof(got));
  const Header header = HeaderOf(t);
  std::memcpy(&want, header.data(), sizeof(want));
  if (std::memcmp(&got, &want, sizeof(got)) == 0) return Status();
  const transport::Channel& channel = *team_.channels[t.peer];
  const std::string who = std::string("[") + channel.kind() + "] rank " + std::to_string(channel.peer()) + " sent ";
  const std::string what =
      got.magic == kMagic ? "the message (" + TellFields(got) + ")" : "bytes that are not a message of a collective";
  return Status(Code::kInternal, who + what + " where rank " + std::to_string(team_.rank) + " expected (" +
                                     TellFields(want) +
                                     "); this is a bug, or another program writes to the connection.");
}

Status PlanRun::ReadSome(const Transfer& t, size_t* n) {
  const size_t bytes = BytesOf(t), total = kHeaderBytes + bytes;
  std::byte* stage = scratch_->data() + receive_stage_at_;
  if (!in_.begun) {
    const bool place = t.action == Action::kStore && bytes > kJoinedBytes;
    in_ = {true, place ? work_.output.Contiguous(t.range.begin * work_.unit_bytes, bytes) : nullptr, 0};
  }
  const bool in_place = in_.payload != nullptr && in_.moved >= kHeaderBytes;
  std::byte* data = in_place ? in_.payload + (in_.moved - kHeaderBytes) : stage + in_.moved;
  const size_t end = in_.payload != nullptr && !in_place ? kHeaderBytes : total;
  const Result<size_t> got = team_.channels[t.peer]->Read({data, end - in_.moved});
  if (!got.ok()) return Tell(got.status(), "receives", t);
  const bool header_was_there = in_.moved >= kHeaderBytes;
  in_.moved += *got;
  *n = *got;
  if (!header_was_there && in_.moved >= kHeaderBytes) return CheckHeader(t);
  return Status();
}

Status PlanRun::PullReceives(size_t* moved) {
  const size_t until = *moved + kSegmentBytes;
  while (received_ < work_.plan.receives.size() && *moved < until) {
    const Transfer& t = work_.plan.receives[received_];
    const size_t total = kHeaderBytes + BytesOf(t);
    if (in_.moved < total) {
      size_t n = 0;
      HVD_TRY(ReadSome(t, &n));
      *moved += n;
      if (n == 0) break;
    }
    if (in_.moved < total) continue;
    if (sent_ < t.after) break;
    Deliver(t);
    *moved += BytesOf(t);
    in_ = {};
    ++received_;
  }
  return Status();
}

void PlanRun::Deliver(const Transfer& t) {
  if (in_.payload != nullptr) return;
  std::byte* from = scratch_->data() + receive_stage_at_ + kHeaderBytes;
  if (t.action != Action::kStore) {
    Combine(t, from);
    return;
  }
  work_.output.Visit(t.range.begin * work_.unit_bytes, BytesOf(t), [&](std::byte* data, size_t size) {
    std::memcpy(data, from, size);
    from += size;
  });
}

// `received` may be changed. A raw own operand takes the factor together with the received one; a combined one has had
// it.
void PlanRun::Combine(const Transfer& t, std::byte* received) {
  const size_t unit = work_.unit_bytes;
  const bool raw = t.own == Where::kInput;
  if (!raw && work_.receive_factor != 1.0) kernels::Scale(work_.dtype, received, t.range.size(), work_.receive_factor);
  const kernels::Factors factors{raw ? work_.receive_factor : 1.0, t.last ? work_.last_factor : 1.0};
  size_t own_at = (t.range.begin + (raw ? work_.own_at : 0)) * unit;
  const Pieces& own_ranges = raw ? work_.input : work_.output;
  work_.output.Visit(t.range.begin * unit, BytesOf(t), [&](std::byte* to, size_t bytes) {
    own_ranges.Visit(own_at, bytes, [&](const std::byte* own, size_t size) {
      const void* both[2] = {own, received};
      if (t.action == Action::kOwnLast) std::swap(both[0], both[1]);
      void* dst = to;
      kernels::Reduce({work_.dtype, work_.op, factors, both, 2, &dst, 1, size / unit});
      to += size;
      received += size;
    });
    own_at += bytes;
  });
}

Status PlanRun::Advance(size_t* moved) {
  const size_t until = *moved + kTurnBytes;
  while (!done() && *moved < until) {
    const size_t before = *moved, sent = sent_;
    HVD_TRY(PushSends(moved));
    HVD_TRY(PullReceives(moved));
    if (*moved == before && sent_ == sent) break;
  }
  return Status();
}

void PlanRun::NoteWaiting() const {
  if (waiting_for_ == nullptr) return;
  const bool receiving = received_ < work_.plan.receives.size();
  *waiting_for_ =
      done() ? -1
             : team_.channels[receiving ? work_.plan.receives[received_].peer : work_.plan.sends[sent_].peer]->peer();
}

// The run behind sends once everything before it has gone.
Status PlanRun::AdvanceWithBehind(size_t* moved) {
  HVD_TRY(Advance(moved));
  return behind_ != nullptr && sent_ == work_.plan.sends.size() ? behind_->Advance(moved) : Status();
}

Task PlanRun::Finish(PlanRun* behind) {
  struct Progress final : Condition {
    explicit Progress(PlanRun* r) : run(r) {}
    PlanRun* run;
    Status status;
    size_t moved = 0;
    bool Ready() override {
      status = run->AdvanceWithBehind(&moved);
      return !status.ok() || moved > 0 || run->done();
    }
    bool await_ready() { return false; }
    void await_suspend(Task::Handle h) { SuspendOn(h, this); }
    Status await_resume() { return std::move(status); }
  };
  behind_ = behind;
  size_t turn = 0;
  while (!done()) {
    NoteWaiting();
    Progress progress(this);
    HVD_CO_TRY(co_await progress);
    turn += progress.moved;
    if (turn >= kTurnBytes && !done()) {
      turn = 0;
      co_await Yield();
    }
  }
  NoteWaiting();
  co_return Status();
}

}  // namespace hvd::collective::channels
