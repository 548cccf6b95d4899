// Payload: a rank's contribution to a small operation, where it travels with the rank's mark (docs/design/
// 0012-payloads.md). Payloads: those that this node has seen, until the log answers. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "negotiation/values/rank_set.h"

namespace hvd::negotiation {

struct Payload {
  int rank = 0;
  std::vector<std::byte> bytes;
};

// The most bytes that the payloads of one operation have together; the wire format refuses more.
inline constexpr size_t kMostPayloadBytes = 64 << 10;

void WritePayloads(const std::vector<Payload>& payloads, ByteWriter* w);
// Those of some ranks, which must all be there.
void WritePayloadsOf(const RankSet& ranks, const std::vector<Payload>& payloads, ByteWriter* w);
std::vector<Payload> ReadPayloads(ByteReader* r, int size);  // 0 <= rank < size, ascending

class Payloads {
 public:
  void Add(uint32_t id, Payload payload);
  void Add(uint32_t id, std::vector<Payload> payloads);
  // What is there of an operation, by rank.
  const std::vector<Payload>& Of(uint32_t id) const;
  // All of an operation, by rank, if there are this many; else none. They are here no longer.
  std::vector<Payload> Take(uint32_t id, size_t expected);
  void Drop(uint32_t id) {
    if (!of_.empty()) of_.erase(id);
  }
  bool any() const { return !of_.empty(); }

 private:
  std::unordered_map<uint32_t, std::vector<Payload>> of_;  // by cached id
};

}  // namespace hvd::negotiation
