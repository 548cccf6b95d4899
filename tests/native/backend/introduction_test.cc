// What the members conclude from what they told one another.
#include "backend/introduction.h"

#include "native/harness/harness.h"

namespace hvd::test::backend_introduction {
namespace {

using backend::DeviceFacts;
using backend::DeviceWay;

// Of members with these ranks on these hosts; the own one is the first.
DeviceWay Conclude(const std::vector<DeviceFacts>& facts, std::vector<int> ranks, std::vector<int> host_of = {}) {
  collective::Group group;
  host_of.resize(ranks.size());
  group.ranks = std::move(ranks);
  group.host_of = std::move(host_of);
  return backend::Conclude(facts, group);
}

DeviceFacts Has(int version, int device) {
  DeviceFacts facts;
  facts.nccl_version = version;
  facts.device[0] = facts.place[0] = static_cast<std::byte>(device);
  facts.visible = 4;
  return facts;
}

TEST(members_that_all_have_nccl_and_a_gpu_each_use_it) {
  DeviceFacts first = Has(22809, 1);
  first.across[5] = std::byte{7};
  const auto way = Conclude({first, Has(22809, 2)}, {0, 3});
  EXPECT_EQ(way.why_not_nccl, "");
  EXPECT(way.across == std::vector<backend::NcclId>({first.across}));
  EXPECT(!way.for_now);
}

TEST(one_member_without_nccl_is_enough_and_is_named) {
  DeviceFacts without = Has(0, 2);
  without.SetWhyNot("libnccl.so.2 not found (pip install nvidia-nccl-cu13)");
  EXPECT_EQ(Conclude({Has(22809, 1), without}, {0, 3}).why_not_nccl,
            "rank 3: libnccl.so.2 not found (pip install nvidia-nccl-cu13)");
}

TEST(members_on_one_gpu_and_of_different_versions_are_named) {
  EXPECT(Conclude({Has(22809, 1), Has(22809, 2), Has(22809, 1)}, {0, 1, 5})
             .why_not_nccl.find("ranks 0 and 5 use one GPU") == 0);
  EXPECT(Conclude({Has(22809, 1), Has(21805, 2)}, {4, 5})
             .why_not_nccl.find("rank 4 has NCCL 2.28.9 and rank 5 has 2.18.5") == 0);
}

TEST(members_on_one_gpu_are_all_named_with_it_and_a_remedy_that_their_host_allows) {
  std::vector<DeviceFacts> facts(4, Has(22809, 1));
  facts[0].ordinal = 2;
  const auto why = [&] { return Conclude(facts, {8, 9, 10, 11}).why_not_nccl; };
  EXPECT(why().find("ranks 8, 9, 10 and 11 use one GPU (number 2, one of the 4 that the driver shows to rank 8), which "
                    "NCCL refuses; give each rank its own GPU") == 0);
  facts[0].visible = 2;  // two of them could have one
  EXPECT(why().find("one of the 2 ") != std::string::npos);
  EXPECT(why().find("refuses; start no more ranks on a host than it has GPUs") != std::string::npos);
  facts[0].visible = 1;
  EXPECT(why().find("(number 2, the only one that the driver shows to rank 8), which NCCL refuses; start no more") !=
         std::string::npos);
}

TEST(members_in_containers_that_share_a_gpu_get_another_remedy) {
  const std::vector<DeviceFacts> facts(2, Has(22809, 1));
  EXPECT(Conclude(facts, {0, 1}, {0, 1}).why_not_nccl.find("give each of these a GPU of its own") != std::string::npos);
  EXPECT(Conclude(facts, {0, 1}, {1, 1}).why_not_nccl.find("give each rank its own GPU") != std::string::npos);
}

TEST(members_on_parts_of_one_gpu_are_named) {
  DeviceFacts part = Has(22809, 2);
  part.place[0] = std::byte{1};
  EXPECT(Conclude({Has(22809, 1), part}, {0, 1}).why_not_nccl.find("ranks 0 and 1 use parts of one GPU") == 0);
  EXPECT_EQ(Conclude({Has(22809, 1), part}, {0, 1}, {0, 1}).why_not_nccl, "");  // on two hosts
}

// RCCL tells NCCL's versions, and does not work with it.
TEST(members_with_rccl_are_distinguished_from_those_with_nccl) {
  DeviceFacts rccl = Has(22203, 1), other = Has(22203, 2);
  rccl.is_rccl = other.is_rccl = 1;
  EXPECT_EQ(Conclude({rccl, other}, {0, 1}).why_not_nccl, "");
  EXPECT_EQ(std::string(Conclude({rccl, other}, {0, 1}).library), "RCCL");
  const DeviceWay mixed = Conclude({rccl, Has(22203, 3)}, {0, 1});
  EXPECT_EQ(mixed.why_not_nccl, "rank 0 has RCCL and rank 1 has NCCL, which do not work together");
}

// GPUs of AMD's without a number of their own have their place on the bus only, which those of another host have, too.
TEST(members_with_rccl_use_one_gpu_only_on_one_host) {
  std::vector<DeviceFacts> facts = {Has(22203, 1), Has(22203, 1)};
  EXPECT(Conclude(facts, {0, 1}, {0, 1}).why_not_nccl.find("ranks 0 and 1 use one GPU") == 0);
  for (DeviceFacts& f : facts) f.is_rccl = 1;
  EXPECT_EQ(Conclude(facts, {0, 1}, {0, 1}).why_not_nccl, "");
  EXPECT(Conclude(facts, {0, 1}, {1, 1}).why_not_nccl.find("ranks 0 and 1 use one GPU (number 0, ") == 0);
}

TEST(a_member_without_a_gpu_yet_decides_nothing_for_good) {
  DeviceFacts not_yet = Has(0, 0);
  not_yet.no_device_yet = 1;
  const DeviceWay way = Conclude({Has(22809, 1), not_yet}, {0, 1});
  EXPECT(way.for_now && !way.why_not_nccl.empty());
}

TEST(members_take_the_least_number_of_streams_and_an_id_from_each) {
  std::vector<DeviceFacts> facts = {Has(22809, 1), Has(22809, 2), Has(22809, 3)};
  for (int m = 0; m < 3; ++m) {
    facts[m].streams = 4;
    facts[m].across[0] = static_cast<std::byte>(m + 1);
  }
  EXPECT_EQ(Conclude(facts, {0, 1, 2}).across.size(), 3u);  // no more than members
  facts[2].streams = 2;
  const DeviceWay way = Conclude(facts, {0, 1, 2});
  EXPECT_EQ(way.across.size(), 2u);
  EXPECT(way.across[1] == facts[1].across);
  facts[0].streams = 0;
  EXPECT_EQ(Conclude(facts, {0, 1, 2}).across.size(), 1u);
}

TEST(members_take_the_least_number_of_thread_blocks_that_one_wants) {
  std::vector<DeviceFacts> facts = {Has(22809, 1), Has(22809, 2), Has(22809, 3)};
  EXPECT_EQ(Conclude(facts, {0, 1, 2}).max_ctas, 0);
  facts[1].max_ctas = 8;
  facts[2].max_ctas = 4;
  EXPECT_EQ(Conclude(facts, {0, 1, 2}).max_ctas, 4);
}

TEST(hosts_of_different_versions_have_nccl_inside) {
  const std::vector<DeviceFacts> facts = {Has(22809, 1), Has(21805, 2), Has(22809, 3), Has(21805, 4)};
  const DeviceWay way = Conclude(facts, {0, 1, 2, 3}, {7, 5, 7, 5});
  EXPECT(!way.why_not_nccl.empty());
  EXPECT_EQ(way.why_not_inside, "");
}

TEST(the_id_inside_is_that_of_the_first_member_on_the_own_host) {
  std::vector<DeviceFacts> facts(4);
  facts[1].inside[3] = std::byte{9};
  collective::Group group;
  group.ranks = {0, 1, 2, 3};
  group.host_of = {0, 1, 0, 1};
  group.index = 3;
  EXPECT(backend::Conclude(facts, group).inside == facts[1].inside);
  group.index = 2;
  EXPECT(backend::Conclude(facts, group).inside == facts[0].inside);
}

TEST(why_there_are_no_two_levels_is_said) {
  const std::vector<DeviceFacts> three = {Has(22809, 1), Has(22809, 2), Has(22809, 3)};
  EXPECT_EQ(Conclude(three, {0, 1, 2}, {0, 0, 0}).why_not_inside, "all members are on one host");
  EXPECT_EQ(Conclude(three, {0, 1, 2}, {0, 1, 2}).why_not_inside, "no host has several members");
  EXPECT_EQ(
      Conclude(three, {0, 3, 9}, {0, 1, 1}).why_not_inside,
      "rank 0 is on a host with 1 members and rank 3 on one with 2; two levels need the same number on every host");
  std::vector<DeviceFacts> four = {Has(22809, 1), Has(22809, 2), Has(21805, 3), Has(22809, 3)};
  EXPECT(Conclude(four, {0, 1, 2, 3}, {0, 0, 1, 1}).why_not_inside.find("rank 2 has NCCL 2.18.5 and rank 3") == 0);
  four[2] = Has(22809, 3);
  EXPECT(Conclude(four, {0, 1, 2, 3}, {0, 0, 1, 1}).why_not_inside.find("ranks 2 and 3 use one GPU") == 0);
}

TEST(a_long_reason_is_cut_off) {
  DeviceFacts without;
  without.SetWhyNot(std::string(1000, 'x'));
  EXPECT_EQ(Conclude({without}, {0}).why_not_nccl, "rank 0: " + std::string(sizeof without.why_not - 1, 'x'));
}

}  // namespace
}  // namespace hvd::test::backend_introduction
