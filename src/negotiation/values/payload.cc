#include "negotiation/values/payload.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace hvd::negotiation {

namespace {

void WritePayload(const Payload& p, ByteWriter* w) {
  w->Varint(static_cast<uint32_t>(p.rank));
  w->Varint(p.bytes.size());
  w->Bytes(p.bytes);
}

}  // namespace

void WritePayloads(const std::vector<Payload>& payloads, ByteWriter* w) {
  w->Varint(payloads.size());
  for (const Payload& p : payloads) WritePayload(p, w);
}

void WritePayloadsOf(const RankSet& ranks, const std::vector<Payload>& payloads, ByteWriter* w) {
  w->Varint(static_cast<uint64_t>(ranks.count()));
  for (const Payload& p : payloads) {
    if (ranks.Contains(p.rank)) WritePayload(p, w);
  }
}

std::vector<Payload> ReadPayloads(ByteReader* r, int size) {
  std::vector<Payload> payloads(r->Count(2));
  size_t total = 0;
  int before = -1;
  for (Payload& p : payloads) {
    p.rank = static_cast<int>(r->Varint32(static_cast<uint32_t>(size) - 1));
    const std::string_view bytes = r->Text();
    total += bytes.size();
    if (p.rank <= before || total > kMostPayloadBytes) r->Fail();
    if (!r->ok()) return {};
    before = p.rank;
    const auto* const first = reinterpret_cast<const std::byte*>(bytes.data());
    p.bytes.assign(first, first + bytes.size());
  }
  return payloads;
}

void Payloads::Add(uint32_t id, Payload payload) {
  std::vector<Payload>& there = of_[id];
  const auto behind = std::upper_bound(there.begin(), there.end(), payload.rank,
                                       [](int rank, const Payload& p) { return rank < p.rank; });
  there.insert(behind, std::move(payload));
}

const std::vector<Payload>& Payloads::Of(uint32_t id) const {
  static const std::vector<Payload> kNone;
  const auto found = of_.find(id);
  return found == of_.end() ? kNone : found->second;
}

void Payloads::Add(uint32_t id, std::vector<Payload> payloads) {
  for (Payload& p : payloads) Add(id, std::move(p));
}

std::vector<Payload> Payloads::Take(uint32_t id, size_t expected) {
  const auto found = of_.find(id);
  if (found == of_.end()) return {};
  std::vector<Payload> payloads = std::move(found->second);
  of_.erase(found);
  if (payloads.size() != expected) return {};  // others have brought nothing: they go the usual way
  return payloads;
}

}  // namespace hvd::negotiation
