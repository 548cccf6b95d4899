// Block: result memory that the core allocates and hands out as DLPack (batch.h). Large blocks ask for huge pages: the
// first touch of 64 MB in 4 KB pages costs more than copying them.
#include <sys/mman.h>

#include <cstdlib>

#include "collective/batch.h"

namespace hvd {
namespace {
constexpr size_t kLine = 64;
constexpr size_t kHugePage = 2u << 20;
}  // namespace

// data stays nullptr when there is no memory; never for 0 bytes.
Block::Block(size_t size) : bytes(size) {
  const size_t align = size >= 2 * kHugePage ? kHugePage : kLine;
  if (size > SIZE_MAX - align) return;
  const size_t rounded = size == 0 ? align : (size + align - 1) / align * align;
  data = static_cast<std::byte*>(std::aligned_alloc(align, rounded));
#ifdef MADV_HUGEPAGE
  // A hint: without huge pages the block is merely slower to fill.
  if (data != nullptr && align == kHugePage) (void)madvise(data, rounded, MADV_HUGEPAGE);
#endif
}

Block::~Block() { std::free(data); }

}  // namespace hvd
