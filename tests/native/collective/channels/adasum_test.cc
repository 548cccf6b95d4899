// Adasum over channels, against the formula computed by one thread in double: numbers of ranks, types, fused tensors,
// factors; its two limits (parallel vectors are averaged, orthogonal ones added); equal bits; refusals.
#include "collective/channels/adasum.h"

#include <cmath>

#include "native/collective/channels/world.h"

namespace hvd::test::collective_channels_adasum {
namespace {

using namespace hvd::collective;
using namespace hvd::collective::channels;
using Doubles = std::vector<double>;

Doubles Formula(const Doubles& a, const Doubles& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  const double ca = aa > 0 ? 1 - ab / (2 * aa) : 1, cb = bb > 0 ? 1 - ab / (2 * bb) : 1;
  Doubles out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = ca * a[i] + cb * b[i];
  return out;
}
Doubles Reference(std::vector<Doubles> vectors) {
  while (vectors.size() > 1) {
    std::vector<Doubles> next;
    for (size_t i = 0; i < vectors.size(); i += 2) next.push_back(Formula(vectors[i], vectors[i + 1]));
    vectors = std::move(next);
  }
  return vectors[0];
}

// Random direction plus a common one, so that the products are not small.
Doubles Gradient(size_t elems, uint64_t seed) {
  Doubles v(elems);
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (size_t i = 0; i < elems; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    v[i] = static_cast<double>(x >> 40) / (1 << 24) - 0.25;
  }
  return v;
}

template <class T>
double RunAdasum(const std::vector<int>& hosts, bool share, const std::vector<size_t>& sizes,
                 kernels::Factors factors) {
  const int n = static_cast<int>(hosts.size());
  ChannelWorld world(hosts, Link::kMemory, share);
  std::vector<std::vector<std::vector<T>>> results(n);
  RanksAsThreads(n, [&](int rank) {
    const auto side = world.MakeGroup(rank);
    std::vector<std::vector<T>> in, &out = results[rank];
    Batch batch;
    batch.seq = 1;
    batch.op = ReduceOp::kAdasum;
    batch.dtype = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
    batch.prescale = factors.pre;
    batch.postscale = factors.post;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Doubles g = Gradient(sizes[i], 100 * i + rank);
      in.emplace_back(g.begin(), g.end());
      out.emplace_back(sizes[i]);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto* to = reinterpret_cast<std::byte*>(rank % 2 == 0 ? out[i].data() : in[i].data());
      batch.tensors.push_back(
          MakeTensor(reinterpret_cast<const std::byte*>(in[i].data()), to, {static_cast<int64_t>(sizes[i])}));
    }
    EXPECT_OK(world.Drive(rank, 1, AdasumAllreduce(side->group, batch)));
    if (rank % 2 == 1) out = in;
  });
  double worst = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<Doubles> vectors;
    for (int r = 0; r < n; ++r) {
      Doubles g = Gradient(sizes[i], 100 * i + r);
      for (double& v : g) v = static_cast<double>(static_cast<T>(v)) * factors.pre;
      vectors.push_back(std::move(g));
      EXPECT(results[r][i] == results[0][i]);
    }
    const Doubles want = Reference(std::move(vectors));
    for (size_t k = 0; k < sizes[i]; ++k) worst = std::max(worst, std::abs(results[0][i][k] - want[k] * factors.post));
  }
  return worst;
}

TEST(adasum_is_the_formula_per_tensor) {
  for (const int n : {1, 2, 4, 8}) {
    EXPECT(RunAdasum<float>(Apart(n), false, {1}, {}) < 1e-5);
    EXPECT(RunAdasum<float>(Apart(n), false, {1000, 0, 3, 1, 100003}, {}) < 1e-5);
    EXPECT(RunAdasum<double>(Apart(n), false, {17, 5000, 2}, {}) < 1e-12);
    EXPECT(RunAdasum<float>(Apart(n), false, {1000, 7}, {0.5, 4.0}) < 1e-5);
  }
  EXPECT(RunAdasum<float>({0, 0, 0, 0}, true, {70000, 11}, {}) < 1e-5);
  EXPECT(RunAdasum<float>({0, 1, 0, 1}, true, {70000, 11}, {}) < 1e-5);
}

// Runs float16 gradients given as floats with exact values; returns the bits.
std::vector<uint16_t> RunHalf(const std::vector<std::vector<uint16_t>>& vectors) {
  const int n = static_cast<int>(vectors.size());
  ChannelWorld world(Apart(n), Link::kSocket, false);
  std::vector<std::vector<uint16_t>> data = vectors;
  RanksAsThreads(n, [&](int rank) {
    const auto side = world.MakeGroup(rank);
    auto* bytes = reinterpret_cast<std::byte*>(data[rank].data());
    Batch batch;
    batch.seq = 1;
    batch.op = ReduceOp::kAdasum;
    batch.dtype = DType::kFloat16;
    batch.tensors.push_back(MakeTensor(bytes, bytes, {static_cast<int64_t>(data[rank].size())}));
    EXPECT_OK(world.Drive(rank, 1, AdasumAllreduce(side->group, batch)));
  });
  for (int r = 1; r < n; ++r) EXPECT(data[r] == data[0]);
  return data[0];
}

TEST(adasum_averages_parallel_and_adds_orthogonal_vectors) {
  const uint16_t one = 0x3c00, two = 0x4000, zero = 0;
  const std::vector<uint16_t> same(33, two);
  EXPECT(RunHalf({same, same, same, same}) == same);
  std::vector<std::vector<uint16_t>> axes(4, std::vector<uint16_t>(4, zero));
  for (int r = 0; r < 4; ++r) axes[r][r] = one;
  EXPECT(RunHalf(axes) == std::vector<uint16_t>(4, one));
  const std::vector<uint16_t> none(5, zero), some(5, two);
  EXPECT(RunHalf({none, some}) == some);  // a vector without a direction
}

TEST(adasum_refuses_what_it_cannot_do) {
  ChannelWorld world(Apart(3), Link::kMemory, false);
  const auto side = world.MakeGroup(0);
  float value = 1;
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  Batch batch;
  batch.tensors.push_back(MakeTensor(bytes, bytes, {1}));
  EXPECT(world.Drive(0, 1, AdasumAllreduce(side->group, batch)).code() == Code::kUnsupported);
  ChannelWorld two(Apart(2), Link::kMemory, false);
  const auto pair = two.MakeGroup(0);
  batch.dtype = DType::kInt32;
  EXPECT(two.Drive(0, 1, AdasumAllreduce(pair->group, batch)).code() == Code::kUnsupported);
}

TEST(adasum_names_the_dead) {
  ChannelWorld world(Apart(2), Link::kTcp, false);
  RanksAsThreads(2, [&](int rank) {
    if (rank == 1) return world.Kill(rank, 1);
    const auto side = world.MakeGroup(rank);
    std::vector<float> data(1000, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    Batch batch;
    batch.seq = 1;
    batch.tensors.push_back(MakeTensor(bytes, bytes, {1000}));
    const Status status = world.Drive(rank, 1, AdasumAllreduce(side->group, batch));
    EXPECT(status.code() == Code::kPeerLost);
    EXPECT(status.message().find("[tcp] rank 1 closed the connection") != std::string::npos);
  });
}

}  // namespace
}  // namespace hvd::test::collective_channels_adasum
