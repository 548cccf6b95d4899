#include "negotiation/values/request.h"

namespace hvd::negotiation {

uint64_t GroupHash(const std::vector<std::string>& ordered_names) {
  uint64_t h = 0xcbf29ce484222325ull;
  auto mix = [&h](uint8_t byte) { h = (h ^ byte) * 0x100000001b3ull; };
  for (const std::string& name : ordered_names) {
    for (char c : name) mix(static_cast<uint8_t>(c));
    mix(0xff);  // never part of UTF-8: {"ab", "c"} differs from {"a", "bc"}
  }
  return h == 0 ? 1 : h;
}

}  // namespace hvd::negotiation
