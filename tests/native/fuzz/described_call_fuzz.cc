// Fuzz target: the text of a described call. Nothing may crash, and what is read holds what it says.
#include <cstring>
#include <string_view>
#include <vector>

#include "frameworks/described_call.h"

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  std::vector<std::vector<uint8_t>> seeds;
  for (std::string_view text :
       {"0 0 1 0 1.0 0.5 2\nallreduce.a 7 24 2 2 3\nallreduce.b 10 2 0", "1 0 0 0 1 1 1\nc 9 0 1 0"})
    seeds.emplace_back(text.begin(), text.end());
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::frameworks::DescribedCall call;
  if (!call.Parse({reinterpret_cast<const char*>(data), size})) return 0;
  for (const hvd_op& op : call.ops()) {
    int64_t sum = static_cast<int64_t>(std::strlen(op.name));
    for (int32_t d = 0; d < op.ndim; ++d) sum ^= op.shape[d];
    if (sum == 0 && op.name[0] == '\0') __builtin_trap();
  }
  return 0;
}
