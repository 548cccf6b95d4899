// Slices of a vector: within their bounds, and not more than pay where a chain of hosts has to be filled for each.
#include "collective/slices.h"

#include "native/harness/harness.h"

namespace hvd::test::collective_slices {
namespace {

using collective::SlicesFor;
using collective::SlicesOfChain;

TEST(slices_are_bounded_and_hold_all) {
  EXPECT_EQ(SlicesFor(0), size_t{1});
  EXPECT_EQ(SlicesFor(256 << 10), size_t{1});
  EXPECT_EQ(SlicesFor((256 << 10) + 1), size_t{2});  // one slice would be larger than the smallest bound
  EXPECT_EQ(SlicesFor(16 << 20), size_t{4});
  EXPECT_EQ(SlicesFor((16 << 20) + 1), size_t{5});
  EXPECT_EQ(SlicesFor(1 << 30), size_t{256});
}

TEST(slices_of_a_chain_are_fewer_where_it_is_long) {
  for (const size_t bytes : {size_t{0}, size_t{1} << 10, size_t{4} << 20, size_t{1} << 30}) {
    EXPECT_EQ(SlicesOfChain(bytes, 2), SlicesFor(bytes));
    EXPECT_EQ(SlicesOfChain(bytes, 3), SlicesFor(bytes));
    for (const int hosts : {4, 16, 64, 1024}) {
      const size_t slices = SlicesOfChain(bytes, hosts);
      EXPECT(slices >= 1 && slices <= SlicesFor(bytes));
      EXPECT(slices == 1 || bytes / slices >= static_cast<size_t>(hosts - 2) << 17);
    }
  }
  EXPECT_EQ(SlicesOfChain(64 << 20, 64), size_t{8});
}

}  // namespace
}  // namespace hvd::test::collective_slices
