// Fuzz target: bytes of a hostile or broken peer into a FrameStream, without and with a code. The first byte chooses
// the code and the size of the pieces. Nothing may crash, hang or take more memory than a frame; with a code nothing
// may be delivered that the peer did not sign.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "transport/frame_stream.h"
#include "transport/memory_channel.h"

namespace {

std::vector<uint8_t> Framed(const std::vector<std::string>& payloads) {
  std::vector<uint8_t> out = {0x10};
  for (const std::string& p : payloads) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(p.size() >> (8 * i)));
    out.insert(out.end(), p.begin(), p.end());
  }
  return out;
}

}  // namespace

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  return {Framed({}),
          Framed({"a"}),
          Framed({"", "hello", std::string(300, 'x')}),
          {0x11, 5, 0, 0, 0, 1, 2, 3},
          {0x10, 255, 255, 255, 255}};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool with_code = (data[0] & 1) != 0;
  auto [mine, theirs] = hvd::transport::MemoryChannel::Pair(0, 1);
  hvd::transport::FrameStream::Key key{1, 2, 3};
  hvd::transport::FrameStream stream(mine.get(), 0, with_code ? std::optional(key) : std::nullopt);
  const size_t piece = 1 + data[0] / 16;
  size_t at = 1;
  for (int calls = 0; calls < 100000; ++calls) {
    if (at < size) {
      const auto wrote = theirs->Write(std::as_bytes(std::span(data + at, std::min(piece, size - at))));
      if (!wrote.ok()) return 0;
      at += *wrote;
    }
    auto frame = stream.Receive();
    if (!frame.ok()) return 0;
    if (frame->has_value() && with_code) __builtin_trap();  // a forged code of 128 bits
    if (!frame->has_value() && at >= size) return 0;
  }
  __builtin_trap();  // does not come to an end
}
