// Turn: one use of a cached id. What travels beside the log says which use it belongs to, because the log's order does
// not tell. All ranks count alike (docs/design/0012-payloads.md).
#pragma once

#include <compare>
#include <cstdint>

#include "base/bytes.h"

namespace hvd::negotiation {

struct Turn {
  uint64_t answers = 0;  // how often the log has said something about the id
  uint64_t direct = 0;   // how often the operation has been done without the log since then
  auto operator<=>(const Turn&) const = default;
  void LogAnswered() { *this = {answers + 1, 0}; }
};

inline void WriteTurn(const Turn& turn, ByteWriter* w) {
  w->Varint(turn.answers);
  w->Varint(turn.direct);
}
inline Turn ReadTurn(ByteReader* r) {
  Turn turn;
  turn.answers = r->Varint();
  turn.direct = r->Varint();
  return turn;
}

}  // namespace hvd::negotiation
