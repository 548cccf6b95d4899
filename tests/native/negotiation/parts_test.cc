// The pure parts of the negotiation, each alone: rank sets, tree, wire format, validation, fusion.
#include <limits>
#include <random>
#include <set>

#include "base/bytes.h"
#include "native/negotiation/cluster.h"
#include "negotiation/frames/wire.h"
#include "negotiation/state/fusion.h"
#include "negotiation/values/rank_set.h"
#include "negotiation/values/signature.h"
#include "negotiation/values/tree.h"

namespace hvd::test::negotiation_parts {

using namespace hvd::negotiation;
using hvd::negotiation::Place;
namespace {

TEST(negotiation_rank_set_text) {
  EXPECT_EQ(RankSet::Of(3).Text(), "rank 3");
  EXPECT_EQ(RankSet::FromUnsorted({7, 2, 1, 3}).Text(), "ranks 1-3, 7");
}

TEST(negotiation_rank_set_against_std_set) {
  std::mt19937 rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int> a, b;
    for (int r = 0; r < 20; ++r) {
      if (rng() % 2) a.push_back(r);
      if (rng() % 3 == 0) b.push_back(r);
    }
    const RankSet x = RankSet::FromUnsorted(a), y = RankSet::FromUnsorted(b);
    const std::set<int> sa(a.begin(), a.end()), sb(b.begin(), b.end());
    std::vector<int> both, minus, all;
    for (int r = 0; r < 20; ++r) {
      EXPECT(x.Contains(r) == (sa.count(r) > 0));
      if (sa.count(r) && sb.count(r)) both.push_back(r);
      if (sa.count(r) && !sb.count(r)) minus.push_back(r);
      if (sa.count(r) || sb.count(r)) all.push_back(r);
    }
    RankSet sum = x;
    sum.AddAll(y);
    EXPECT(x.And(y).ToVector() == both);
    EXPECT(x.Minus(y).ToVector() == minus);
    EXPECT(sum.ToVector() == all);
    EXPECT(sum == RankSet::FromUnsorted(all));
    EXPECT_EQ(sum.count(), static_cast<int>(all.size()));
  }
}

TEST(negotiation_tree_of_hosts) {
  std::vector<int> host;
  for (int r = 0; r < 1024; ++r) host.push_back(r / 16);
  const std::vector<int> parent = BuildTree(host, 16);
  EXPECT_EQ(parent[0], -1);
  EXPECT_EQ(parent[15], 0);
  EXPECT_EQ(parent[16], 0);
  EXPECT_EQ(parent[17], 16);
  EXPECT_EQ(parent[16 * 17], 16);
  EXPECT_EQ(TreeDepth(parent), 3);
  for (int r = 1; r < 1024; ++r) EXPECT(parent[r] < r);
  EXPECT(BuildTree({0, 1, 0, 1}) == (std::vector<int>{-1, 0, 0, 1}));  // ranks dealt out to hosts in turn
}

TEST(negotiation_place) {
  const Place p = FindPlace(1, 6, {-1, 0, 0, 1, 1, 3});
  EXPECT_EQ(p.parent, 0);
  EXPECT(p.children == (std::vector<int>{3, 4}));
  EXPECT(p.below[0] == RankSet::Of(1));
  EXPECT(p.below[1] == RankSet::FromUnsorted({3, 5}));
  EXPECT_EQ(p.subtree.Text(), "ranks 1, 3-5");
  EXPECT_EQ(p.inner.Text(), "ranks 0-1, 3");
  EXPECT_EQ(p.SourceOfNeighbour(4), 2);
  EXPECT_EQ(p.SourceOfNeighbour(5), -1);
}

TEST(negotiation_bytes_round_trip) {
  Bytes bytes;
  ByteWriter w(&bytes);
  const std::vector<uint64_t> numbers = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX};
  for (uint64_t v : numbers) w.Varint(v);
  for (int64_t v : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) w.Signed(v);
  w.F64(-0.5);
  w.Text("grün");
  w.U32(0x01020304);
  EXPECT_EQ(static_cast<int>(bytes[bytes.size() - 4]), 4);  // little-endian
  ByteReader r(bytes);
  for (uint64_t v : numbers) EXPECT_EQ(r.Varint(), v);
  for (int64_t v : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) EXPECT_EQ(r.Signed(), v);
  EXPECT_EQ(r.F64(), -0.5);
  EXPECT_EQ(r.Text(), "grün");
  EXPECT_EQ(r.U32(), 0x01020304u);
  EXPECT(r.ok() && r.AtEnd());
  EXPECT_EQ(r.U8(), 0);
  EXPECT(!r.ok());
}

TEST(negotiation_bytes_refuse_long_numbers_and_counts) {
  const Bytes eleven(11, std::byte{0xff});
  ByteReader r(eleven);
  r.Varint();
  EXPECT(!r.ok());
  const Bytes count = {std::byte{5}, std::byte{0}};
  ByteReader s(count);
  EXPECT_EQ(s.Count(), 0u);
  EXPECT(!s.ok());
}

TEST(negotiation_wire_request_round_trip) {
  Request q = Tensor("layer/ä", {0, 3, 1 << 20}, OpType::kReducescatter);
  q.dtype = DType::kBfloat16;
  q.op = ReduceOp::kAverage;
  q.process_set = 12;
  q.prescale = 0.1;
  q.group_hash = 0xabcdef;
  q.group_size = 3;
  q.group_index = 2;
  q.transient = true;
  q.on_device = true;
  Bytes bytes;
  ByteWriter w(&bytes);
  WriteRequest(q, &w);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    ByteReader r(std::span<const std::byte>(bytes.data(), cut));
    const Request back = ReadRequest(&r);
    EXPECT(r.ok() == (cut == bytes.size()));
    if (!r.ok()) continue;
    EXPECT(SameSignature(q, back));
    EXPECT(back.name == q.name && back.process_set == 12 && back.transient && back.shape == q.shape);
    EXPECT_EQ(back.ticket, 0u);
  }
}

TEST(negotiation_frame_of_another_epoch_or_sender_is_refused) {
  NodeConfig config = PlainConfig();
  config.size = 3;
  config.parent = {-1, 0, 0};
  config.epoch = 7;
  Node node(config);
  auto frame = [](Direction way, uint32_t sender, uint64_t epoch, uint32_t number) {
    Bytes f(kFrameHeaderBytes + 2, std::byte{0});
    WriteHeader({way, sender, epoch, number}, f.data());
    f[kFrameHeaderBytes] = std::byte{1};  // version 0: harmless
    return f;
  };
  auto text = [&](int from, const Bytes& f) { return node.Receive(from, f, 0).message(); };
  EXPECT_EQ(text(1, frame(Direction::kUp, 1, 6, 0)),
            "control frame from rank 1 refused: it belongs to epoch 6, this rank is in epoch 7");
  EXPECT_EQ(text(1, frame(Direction::kUp, 2, 7, 0)),
            "control frame from rank 1 refused: it says that it comes from rank 2");
  EXPECT_EQ(text(1, frame(Direction::kDown, 1, 7, 0)),
            "control frame from rank 1 refused: it goes the wrong way in the tree");
  EXPECT_EQ(text(5, frame(Direction::kUp, 5, 7, 0)),
            "control frame from rank 5 refused: it is not a neighbour of rank 0 in the tree");
  EXPECT_EQ(text(1, Bytes(4)), "control frame from rank 1 refused: it has only 4 bytes");
  EXPECT_EQ(text(1, frame(Direction::kUp, 1, 7, 0)), "");
  EXPECT_EQ(text(1, frame(Direction::kUp, 1, 7, 0)),
            "control frame from rank 1 refused: it has number 0, expected 1");  // replay
}

// Every field counts, the narrow ones too, which share a word.
TEST(negotiation_fingerprint_sees_every_field) {
  Request plain;
  plain.shape = {4, 2};
  std::vector<Request> others(13, plain);
  others[0].type = OpType::kReducescatter;
  others[1].dtype = DType::kInt64;
  others[2].op = ReduceOp::kMax;
  others[3].root = 1;
  others[4].root = -1;
  others[5].prescale = 2;
  others[6].postscale = 2;
  others[7].group_hash = 1;
  others[8].group_size = 1;
  others[9].group_index = 1;
  others[10].shape = {4, 2, 1};
  others[11].shape = {2, 4};
  others[12].on_device = true;
  std::set<uint64_t> seen = {Signature(plain).Fingerprint("a"), Signature(plain).Fingerprint("b"),
                             Signature(plain).Fingerprint("")};
  for (const Request& r : others) seen.insert(Signature(r).Fingerprint("a"));
  EXPECT(seen.size() == 3 + others.size());
  EXPECT(Signature(Request(plain)).Fingerprint("a") == Signature(plain).Fingerprint("a"));
}

// ---- validation

std::string Verdict(const std::vector<std::pair<Request, RankSet>>& sent, RankSet absent = {}) {
  std::vector<Variant> variants;
  for (const auto& [q, ranks] : sent) variants.push_back({std::make_shared<Request>(q), "", ranks});
  const std::string name = sent[0].first.name;
  return Validate({sent[0].first.type, name, sent[0].first.process_set, variants, std::move(absent)}).message();
}

TEST(negotiation_validate_in_order) {
  const Request good = Tensor("t", {2, 3});
  const RankSet many = RankSet::Range(0, 2), one = RankSet::Of(3);
  Request q = good;
  EXPECT_EQ(Verdict({{good, many}, {q, one}}), "");
  q.postscale = 0.25;
  EXPECT_EQ(
      Verdict({{good, many}, {q, one}}),
      "allreduce 't': rank 3 sent prescale_factor 1 and postscale_factor 0.25, ranks 0-2 sent prescale_factor 1 and "
      "postscale_factor 1; all ranks must pass the same factors.");
  q.shape = {6};
  EXPECT_EQ(Verdict({{good, many}, {q, one}}),
            "allreduce 't': rank 3 sent float32 [6], ranks 0-2 sent float32 [2, 3]; all ranks must pass the same dtype "
            "and shape.");
  q.type = OpType::kBroadcast;
  EXPECT_EQ(Verdict({{good, many}, {q, one}}),
            "tensor 't': rank 3 sent broadcast, ranks 0-2 sent allreduce; all ranks must call the same operation under "
            "one name.");
  q.dtype = DType::kInt8;
  EXPECT_EQ(Verdict({{good, many}, {q, one}}),
            "allreduce 't': rank 3 sent int8 [6], ranks 0-2 sent float32 [2, 3]; all ranks must pass the same dtype "
            "and shape.");
}

TEST(negotiation_validate_op_root_group) {
  const RankSet many = RankSet::Range(1, 2), one = RankSet::Of(0);
  Request a = Tensor("t"), b = a;
  a.process_set = b.process_set = 2;
  b.op = ReduceOp::kMax;
  EXPECT_EQ(
      Verdict({{a, many}, {b, one}}),
      "allreduce 't' (process set 2): rank 0 sent op Max, ranks 1-2 sent op Sum; all ranks must pass the same op.");
  a = b = Tensor("t", {1}, OpType::kBroadcast);
  b.root = 4;
  EXPECT_EQ(
      Verdict({{a, many}, {b, one}}),
      "broadcast 't': rank 0 sent root rank 4, ranks 1-2 sent root rank 0; all ranks must pass the same root rank.");
  a = b = Tensor("t");
  b.group_hash = 5;
  b.group_size = 2;
  EXPECT(Verdict({{a, many}, {b, one}}).find("ranks 1-2 sent it alone; all ranks must put it into the same group") !=
         std::string::npos);
  a = b = Tensor("t");
  b.on_device = true;
  EXPECT_EQ(Verdict({{a, many}, {b, one}}),
            "allreduce 't': rank 0 sent a tensor on a GPU, ranks 1-2 sent a tensor in host memory; all ranks must keep "
            "it on the same kind of device.");
  a.on_device = true;
  EXPECT_EQ(Verdict({{a, many}, {b, one}}), "");
}

TEST(negotiation_validate_rows) {
  const RankSet many = RankSet::Range(1, 2), one = RankSet::Of(0);
  for (OpType type : {OpType::kAllgather, OpType::kAlltoall}) {
    EXPECT_EQ(Verdict({{Tensor("t", {4, 2}, type), many}, {Tensor("t", {0, 2}, type), one}}), "");
    EXPECT(Verdict({{Tensor("t", {4, 2}, type), many}, {Tensor("t", {4, 3}, type), one}})
               .find(": rank 0 sent float32 [*, 3], ranks 1-2 sent float32 [*, 2]; all ranks must pass the same dtype "
                     "and the same "
                     "shape but for the first dimension.") != std::string::npos);
    EXPECT(Verdict({{Tensor("t", {4, 2}, type), many}, {Tensor("t", {4}, type), one}}) != "");
  }
  for (OpType type : {OpType::kAllgather, OpType::kAlltoall, OpType::kReducescatter}) {
    EXPECT(Verdict({{Tensor("t", {}, type), many}}).find("all ranks sent a scalar") != std::string::npos);
  }
  EXPECT_EQ(Verdict({{Tensor("t", {}), many}}), "");
  EXPECT_EQ(Verdict({{Tensor("t", {}, OpType::kBroadcast), many}}), "");
}

TEST(negotiation_validate_joined) {
  const RankSet many = RankSet::Range(1, 2), away = RankSet::FromUnsorted({0, 3});
  for (int type = 0; type <= static_cast<int>(OpType::kBarrier); ++type) {
    const auto t = static_cast<OpType>(type);
    const std::string text = Verdict({{Tensor("t", {4}, t), many}}, away);
    EXPECT_EQ(text, t == OpType::kAllreduce
                        ? ""
                        : std::string(OpText(t)) +
                              " 't': ranks 0, 3 have joined; only allreduce can run while a rank has joined.");
  }
}

// ---- fusion

constexpr FusionRules kPlenty{.threshold_bytes = 1 << 20};

std::string Packed(const std::vector<Request>& requests, const FusionRules& rules,
                   const std::vector<uint64_t>& groups = {}) {
  std::vector<Fusible> ready;
  for (size_t i = 0; i < requests.size(); ++i) ready.push_back({&requests[i], i < groups.size() ? groups[i] : 0});
  std::string out;
  for (const auto& batch : PackBatches(ready, rules)) {
    if (!out.empty()) out += " ";
    for (uint32_t i : batch) out += requests[i].name;
  }
  return out;
}

TEST(negotiation_fusion_looks_ahead) {
  std::vector<Request> q = {Tensor("a"), Tensor("b"), Tensor("c"), Tensor("d", {8}), Tensor("e")};
  q[1].dtype = DType::kFloat64;  // a stranger
  EXPECT_EQ(Packed(q, {48, false, false}), "ace b d");
  EXPECT_EQ(Packed(q, {64, false, false}), "acd b e");
  EXPECT_EQ(Packed(q, {1 << 20, false, false}), "acde b");
  EXPECT_EQ(Packed(q, {0, false, false}), "a b c d e");
  EXPECT_EQ(Packed(q, {1 << 20, false, true}), "a b c d e");
}

TEST(negotiation_fusion_keeps_kinds_apart) {
  std::vector<Request> q = {Tensor("a"), Tensor("b"), Tensor("c"), Tensor("d"), Tensor("e")};
  q[1].prescale = 2;
  q[2].op = ReduceOp::kMax;
  q[3].process_set = 1;
  q[4].type = OpType::kReducescatter;
  EXPECT_EQ(Packed(q, kPlenty), "a b c d e");
  q.assign({Tensor("a"), Tensor("b"), Tensor("c"), Tensor("d")});
  q[1].on_device = q[3].on_device = true;
  EXPECT_EQ(Packed(q, kPlenty), "ac bd");
  for (OpType type : {OpType::kBroadcast, OpType::kAlltoall, OpType::kBarrier}) {
    EXPECT_EQ(Packed({Tensor("a", {1}, type), Tensor("b", {1}, type)}, kPlenty), "a b");
  }
  for (OpType type : {OpType::kAllgather, OpType::kReducescatter}) {
    EXPECT_EQ(Packed({Tensor("a", {1}, type), Tensor("b", {1}, type)}, kPlenty), "ab");
    EXPECT_EQ(Packed({Tensor("a", {1}, type), Tensor("b", {1}, type)}, {1 << 20, false, true}), "ab");
  }
}

TEST(negotiation_fusion_groups_alone) {
  const std::vector<Request> q = {Tensor("a"), Tensor("b"), Tensor("c"), Tensor("d")};
  EXPECT_EQ(Packed(q, kPlenty, {0, 1, 1, 0}), "abcd");
  EXPECT_EQ(Packed(q, {1 << 20, true, false}, {0, 1, 1, 0}), "ad bc");
  EXPECT_EQ(Packed(q, {4, true, false}, {0, 1, 1, 0}), "a bc d");  // whole, whatever its size
}

TEST(negotiation_fusion_never_loses_or_overfills) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<Request> q;
    std::vector<Fusible> ready;
    for (int i = 0; i < 60; ++i) {
      q.push_back(Tensor("t", {static_cast<int64_t>(rng() % 40)}));
      q.back().dtype = static_cast<DType>(rng() % 4);
    }
    for (const Request& r : q) ready.push_back({&r, 0});
    std::set<uint32_t> seen;
    uint32_t last_first = 0;
    for (const auto& batch : PackBatches(ready, {100, false, false})) {
      int64_t bytes = 0;
      for (uint32_t i : batch) {
        EXPECT(seen.insert(i).second);
        EXPECT(q[i].dtype == q[batch[0]].dtype);
        bytes += q[i].bytes();
      }
      EXPECT(bytes <= 100 || batch.size() == 1);
      EXPECT(batch[0] >= last_first);
      last_first = batch[0];
    }
    EXPECT_EQ(seen.size(), q.size());
  }
}

TEST(negotiation_bytes_of_absurd_shapes) {
  EXPECT_EQ(Tensor("t", {INT64_MAX, 9}).bytes(), INT64_MAX);
  EXPECT_EQ(Tensor("t", {INT64_MAX, 0}).bytes(), 0);
  EXPECT_EQ(Tensor("t", {3, 5}).bytes(), 60);
}

}  // namespace
}  // namespace hvd::test::negotiation_parts
