#include "engine/run/verdict.h"

#include "base/log.h"
#include "engine/wake/clock.h"

namespace hvd::engine {
namespace {

// More than what the C library gets from the system at once, so that it goes back there; never touched.
constexpr size_t kReserveBytes = 1 << 20;
// A neighbour that gives up a batch says so in shared memory at once; why comes through the control tree, or from its
// death.
constexpr double kBetterReasonS = 0.5;

}  // namespace

Verdict::Verdict(const Tools& tools)
    : tools_(tools), reserve_(std::make_unique_for_overwrite<std::byte[]>(kReserveBytes)) {
  (void)OutOfMemory();  // made now
  (void)NotDoneYet();
}

void Verdict::Fail(const Status& why, bool tell_others) noexcept { Stop(why, tell_others, /*in_order=*/false); }

void Verdict::End(const Status& why) noexcept { Stop(why, /*tell_others=*/false, /*in_order=*/true); }

void Verdict::Stop(const Status& why, bool tell_others, bool in_order) noexcept {
  if (failed_.exchange(true)) return;
  reserve_.reset();
  Log(LogLevel::kDebug, "the engine stops: " + why.message());
  if (!in_order && why.code() != Code::kShutdown) tools_.counters->CountError(why.message());
  tools_.counters->BatchesEnd(NowS());
  auto unfinished = tools_.submissions->Close(why);
  auto runs = tools_.executor->Cancel();
  Connections& connections = *tools_.connections;
  if (tell_others) {  // first: the next step may take longer than neighbours wait for the reason
    tools_.node->Abort(why, NowS());
    tools_.node->TakeOutgoing(
        [&](int to, std::span<const std::byte> frame) { (void)connections.links().Send(to, frame); });
  }
  connections.FlushRings();
  connections.SetLastWord(transport::LastWord::kReason);
  // Before the owners of the tensors learn that they may store into them: nobody else does any more.
  CutOffSharedTensors();
  if (!in_order) tools_.backends->Abort();
  for (auto& run : runs) {
    for (auto& own : run->own) {
      if (own) tools_.arrivals->Arrive(*own->completion, why);
    }
  }
  for (auto& completion : unfinished) tools_.arrivals->Arrive(*completion, why);
  if (const auto completion = tools_.arrivals->TakeInterrupted()) tools_.arrivals->Arrive(*completion, why);
  held_until_ = kNever;
}

// "Rank 1 gave up", or "closed the connection", helps nobody: the tensors wait for what made it do so.
void Verdict::GaveUp(const Status& why) {
  if (!OthersKnowWhy(why)) return Fail(why, true);
  held_until_ = NowS() + kBetterReasonS;
  held_why_ = why;
}

void Verdict::Lost(const Watch::Death& death, double now) {
  if (failed_) return;
  const int local = tools_.connections->local_of(death.rank);
  if (tools_.connections->neighbours() != nullptr && local >= 0)
    tools_.connections->neighbours()->MarkLost(local, death.why);
  tools_.node->PeerLost(death.rank, death.why.message(), now);
  Fail(death.why, true);
}

bool Verdict::OthersKnowWhy(const Status& why) const {
  // A closed data channel: its owner may only have suffered from another's death. One that has fallen silent is the
  // cause itself.
  const auto has_left = [this](int rank) { return tools_.watch->has_left(rank); };
  if (why.code() == Code::kPeerLost) return tools_.connections->CheckPeers(NowS(), has_left).ok();
  const transport::Neighbours* const neighbours = tools_.connections->neighbours();
  if (why.code() != Code::kInternal || neighbours == nullptr) return false;
  for (int i = 0; i < neighbours->size(); ++i) {
    if (i != neighbours->self() && neighbours->failed_seq(i) != 0) return true;
  }
  return false;
}

// A neighbour that has not heard of the failure may still store into the shared tensors of a batch.
void Verdict::CutOffSharedTensors() {
  const std::shared_ptr<transport::ResidentHeap> shared = tools_.connections->heap();
  if (!shared || !AnyNeighbourLives()) return;
  if (Status s = shared->MakePrivate(); !s.ok()) Log(LogLevel::kWarning, s.message());
}

bool Verdict::AnyNeighbourLives() const {
  const transport::Neighbours& neighbours = *tools_.connections->neighbours();
  for (int i = 0; i < neighbours.size(); ++i) {
    if (i != neighbours.self() && tools_.watch->Lives(neighbours.rank(i))) return true;
  }
  return false;
}

}  // namespace hvd::engine
