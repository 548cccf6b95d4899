// Ranks of one host for tests of the shared-memory collectives: n Neighbours over in-process or memfd arenas, groups
// over any of them, and a driver that runs one task to its end, sleeping on its doorbell as the engine does (so that
// lost wake-ups show up as time-outs).
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "collective/batch.h"
#include "collective/kernels/kernels.h"
#include "collective/stores/chooser.h"
#include "native/harness/harness.h"
#include "transport/local_view.h"

namespace hvd::test {

struct GroupSide {
  collective::Group group;
  std::unique_ptr<transport::LocalView> view;
};

// One group as seen from the rank of `neighbours`, which is a member.
inline std::unique_ptr<GroupSide> MakeGroup(
    transport::Neighbours& neighbours, const std::vector<int>& ranks,
    collective::StoreChooser::Setting stores = collective::StoreChooser::Setting::kMeasure) {
  auto side = std::make_unique<GroupSide>();
  collective::Group& g = side->group;
  g.ranks = ranks;
  for (int m = 0; m < g.size(); ++m) {
    if (ranks[m] == neighbours.self()) g.index = m;
    g.local_members.push_back(m);
  }
  g.host_of.assign(ranks.size(), 0);
  g.channels.assign(ranks.size(), nullptr);
  side->view = std::make_unique<transport::LocalView>(&neighbours, ranks, g.index);
  g.local = side->view.get();
  g.stores = std::make_shared<collective::StoreChooser>(stores);
  return side;
}

// Runs `task` to its end; kTimeout when nothing rang for a minute (a hang).
inline Status Drive(transport::Neighbours& n, Task task) {
  Runner runner(std::move(task));
  int idle = 0;
  while (!runner.done()) {
    if (runner.Advance()) {
      idle = 0;
    } else if (++idle < 20) {
      sched_yield();
    } else {
      n.FlushRings();
      n.SetBell(transport::BellState::kWaiting);
      if (!runner.Advance()) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        n.SleepOnBell(60);
        const uint32_t bell = n.own().words().bell.load();
        // Who rang for the sleep before may wake this one: that is no time-out.
        if (bell != static_cast<uint32_t>(transport::BellState::kAwake) && std::chrono::steady_clock::now() >= until) {
          return Status(Code::kTimeout, "nobody rang rank " + std::to_string(n.self()) + " for a minute");
        }
      }
      n.SetBell(transport::BellState::kAwake);
      idle = 0;
    }
  }
  return runner.result();
}

class ShmWorld {
 public:
  explicit ShmWorld(int n, size_t heap_bytes = 0) {
    std::vector<std::shared_ptr<transport::Region>> regions;
    std::vector<int> doorbells;
    for (int r = 0; r < n; ++r) {
      regions.push_back(transport::NewHeapRegion(transport::Arena::FixedBytes(n) + heap_bytes));
      doorbells.push_back(eventfd(0, EFD_NONBLOCK));
    }
    for (int r = 0; r < n; ++r) {
      std::vector<transport::Neighbours::Member> members;
      for (int m = 0; m < n; ++m) members.push_back({m, regions[m], Fd(dup(doorbells[m]))});
      auto created = transport::Neighbours::Create(std::move(members), r);
      EXPECT_OK(created.status());
      ranks_.push_back(std::move(*created));
    }
    for (const int fd : doorbells) close(fd);
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  transport::Neighbours& rank(int r) { return *ranks_[r]; }
  std::vector<int> all() const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) ranks.push_back(r);
    return ranks;
  }

 private:
  std::vector<std::unique_ptr<transport::Neighbours>> ranks_;
};

using Bytes = std::vector<std::byte>;

// Random elements without NaN and infinity, whose sums over a few ranks stay finite.
inline Bytes RandomElements(DType dtype, size_t elems, uint64_t seed) {
  Bytes data(elems * SizeOf(dtype));
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (size_t i = 0; i < data.size(); i += 8) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    std::memcpy(data.data() + i, &x, std::min<size_t>(8, data.size() - i));
  }
  // Clears the highest exponent bit: below 2 in magnitude.
  const size_t size = SizeOf(dtype);
  for (size_t i = 0; i < elems; ++i) {
    if (IsFloat(dtype)) data[i * size + size - 1] &= std::byte{0xBF};
    if (dtype == DType::kBool) data[i] &= std::byte{1};
  }
  return data;
}

// What one thread alone computes from all inputs in rank order.
inline Bytes Combine(DType dtype, ReduceOp op, collective::kernels::Factors factors, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  std::vector<const void*> srcs;
  for (const Bytes& b : inputs) srcs.push_back(b.data());
  void* dst = result.data();
  collective::kernels::Reduce(
      {dtype, op, factors, srcs.data(), static_cast<int>(srcs.size()), &dst, 1, result.size() / SizeOf(dtype)});
  return result;
}

inline collective::Tensor MakeTensor(const std::byte* input, std::byte* output, std::vector<int64_t> shape) {
  collective::Tensor t;
  t.input = input;
  t.output = output;
  t.elems = t.row_elems = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    t.elems *= static_cast<size_t>(shape[i]);
    if (i > 0) t.row_elems *= static_cast<size_t>(shape[i]);
  }
  t.shape = std::move(shape);
  return t;
}

inline bool Same(const std::byte* data, const Bytes& expected) {
  return expected.empty() || std::memcmp(data, expected.data(), expected.size()) == 0;
}
inline bool ResultIs(const collective::Tensor& t, const Bytes& expected) {
  return t.result ? t.result->bytes == expected.size() && Same(t.result->data, expected) : Same(t.output, expected);
}

}  // namespace hvd::test
