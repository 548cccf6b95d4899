#include "negotiation/payload.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace hvd::negotiation {

void WritePayloads(const std::vector<Payload>& payloads, ByteWriter* w) {
  w->Varint(payloads.size());
  for (const Payload& p : payloads) {
    w->Varint(static_cast<uint32_t>(p.rank));
    w->Varint(p.bytes.size());
    w->Bytes(p.bytes);
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

void Payloads::Add(uint32_t id, std::vector<Payload> payloads) {
  for (Payload& p : payloads) Add(id, std::move(p));
}

std::vector<Payload> Payloads::Take(uint32_t id, size_t expected) {
  const auto found = of_.find(id);
  if (found == of_.end()) return {};
  std::vector<Payload> payloads = std::move(found->second);
  of_.erase(found);
  if (payloads.size() != expected) return {};  // others have brought nothing: they go the usual way
  std::sort(payloads.begin(), payloads.end(), [](const Payload& a, const Payload& b) { return a.rank < b.rank; });
  return payloads;
}

}  // namespace hvd::negotiation
