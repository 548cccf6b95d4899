// What the members conclude from what they told one another.
#include "backend/introduction.h"

#include "native/harness/harness.h"

namespace hvd::test {
namespace {

using backend::Conclude;
using backend::DeviceFacts;

DeviceFacts Has(int version, int device) {
  DeviceFacts facts;
  facts.nccl_version = version;
  facts.device[0] = static_cast<std::byte>(device);
  return facts;
}

TEST(members_that_all_have_nccl_and_a_gpu_each_use_it) {
  DeviceFacts first = Has(22809, 1);
  first.nccl_id[5] = std::byte{7};
  const auto way = Conclude({first, Has(22809, 2)}, {0, 3});
  EXPECT_EQ(way.why_not_nccl, "");
  EXPECT(way.nccl_id == first.nccl_id);
}

TEST(one_member_without_nccl_is_enough_and_is_named) {
  DeviceFacts without = Has(0, 2);
  without.SetWhyNot("libnccl.so.2 not found (pip install nvidia-nccl-cu13)");
  EXPECT_EQ(Conclude({Has(22809, 1), without}, {0, 3}).why_not_nccl,
            "rank 3: libnccl.so.2 not found (pip install nvidia-nccl-cu13)");
}

TEST(members_on_one_gpu_and_of_different_versions_are_named) {
  EXPECT(Conclude({Has(22809, 1), Has(22809, 2), Has(22809, 1)}, {0, 1, 5})
             .why_not_nccl.find("rank 0 and rank 5 use one GPU") == 0);
  EXPECT(Conclude({Has(22809, 1), Has(21805, 2)}, {4, 5})
             .why_not_nccl.find("rank 4 has NCCL 2.28.9 and rank 5 has 2.18.5") == 0);
}

TEST(a_long_reason_is_cut_off) {
  DeviceFacts without;
  without.SetWhyNot(std::string(1000, 'x'));
  EXPECT_EQ(Conclude({without}, {0}).why_not_nccl, "rank 0: " + std::string(sizeof without.why_not - 1, 'x'));
}

}  // namespace
}  // namespace hvd::test
