#include "engine/entry/send_copies.h"

#include <cstring>

namespace hvd::engine {

std::unique_ptr<collective::Block> SendCopies::Copy(const void* data, size_t bytes, bool limited) {
  if (limited && (bytes > kMostBytes || together_.load(std::memory_order_relaxed) + bytes > kMostTogether))
    return nullptr;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) std::memcpy(copy.get(), data, bytes);
  auto block = std::make_unique<collective::Block>(copy.get(), bytes, shared_from_this());
  together_.fetch_add(bytes, std::memory_order_relaxed);
  (void)copy.release();
  return block;
}

void SendCopies::TakeBack(std::byte* data, size_t bytes) {
  together_.fetch_sub(bytes, std::memory_order_relaxed);
  delete[] data;
}

}  // namespace hvd::engine
