#include "collective/hosts/splits.h"

#include <algorithm>

namespace hvd::collective::hosts {
namespace {

// Forwarded bytes are copied twice more, but a message carries those of all members of a host. A message costs as much
// as 64 KB (schedule.cc): below that per pair of members, on average, few large messages are better than many small
// ones.
constexpr size_t kForwardedBytes = 16 << 10;
// An owner holds what it forwards: where that were more, nothing is forwarded.
constexpr int64_t kMostForwarded = 64 << 20;

}  // namespace

Splits::Splits(const Batch& batch, const Roles& roles, int members)
    : batch_(batch), roles_(roles), n_(members), sent_(roles.owners) {}

size_t Splits::bytes(int local, int member) const {
  size_t sum = 0;
  for (size_t t = 0; t < tensors(); ++t) sum += static_cast<size_t>(rows(local, member, t)) * row_bytes(t);
  return sum;
}

size_t Splits::arriving_bytes(int owner, int host, int i, int w) const {
  size_t sum = 0;
  for (size_t t = 0; t < tensors(); ++t) sum += static_cast<size_t>(arriving_rows(owner, host, i, w, t)) * row_bytes(t);
  return sum;
}

size_t Splits::forwarded_bytes(int local, int owner, int host) const {
  size_t sum = 0;
  for (int w = 0; w < wards(host, owner); ++w) sum += bytes(local, ward(host, owner, w));
  return sum;
}

size_t Splits::OffsetOf(int owner, int host) const {
  size_t at = 0;
  const auto wards_here = static_cast<size_t>(wards(roles_.host, owner));
  for (int h = 0; h < host; ++h) {
    if (h != roles_.host) at += kFacts + static_cast<size_t>(roles_.locals_of(h)) * wards_here * tensors();
  }
  return at;
}

std::vector<int64_t> Splits::ReceivedRows(size_t tensor) const {
  std::vector<int64_t> received(n_);
  const int owner = roles_.me % roles_.owners, w = roles_.me / roles_.owners;
  for (int h = 0; h < roles_.hosts(); ++h) {
    for (int i = 0; i < roles_.locals_of(h); ++i) {
      const int from = roles_.members[h][i];
      received[from] =
          h == roles_.host ? rows(i, roles_.members[h][roles_.me], tensor) : arriving_rows(owner, h, i, w, tensor);
    }
  }
  return received;
}

Task Splits::Agree(Between& between, Inside& inside) {
  std::vector<int64_t> mine;
  for (const Tensor& t : batch_.tensors) mine.insert(mine.end(), t.splits.begin(), t.splits.end());
  local_.resize(mine.size() * roles_.locals());
  HVD_CO_TRY(co_await inside.Blobs(reinterpret_cast<const std::byte*>(mine.data()), mine.size() * sizeof(int64_t),
                                   reinterpret_cast<std::byte*>(local_.data())));
  facts_ = OwnFacts();
  const size_t most = OffsetOf(0, roles_.hosts());  // the first owner has the most wards
  for (auto& each : sent_) each.resize(most);
  if (roles_.owner()) {
    StartTelling(between);
    HVD_CO_TRY(co_await between.Finish());
  }
  if (roles_.locals() == roles_.owners) co_return Status();
  std::vector<int64_t> all(most * roles_.locals()), own(most);
  if (roles_.owner()) own = sent_[roles_.me];
  HVD_CO_TRY(co_await inside.Blobs(reinterpret_cast<const std::byte*>(own.data()), most * sizeof(int64_t),
                                   reinterpret_cast<std::byte*>(all.data())));
  for (int o = 0; o < roles_.owners; ++o)
    sent_[o].assign(all.begin() + static_cast<int64_t>(o * most), all.begin() + static_cast<int64_t>((o + 1) * most));
  co_return Status();
}

// {bytes to other hosts, the most that one owner would forward}, of this host.
std::vector<int64_t> Splits::OwnFacts() const {
  int64_t total = 0, most = 0;
  for (int o = 0; o < roles_.owners; ++o) {
    int64_t forwarded = 0;
    for (int h = 0; h < roles_.hosts(); ++h) {
      for (int i = 0; h != roles_.host && i < roles_.locals(); ++i)
        forwarded += static_cast<int64_t>(forwarded_bytes(i, o, h));
    }
    total += forwarded;
    most = std::max(most, forwarded);
  }
  return {total, most};
}

void Splits::StartTelling(Between& between) {
  std::vector<channels::Range> sends, receives;
  for (int h = 0; h < roles_.hosts(); ++h) {
    channels::Range send{telling_.size(), telling_.size()};
    if (h != roles_.host) {
      telling_.insert(telling_.end(), facts_.begin(), facts_.end());
      for (int i = 0; i < roles_.locals(); ++i) {
        for (int w = 0; w < wards(h, roles_.me); ++w) {
          for (size_t t = 0; t < tensors(); ++t) telling_.push_back(rows(i, ward(h, roles_.me, w), t));
        }
      }
      send.end = telling_.size();
    }
    sends.push_back(send);
    receives.push_back({OffsetOf(roles_.me, h), OffsetOf(roles_.me, h + 1)});
  }
  channels::PlanRun::Work work;
  work.unit_bytes = sizeof(int64_t);
  work.input.Add(reinterpret_cast<const std::byte*>(telling_.data()), telling_.size() * sizeof(int64_t));
  work.output.Add(reinterpret_cast<std::byte*>(sent_[roles_.me].data()),
                  OffsetOf(roles_.me, roles_.hosts()) * sizeof(int64_t));
  work.plan = channels::PairwiseExchange(
      channels::ShapeOf(roles_.hosts(), roles_.host, telling_.size(), sizeof(int64_t)), sends, receives);
  work.phase = channels::Phase::kSizes;
  between.Start(roles_.across, std::move(work));
}

bool Splits::PaysToForward() const {
  int64_t total = facts_[0], most = facts_[1], pairs = 0;
  const int owner = roles_.me % roles_.owners;
  for (int h = 0; h < roles_.hosts(); ++h) {
    pairs += static_cast<int64_t>(roles_.locals_of(h)) * (n_ - roles_.locals_of(h));
    if (h == roles_.host) continue;
    const int64_t* facts = sent_[owner].data() + OffsetOf(owner, h);
    total += facts[0];
    most = std::max(most, facts[1]);
  }
  return total <= pairs * static_cast<int64_t>(kForwardedBytes) && most <= kMostForwarded;
}

}  // namespace hvd::collective::hosts
